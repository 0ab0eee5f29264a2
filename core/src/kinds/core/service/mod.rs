//! The kind Service. Its addresses and ports are allocated from the cluster's ranges. When a service changes its type,
//! the fields of the old type are removed.

mod allocate;
mod proxied;
mod range;

pub use allocate::{ServiceClaim, held, port_claims};
pub use range::ServiceRanges;

use super::{PACKAGE, columns, measure, status, validate, warnings};
use crate::kinds::build::{drop_from_spec, keep_old};
use crate::kinds::{Gated, GatedRule, Judging, Kind};
use crate::object::meta::Document;
use crate::object::names::{self, NameRule};
use crate::refusal::{Cause, CauseReason, Causes};
use holdfast_value::{Map, Value};

pub fn kind() -> Kind {
    Kind::namespaced("Service", "services")
        .versions("", PACKAGE, ["v1"])
        .short(["svc"])
        .category("all")
        .storage("services/specs")
        .columns(columns::of("Service"))
        .measured(&measure::SERVICE)
        .return_deleted_object()
        .names(NameRule::Label1035)
        .gated_rules(RULES)
        .gated(const { &[Gated::fields("ServiceAppProtocol", &["spec.ports[].appProtocol"])] })
        .validate(validate::service)
        .warnings(warnings::service)
        .claims(allocate::claims)
        .allocate(allocate::allocate)
        .export(export)
        .leads(proxied::leads)
        .create_on_update()
        .proxy("ServiceProxyOptions")
        .status()
        .validate_part("status", validate::service_status)
        .prepare_create(status::service)
        .prepare_update(prepare_update)
        .select("spec.clusterIP")
        .select("spec.type")
}

const RULES: &[GatedRule] = &[
    GatedRule { gates: &["RelaxedServiceNameValidation"], judge: relax_name },
    GatedRule { gates: &["SCTPSupport"], judge: no_sctp },
];

/// With the gate `RelaxedServiceNameValidation`, a Service's name may begin with a digit.
fn relax_name(judging: &Judging<'_>, causes: &mut Causes) {
    if !judging.is_on("RelaxedServiceNameValidation") {
        return;
    }
    let metadata = &judging.new["metadata"];
    for (field, judge) in
        [("name", names::name as fn(NameRule, &str) -> Vec<String>), ("generateName", names::generate_name)]
    {
        let (path, text) = (format!("metadata.{field}"), metadata[field].as_str().unwrap_or_default());
        let before = causes.len();
        causes.retain(|cause| cause.field != path || cause.reason != CauseReason::Invalid);
        if causes.len() < before {
            let faults = judge(NameRule::Label, text);
            causes.extend(faults.iter().map(|why| Cause::invalid(path.clone(), &text.into(), why)));
        }
    }
}

/// Refuses SCTP while the gate `SCTPSupport` is off, as older clusters do.
fn no_sctp(judging: &Judging<'_>, causes: &mut Causes) {
    if judging.is_on("SCTPSupport") {
        return;
    }
    let had = |old: &Value| uses_sctp(&old["spec"]["ports"]);
    if judging.old.is_none_or(|old| !had(old)) {
        refuse_sctp(&judging.new["spec"]["ports"], "spec.ports", causes);
    }
}

/// Whether any of these ports uses SCTP.
pub fn uses_sctp(ports: &Value) -> bool {
    ports.as_array().into_iter().flatten().any(|port| port["protocol"] == "SCTP")
}

/// Reports the ports that use SCTP.
pub fn refuse_sctp(ports: &Value, path: &str, causes: &mut Causes) {
    for (index, port) in ports.as_array().into_iter().flatten().enumerate() {
        if port["protocol"] == "SCTP" {
            let path = format!("{path}[{index}].protocol");
            causes.push(Cause::not_supported(path, &port["protocol"], &["TCP", "UDP"]));
        }
    }
}

/// Removes the addresses and ports that the cluster allocated, because another cluster allocates other ones. The client
/// chose `None` as an address, so it stays.
fn export(service: &mut Document) {
    if service.get("spec").is_some_and(|spec| spec["clusterIP"] != "None") {
        drop_from_spec(service, &["clusterIP", "clusterIPs", "healthCheckNodePort"]);
    }
    let Some(Value::Object(spec)) = service.get_mut("spec") else { return };
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(port) = port {
            port.remove("nodePort");
        }
    }
}

/// If the type changes, removes unchanged fields that only the old type has, so that clients need not remove them.
pub fn prepare_update(new: &mut Value, old: &Value) {
    keep_old(new, old, "status");
    let old = &old["spec"];
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if has_node_ports(&old["type"]) && !has_node_ports(&spec_type(spec)) {
        drop_node_ports(spec, old);
    }
    for (field, belongs) in DEPENDENT {
        let now = Value::Object(spec.clone());
        if belongs(old) && !belongs(&now) && spec.get(*field).is_some_and(|value| *value == old[*field]) {
            spec.remove(*field);
        }
    }
}

type Belongs = fn(&Value) -> bool;

/// Fields that only some services may have. Each row has a field, and a function that says whether a service may have
/// it. A field that depends on another field comes before that field.
const DEPENDENT: &[(&str, Belongs)] = &[
    ("healthCheckNodePort", |spec| spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"),
    ("externalTrafficPolicy", |spec| {
        has_node_ports(&spec["type"])
            || (spec["type"] == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|list| !list.is_empty()))
    }),
    ("allocateLoadBalancerNodePorts", |spec| spec["type"] == "LoadBalancer"),
    ("loadBalancerClass", |spec| spec["type"] == "LoadBalancer"),
];

fn has_node_ports(ty: &Value) -> bool {
    *ty == "NodePort" || *ty == "LoadBalancer"
}

fn spec_type(spec: &Map) -> Value {
    spec.get("type").cloned().unwrap_or_default()
}

/// Removes node ports if no node port has changed. A changed node port was set on purpose, so it stays and validation
/// refuses it.
fn drop_node_ports(spec: &mut Map, old: &Value) {
    let numbers = |ports: Option<&Value>| -> Vec<i64> {
        ports
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|port| port["nodePort"].as_i64().unwrap_or(0))
            .collect()
    };
    if numbers(spec.get("ports")) != numbers(old.get("ports")) {
        return;
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn what_belongs_to_a_type_goes_with_it() {
        let balanced = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
            "allocateLoadBalancerNodePorts": true, "loadBalancerClass": "a/b", "ports": [{"port": 1, "nodePort": 30000}]});
        let node = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30000}]});
        let with = |base: &Value, change: Value| {
            let mut spec = base.clone();
            change.as_object().expect("fields").iter().for_each(|(key, value)| spec[key] = value.clone());
            spec
        };
        for (old, new, expected) in [
            (
                &balanced,
                with(&balanced, json!({"type": "ClusterIP"})),
                json!({"type": "ClusterIP", "ports": [{"port": 1}]}),
            ),
            (
                &balanced,
                with(&balanced, json!({"type": "NodePort"})),
                json!({"type": "NodePort", "externalTrafficPolicy": "Local",
                    "ports": [{"port": 1, "nodePort": 30000}]}),
            ),
            (
                &node,
                with(&node, json!({"type": "ClusterIP", "ports": [{"port": 1, "nodePort": 30002}]})),
                json!({"type": "ClusterIP", "ports": [{"port": 1, "nodePort": 30002}]}),
            ),
            (&node, node.clone(), node.clone()),
        ] {
            let mut service = json!({ "spec": new, "status": {"x": 1} });
            prepare_update(&mut service, &json!({ "spec": old }));
            assert_eq!(service, json!({ "spec": expected }), "{new}");
        }
    }
}

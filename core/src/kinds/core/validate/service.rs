//! Services.

use crate::kinds::rules::{At, PROTOCOLS, Seen, distinct, labels, need_name, one_of, port, port_number};
use crate::object::names;
use crate::refusal::Cause;
use serde_json::{Value, json};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const POLICIES: &[&str] = &["Cluster", "Local"];
const AFFINITY_SECONDS_MAX: i64 = 86400;

pub fn service(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    let ty = spec.get("type").text();
    let headless = spec.get("clusterIP").text() == "None";
    let list = spec.get("ports");
    if list.is_empty() && !headless && ty != "ExternalName" {
        causes.push(list.required(""));
    }
    if headless && matches!(ty, "LoadBalancer" | "NodePort") {
        let detail = format!("may not be set to 'None' for {ty} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &detail));
    }
    if ty == "ExternalName" {
        let name = spec.get("externalName");
        let bare = Value::from(name.text().trim_end_matches('.'));
        need_name(name.holding(&bare), names::subdomain, &mut causes);
    }
    ports(list, ty, &mut causes);
    labels(spec.get("selector"), &mut causes);
    one_of(spec.get("sessionAffinity"), &["ClientIP", "None"], &mut causes);
    one_of(spec.get("type"), TYPES, &mut causes);
    one_of(spec.get("externalTrafficPolicy"), POLICIES, &mut causes);
    one_of(spec.get("internalTrafficPolicy"), POLICIES, &mut causes);
    let config = spec.get("sessionAffinityConfig");
    let client = config.get("clientIP");
    let timeout = client.get("timeoutSeconds");
    if timeout.number().is_some_and(|seconds| seconds <= 0 || seconds > AFFINITY_SECONDS_MAX) {
        causes.push(timeout.invalid(&format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}")));
    }
    causes
}

fn ports(list: At, ty: &str, causes: &mut Vec<Cause>) {
    let several = list.value.as_array().is_some_and(|ports| ports.len() > 1);
    let mut seen = Seen::default();
    distinct(list, "name", causes);
    for entry in list.items() {
        let name = entry.get("name");
        if several || !name.is_empty() {
            need_name(name, names::label, causes);
        }
        let number = entry.get("port");
        if number.number().is_none() {
            causes.push(Cause::invalid(number.path(), &json!(0), "must be between 1 and 65535, inclusive"));
        }
        port_number(number, causes);
        one_of(entry.get("protocol"), PROTOCOLS, causes);
        let target = entry.get("targetPort");
        if target.value != &json!(0) && target.value != &json!("") {
            port(target, causes);
        }
        let node_port = entry.get("nodePort");
        if ty == "ClusterIP" && node_port.number().is_some_and(|number| number != 0) {
            causes.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        let identity = json!({ "port": number.value, "protocol": entry.get("protocol").value });
        if seen.again(&identity) {
            causes.push(Cause::duplicate(entry.path(), &identity));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::{Value, json};

    #[test]
    fn each_rule_of_a_service() {
        let good = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "web"}},
        });
        check_rows(
            &good,
            &[
                ("/spec/ports", json!([]), "spec.ports: Required value"),
                ("/spec/ports/0/port", json!(70000), "spec.ports[0].port: Invalid value: 70000: must be between 1 and"),
                ("/spec/ports/1", json!({"port": 81}), "spec.ports[0].name: Required value"),
                ("/spec/ports/0/protocol", json!("ICMP"), "spec.ports[0].protocol: Unsupported value: \"ICMP\""),
                ("/spec/ports/0/targetPort", json!("a_b"), "spec.ports[0].targetPort: Invalid value: \"a_b\""),
                ("/spec/ports/0/nodePort", json!(30000), "spec.ports[0].nodePort: Forbidden: may not be used when"),
                ("/spec/type", json!("Tunnel"), "spec.type: Unsupported value: \"Tunnel\": supported values: \"Clus"),
                ("/spec/type", json!("ExternalName"), "spec.externalName: Required value"),
                ("/spec/sessionAffinity", json!("Cookie"), "spec.sessionAffinity: Unsupported value: \"Cookie\""),
                ("/spec/selector", Value::Null, ""),
                (
                    "/spec/ports",
                    json!([{"name": "a", "port": 1}, {"name": "a", "port": 1}]),
                    "spec.ports[1].name: Duplicate value: \"a\"",
                ),
            ],
        );
    }
}

//! Validation of services: the fields of each type.

use super::service_update::{is_headless, needs_health_check, update};
use crate::kinds::rules::{
    At, PROTOCOLS, Seen, cidr, ip, is_dual_stack, labels, named, named_if_any, need, need_name, need_one_of, one_of,
    ordinary_ip, port, port_number,
};
use crate::object::address::address;
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const POLICIES: &[&str] = &["Cluster", "Local"];
const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const FAMILY_POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
const AFFINITY_SECONDS_MAX: i64 = 86400;
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

pub fn service(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let metadata = root.get("metadata");
    let annotations = metadata.get("annotations");
    let spec = root.get("spec");
    if let Some(old) = old {
        update(spec, &old["spec"], &mut causes);
    }
    let (mode, hints) = (annotations.key(TOPOLOGY_MODE), &annotations.value[TOPOLOGY_HINTS]);
    if mode.is_set() && !hints.is_null() && mode.value != hints {
        causes.push(mode.invalid(&format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified")));
    }
    of_type(spec, &mut causes);
    let list = spec.get("ports");
    ports(list, &mut causes);
    labels(spec.get("selector"), &mut causes);
    affinity(spec, &mut causes);
    if spec.get("type").text() != "ExternalName" {
        addresses(spec, &mut causes);
    }
    for external in spec.get("externalIPs").items() {
        if ip(external, &mut causes) {
            ordinary_ip(external, &mut causes);
        }
    }
    need_one_of(spec.get("type"), TYPES, &mut causes);
    node_ports(list, spec.get("type").text(), &mut causes);
    balancer(spec, annotations, &mut causes);
    traffic(spec, &mut causes);
    causes
}

/// Whether clients outside the cluster can reach the service.
fn is_outward(spec: &Value) -> bool {
    match spec["type"].as_str() {
        Some("LoadBalancer" | "NodePort") => true,
        Some("ClusterIP") => spec["externalIPs"].as_array().is_some_and(|list| !list.is_empty()),
        _ => false,
    }
}

fn of_type(spec: At, causes: &mut Causes) {
    let ty = spec.get("type").text();
    let headless = is_headless(spec.value);
    let ports = spec.get("ports");
    if ports.is_empty() && !headless && ty != "ExternalName" {
        causes.push(ports.required(""));
    }
    if headless && matches!(ty, "LoadBalancer" | "NodePort") {
        let detail = format!("may not be set to 'None' for {ty} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &detail));
    }
    if ty != "ExternalName" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let at = spec.get(field);
        if !at.is_empty() {
            causes.push(at.forbidden("may not be set for ExternalName services"));
        }
    }
    let name = spec.get("externalName");
    let bare = Value::from(name.text().strip_suffix('.').unwrap_or(name.text()));
    need_name(name.holding(&bare), names::subdomain, causes);
}

fn ports(list: At, causes: &mut Causes) {
    let several = list.len() > 1;
    let (mut names_seen, unset) = (Seen::default(), json!(0));
    for entry in list.items() {
        let (name, number) = (entry.get("name"), entry.get("port"));
        if several || !name.is_empty() {
            need_name(name, names::label, causes);
        }
        if !name.is_empty() && names_seen.again(name.value) {
            causes.push(name.duplicate());
        }
        port_number(if number.is_set() { number } else { number.holding(&unset) }, causes);
        need_one_of(entry.get("protocol"), PROTOCOLS, causes);
        let target = entry.get("targetPort");
        port(if target.is_set() { target } else { target.holding(&unset) }, causes);
        let application = entry.get("appProtocol");
        if application.is_set() {
            named(application, names::qualified_name, causes);
        }
    }
}

fn node_ports(list: At, ty: &str, causes: &mut Causes) {
    let (mut ports, mut node_ports) = (Seen::default(), Seen::default());
    for entry in list.items() {
        let node_port = entry.get("nodePort");
        if node_port.number_or_zero() == 0 {
            continue;
        }
        if ty == "ClusterIP" {
            causes.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        let protocol = entry.get("protocol");
        if node_ports.again(&json!({ "port": node_port.value, "protocol": protocol.value })) {
            causes.push(node_port.duplicate());
        }
    }
    for entry in list.items() {
        let identity = json!({ "port": entry.value["port"], "protocol": entry.value["protocol"] });
        if ports.again(&identity) {
            causes.push(Cause::duplicate(entry.path(), &identity));
        }
    }
}

/// Validates `sessionAffinity` and its timeout.
fn affinity(spec: At, causes: &mut Causes) {
    let (at, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    need_one_of(at, &["ClientIP", "None"], causes);
    match at.text() {
        "ClientIP" => {
            let client = config.get("clientIP");
            let timeout = client.get("timeoutSeconds");
            if let Some(missing) = [config, client, timeout].into_iter().find(|at| !at.is_set()) {
                causes.push(missing.required("when session affinity type is ClientIP"));
            } else if !(1..=AFFINITY_SECONDS_MAX).contains(&timeout.number_or_zero()) {
                causes.push(timeout.invalid(&format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}")));
            }
        }
        "None" if config.is_set() => {
            causes.push(config.forbidden("must not be set when session affinity is None"));
        }
        _ => {}
    }
}

/// Validates `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, which must not contradict each other.
fn addresses(spec: At, causes: &mut Causes) {
    let (single, list, families) = (spec.get("clusterIP"), spec.get("clusterIPs"), spec.get("ipFamilies"));
    let first = list.value[0].as_str().unwrap_or_default();
    match (single.is_empty(), list.is_empty()) {
        (false, false) if first != single.text() => causes.push(list.invalid("first value must match `clusterIP`")),
        (true, false) => causes.push(list.invalid("must be empty when `clusterIP` is not specified")),
        _ => {}
    }
    let mut seen = Seen::default();
    for family in families.items() {
        if !FAMILIES.contains(&family.text()) {
            causes.push(family.not_supported(FAMILIES));
        }
        if seen.again(family.value) {
            causes.push(family.duplicate());
        }
    }
    let policy = spec.get("ipFamilyPolicy");
    if policy.is_set() && !FAMILY_POLICIES.contains(&policy.text()) {
        causes.push(policy.not_supported(FAMILY_POLICIES));
    }
    let mut good = true;
    for (index, entry) in list.items().enumerate() {
        if index == 0 && entry.text() == "None" {
            if list.len() > 1 {
                good = false;
                causes.push(list.invalid("'None' must be the first and only value"));
            }
            continue;
        }
        good &= ip(entry, causes);
    }
    if list.len() > 2 {
        causes.push(list.invalid("may only hold up to 2 values"));
    }
    if !good {
        return;
    }
    if list.len() > 1 && !is_dual_stack(list.items().map(|entry| entry.text())) {
        causes.push(list.invalid("may specify no more than one IP for each IP family"));
    }
    if is_headless(spec.value) {
        return;
    }
    for (index, (entry, family)) in list.items().zip(families.items()).enumerate() {
        let found = if address(entry.text()).is_some_and(|address| address.is_ipv6()) { "IPv6" } else { "IPv4" };
        if FAMILIES.contains(&family.text()) && family.text() != found {
            let detail = format!("expected an {} value as indicated by `ipFamilies[{index}]`", family.text());
            causes.push(entry.invalid(&detail));
        }
    }
}

/// Validates the fields that only load balancers have.
fn balancer(spec: At, annotations: At, causes: &mut Causes) {
    let is_balanced = spec.get("type").text() == "LoadBalancer";
    // In Kubernetes' message, the name of this field begins with an upper-case letter.
    let ranges = spec.get("LoadBalancerSourceRanges").holding(&spec.value["loadBalancerSourceRanges"]);
    let noted = annotations.key(SOURCE_RANGES);
    if !ranges.is_empty() {
        if !is_balanced {
            causes.push(ranges.forbidden(ONLY_BALANCED));
        }
        for range in ranges.items() {
            let bare = Value::from(range.text().trim());
            cidr(range.holding(&bare), causes);
        }
    } else if noted.is_set() {
        if !is_balanced {
            causes.push(noted.forbidden(ONLY_BALANCED));
        }
        let text = noted.text().trim();
        for range in text.split(',').filter(|_| !text.is_empty()) {
            let bare = Value::from(range.trim());
            cidr(noted.holding(&bare), causes);
        }
    }
    let allocates = spec.get("allocateLoadBalancerNodePorts");
    if allocates.is_set() && !is_balanced {
        causes.push(allocates.forbidden(ONLY_BALANCED));
    }
    if !allocates.is_set() && is_balanced {
        causes.push(Cause::required("allocateLoadBalancerNodePorts", ""));
    }
    let class = spec.get("loadBalancerClass");
    match (class.is_set(), is_balanced) {
        (true, true) => named(class, names::qualified_name, causes),
        (true, false) => causes.push(class.forbidden(ONLY_BALANCED)),
        _ => {}
    }
}

/// Validates the traffic policies.
fn traffic(spec: At, causes: &mut Causes) {
    let (outer, inner) = (spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy"));
    if is_outward(spec.value) {
        need_one_of(outer, POLICIES, causes);
    } else if !outer.is_empty() {
        causes.push(outer.invalid("may only be set for externally-accessible services"));
    }
    let check = spec.get("healthCheckNodePort");
    match (needs_health_check(spec.value), check.number_or_zero()) {
        (true, 0) => causes.push(check.required("")),
        (true, _) => port_number(check, causes),
        (false, 0) => {}
        (false, _) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            causes.push(check.invalid(detail));
        }
    }
    if !inner.is_set() {
        if matches!(spec.get("type").text(), "ClusterIP" | "LoadBalancer" | "NodePort") {
            causes.push(inner.required(""));
        }
    } else if !POLICIES.contains(&inner.text()) {
        causes.push(inner.not_supported(POLICIES));
    }
    let distribution = spec.get("trafficDistribution");
    if distribution.is_set() && !DISTRIBUTIONS.contains(&distribution.text()) {
        causes.push(distribution.not_supported(DISTRIBUTIONS));
    }
}

/// Validates the addresses of the load balancer.
pub fn service_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let balancer = status.get("loadBalancer");
    let list = balancer.get("ingress");
    if !list.is_empty() && new["spec"]["type"] != "LoadBalancer" {
        return list.forbidden("may only be used when `spec.type` is 'LoadBalancer'").into();
    }
    for entry in list.items() {
        let (at, mode, host) = (entry.get("ip"), entry.get("ipMode"), entry.get("hostname"));
        if !at.is_empty() {
            ip(at, &mut causes);
        }
        match (at.is_empty(), mode.is_set()) {
            (false, false) => need(mode, &mut causes),
            (true, true) => causes.push(mode.forbidden("may not be specified when `ip` is not set")),
            _ => one_of(mode, &["Proxy", "VIP"], &mut causes),
        }
        named_if_any(host, names::subdomain, &mut causes);
        if address(host.text()).is_some() {
            causes.push(host.invalid("must be a DNS name, not an IP address"));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows};
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule_of_a_service() {
        let good = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "web"}},
        });
        let spec = |change: Value| {
            let mut spec = json!({"ports": [{"port": 80}]});
            change.as_object().expect("fields").iter().for_each(|(key, value)| spec[key] = value.clone());
            spec
        };
        check_rows(
            &good,
            &[
                ("/spec/ports", json!([]), "spec.ports: Required value"),
                ("/spec/ports/0/port", json!(70000), "spec.ports[0].port: Invalid value: 70000: must be between 1 and"),
                ("/spec/ports/1", json!({"port": 81}), "spec.ports[0].name: Required value"),
                ("/spec/ports/0/protocol", json!("ICMP"), "spec.ports[0].protocol: Unsupported value: \"ICMP\""),
                ("/spec/ports/0/targetPort", json!("a_b"), "spec.ports[0].targetPort: Invalid value: \"a_b\""),
                ("/spec/ports/0/appProtocol", json!("a b"), "spec.ports[0].appProtocol: Invalid value: \"a b\""),
                ("/spec/ports/0/nodePort", json!(30000), "spec.ports[0].nodePort: Forbidden: may not be used when"),
                ("/spec/type", json!("Tunnel"), "spec.type: Unsupported value: \"Tunnel\": supported values: \"Clus"),
                ("/spec/type", json!("ExternalName"), "spec.externalName: Required value"),
                ("/spec", json!({"type": "ExternalName", "externalName": "a.example.com."}), ""),
                (
                    "/spec",
                    json!({"type": "ExternalName", "externalName": "a", "clusterIPs": ["10.0.0.1"]}),
                    "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                ),
                ("/spec/sessionAffinity", json!("Cookie"), "spec.sessionAffinity: Unsupported value: \"Cookie\""),
                (
                    "/spec",
                    spec(json!({"sessionAffinity": "ClientIP",
                        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}})),
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0",
                ),
                ("/spec/selector", Value::Null, ""),
                (
                    "/spec/ports",
                    json!([{"name": "a", "port": 1}, {"name": "a", "port": 1}]),
                    "spec.ports[1].name: Duplicate value: \"a\"",
                ),
                (
                    "/spec",
                    spec(json!({"type": "NodePort", "ports": [
                        {"name": "a", "port": 1, "nodePort": 30000}, {"name": "b", "port": 2, "nodePort": 30000}]})),
                    "spec.ports[1].nodePort: Duplicate value: 30000",
                ),
                (
                    "/spec",
                    spec(json!({"type": "NodePort", "clusterIP": "None", "clusterIPs": ["None"]})),
                    "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
                ),
                ("/spec/externalIPs", json!(["1.2.3.4"]), ""),
                ("/spec/externalIPs", json!(["x"]), "spec.externalIPs[0]: Invalid value: \"x\": must be a valid IP"),
                (
                    "/spec/externalIPs",
                    json!(["127.0.0.1"]),
                    "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not",
                ),
                (
                    "/spec",
                    spec(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]})),
                    "spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`",
                ),
                (
                    "/spec",
                    spec(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"]})),
                    "spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for",
                ),
                (
                    "/spec",
                    spec(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]})),
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamil",
                ),
                (
                    "/spec/ipFamilies",
                    json!(["IPv5"]),
                    "spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values",
                ),
                ("/spec/ipFamilies", json!(["IPv4", "IPv4"]), "spec.ipFamilies[1]: Duplicate value: \"IPv4\""),
                ("/spec/ipFamilyPolicy", json!("Two"), "spec.ipFamilyPolicy: Unsupported value: \"Two\": supported va"),
                (
                    "/spec/loadBalancerSourceRanges",
                    json!(["10.0.0.0/8"]),
                    "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ),
                (
                    "/spec",
                    spec(json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8 ", "x"]})),
                    "spec.LoadBalancerSourceRanges[1]: Invalid value: \"x\": must be a valid CIDR value",
                ),
                (
                    "/spec/allocateLoadBalancerNodePorts",
                    json!(false),
                    "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ),
                ("/spec/loadBalancerClass", json!("a"), "spec.loadBalancerClass: Forbidden: may only be used when"),
                (
                    "/spec/externalTrafficPolicy",
                    json!("Local"),
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible",
                ),
                (
                    "/spec",
                    spec(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})),
                    "spec.healthCheckNodePort: Required value",
                ),
                (
                    "/spec/healthCheckNodePort",
                    json!(30000),
                    "spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer'",
                ),
                (
                    "/spec/internalTrafficPolicy",
                    json!("X"),
                    "spec.internalTrafficPolicy: Unsupported value: \"X\": supp",
                ),
                ("/spec/trafficDistribution", json!("PreferSameNode"), ""),
                ("/spec/trafficDistribution", json!("Far"), "spec.trafficDistribution: Unsupported value: \"Far\""),
            ],
        );
    }

    #[test]
    fn each_rule_of_a_services_status() {
        let good = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
        });
        let ingress = |field: &str| format!("/status/loadBalancer/ingress/0/{field}");
        check_part(
            &good,
            "status",
            &[
                (
                    &ingress("ip"),
                    json!("x"),
                    "status.loadBalancer.ingress[0].ip: Invalid value: \"x\": must be a valid",
                ),
                (&ingress("ipMode"), json!("Odd"), "status.loadBalancer.ingress[0].ipMode: Unsupported value: \"Odd\""),
                (&ingress("hostname"), json!("lb.example.com"), ""),
                (
                    &ingress("hostname"),
                    json!("1.2.3.4"),
                    "status.loadBalancer.ingress[0].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP",
                ),
                (
                    "/spec/type",
                    json!("NodePort"),
                    "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
                ),
            ],
        );
    }
}

//! Validation of service updates: the first address and family, the balancer's class and the health check port stay.

use crate::kinds::rules::{At, same};
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};

const SET_ONCE: &str = "may not change once set";

/// Validates an update. Addresses change only from or to the type `ExternalName`, except that the second address may be
/// added or removed.
pub(super) fn update(spec: At, old: &Value, causes: &mut Causes) {
    let is_outside = |spec: &Value| spec["type"] == "ExternalName";
    if !is_outside(spec.value) && !is_outside(old) {
        let headless = (is_headless(old), is_headless(spec.value));
        if headless != (true, true) {
            kept_values(spec, "clusterIPs", "clusterIP", old, causes);
        }
        if headless == (false, false) {
            kept_values(spec, "ipFamilies", "ipFamily", old, causes);
        }
    }
    let class = spec.get("loadBalancerClass");
    let both_balanced = spec.value["type"] == "LoadBalancer" && old["type"] == "LoadBalancer";
    if both_balanced && *class.value != old["loadBalancerClass"] {
        causes.push(class.invalid(SET_ONCE));
    }
    let check = spec.get("healthCheckNodePort");
    let both_checked = needs_health_check(spec.value) && needs_health_check(old);
    if both_checked && !same(check.value, &old["healthCheckNodePort"]) {
        causes.push(check.forbidden("field is immutable"));
    }
}

/// Validates a list of one or two values, whose first value cannot change.
fn kept_values(spec: At, field: &str, what: &str, old: &Value, causes: &mut Causes) {
    let at = spec.get(field);
    let (new, old) = (at.value.as_array().map_or(&[][..], Vec::as_slice), old[field].as_array());
    let old = old.map_or(&[][..], Vec::as_slice);
    let first = || format!("{}[0]", at.path());
    if old.len() == new.len() {
        for (index, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new) {
            // Kubernetes reports each changed family with the path of the first family.
            let path = if field == "ipFamilies" { first() } else { format!("{}[{index}]", at.path()) };
            causes.push(Cause::invalid(path, at.value, SET_ONCE));
        }
        return;
    }
    if let (Some(before), Some(now)) = (old.first(), new.first())
        && before != now
    {
        causes.push(Cause::invalid(first(), at.value, SET_ONCE));
    }
    if old.len() < new.len() {
        return;
    }
    if new.is_empty() {
        causes.push(Cause::invalid(first(), at.value, &format!("primary {what} can not be unset")));
    }
    let policy = spec.get("ipFamilyPolicy");
    if new.len() == 1 && policy.text() != "SingleStack" {
        causes.push(policy.invalid(&format!("must be set to 'SingleStack' when releasing the secondary {what}")));
    }
}

/// Whether the service is headless. The server keeps `clusterIP` and `clusterIPs` equal, but one of them may be absent.
pub(super) fn is_headless(spec: &Value) -> bool {
    spec["clusterIPs"] == json!(["None"]) || (spec["clusterIPs"].is_null() && spec["clusterIP"] == "None")
}

/// Whether the service needs a health check port. At this port the load balancer checks which nodes have pods of the
/// service.
pub(super) fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_updates;
    use holdfast_value::{Value, json};

    #[test]
    fn a_service_keeps_its_first_address() {
        let good = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {
                "type": "LoadBalancer", "ports": [{"port": 80}], "clusterIP": "10.0.0.1",
                "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"],
                "ipFamilyPolicy": "PreferDualStack", "loadBalancerClass": "example.com/a",
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000,
            },
        });
        let addresses = |list: Value, families: Value, policy: &str| {
            let mut spec = good["spec"].clone();
            spec["clusterIP"] = list[0].clone();
            spec["clusterIPs"] = list;
            spec["ipFamilies"] = families;
            spec["ipFamilyPolicy"] = json!(policy);
            spec
        };
        check_updates(
            &good,
            &[
                ("/spec/ports/0/port", json!(81), ""),
                ("/spec", addresses(json!(["10.0.0.1"]), json!(["IPv4"]), "SingleStack"), ""),
                (
                    "/spec",
                    addresses(json!(["10.0.0.1"]), json!(["IPv4"]), "PreferDualStack"),
                    "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when rele",
                ),
                (
                    "/spec",
                    addresses(json!(["10.0.0.2", "fd00::1"]), json!(["IPv4", "IPv6"]), "PreferDualStack"),
                    "spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\",\"fd00::1\"]: may not change once set",
                ),
                (
                    "/spec",
                    addresses(json!(["fd00::1", "10.0.0.1"]), json!(["IPv6", "IPv4"]), "PreferDualStack"),
                    "spec.ipFamilies[0]: Invalid value: [\"IPv6\",\"IPv4\"]: may not change once set",
                ),
                (
                    "/spec/loadBalancerClass",
                    json!("example.com/b"),
                    "spec.loadBalancerClass: Invalid value: \"example.com/b\": may not change once set",
                ),
                ("/spec/healthCheckNodePort", json!(30001), "spec.healthCheckNodePort: Forbidden: field is immutable"),
                ("/spec", json!({"type": "ExternalName", "externalName": "a.b"}), ""),
            ],
        );
    }
}

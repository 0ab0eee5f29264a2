//! Nodes: what they offer, what keeps pods away, and what never changes.

use super::placement::taints;
use super::resources::amount;
use crate::kinds::rules::{At, Seen, cidr, is_dual_stack};
use crate::refusal::Cause;
use holdfast_value::Value;

const RANGES_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
const FEATURE_RULE: &str = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., \
                            MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
const PROVIDER_FIXED: &str = "node updates may not change providerID except from \"\" to valid";

/// Also the rules for a write to the status.
pub fn node(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let (metadata, spec, status) = (root.get("metadata"), root.get("spec"), root.get("status"));
    // Kubernetes tells of taints as if they were metadata, and of resources as if they were fields.
    taints(metadata.get("taints").holding(&spec.value["taints"]), &mut causes);
    for list in ["capacity", "allocatable"] {
        let list = status.get(list);
        list.entries().for_each(|(name, _)| amount(name, list.get(name), &mut causes));
    }
    let info = status.get("nodeInfo");
    let swap = info.get("swap");
    let size = metadata.get("nodeSwapStatus");
    let size = size.get("capacity");
    if swap.get("capacity").number().is_some_and(|number| number <= 0) {
        causes.push(size.holding(swap.get("capacity").value).invalid("must be greater than zero"));
    }
    for feature in status.get("declaredFeatures").items().filter(|feature| !is_feature(feature.text())) {
        let name = Value::from(feature.text());
        causes.push(feature.invalid(&format!("invalid feature name {name}: {FEATURE_RULE}")));
    }
    match old {
        None => ranges(spec.get("podCIDRs"), &mut causes),
        Some(old) => update(spec, status, &old["spec"], &mut causes),
    }
    causes
}

/// `Feature` or `Feature/part`.
fn is_feature(name: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(word)
}

/// Networks of the node's pods: one of each family.
fn ranges(list: At, causes: &mut Vec<Cause>) {
    list.items().for_each(|range| cidr(range, causes));
    if list.len() < 2 {
        return;
    }
    if list.len() > 2 || !is_dual_stack(list.items().map(|range| range.text())) {
        causes.push(list.invalid("may specify no more than one CIDR for each IP family"));
    }
    let mut seen = Seen::default();
    causes.extend(list.items().filter(|range| seen.again(range.value)).map(|range| range.duplicate()));
}

fn update(spec: At, status: At, old: &Value, causes: &mut Vec<Cause>) {
    let mut seen = Seen::default();
    for address in status.get("addresses").items() {
        if seen.again(address.value) {
            causes.push(address.duplicate());
        }
    }
    let (ranges, provider) = (spec.get("podCIDRs"), spec.get("providerID"));
    if old["podCIDRs"].as_array().is_some_and(|old| !old.is_empty()) && *ranges.value != old["podCIDRs"] {
        causes.push(ranges.forbidden(RANGES_FIXED));
    }
    if old["providerID"].as_str().is_some_and(|old| !old.is_empty() && old != provider.text()) {
        causes.push(provider.forbidden(PROVIDER_FIXED));
    }
    let external = spec.get("externalID");
    if external.text() != old["externalID"].as_str().unwrap_or_default() {
        causes.push(external.forbidden("may not be updated"));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::json;

    #[test]
    fn each_rule_of_a_node() {
        let good = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
            "spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"], "providerID": "cloud://a",
                "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "4"}},
        });
        check_rows(
            &good,
            &[
                ("/status/declaredFeatures", json!(["Feature/part"]), ""),
                ("/status/declaredFeatures", json!(["a"]), "status.declaredFeatures[0]: Invalid value: \"a\": invalid"),
                (
                    "/status/nodeInfo/swap/capacity",
                    json!(-1),
                    "metadata.nodeSwapStatus.capacity: Invalid value: -1: must be greater than zero",
                ),
                ("/spec/podCIDRs", json!(["x"]), "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value"),
                (
                    "/spec/podCIDRs",
                    json!(["10.0.0.0/24", "10.0.1.0/24"]),
                    "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one",
                ),
                (
                    "/spec/taints/0/effect",
                    json!("Never"),
                    "metadata.taints[0].effect: Unsupported value: \"Never\": sup",
                ),
                ("/spec/taints/0/effect", json!(""), "metadata.taints[0].effect: Required value"),
                (
                    "/spec/taints/0/value",
                    json!("a b"),
                    "metadata.taints[0].value: Invalid value: \"a b\": a valid label",
                ),
                (
                    "/spec/taints/1",
                    json!({"key": "a", "effect": "NoSchedule", "value": "b"}),
                    "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\",\"value\":\"b\"}: taints",
                ),
                ("/spec/taints/1", json!({"key": "a", "effect": "NoExecute"}), ""),
                ("/status/capacity/cpu", json!("-1"), "status.capacity.cpu: Invalid value: \"-1\": must be greater"),
                (
                    "/status/allocatable",
                    json!({"example.com/gpu": "500m"}),
                    "status.allocatable.example.com/gpu: Invalid value: \"500m\": must be an integer",
                ),
            ],
        );
        let changes = [
            ("/spec/unschedulable", json!(true), ""),
            ("/spec/podCIDRs", json!(["10.0.9.0/24"]), "spec.podCIDRs: Forbidden: node updates may not change podCIDR"),
            (
                "/spec/providerID",
                json!("cloud://b"),
                "spec.providerID: Forbidden: node updates may not change providerID",
            ),
        ];
        check_updates(&good, &changes);
        check_part(
            &good,
            "status",
            &[(
                "/status/addresses",
                json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.1"}]),
                "status.addresses[1]: Duplicate value: {\"address\":\"10.0.0.1\",\"type\":\"InternalIP\"}",
            )],
        );
    }
}

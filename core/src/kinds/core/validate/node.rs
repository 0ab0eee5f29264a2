//! Validation of nodes: resources, taints, and fields that never change.

use super::placement::taints;
use super::resources::amount;
use crate::kinds::rules::{At, Seen, cidr, is_dual_stack};
use crate::refusal::Causes;
use holdfast_value::Value;
use std::cmp::Ordering;

/// The maximum number of bytes of a feature's name, the same as for object names.
const FEATURE_BYTES_MAX: usize = 253;
const RANGES_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
const FEATURE_RULE: &str = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., \
                            MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
const PROVIDER_FIXED: &str = "node updates may not change providerID except from \"\" to valid";

/// Validates a node, and on update also its changes. As in Kubernetes, an update reports most faults twice.
pub fn node(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let (metadata, spec, status) = (root.get("metadata"), root.get("spec"), root.get("status"));
    taints(taints_of(&metadata.get("taints"), spec), &mut causes);
    amounts(status, &mut causes);
    let info = status.get("nodeInfo");
    let swap = info.get("swap");
    let size = metadata.get("nodeSwapStatus");
    let size = size.get("capacity");
    if swap.get("capacity").number().is_some_and(|number| number <= 0) {
        causes.push(size.holding(swap.get("capacity").value).invalid("must be greater than zero"));
    }
    features(status.get("declaredFeatures"), &mut causes);
    ranges(spec.get("podCIDRs"), &mut causes);
    causes.append(node_status(new, old));
    causes
}

/// Validates status writes. These rules also apply to updates of the node.
pub fn node_status(new: &Value, old: Option<&Value>) -> Causes {
    let Some(old) = old else { return Causes::default() };
    let mut causes = Causes::default();
    let root = At::root(new);
    let (metadata, spec, status) = (root.get("metadata"), root.get("spec"), root.get("status"));
    amounts(status, &mut causes);
    features(status.get("declaredFeatures"), &mut causes);
    let mut seen = Seen::default();
    causes.extend(
        status.get("addresses").items().filter(|address| seen.again(address.value)).map(|address| address.duplicate()),
    );
    fixed(spec, &old["spec"], &mut causes);
    taints(taints_of(&metadata.get("taints"), spec), &mut causes);
    causes
}

/// The taints of a spec at the path where Kubernetes reports them, below `metadata`.
fn taints_of<'a>(place: &At<'a>, spec: At<'a>) -> At<'a> {
    place.holding(&spec.value["taints"])
}

/// Validates the resources of a node. Kubernetes reports them as if their names were fields.
fn amounts(status: At, causes: &mut Causes) {
    for list in ["capacity", "allocatable"] {
        let list = status.get(list);
        list.entries().for_each(|(name, _)| amount(name, list.get(name), causes));
    }
}

fn features(list: At, causes: &mut Causes) {
    let mut last: Option<&str> = None;
    for feature in list.items() {
        let (text, name) = (feature.text(), Value::from(feature.text()));
        match last.map(|last| last.cmp(text)) {
            Some(Ordering::Equal) => causes.push(feature.duplicate()),
            Some(Ordering::Greater) => causes.push(feature.invalid("list must be sorted alphabetically")),
            _ => {}
        }
        last = Some(text);
        if text.len() > FEATURE_BYTES_MAX {
            let detail = format!("invalid feature name {name}: must be no more than {FEATURE_BYTES_MAX} characters");
            causes.push(feature.invalid(&detail));
        } else if !is_feature(text) {
            causes.push(feature.invalid(&format!("invalid feature name {name}: {FEATURE_RULE}")));
        }
    }
}

/// Whether the name has the form `Feature` or `Feature/part`.
fn is_feature(name: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(word)
}

/// Validates the networks of the node's pods: at most one for each family.
fn ranges(list: At, causes: &mut Causes) {
    list.items().for_each(|range| cidr(range, causes));
    if list.len() < 2 {
        return;
    }
    if list.len() > 2 || !is_dual_stack(list.items().map(|range| range.text())) {
        causes.push(list.invalid("may specify no more than one CIDR for each IP family"));
    }
}

/// Reports changes of fields that can be set only once.
fn fixed(spec: At, old: &Value, causes: &mut Causes) {
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
                ("/status/declaredFeatures", json!(["A", "A"]), "status.declaredFeatures[1]: Duplicate value: \"A\""),
                (
                    "/status/declaredFeatures",
                    json!(["B", "A"]),
                    "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically",
                ),
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
        let mut bare = good.clone();
        bare["spec"]["podCIDRs"] = json!([]);
        let unread = "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value";
        check_updates(&bare, &[("/spec/podCIDRs", json!(["x"]), unread)]);
        check_part(
            &good,
            "status",
            &[
                (
                    "/status/addresses",
                    json!([
                        {"type": "InternalIP", "address": "10.0.0.1"},
                        {"type": "InternalIP", "address": "10.0.0.1"},
                    ]),
                    "status.addresses[1]: Duplicate value: {\"address\":\"10.0.0.1\",\"type\":\"InternalIP\"}",
                ),
                // Status writes do not check the swap capacity.
                ("/status/nodeInfo/swap/capacity", json!(-1), ""),
            ],
        );
    }

    #[test]
    fn faults_of_an_update_are_told_twice() {
        let good = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        });
        let mut bad = good.clone();
        bad["spec"]["taints"][0]["effect"] = json!("Other");
        let fields =
            |causes: crate::refusal::Causes| causes.iter().map(|cause| cause.field.clone()).collect::<Vec<_>>();
        assert_eq!(fields(super::node(&bad, None)), ["metadata.taints[0].effect"]);
        assert_eq!(fields(super::node(&bad, Some(&good))), ["metadata.taints[0].effect"; 2]);
    }
}

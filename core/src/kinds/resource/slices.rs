//! Validation of slices: their devices, and the nodes that can use them.

use super::shapes::{attribute_name, device_name, taint};
use crate::kinds::core::validate::node_selector;
use crate::kinds::rules::{At, Seen, distinct, named, need_name, quantities};
use crate::kinds::shapes::{at_most, count, not_longer, qualified, semantic_version};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const DEVICES_MAX: usize = 128;
/// The maximum number of devices of a slice whose devices have taints or counters. It is lower than for other slices,
/// because such devices are larger.
const RICH_DEVICES_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 32;
const VALUE_BYTES_MAX: usize = 64;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMED_MAX: usize = 2;
const CONDITIONS_MAX: usize = 4;

/// Validates that exactly one field selects the nodes that can use the devices.
pub(super) fn nodes(spec: At, causes: &mut Causes) {
    let selector = spec.get("nodeSelector");
    let mut set = Vec::new();
    if !spec.get("nodeName").is_empty() {
        set.push("`nodeName`");
        named(spec.get("nodeName"), names::subdomain, causes);
    }
    if selector.is_set() {
        set.push("`nodeSelector`");
        one_term(selector, causes);
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        if spec.get(field).is_true() {
            set.push(shown);
        }
    }
    let which = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    exactly_one(spec, &set, which, causes);
}

fn exactly_one(at: At, set: &[&str], which: &str, causes: &mut Causes) {
    match set.len() {
        0 => causes.push(at.required(which)),
        1 => {}
        _ => {
            let shown = Value::from(format!("{{{}}}", set.join(", ")));
            causes.push(at.holding(&shown).invalid(&format!("{which}, but multiple fields are set")));
        }
    }
}

fn one_term(selector: At, causes: &mut Causes) {
    node_selector(selector, causes);
    if count(selector.get("nodeSelectorTerms")) != 1 {
        causes.push(selector.get("nodeSelectorTerms").invalid("must have exactly one node selector term"));
    }
}

pub(super) fn devices(spec: At, causes: &mut Causes) {
    let list = spec.get("devices");
    let rich = |device: At| !device.get("taints").is_empty() || !device.get("consumesCounters").is_empty();
    let most = if list.items().any(rich) { RICH_DEVICES_MAX } else { DEVICES_MAX };
    for device in list.items() {
        one(device, spec.get("perDeviceNodeSelection").is_true(), causes);
    }
    at_most(list, most, causes);
    let mut seen = Seen::default();
    for device in list.items().filter(|device| seen.again(device.get("name").value)) {
        causes.push(Cause::duplicate(device.path(), device.get("name").value));
    }
    let sets = spec.get("sharedCounters");
    for set in sets.items() {
        if set.get("name").is_empty() {
            causes.push(set.get("name").required(""));
        } else {
            named(set.get("name"), names::label, causes);
        }
        counters(set.get("counters"), causes);
    }
    at_most(sets, COUNTER_SETS_MAX, causes);
    distinct(sets, "name", causes);
}

fn one(device: At, placed: bool, causes: &mut Causes) {
    device_name(device.get("name"), causes);
    let (attributes, capacity) = (device.get("attributes"), device.get("capacity"));
    for (name, attribute) in attributes.entries() {
        attribute_name(attribute.holding(&name.into()), causes);
        attribute_value(attribute, causes);
    }
    for (name, amount) in capacity.entries() {
        attribute_name(amount.holding(&name.into()), causes);
    }
    let total = count(attributes) + count(capacity);
    if total > ATTRIBUTES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        causes.push(device.holding(&total.into()).invalid(&detail));
    }
    let taints = device.get("taints");
    at_most(taints, TAINTS_MAX, causes);
    for entry in taints.items() {
        taint(entry, causes);
    }
    let consumed = device.get("consumesCounters");
    at_most(consumed, CONSUMED_MAX, causes);
    distinct(consumed, "counterSet", causes);
    for set in consumed.items() {
        need_name(set.get("counterSet"), names::label, causes);
        counters(set.get("counters"), causes);
    }
    for field in ["bindingConditions", "bindingFailureConditions"] {
        at_most(device.get(field), CONDITIONS_MAX, causes);
        for condition in device.get(field).items() {
            qualified(condition, causes);
        }
    }
    if device.get("bindingConditions").is_empty() && !device.get("bindingFailureConditions").is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        causes.push(device.get("bindingConditions").invalid_null(detail));
    }
    place(device, placed, causes);
}

fn place(device: At, placed: bool, causes: &mut Causes) {
    let (name, selector, all) = (device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes"));
    if placed {
        let fields =
            [("`nodeName`", name.is_set()), ("`nodeSelector`", selector.is_set()), ("`allNodes`", all.is_set())];
        let set: Vec<&str> = fields.iter().filter(|(_, set)| *set).map(|(shown, _)| *shown).collect();
        let which = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                     `perDeviceNodeSelection` is set to true in the spec";
        exactly_one(device, &set, which, causes);
        if name.is_set() {
            named(name, names::subdomain, causes);
        }
        if selector.is_set() {
            one_term(selector, causes);
        }
    } else {
        if [name, selector, all].iter().any(At::is_set) {
            causes.push(device.invalid_null(
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in \
                 the ResourceSlice spec",
            ));
        }
    }
}

fn attribute_value(attribute: At, causes: &mut Causes) {
    let set = ["bool", "int", "string", "version"].iter().filter(|field| attribute.get(field).is_set()).count();
    for field in ["string", "version"] {
        not_longer(attribute.get(field), VALUE_BYTES_MAX, causes);
    }
    let version = attribute.get("version");
    if version.is_set() && semantic_version(version.text()).is_none() {
        causes.push(version.invalid("must be a string compatible with semver.org spec 2.0.0"));
    }
    match set {
        0 => causes.push(attribute.required("exactly one value must be specified")),
        1 => {}
        _ => causes.push(attribute.invalid("exactly one value must be specified")),
    }
}

fn counters(map: At, causes: &mut Causes) {
    if map.is_empty() {
        causes.push(map.required(""));
    }
    at_most(map, COUNTERS_MAX, causes);
    for (name, counter) in map.entries() {
        let messages = names::label(name);
        causes.extend(messages.iter().map(|message| Cause::invalid(counter.path(), &name.into(), message)));
        quantities(counter, causes);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn slices() {
        let device = json!({
            "name": "gpu-0", "attributes": {"model": {"string": "m"}, "example.com/v": {"version": "1.2.3"}},
            "capacity": {"memory": {"value": "1Gi"}},
        });
        let good = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"},
            "spec": {
                "driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1},
                "devices": [device],
            },
        });
        let of = |rest: &str| format!("spec.devices[0]{rest}");
        let many: holdfast_value::Map = (0..33).map(|n| (format!("a{n}"), json!({"int": n}))).collect();
        check_rows(
            &good,
            &[
                ("/spec/driver", json!(""), "spec.driver: Required value"),
                (
                    "/spec/pool/name",
                    json!("a/B"),
                    "spec.pool.name: Invalid value: \"B\": a lowercase RFC 1123 subdomain",
                ),
                (
                    "/spec/pool/resourceSliceCount",
                    json!(0),
                    "spec.pool.resourceSliceCount: Invalid value: 0: must be gr",
                ),
                (
                    "/spec/pool/generation",
                    json!(-1),
                    "spec.pool.generation: Invalid value: -1: must be greater than or e",
                ),
                ("/spec/nodeName", Value::Null, "spec: Required value: exactly one of `nodeName`, `nodeSelector`"),
                ("/spec/allNodes", json!(true), "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of"),
                ("/spec/devices/1", json!({"name": "gpu-0"}), "spec.devices[1]: Duplicate value: \"gpu-0\""),
                (
                    "/spec/devices/0/name",
                    json!("GPU"),
                    &of(".name: Invalid value: \"GPU\": a lowercase RFC 1123 label"),
                ),
                (
                    "/spec/devices/0/attributes",
                    json!(many),
                    &of(": Invalid value: 34: the total number of attributes an"),
                ),
                (
                    "/spec/devices/0/attributes/model",
                    json!({}),
                    &of(".attributes[model]: Required value: exactly one va"),
                ),
                ("/spec/devices/0/attributes/model/int", json!(1), &of(".attributes[model]: Invalid value: {")),
                (
                    "/spec/devices/0/attributes/a-b",
                    json!({"int": 1}),
                    &of(".attributes[a-b]: Invalid value: \"a-b\": a va"),
                ),
                (
                    "/spec/devices/0/attributes/example.com~1v/version",
                    json!("1.2"),
                    &of(".attributes[example.com/v].version: Invalid value: \"1.2\": must be a string compatible with"),
                ),
                ("/spec/devices/0/taints", json!([{"key": "k"}]), &of(".taints[0].effect: Required value")),
                (
                    "/spec/devices/0/allNodes",
                    json!(true),
                    &of(": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if"),
                ),
                (
                    "/spec/devices/0/consumesCounters",
                    json!([{"counterSet": "c"}]),
                    &of(".consumesCounters[0].counters: R"),
                ),
            ],
        );
        let mut spread = good.clone();
        spread["spec"]["nodeName"] = Value::Null;
        spread["spec"]["perDeviceNodeSelection"] = json!(true);
        spread["spec"]["devices"][0]["nodeName"] = json!("n");
        check_rows(
            &spread,
            &[("/spec/devices/0/nodeName", Value::Null, &of(": Required value: exactly one of `nodeName`, `nodeSel"))],
        );
        check_updates(
            &good,
            &[
                ("/spec/pool/generation", json!(2), ""),
                ("/spec/devices", json!([]), ""),
                ("/spec/driver", json!("e"), "spec.driver: Invalid value: \"e\": field is immutable"),
                ("/spec/pool/name", json!("q"), "spec.pool.name: Invalid value: \"q\": field is immutable"),
                ("/spec/nodeName", json!("m"), "spec.nodeName: Invalid value: \"m\": field is immutable"),
            ],
        );
    }
}

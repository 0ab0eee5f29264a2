//! Validation of priority classes and workloads.

use crate::kinds::rules::{At, distinct, immutable, need_name, same};
use crate::kinds::shapes::{at_least, at_most, local_reference, without_value};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const SYSTEM: &str = "system-";
const USER_PRIORITY_MAX: i64 = 1_000_000_000;
/// The system's own classes, each with its only valid value.
const SYSTEM_CLASSES: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const POD_GROUPS_MAX: usize = 8;

pub fn priority_class(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let (value, policy) = (root.get("value"), root.get("preemptionPolicy"));
    if let Some(old) = old {
        if !same(value.value, &old["value"]) {
            causes.push(value.forbidden("may not be changed in an update."));
        }
        immutable(policy, &old["preemptionPolicy"], &mut causes);
        return causes;
    }
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    if name.text().starts_with(SYSTEM) {
        if let Some(why) = not_of_the_system(root, name.text()) {
            let detail =
                format!("priority class names with '{SYSTEM}' prefix are reserved for system use only. error: ");
            causes.push(name.forbidden(&(detail + &why)));
        }
    } else if value.number().unwrap_or(0) > USER_PRIORITY_MAX {
        causes
            .push(value.forbidden(&format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}")));
    }
    match policy.text() {
        "PreemptLowerPriority" | "Never" => {}
        "" => causes.push(policy.required("")),
        _ => causes.push(policy.not_supported(&["PreemptLowerPriority", "Never"])),
    }
    causes
}

fn not_of_the_system(class: At, name: &str) -> Option<String> {
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class.get("value").number() != Some(*value) {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    class.get("globalDefault").is_true().then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

pub fn workload(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (controller, groups) = (spec.get("controllerRef"), spec.get("podGroups"));
    if controller.is_set() {
        local_reference(controller, &mut causes);
    }
    if groups.is_empty() {
        causes.push(groups.required(""));
    }
    at_most(groups, POD_GROUPS_MAX, &mut causes);
    distinct(groups, "name", &mut causes);
    for group in groups.items() {
        need_name(group.get("name"), names::label, &mut causes);
        let policy = group.get("policy");
        let (basic, gang) = (policy.get("basic"), policy.get("gang"));
        match (basic.is_set(), gang.is_set()) {
            (false, false) => {
                causes.push(without_value(policy, "must specify one of: `basic`, `gang`"));
            }
            (true, true) => {
                let detail = "must specify exactly one of: `basic`, `gang`";
                causes.push(Cause::invalid(policy.path(), &Value::from("{basic, gang}"), detail));
            }
            (true, false) => {}
            (false, true) => match gang.get("minCount").number() {
                None => causes.push(gang.get("minCount").required("")),
                Some(_) => at_least(gang.get("minCount"), 1, "must be greater than or equal to 1", &mut causes),
            },
        }
    }
    if let Some(old) = old {
        if old["spec"]["controllerRef"].is_object() {
            immutable(controller, &old["spec"]["controllerRef"], &mut causes);
        }
        immutable(groups, &old["spec"]["podGroups"], &mut causes);
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn priorities() {
        let class = |name: &str, value: i64| {
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value,
            })
        };
        check_rows(
            &class("high", 1000),
            &[
                ("/value", json!(-5), ""),
                ("/value", json!(1_000_000_000), ""),
                (
                    "/value",
                    json!(1_000_000_001),
                    "value: Forbidden: maximum allowed value of a user defined priority is",
                ),
                ("/preemptionPolicy", json!("Never"), ""),
                ("/preemptionPolicy", json!("All"), "preemptionPolicy: Unsupported value: \"All\": supported values:"),
                (
                    "/metadata/name",
                    json!("system-mine"),
                    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                     only. error: system-mine is not a known system priority class",
                ),
            ],
        );
        check_rows(
            &class("system-node-critical", 2_000_001_000),
            &[
                (
                    "/value",
                    json!(5),
                    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved",
                ),
                ("/globalDefault", json!(true), "metadata.name: Forbidden: priority class names with 'system-' prefix"),
            ],
        );
        check_updates(
            &class("high", 1000),
            &[
                ("/globalDefault", json!(true), ""),
                ("/description", json!("d"), ""),
                ("/value", json!(1001), "value: Forbidden: may not be changed in an update."),
                ("/preemptionPolicy", json!("Never"), "preemptionPolicy: Invalid value: \"Never\": field is immutable"),
            ],
        );
    }

    #[test]
    fn workloads() {
        let good = json!({
            "apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": {"name": "a"},
            "spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]},
        });
        let group = json!({"name": "g", "policy": {"basic": {}}});
        check_rows(
            &good,
            &[
                ("/spec/podGroups", json!([]), "spec.podGroups: Required value"),
                ("/spec/podGroups/1", group.clone(), "spec.podGroups[1].name: Duplicate value: \"g\""),
                ("/spec/podGroups", json!(vec![group; 9]), "spec.podGroups: Too many: 9: must have at most 8 items"),
                ("/spec/podGroups/0/name", json!("A"), "spec.podGroups[0].name: Invalid value: \"A\": a lowercase RFC"),
                (
                    "/spec/podGroups/0/policy",
                    json!({}),
                    "spec.podGroups[0].policy: Invalid value: must specify one of:",
                ),
                ("/spec/podGroups/0/policy/basic", json!({}), "spec.podGroups[0].policy: Invalid value: \"{basic, gan"),
                (
                    "/spec/podGroups/0/policy/gang/minCount",
                    json!(-1),
                    "spec.podGroups[0].policy.gang.minCount: Invalid",
                ),
                (
                    "/spec/controllerRef",
                    json!({"kind": "Job"}),
                    "spec.controllerRef.name: Required value: name is requ",
                ),
            ],
        );
        check_updates(
            &good,
            &[
                ("/spec/controllerRef", json!({"kind": "Job", "name": "j"}), ""),
                ("/spec/podGroups/0/name", json!("h"), "spec.podGroups: Invalid value: ["),
                ("/spec/podGroups", Value::Null, "spec.podGroups: Required value"),
            ],
        );
    }
}

//! DefaultTolerationSeconds and TaintNodesByCondition, and the merging of tolerations.

use super::pods::list;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{NODE, POD};
use crate::object::meta::object_mut;
use crate::pipeline::effect::Stop;
use holdfast_value::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// DefaultTolerationSeconds: a pod tolerates an unreachable or unready node for the configured number of seconds.
pub(super) fn default_seconds(attributes: &mut Attributes) -> Result<(), Stop> {
    if !(attributes.creates(POD) || attributes.updates(POD)) {
        return Ok(());
    }
    let seconds = &attributes.admission.configuration.toleration_seconds;
    let added: Vec<Value> = [(NOT_READY, seconds.not_ready), (UNREACHABLE, seconds.unreachable)]
        .into_iter()
        .filter(|(key, _)| !list(&attributes.object["spec"]["tolerations"]).any(|said| is_said(said, key)))
        .map(|(key, seconds)| {
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
        })
        .collect();
    add(&mut attributes.object, added);
    Ok(())
}

/// Whether a toleration matches this NoExecute taint, whatever its `tolerationSeconds` are.
fn is_said(toleration: &Value, key: &str) -> bool {
    let is = |field: &str, wanted: &str| {
        matches!(toleration[field].as_str(), None | Some("")) || toleration[field].as_str() == Some(wanted)
    };
    is("key", key) && is("effect", "NoExecute")
}

pub(super) fn add(pod: &mut Value, tolerations: Vec<Value>) {
    if tolerations.is_empty() {
        return;
    }
    let spec = object_mut(crate::object::meta::fields_mut(pod), "spec");
    if let Some(list) = spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut() {
        list.extend(tolerations);
    }
}

/// TaintNodesByCondition: a new node gets a taint until it is ready, so that no pods are placed on it.
pub(super) fn taint_node(attributes: &mut Attributes) -> Result<(), Stop> {
    if attributes.operation != Operation::Create || !attributes.is_of(NODE) {
        return Ok(());
    }
    let spec = object_mut(attributes.fields_mut(), "spec");
    let Some(taints) = spec.entry("taints").or_insert_with(|| json!([])).as_array_mut() else { return Ok(()) };
    if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
    Ok(())
}

/// The tolerations of both lists, without tolerations that other tolerations of the lists imply.
pub(super) fn merged(first: &Value, second: &Value) -> Vec<Value> {
    let all: Vec<&Value> = list(first).chain(list(second)).collect();
    let mut merged: Vec<&Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let is_implied = merged.iter().any(|other| is_superset(other, toleration))
            || all[at + 1..].iter().any(|other| other != toleration && is_superset(other, toleration));
        if !is_implied {
            merged.push(toleration);
        }
    }
    merged.into_iter().cloned().collect()
}

/// Whether `more` tolerates every taint that `less` tolerates.
pub(super) fn is_superset(more: &Value, less: &Value) -> bool {
    if more == less {
        return true;
    }
    let text = |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or("").to_owned();
    let exists = more["operator"] == "Exists";
    if text(more, "key") != text(less, "key") && !(text(more, "key").is_empty() && exists) {
        return false;
    }
    if text(more, "effect") != text(less, "effect") && !text(more, "effect").is_empty() {
        return false;
    }
    if more["effect"] == "NoExecute"
        && let Some(seconds) = more["tolerationSeconds"].as_i64()
        && less["tolerationSeconds"].as_i64().is_none_or(|less| less > seconds)
    {
        return false;
    }
    exists || (less["operator"] != "Exists" && text(more, "value") == text(less, "value"))
}

/// Whether an allowed toleration implies each of the tolerations.
pub(super) fn are_within(tolerations: &Value, allowed: &Value) -> bool {
    list(tolerations).all(|toleration| list(allowed).any(|more| is_superset(more, toleration)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_implied_is_left_out() {
        let rows = [
            (
                json!([{"key": "a", "operator": "Exists"}]),
                json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
                1,
            ),
            (json!([{"key": "a", "value": "b"}]), json!([{"key": "a", "value": "c"}]), 2),
            (json!([{"key": "a", "value": "b"}]), json!([{"operator": "Exists"}]), 1),
            (
                json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]),
                json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]),
                1,
            ),
            (json!([]), Value::Null, 0),
        ];
        for (first, second, count) in rows {
            assert_eq!(merged(&first, &second).len(), count, "{first} {second}");
        }
    }
}

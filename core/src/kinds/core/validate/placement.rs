//! Where pods may run: tolerations, affinity and spread.

use crate::kinds::rules::{At, named, need, one_of, selector};
use crate::object::names;
use crate::refusal::Cause;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(in crate::kinds) fn tolerations(list: At, causes: &mut Vec<Cause>) {
    for toleration in list.items() {
        let (key, operator) = (toleration.get("key"), toleration.get("operator"));
        if !key.is_empty() {
            named(key, names::qualified_name, causes);
        } else if operator.text() != "Exists" {
            causes.push(
                operator.invalid(
                    "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
                ),
            );
        }
        let effect = toleration.get("effect");
        if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            causes.push(effect.invalid("effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match operator.text() {
            "" | "Equal" => named(toleration.get("value"), names::label_value, causes),
            "Exists" if !toleration.get("value").is_empty() => {
                causes.push(operator.invalid("value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            _ => causes.push(operator.not_supported(&["Equal", "Exists"])),
        }
        one_of(effect, EFFECTS, causes);
    }
}

pub(super) fn affinity(affinity: At, causes: &mut Vec<Cause>) {
    let node = affinity.get("nodeAffinity");
    let required = node.get(REQUIRED);
    if required.is_set() {
        node_selector(required, causes);
    }
    for preferred in node.get(PREFERRED).items() {
        weight(preferred, causes);
        node_term(preferred.get("preference"), causes);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(field);
        for term in pods.get(REQUIRED).items() {
            pod_term(term, causes);
        }
        for preferred in pods.get(PREFERRED).items() {
            weight(preferred, causes);
            pod_term(preferred.get("podAffinityTerm"), causes);
        }
    }
}

pub(in crate::kinds) fn node_selector(selector: At, causes: &mut Vec<Cause>) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        causes.push(terms.required("must have at least one node selector term"));
    }
    for term in terms.items() {
        node_term(term, causes);
    }
}

fn node_term(term: At, causes: &mut Vec<Cause>) {
    for expression in term.get("matchExpressions").items() {
        let values = expression.get("values");
        let count = values.value.as_array().map_or(0, Vec::len);
        match expression.get("operator").text() {
            "In" | "NotIn" if count == 0 => {
                causes.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                causes.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "Gt" | "Lt" if count != 1 => {
                causes.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => causes.push(expression.get("operator").invalid("not a valid selector operator")),
        }
        named(expression.get("key"), names::qualified_name, causes);
    }
}

fn weight(preferred: At, causes: &mut Vec<Cause>) {
    let weight = preferred.get("weight");
    if !(1..=100).contains(&weight.number().unwrap_or(0)) {
        causes.push(weight.invalid("must be in the range 1-100"));
    }
}

fn pod_term(term: At, causes: &mut Vec<Cause>) {
    selector(term.get("labelSelector"), causes);
    selector(term.get("namespaceSelector"), causes);
    let key = term.get("topologyKey");
    if key.is_empty() {
        causes.push(key.required("can not be empty"))
    } else {
        named(key, names::qualified_name, causes)
    }
}

pub(super) fn spread(list: At, causes: &mut Vec<Cause>) {
    for constraint in list.items() {
        let skew = constraint.get("maxSkew");
        if skew.number().unwrap_or(0) <= 0 {
            causes.push(skew.invalid("must be greater than zero"));
        }
        let key = constraint.get("topologyKey");
        if key.is_empty() {
            causes.push(key.required("can not be empty"));
        }
        let otherwise = constraint.get("whenUnsatisfiable");
        need(otherwise, causes);
        one_of(otherwise, &["DoNotSchedule", "ScheduleAnyway"], causes);
        selector(constraint.get("labelSelector"), causes);
    }
}

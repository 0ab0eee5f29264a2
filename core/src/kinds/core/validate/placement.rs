//! Validation of the rules for where pods may run: tolerations, affinity and topology spread.

use crate::kinds::rules::{At, Seen, known, named, named_if_any, need_one_of, one_of, same, selector};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// Older node labels and their newer names.
const OLD_LABELS: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];
const NOT_A_KEY_TWICE: &str = "exists in both matchLabelKeys and labelSelector";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(in crate::kinds) fn tolerations(list: At, causes: &mut Causes) {
    for toleration in list.items() {
        let (key, operator, value) = (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
        if !key.is_empty() {
            named(key, names::qualified_name, causes);
        } else if operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            causes.push(operator.invalid_as(operator.text(), detail));
        }
        let effect = toleration.get("effect");
        if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            causes.push(effect.invalid_as(effect.text(), "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match operator.text() {
            "" | "Equal" => {
                let messages = names::label_value(value.text());
                if !messages.is_empty() {
                    causes.push(operator.invalid_as(value.text(), &messages.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                causes.push(operator.invalid_as(value.text(), "value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            _ => causes.push(operator.not_supported(&["Equal", "Exists"])),
        }
        one_of(effect, EFFECTS, causes);
    }
}

/// Validates the taints of a node: only one taint for each key and effect.
pub(super) fn taints(list: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    for taint in list.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        named(key, names::qualified_name, causes);
        let messages = names::label_value(value.text());
        if !messages.is_empty() {
            causes.push(value.invalid(&messages.join(";")));
        }
        need_one_of(effect, EFFECTS, causes);
        if seen.again(&Value::from(vec![key.text(), effect.text()])) {
            let detail = "taints must be unique by key and effect pair";
            causes.push(Cause::duplicate_of(taint.path(), taint.value, detail));
        }
    }
}

pub(super) fn affinity(affinity: At, causes: &mut Causes) {
    let node = affinity.get("nodeAffinity");
    let required = node.get(REQUIRED);
    if required.is_set() {
        node_selector(required, causes);
    }
    for preferred in node.get(PREFERRED).items() {
        weight(preferred, causes);
        node_term(preferred.get("preference"), false, causes);
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

pub(in crate::kinds) fn node_selector(selector: At, causes: &mut Causes) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        causes.push(terms.required("must have at least one node selector term"));
    }
    for term in terms.items() {
        node_term(term, true, causes);
    }
}

/// Validates a term of a node selector. Preferred terms may have values that are not valid label values.
fn node_term(term: At, is_required: bool, causes: &mut Causes) {
    for expression in term.get("matchExpressions").items() {
        let (operator, values) = (expression.get("operator"), expression.get("values"));
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                causes.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                causes.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                causes.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => causes.push(operator.invalid_as(other, "not a valid selector operator")),
        }
        named(expression.get("key"), names::qualified_name, causes);
        if is_required {
            values.items().for_each(|value| named(value, names::label_value, causes));
        }
    }
    for expression in term.get("matchFields").items() {
        let (key, operator, values) = (expression.get("key"), expression.get("operator"), expression.get("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                causes.push(values.required(detail));
            }
            other => causes.push(operator.invalid_as(other, "not a valid selector operator")),
        }
        if key.text() == "metadata.name" {
            values.items().for_each(|value| named(value, names::subdomain, causes));
        } else {
            causes.push(key.invalid_as(key.text(), "not a valid field selector key"));
        }
    }
}

/// Whether two node affinities are equal, apart from older labels that were replaced by their newer names.
pub(super) fn same_but_for_old_labels(new: &Value, old: &Value) -> bool {
    let mut old = old.clone();
    let terms = old["required"]["nodeSelectorTerms"].as_array_mut().into_iter().flatten().enumerate();
    for (at, term) in terms {
        for list in ["matchExpressions", "matchFields"] {
            for (index, expression) in term[list].as_array_mut().into_iter().flatten().enumerate() {
                let wanted = &new["required"]["nodeSelectorTerms"][at][list][index]["key"];
                let renamed = OLD_LABELS.iter().any(|(old, new)| expression["key"] == *old && *wanted == *new);
                if renamed {
                    expression["key"] = wanted.clone();
                }
            }
        }
    }
    same(new, &old)
}

fn weight(preferred: At, causes: &mut Causes) {
    let weight = preferred.get("weight");
    if !(1..=100).contains(&weight.number().unwrap_or(0)) {
        causes.push(weight.invalid_as(weight.number_or_zero(), "must be in the range 1-100"));
    }
}

fn pod_term(term: At, causes: &mut Causes) {
    selector(term.get("labelSelector"), causes);
    selector(term.get("namespaceSelector"), causes);
    for namespace in term.get("namespaces").items() {
        // Kubernetes' path has `namespace`, without an index.
        named_if_any(term.get("namespace").holding(namespace.value), names::label, causes);
    }
    label_keys(term, causes);
    let key = term.get("topologyKey");
    if key.is_empty() {
        causes.push(key.required("can not be empty"));
    }
    causes.extend(names::qualified_name(key.text()).iter().map(|message| key.invalid_as(key.text(), message)));
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys`, whose values come from the pod's labels.
fn label_keys(term: At, causes: &mut Causes) {
    let (own, others, labels) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"), term.get("labelSelector"));
    for keys in [own, others] {
        if !keys.is_empty() && !labels.is_set() {
            causes.push(keys.forbidden("must not be specified when labelSelector is not set"));
        } else {
            keys.items().for_each(|key| named(key, names::qualified_name, causes));
        }
    }
    let positions: BTreeMap<&str, usize> = own.items().enumerate().map(|(at, key)| (key.text(), at)).collect();
    // The server has already added each of these keys to the selector once. If the selector has a key twice, the client
    // has written the other occurrence.
    let plain = labels.value["matchLabels"].as_object().into_iter().flatten();
    let mut selected: BTreeSet<&str> = plain.map(|(key, _)| key.as_str()).collect();
    for expression in labels.value["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        if let Some(at) = positions.get(key)
            && selected.contains(key)
        {
            causes.push(Cause::invalid(format!("{}[{at}]", term.path()), &key.into(), NOT_A_KEY_TWICE));
        }
        selected.insert(key);
    }
    let others: BTreeSet<&str> = others.items().map(|key| key.text()).collect();
    for key in own.items().filter(|key| others.contains(key.text())) {
        causes.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
    }
}

pub(super) fn spread(list: At, causes: &mut Causes) {
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    let identity = |constraint: &At| {
        let text = |field: &str| constraint.value[field].as_str().unwrap_or_default().to_owned();
        (text("topologyKey"), text("whenUnsatisfiable"))
    };
    let last: BTreeMap<_, usize> = list.items().enumerate().map(|(at, item)| (identity(&item), at)).collect();
    for (at, constraint) in list.items().enumerate() {
        let skew = constraint.get("maxSkew");
        if skew.number_or_zero() <= 0 {
            causes.push(skew.invalid_as(skew.number_or_zero(), "must be greater than zero"));
        }
        let (key, action) = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        if key.is_empty() {
            causes.push(key.required("can not be empty"));
        }
        if !ACTIONS.contains(&action.text()) {
            causes.push(action.not_supported(ACTIONS));
        }
        // Only the earlier of two equal constraints is reported.
        if last.get(&identity(&constraint)).is_some_and(|last| *last > at) {
            let shown = Value::from(format!("{{{}, {}}}", key.text(), action.text()));
            causes.push(Cause::duplicate(constraint.get("{topologyKey, whenUnsatisfiable}").path(), &shown));
        }
        let domains = constraint.get("minDomains");
        if domains.number().is_some_and(|number| number <= 0) {
            causes.push(domains.invalid("must be greater than zero"));
        }
        if domains.is_set() && action.text() != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
            causes.push(domains.invalid(&detail));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            known(constraint.get(policy), &["Honor", "Ignore"], causes);
        }
        label_keys(constraint, causes);
        selector(constraint.get("labelSelector"), causes);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_placement() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a"}],
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable":
                    "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}],
            },
        });
        let nodes = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let pods = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
        let spread = |field: &str| format!("/spec/topologySpreadConstraints/{field}");
        let term = |term: holdfast_value::Value| json!({"nodeSelectorTerms": [term]});
        check_rows(
            &good,
            &[
                ("/spec/tolerations/0/value", json!("x"), "spec.tolerations[0].operator: Invalid value: \"x\": value"),
                ("/spec/tolerations/0/effect", json!("Now"), "spec.tolerations[0].effect: Unsupported value: \"Now\""),
                (
                    "/spec/tolerations/0/operator",
                    json!("Gt"),
                    "spec.tolerations[0].operator: Unsupported value: \"Gt\"",
                ),
                (
                    "/spec/tolerations/0/tolerationSeconds",
                    json!(5),
                    "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when",
                ),
                ("/spec/tolerations", json!([{}]), "spec.tolerations[0].operator: Invalid value: \"\": operator must"),
                (
                    nodes,
                    json!({"nodeSelectorTerms": []}),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: \
                     Required value: must have at least one",
                ),
                (
                    nodes,
                    term(json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1", "2"]}]})),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].\
                     matchExpressions[0].values: Required value: must be specified single value",
                ),
                (
                    nodes,
                    term(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["a b"]}]})),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].\
                     matchExpressions[0].values[0]: Invalid value: \"a b\": a valid label must be",
                ),
                (
                    nodes,
                    term(json!({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]})),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].\
                     matchFields[0].key: Invalid value: \"spec.x\": not a valid field selector key",
                ),
                (pods, json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["a"]}), ""),
                (
                    pods,
                    json!({"topologyKey": "zone", "matchLabelKeys": ["a"]}),
                    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: \
                     Forbidden: must not be specified when labelSelector is not set",
                ),
                (
                    pods,
                    json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["a"],
                        "mismatchLabelKeys": ["a"]}),
                    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[0]: \
                     Invalid value: \"a\": exists in both matchLabelKeys and mismatchLabelKeys",
                ),
                (
                    pods,
                    json!({"labelSelector": {}}),
                    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Requir",
                ),
                (
                    "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                    json!([{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]),
                    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid \
                     value: 101: must be in the range 1-100",
                ),
                (
                    &spread("0/maxSkew"),
                    json!(0),
                    "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be",
                ),
                (
                    &spread("0/whenUnsatisfiable"),
                    json!("Cry"),
                    "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"Cry\": supported valu",
                ),
                (
                    &spread("1"),
                    json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}),
                    "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{zone, Do",
                ),
                (
                    &spread("0/minDomains"),
                    json!(0),
                    "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
                ),
                (
                    &spread("0/nodeTaintsPolicy"),
                    json!("X"),
                    "spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: \"X\": supported values: ",
                ),
                // The constraint is valid in a template, but not in a pod, where the server has already added the key
                // to the selector.
                (&spread("0/matchLabelKeys"), json!(["a"]), ""),
                (
                    &spread("0"),
                    json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                        "matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {"a": "1"},
                            "matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}}),
                    "spec.topologySpreadConstraints[0][0]: Invalid value: \"a\": exists in both matchLabelKeys and",
                ),
            ],
        );
    }
}

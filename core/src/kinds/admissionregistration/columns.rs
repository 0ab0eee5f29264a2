//! Columns of webhook configurations and admission policies.

use crate::kinds::Column;
use crate::kinds::cells::{UNSET, age_column, at, column, count, entries, items, name, plain, text};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => vec![
            name(),
            column("Webhooks", "integer", 0, "Number of webhooks.", |doc, _| count(doc, "webhooks").into()),
            age_column(),
        ],
        "ValidatingAdmissionPolicy" => vec![
            name(),
            column("Validations", "integer", 0, "Number of rules.", |doc, _| count(doc, "spec.validations").into()),
            param_kind(),
            age_column(),
        ],
        "MutatingAdmissionPolicy" => vec![
            name(),
            column("Mutations", "integer", 0, "Number of changes.", |doc, _| count(doc, "spec.mutations").into()),
            param_kind(),
            age_column(),
        ],
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => vec![
            name(),
            column("PolicyName", "string", 0, "The policy that is put to use.", |doc, _| {
                text(doc, "spec.policyName").into()
            }),
            column("ParamRef", "string", 0, "The objects with the policy's parameters.", |doc, _| {
                at(doc, "spec.paramRef").map_or_else(|| UNSET.into(), parameters).into()
            }),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn param_kind() -> Column {
    column("ParamKind", "string", 0, "The kind of the policy's parameters.", |doc, _| match at(doc, "spec.paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")).into(),
        None => UNSET.into(),
    })
}

fn parameters(reference: &Value) -> String {
    match (text(reference, "namespace"), text(reference, "name")) {
        (_, "") => at(reference, "selector").map_or_else(|| UNSET.into(), debug_selector),
        // The policy does not define whether its parameters are namespaced.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// The form in which Go prints the selector's struct.
fn debug_selector(selector: &Value) -> String {
    let labels: String =
        entries(selector, "matchLabels").into_iter().map(|(key, value)| format!("{key}: {},", plain(value))).collect();
    let expressions = items(selector, "matchExpressions").iter().map(|expression| {
        let values = items(expression, "values").iter().map(plain).collect::<Vec<_>>().join(" ");
        let (key, operator) = (text(expression, "key"), text(expression, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn admission() {
        let binding = |reference: holdfast_value::Value| json!({"spec": {"policyName": "p", "paramRef": reference}});
        let cases = [
            ("MutatingWebhookConfiguration", json!({"webhooks": [{}, {}]}), "x | 2 | <unknown>"),
            ("ValidatingWebhookConfiguration", json!({}), "x | 0 | <unknown>"),
            (
                "ValidatingAdmissionPolicy",
                json!({"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}),
                "x | 1 | v1/ConfigMap | <unknown>",
            ),
            ("MutatingAdmissionPolicy", json!({"spec": {"mutations": [{}, {}]}}), "x | 2 | <unset> | <unknown>"),
            ("ValidatingAdmissionPolicyBinding", binding(json!(null)), "x | p | <unset> | <unknown>"),
            ("ValidatingAdmissionPolicyBinding", binding(json!({"name": "c"})), "x | p | */c | <unknown>"),
            (
                "MutatingAdmissionPolicyBinding",
                binding(json!({"name": "c", "namespace": "n"})),
                "x | p | n/c | <unknown>",
            ),
            (
                "MutatingAdmissionPolicyBinding",
                binding(json!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [
                    {"key": "k", "operator": "In", "values": ["v", "w"]}]}})),
                "x | p | &LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:\
                 []LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},} | <unknown>",
            ),
        ];
        for (kind, mut doc, expected) in cases {
            doc["metadata"] = json!({"name": "x"});
            assert_eq!(shown(&of(kind), &doc), expected, "{kind}");
        }
    }
}

//! Validation of the matching of webhooks and policies: resource rules and match conditions. Expressions are not
//! evaluated here.

use crate::cel::Type;
use crate::kinds::expressions::Admission;
use crate::kinds::rules::{At, Seen, named, selector};
use crate::kinds::shapes::{at_most, count, exactly_one_of, qualified, texts};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::collections::BTreeSet;

pub(super) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const CONDITIONS_MAX: usize = 64;

/// Validates `matchConstraints` of a policy or `matchResources` of a binding.
pub(super) fn resources(at: At, causes: &mut Causes) {
    let policy = at.get("matchPolicy");
    if policy.is_set() {
        exactly_one_of(policy, MATCH_POLICIES, causes);
    } else {
        causes.push(policy.required(""));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let labels = at.get(field);
        if labels.is_set() { selector(labels, causes) } else { causes.push(labels.required("")) }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for entry in at.get(field).items() {
            let resource_names = entry.get("resourceNames");
            crate::kinds::shapes::distinct_items(resource_names, causes);
            for name in resource_names.items() {
                named(name, names::path_segment, causes);
            }
            rule(entry, causes);
        }
    }
}

/// Validates one resource rule: its operations, groups, versions, resources and scope.
pub(super) fn rule(rule: At, causes: &mut Causes) {
    for (field, what) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.get(field);
        if list.is_empty() {
            causes.push(list.required(""));
        }
        if count(list) > 1 && texts(list).contains("*") {
            causes.push(list.invalid(&format!("if '*' is present, must not specify other {what}")));
        }
    }
    for operation in rule.get("operations").items() {
        exactly_one_of(operation, OPERATIONS, causes);
    }
    for version in rule.get("apiVersions").items().filter(At::is_empty) {
        causes.push(version.required(""));
    }
    resource_names(rule.get("resources"), causes);
    let scope = rule.get("scope");
    if scope.is_set() {
        exactly_one_of(scope, SCOPES, causes);
    }
}

/// Validates the resources of a rule, such as `pods`, `pods/status`, `*/scale` and `*`. No entry may cover another
/// entry.
fn resource_names(list: At, causes: &mut Causes) {
    if list.is_empty() {
        causes.push(list.required(""));
    }
    let (mut resources, mut subresources) = (BTreeSet::new(), BTreeSet::new());
    let mut last_is_plain = false;
    for name in list.items() {
        let text = name.text();
        if text.is_empty() {
            causes.push(name.required(""));
            continue;
        }
        let Some((resource, sub)) = text.split_once('/') else {
            last_is_plain = text != "*";
            continue;
        };
        let covered =
            |pattern: String| Cause::from(name.invalid(&format!("if '{pattern}' is present, must not specify {text}")));
        if resources.contains(resource) {
            causes.push(covered(format!("{resource}/*")));
        }
        if subresources.contains(sub) {
            causes.push(covered(format!("*/{sub}")));
        }
        if sub == "*" {
            resources.insert(resource.to_owned());
        }
        if resource == "*" {
            subresources.insert(sub.to_owned());
        }
    }
    let all = texts(list);
    if count(list) > 1 && all.contains("*/*") {
        causes.push(list.invalid("if '*/*' is present, must not specify other resources"));
    }
    // As in Kubernetes, only the last resource without a subresource is checked.
    if all.contains("*") && last_is_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.push(list.invalid(detail));
    }
}

/// Validates `matchConditions`.
pub(super) fn conditions(list: At, seen: &Admission, causes: &mut Causes) {
    at_most(list, CONDITIONS_MAX, causes);
    let mut met = Seen::default();
    for condition in list.items() {
        need_expression(condition.get("expression"), "", causes);
        seen.expression(condition.get("expression"), &[Type::Bool], causes);
        let name = condition.get("name");
        if name.is_empty() {
            causes.push(name.required(""));
            continue;
        }
        qualified(name, causes);
        if met.again(name.value) {
            causes.push(name.duplicate());
        }
    }
}

pub(super) fn need_expression(at: At, missing: &str, causes: &mut Causes) {
    if at.text().trim().is_empty() {
        causes.push(at.required(missing));
    }
}

/// Validates `paramKind`: the kind of a policy's parameters.
pub(super) fn parameter_kind(at: At, causes: &mut Causes) {
    let (version, kind) = (at.get("apiVersion"), at.get("kind"));
    let wrong = |text: &str, detail: &str| Cause::invalid(version.path(), &Value::from(text), detail);
    let parts: Vec<&str> = version.text().split('/').collect();
    let (group, short) = match parts[..] {
        [short] => ("", short),
        [group, short] => (group, short),
        _ => {
            causes.push(version.invalid(&format!("unexpected GroupVersion string: {}", version.text())));
            ("", "v1")
        }
    };
    if version.is_empty() {
        causes.push(version.required(""));
    } else {
        let messages = names::subdomain(group);
        if !group.is_empty() && !messages.is_empty() {
            causes.push(wrong(group, &messages.join(",")));
        }
        let messages = names::label_1035(short);
        if short.is_empty() {
            causes.push(version.invalid("version must be specified"));
        } else if !messages.is_empty() {
            causes.push(wrong(short, &messages.join(",")));
        }
    }
    let messages = names::label_1035(&kind.text().to_lowercase());
    if kind.is_empty() {
        causes.push(kind.required(""));
    } else if !messages.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", messages.join(","));
        causes.push(kind.invalid(&detail));
    }
}

/// Validates `paramRef` of a binding: the name or the selector of the parameters.
pub(super) fn parameter(at: At, causes: &mut Causes) {
    const APART: &str = "name and selector are mutually exclusive";
    let (name, labels, otherwise) = (at.get("name"), at.get("selector"), at.get("parameterNotFoundAction"));
    named(name, names::path_segment, causes);
    selector(labels, causes);
    match (!name.is_empty(), labels.is_set()) {
        (true, true) => causes.extend([name.forbidden(APART), labels.forbidden(APART)]),
        (false, false) => causes.push(at.required("one of name or selector must be specified")),
        _ => {}
    }
    if otherwise.is_empty() {
        causes.push(otherwise.required(""));
    } else {
        exactly_one_of(otherwise, &["Deny", "Allow"], causes);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, faults};
    use holdfast_value::{Value, json};

    /// The objects that have match conditions, with the conditions' path in each.
    fn conditioned(conditions: &Value) -> [(Value, &'static str); 4] {
        const GROUP: &str = "admissionregistration.k8s.io";
        let rules =
            json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let hooks = |kind: &str| {
            let hook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://h"}, "rules": rules, "matchConditions": conditions});
            json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": "a"}, "webhooks": [hook]})
        };
        let policy = |kind: &str, version: &str| {
            let change = json!({"expression": "[JSONPatch{op: 'remove', path: '/x'}]"});
            let mut spec = json!({"matchConstraints": {"resourceRules": rules}, "matchConditions": conditions,
                "variables": [{"name": "v", "expression": "true"}]});
            match version {
                "v1" => spec["validations"] = json!([{"expression": "variables.v"}]),
                _ => {
                    spec["reinvocationPolicy"] = "Never".into();
                    spec["mutations"] = json!([{"patchType": "JSONPatch", "jsonPatch": change}]);
                }
            }
            json!({"apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": "a"}, "spec": spec})
        };
        [
            (hooks("ValidatingWebhookConfiguration"), "webhooks[0].matchConditions"),
            (hooks("MutatingWebhookConfiguration"), "webhooks[0].matchConditions"),
            (policy("ValidatingAdmissionPolicy", "v1"), "spec.matchConditions"),
            (policy("MutatingAdmissionPolicy", "v1beta1"), "spec.matchConditions"),
        ]
    }

    /// A duplicate name is reported after the condition's other faults, before the next condition.
    #[test]
    fn conditions_are_told_one_after_the_other() {
        let conditions = json!([
            {"name": "c", "expression": "true"}, {"name": "c", "expression": " "},
            {"name": "", "expression": "true"}, {"name": "", "expression": "1"},
            {"name": "-", "expression": "true"}, {"name": "-", "expression": "true"}
        ]);
        for (object, at) in conditioned(&conditions) {
            let found = faults(&object);
            let expected = [
                "[1].expression: Required value",
                "[1].name: Duplicate value: \"c\"",
                "[2].name: Required value",
                "[3].expression: Invalid value: \"1\": must evaluate to bool but got int",
                "[3].name: Required value",
                "[4].name: Invalid value: \"-\"",
                "[5].name: Invalid value: \"-\"",
                "[5].name: Duplicate value: \"-\"",
            ];
            assert_eq!(found.len(), expected.len(), "{found:#?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with(&format!("{at}{expected}")), "{found}");
            }
        }
    }

    /// Match conditions are evaluated before variables exist, even if the policy has some.
    #[test]
    fn conditions_know_no_variables() {
        for (object, at) in conditioned(&json!([{"name": "c", "expression": "variables.v"}])) {
            let fault = format!(
                "{at}[0].expression: Invalid value: \"variables.v\": compilation failed: ERROR: <input>:1:1: undeclared \
                 reference to 'variables' (in container '')\n | variables.v\n | ^"
            );
            assert_eq!(faults(&object), [fault]);
        }
    }

    #[test]
    fn rules_on_resources() {
        let good = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "a"},
            "webhooks": [{
                "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://h"},
                "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
            }],
        });
        let of = |rest: &str| format!("webhooks[0].rules[0]{rest}");
        let resources = "/webhooks/0/rules/0/resources";
        check_rows(
            &good,
            &[
                (
                    "/webhooks/0/rules/0/operations/0",
                    json!("GET"),
                    &of(".operations[0]: Unsupported value: \"GET\": sup"),
                ),
                (
                    "/webhooks/0/rules/0/operations",
                    json!(["*", "CREATE"]),
                    &of(".operations: Invalid value: [\"*\",\"CRE"),
                ),
                ("/webhooks/0/rules/0/apiGroups", json!([]), &of(".apiGroups: Required value")),
                ("/webhooks/0/rules/0/apiGroups", json!(["*", ""]), &of(".apiGroups: Invalid value: [\"*\",\"\"]: if")),
                ("/webhooks/0/rules/0/apiVersions", json!([""]), &of(".apiVersions[0]: Required value")),
                (
                    "/webhooks/0/rules/0/scope",
                    json!("All"),
                    &of(".scope: Unsupported value: \"All\": supported values: "),
                ),
                (resources, json!([]), &of(".resources: Required value")),
                (resources, json!(["pods", "pods/status"]), ""),
                (
                    resources,
                    json!(["pods/*", "pods/status"]),
                    &of(".resources[1]: Invalid value: \"pods/status\": if 'p"),
                ),
                (
                    resources,
                    json!(["*/scale", "pods/scale"]),
                    &of(".resources[1]: Invalid value: \"pods/scale\": if '*/"),
                ),
                (
                    resources,
                    json!(["*/*", "pods"]),
                    &of(".resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is pres"),
                ),
                (
                    resources,
                    json!(["*", "pods"]),
                    &of(".resources: Invalid value: [\"*\",\"pods\"]: if '*' is present"),
                ),
            ],
        );
    }
}

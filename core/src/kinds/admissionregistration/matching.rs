//! What admission looks at: rules on resources, and conditions. Expressions are not compiled here.

use crate::cel::Type;
use crate::kinds::expressions::Admission;
use crate::kinds::rules::{At, distinct, named, selector};
use crate::kinds::shapes::{at_most, count, exactly_one_of, qualified, texts};
use crate::object::names;
use crate::refusal::Cause;
use holdfast_value::Value;
use std::collections::BTreeSet;

use super::validate::MATCH_POLICIES;

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const CONDITIONS_MAX: usize = 64;

/// `matchConstraints` or `matchResources`.
pub(super) fn resources(at: At, causes: &mut Vec<Cause>) {
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

/// Operations, groups, versions, resources and scope.
pub(super) fn rule(rule: At, causes: &mut Vec<Cause>) {
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

/// Resources such as `pods`, `pods/status`, `*/scale` and `*`, none of which another one covers.
fn resource_names(list: At, causes: &mut Vec<Cause>) {
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
        let covered = |pattern: String| name.invalid(&format!("if '{pattern}' is present, must not specify {text}"));
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
    // Kubernetes looks at the last resource without a subresource alone.
    if all.contains("*") && last_is_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.push(list.invalid(detail));
    }
}

/// `matchConditions`.
pub(super) fn conditions(list: At, seen: &Admission, causes: &mut Vec<Cause>) {
    at_most(list, CONDITIONS_MAX, causes);
    distinct(list, "name", causes);
    for condition in list.items() {
        need_expression(condition.get("expression"), "", causes);
        seen.expression(condition.get("expression"), &[Type::Bool], causes);
        let name = condition.get("name");
        if name.is_empty() { causes.push(name.required("")) } else { qualified(name, causes) }
    }
}

pub(super) fn need_expression(at: At, missing: &str, causes: &mut Vec<Cause>) {
    if at.text().trim().is_empty() {
        causes.push(at.required(missing));
    }
}

/// The kind of a policy's parameters.
pub(super) fn parameter_kind(at: At, causes: &mut Vec<Cause>) {
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

/// Which object holds the parameters.
pub(super) fn parameter(at: At, causes: &mut Vec<Cause>) {
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
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

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

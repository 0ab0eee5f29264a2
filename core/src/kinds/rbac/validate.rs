//! Validation of roles and bindings.

use super::GROUP;
use crate::kinds::rules::{At, named, need, need_name, selector};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use crate::select::LabelSelector;
use holdfast_value::Value;

pub fn role(new: &Value, _: Option<&Value>) -> Causes {
    rules(new, true)
}

pub fn cluster_role(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = rules(new, false);
    let root = At::root(new);
    let aggregation = root.get("aggregationRule");
    let selectors = aggregation.get("clusterRoleSelectors");
    if aggregation.is_set() && selectors.is_empty() {
        causes.push(selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil"));
    }
    for entry in selectors.items() {
        selector(entry, &mut causes);
        if LabelSelector::from_object(entry.value).is_err() {
            causes.push(entry.invalid("invalid label selector."));
        }
    }
    causes
}

fn rules(role: &Value, namespaced: bool) -> Causes {
    let mut causes = Causes::default();
    for rule in At::root(role).get("rules").items() {
        let verbs = rule.get("verbs");
        if verbs.is_empty() {
            causes.push(verbs.required("verbs must contain at least one value"));
        }
        let (groups, resources, urls) = (rule.get("apiGroups"), rule.get("resources"), rule.get("nonResourceURLs"));
        if !urls.is_empty() {
            if namespaced {
                causes.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            if !groups.is_empty() || !resources.is_empty() || !rule.get("resourceNames").is_empty() {
                causes.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        if groups.is_empty() {
            causes.push(groups.required("resource rules must supply at least one api group"));
        }
        if resources.is_empty() {
            causes.push(resources.required("resource rules must supply at least one resource"));
        }
    }
    causes
}

pub fn role_binding(new: &Value, old: Option<&Value>) -> Causes {
    binding(new, old, &["Role", "ClusterRole"])
}

pub fn cluster_role_binding(new: &Value, old: Option<&Value>) -> Causes {
    binding(new, old, &["ClusterRole"])
}

fn binding(binding: &Value, old: Option<&Value>, kinds: &[&str]) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(binding);
    if old.is_some_and(|old| old["roleRef"] != binding["roleRef"]) {
        // The role cannot change: the creator's permission to bind was checked for this role only.
        causes.push(Cause::invalid("roleRef", &binding["roleRef"], "cannot change roleRef"));
    }
    let role = root.get("roleRef");
    if role.get("apiGroup").text() != GROUP {
        causes.push(role.get("apiGroup").not_supported(&[GROUP]));
    }
    if !kinds.contains(&role.get("kind").text()) {
        causes.push(role.get("kind").not_supported(kinds));
    }
    need_name(role.get("name"), names::path_segment, &mut causes);
    for subject in root.get("subjects").items() {
        let name = subject.get("name");
        need(name, &mut causes);
        let group = subject.get("apiGroup");
        let expected = match subject.get("kind").text() {
            "ServiceAccount" => {
                if !name.is_empty() {
                    named(name, names::subdomain, &mut causes);
                }
                // In a RoleBinding, an account without namespace belongs to the binding's namespace.
                if !kinds.contains(&"Role") {
                    need(subject.get("namespace"), &mut causes);
                }
                ""
            }
            "User" | "Group" => GROUP,
            _ => {
                causes.push(subject.get("kind").not_supported(&["ServiceAccount", "User", "Group"]));
                continue;
            }
        };
        if group.text() != expected {
            causes.push(group.not_supported(&[expected]));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule() {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        });
        check_rows(
            &role,
            &[
                ("/rules/0/verbs", json!([]), "rules[0].verbs: Required value: verbs must contain at least one value"),
                ("/rules/0/apiGroups", Value::Null, "rules[0].apiGroups: Required value: resource rules must supply"),
                ("/rules/0/resources", json!([]), "rules[0].resources: Required value: resource rules must supply"),
                ("/rules/0/nonResourceURLs", json!(["/a"]), "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: name"),
                ("/rules", Value::Null, ""),
            ],
        );
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"},
            "roleRef": {"kind": "Role", "name": "a", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}, {"kind": "User", "name": "u"}],
        });
        check_rows(
            &binding,
            &[
                ("/roleRef/kind", json!("Job"), "roleRef.kind: Unsupported value: \"Job\": supported values: "),
                ("/roleRef/name", json!(""), "roleRef.name: Required value"),
                ("/subjects/0/namespace", Value::Null, ""),
                (
                    "/subjects/0/name",
                    json!("A"),
                    "subjects[0].name: Invalid value: \"A\": a lowercase RFC 1123 subdomai",
                ),
                ("/subjects/0/name", json!(""), "subjects[0].name: Required value"),
                (
                    "/subjects/0/apiGroup",
                    json!("x"),
                    "subjects[0].apiGroup: Unsupported value: \"x\": supported values",
                ),
                (
                    "/subjects/1/apiGroup",
                    json!("x"),
                    "subjects[1].apiGroup: Unsupported value: \"x\": supported values",
                ),
                (
                    "/roleRef/apiGroup",
                    json!("x"),
                    "roleRef.apiGroup: Unsupported value: \"x\": supported values: \"rbac",
                ),
                ("/subjects/1/kind", json!("Robot"), "subjects[1].kind: Unsupported value: \"Robot\""),
                ("/subjects", Value::Null, ""),
            ],
        );
        let mut wide = binding;
        wide["kind"] = json!("ClusterRoleBinding");
        wide["roleRef"]["kind"] = json!("ClusterRole");
        check_rows(
            &wide,
            &[
                ("/subjects/0/namespace", Value::Null, "subjects[0].namespace: Required value"),
                (
                    "/roleRef/kind",
                    json!("Role"),
                    "roleRef.kind: Unsupported value: \"Role\": supported values: \"Clust",
                ),
            ],
        );
        let gathered = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        });
        let selectors = "aggregationRule.clusterRoleSelectors";
        check_rows(
            &gathered,
            &[
                (
                    "/aggregationRule/clusterRoleSelectors",
                    json!([]),
                    &format!("{selectors}: Required value: at least one"),
                ),
                (
                    "/aggregationRule/clusterRoleSelectors/0/matchLabels/a",
                    json!("b c"),
                    &format!("{selectors}[0].matchLabels: Invalid value: \"b c\": a valid label must be"),
                ),
            ],
        );
    }
}

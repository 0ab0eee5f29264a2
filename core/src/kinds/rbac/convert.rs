//! Conversion of role bindings. A subject of `v1alpha1` has a whole `apiVersion`; later versions have only its group.

use super::GROUP;
use crate::kinds::Convert;
use crate::kinds::convert::{Fields, items};
use holdfast_value::Value;

pub const SUBJECTS: Convert = Convert { to_hub, from_hub };

fn to_hub(binding: &mut Fields) {
    for subject in items(binding, "subjects") {
        let api_version = subject.remove("apiVersion");
        let kind = subject.get("kind").and_then(Value::as_str).unwrap_or_default();
        let group = match kind {
            "ServiceAccount" => "",
            "User" | "Group" => GROUP,
            _ => api_version.as_ref().and_then(Value::as_str).and_then(|v| v.split_once('/')).map_or("", |(g, _)| g),
        };
        // In `v1alpha1`, the user "*" means all authenticated users, but no anonymous users.
        if kind == "User" && subject.get("name").is_some_and(|name| name == "*") {
            subject.insert("kind", "Group".into());
            subject.insert("name", "system:authenticated".into());
        }
        if !group.is_empty() {
            subject.insert("apiGroup", group.into());
        }
    }
}

fn from_hub(binding: &mut Fields) {
    for subject in items(binding, "subjects") {
        let group = subject.remove("apiGroup");
        let group = group.as_ref().and_then(Value::as_str).unwrap_or_default();
        let api_version = match (subject.get("kind").and_then(Value::as_str).unwrap_or_default(), group) {
            ("ServiceAccount", "") => "v1".into(),
            ("User" | "Group", GROUP) => format!("{GROUP}/v1alpha1"),
            (_, "") => continue,
            // The version of a group outside RBAC is unknown.
            _ => format!("{group}/"),
        };
        subject.insert("apiVersion", api_version.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::{check_both_ways, check_to_hub};
    use holdfast_value::json;

    #[test]
    fn subjects_keep_only_the_group() {
        check_both_ways(
            SUBJECTS,
            &json!({ "subjects": [
                { "kind": "User", "apiVersion": "rbac.authorization.k8s.io/v1alpha1", "name": "jane" },
                { "kind": "Group", "apiVersion": "rbac.authorization.k8s.io/v1alpha1", "name": "admins" },
                { "kind": "ServiceAccount", "apiVersion": "v1", "name": "default", "namespace": "a" },
            ] }),
            &json!({ "subjects": [
                { "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane" },
                { "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "admins" },
                { "kind": "ServiceAccount", "name": "default", "namespace": "a" },
            ] }),
        );
        check_to_hub(
            SUBJECTS,
            &json!({ "subjects": [{ "kind": "User", "name": "*" }, { "kind": "Robot", "apiVersion": "a.b/v2" }] }),
            &json!({ "subjects": [
                { "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated" },
                { "kind": "Robot", "apiGroup": "a.b" },
            ] }),
        );
    }
}

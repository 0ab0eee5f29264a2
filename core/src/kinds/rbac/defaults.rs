//! Defaults of bindings: roles, users and groups belong to this API group.

use crate::schema::defaults::{Rule, set_empty, text};
use holdfast_value::Map;

const GROUP: &str = "rbac.authorization.k8s.io";

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("api.rbac", &["v1", "v1beta1", "v1alpha1"], "RoleRef").set("apiGroup", GROUP),
        Rule::in_versions("api.rbac", &["v1", "v1beta1"], "Subject").run(subject_group),
        Rule::of("api.rbac.v1alpha1.Subject").run(subject_version),
    ]
}

fn subject_group(subject: &mut Map) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        set_empty(subject, "apiGroup", GROUP);
    }
}

/// Sets the default `apiVersion` of a `v1alpha1` subject, which contains the group and a version.
fn subject_version(subject: &mut Map) {
    match text(subject, "kind") {
        "ServiceAccount" => set_empty(subject, "apiVersion", "v1"),
        "User" | "Group" => set_empty(subject, "apiVersion", format!("{GROUP}/v1alpha1")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_binding() {
        check(
            "api.rbac.v1.RoleBinding",
            json!({
                "subjects": [
                    {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"},
                    {"kind": "Group", "name": "g", "apiGroup": "x"},
                ],
                "roleRef": {"kind": "Role", "name": "r"},
            }),
            expect![[r#"
                roleRef.apiGroup = "rbac.authorization.k8s.io"
                subjects[0].apiGroup = "rbac.authorization.k8s.io""#]],
        );
    }

    #[test]
    fn a_first_binding() {
        check(
            "api.rbac.v1alpha1.ClusterRoleBinding",
            json!({"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
            expect![[r#"
                roleRef.apiGroup = "rbac.authorization.k8s.io"
                roleRef.kind = ""
                roleRef.name = ""
                subjects[0].apiVersion = "rbac.authorization.k8s.io/v1alpha1"
                subjects[1].apiVersion = "v1""#]],
        );
    }
}

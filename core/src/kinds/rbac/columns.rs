//! Columns of role bindings. Roles have no columns of their own.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, column, field, items, name, text};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "RoleBinding" | "ClusterRoleBinding" => vec![
            name(),
            column("Role", "string", 0, field("roleRef"), |doc, _| {
                format!("{}/{}", text(doc, "roleRef.kind"), text(doc, "roleRef.name")).into()
            }),
            age_column(),
            column("Users", "string", 1, "Users who get the role.", |doc, _| subjects(doc, "User").into()),
            column("Groups", "string", 1, "Groups whose members get the role.", |doc, _| subjects(doc, "Group").into()),
            column("ServiceAccounts", "string", 1, "Service accounts that get the role.", |doc, _| {
                subjects(doc, "ServiceAccount").into()
            }),
        ],
        _ => Vec::new(),
    }
}

fn subjects(doc: &Value, kind: &str) -> String {
    let names = items(doc, "subjects").iter().filter(|subject| text(subject, "kind") == kind).map(|subject| {
        let name = text(subject, "name");
        if kind == "ServiceAccount" { format!("{}/{name}", text(subject, "namespace")) } else { name.to_owned() }
    });
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn bindings() {
        let subject = |kind: &str, name: &str| json!({"kind": kind, "name": name});
        let cases = [
            (
                json!([
                    subject("User", "ann"), {"kind": "ServiceAccount", "namespace": "ci", "name": "bot"},
                    subject("Group", "system:masters"), subject("User", "bob"),
                ]),
                "x | ClusterRole/admin | <unknown> | ann, bob | system:masters | ci/bot",
            ),
            (json!(null), "x | ClusterRole/admin | <unknown> |  |  | "),
        ];
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            for (subjects, expected) in &cases {
                let role = subject("ClusterRole", "admin");
                let doc = json!({"metadata": {"name": "x"}, "roleRef": role, "subjects": subjects});
                assert_eq!(shown(&of(kind), &doc), *expected);
            }
        }
        assert!(of("Role").is_empty());
        assert!(of("ClusterRole").is_empty());
    }
}

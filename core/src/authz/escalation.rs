//! Nobody may grant what it does not hold.
//!
//! These checks come after authorization, before a role or binding is written. The verbs `escalate` (on the
//! role) and `bind` (on the referenced role) lift them, as does membership in the privileged group.

use super::chain::{Authorizer, all_rules};
use super::rbac::joined_errors;
use super::rule::{PolicyRule, compacted, uncovered};
use super::{Attributes, ResourceTarget, User, quoted, quoted_list};
use serde_json::Value;
use std::collections::BTreeSet;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Why `user` may not write the role `document`: what follows `is forbidden: `. `None`: it may.
///
/// `kind` is `Role` or `ClusterRole`; `namespace` is empty for the latter. `name` is the one in the request's
/// path, so it is empty for a create.
pub fn refuse_role(
    authorizer: &Authorizer<'_>,
    user: &User,
    kind: &str,
    namespace: &str,
    name: &str,
    document: &Value,
) -> Option<String> {
    if user.is_privileged() || allows(authorizer, user, "escalate", kind, namespace, name) {
        return None;
    }
    if let Some(message) = escalation(authorizer, user, namespace, &PolicyRule::list_from(document)) {
        return Some(message);
    }
    // Gathering is open-ended: whoever sets it could come to grant anything.
    let gathers = kind == "ClusterRole" && document.get("aggregationRule").is_some_and(Value::is_object);
    (gathers && escalation(authorizer, user, namespace, &all_rules()).is_some())
        .then(|| "must have cluster-admin privileges to use the aggregationRule".to_owned())
}

/// Why `user` may not write the binding `document`. `Err`: the referenced role does not exist.
pub fn refuse_binding(
    authorizer: &Authorizer<'_>,
    user: &User,
    namespace: &str,
    document: &Value,
) -> Result<Option<String>, String> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/roleRef/kind"), text("/roleRef/name"));
    let known_kind = matches!(kind, "Role" | "ClusterRole");
    if user.is_privileged() || (known_kind && allows(authorizer, user, "bind", kind, namespace, name)) {
        return Ok(None);
    }
    let rules = authorizer.rbac.role_rules(kind, name, namespace)?;
    Ok(escalation(authorizer, user, namespace, &rules))
}

/// Why `user` may not grant `rules` in `namespace`, naming what it lacks. `None`: it holds them all.
pub fn escalation(authorizer: &Authorizer<'_>, user: &User, namespace: &str, rules: &[PolicyRule]) -> Option<String> {
    let held = authorizer.rbac.rules_for(user, namespace);
    let missing = uncovered(&held.rules, rules);
    if missing.is_empty() {
        return None;
    }
    let missing: BTreeSet<String> = compacted(missing).iter().map(PolicyRule::compact_text).collect();
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&user.name),
        quoted_list(&user.groups),
        missing.into_iter().collect::<Vec<_>>().join("\n")
    );
    if !held.errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", joined_errors(held.errors)));
    }
    Some(message)
}

fn allows(authorizer: &Authorizer<'_>, user: &User, verb: &str, kind: &str, namespace: &str, name: &str) -> bool {
    let resource = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
    let target = ResourceTarget { group: GROUP, version: "*", resource, subresource: "", namespace, name };
    authorizer.authorize(user, &Attributes::resource(verb, target)).is_allowed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{Mode, RbacIndex};
    use crate::kinds::rbac::RoleKind;
    use serde_json::json;

    /// `jane` holds `rules` in the namespace `work`, and `joe` everything everywhere.
    fn index(rules: Value) -> RbacIndex {
        let mut index = RbacIndex::default();
        index.put(RoleKind::Role, "work", "own", &json!({"rules": rules}));
        index.put(RoleKind::RoleBinding, "work", "own", &binding("Role", "own", "jane"));
        index.put(RoleKind::ClusterRole, "", "all", &json!({"rules": all_rules().map(|rule| rule.to_value())}));
        index.put(RoleKind::ClusterRoleBinding, "", "all", &binding("ClusterRole", "all", "joe"));
        index
    }

    fn binding(kind: &str, role: &str, user: &str) -> Value {
        json!({"roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": user}]})
    }

    fn check_role(held: Value, user: &User, wanted: Value) -> Option<String> {
        let index = index(held);
        let authorizer = Authorizer { modes: &[Mode::Rbac], rbac: &index };
        refuse_role(&authorizer, user, "Role", "work", "", &json!({"rules": wanted}))
    }

    #[test]
    fn a_role_may_grant_only_what_its_author_holds() {
        let jane = User::new("jane", &["system:authenticated", "dev"]);
        let read = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        let more = json!([{"verbs": ["get", "delete", "watch"], "apiGroups": [""], "resources": ["pods", "secrets"]}]);
        let escalate = json!([
            {"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]}
        ]);
        assert_eq!(check_role(read.clone(), &jane, read.clone()), None);
        assert_eq!(
            check_role(read.clone(), &jane, more.clone()).as_deref(),
            Some(
                "user \"jane\" (groups=[\"system:authenticated\" \"dev\"]) is attempting to grant RBAC permissions \
                 not currently held:\n\
                 {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}\n\
                 {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\" \"watch\"]}"
            )
        );
        assert_eq!(check_role(escalate, &jane, more.clone()), None);
        assert_eq!(check_role(read.clone(), &User::new("joe", &[]), more.clone()), None);
        assert_eq!(check_role(read, &User::new("root", &["system:masters"]), more), None);
    }

    #[test]
    fn gathering_needs_everything() {
        let index = index(json!([]));
        let authorizer = Authorizer { modes: &[Mode::Rbac], rbac: &index };
        let document = json!({"aggregationRule": {"clusterRoleSelectors": []}});
        let check = |user: &str| refuse_role(&authorizer, &User::new(user, &[]), "ClusterRole", "", "x", &document);
        assert_eq!(check("jane").as_deref(), Some("must have cluster-admin privileges to use the aggregationRule"));
        assert_eq!(check("joe"), None);
    }

    #[test]
    fn a_binding_needs_the_rules_or_the_verb_bind() {
        let jane = User::new("jane", &[]);
        let bind = json!([{
            "verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"], "resourceNames": ["all"]
        }]);
        let check = |held: &Value, kind: &str, role: &str| {
            let index = index(held.clone());
            let authorizer = Authorizer { modes: &[Mode::Rbac], rbac: &index };
            refuse_binding(&authorizer, &jane, "work", &binding(kind, role, "friend"))
        };
        assert_eq!(check(&bind, "ClusterRole", "all"), Ok(None));
        assert_eq!(check(&bind, "Role", "own"), Ok(None));
        let refused = check(&json!([]), "ClusterRole", "all").expect("the role exists").expect("a refusal");
        assert!(
            refused.contains("not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"),
            "{refused}"
        );
        let missing = Err("clusterrole.rbac.authorization.k8s.io \"none\" not found".to_owned());
        assert_eq!(check(&bind, "ClusterRole", "none"), missing);
    }
}

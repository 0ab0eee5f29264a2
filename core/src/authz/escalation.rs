//! Privilege escalation: users may not grant permissions that they do not have.
//!
//! These checks are made after authorization, before a role or binding is written. The verbs `escalate` (on the role)
//! and `bind` (on the referenced role) bypass them, and so does membership in the privileged group. The checks are the
//! `authorize` functions of their kinds; other kinds with similar checks use the same [`Grant`].

use super::chain::{Authorizer, Judged, all_rules};
use super::cover::missing;
use super::rbac::joined_errors;
use super::role::{GROUP, RoleKind};
use super::rule::{PolicyRule, compacted};
use super::{Attributes, ResourceTarget, User, quoted, quoted_list};
use crate::refusal::{Cause, Forbidden, Refusal, Subject};
use holdfast_value::Value;
use std::collections::BTreeSet;

/// Facts outside the object on which the granted permissions depend.
pub trait Elsewhere {
    /// The resource under which objects of a kind are served.
    fn resource(&self, group: &str, version: &str, kind: &str) -> Option<&str>;
    /// apiVersion and kind of the parameters that a validating policy reads.
    fn validating_parameters(&self, policy: &str) -> Option<(&str, &str)>;
    /// apiVersion and kind of the parameters that a mutating policy reads.
    fn mutating_parameters(&self, policy: &str) -> Option<(&str, &str)>;
}

/// A write that may grant permissions, with the data to judge it.
pub struct Grant<'a> {
    pub elsewhere: &'a dyn Elsewhere,
    pub authorizer: Authorizer<'a>,
    pub user: &'a User,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name in the request's path, so it is empty for a create.
    pub name: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The object as refusals name it by resource.
    pub subject: Subject,
    /// The kind, which Invalid refusals use to name the object.
    pub kind: &'a str,
    pub new: &'a Value,
    /// The old object; `None` for a create.
    pub old: Option<&'a Value>,
}

/// Refuses a write that its user may not make; used by `Kind::authorize`.
pub type Authorize = fn(&Grant<'_>) -> Result<(), Refusal>;

impl Grant<'_> {
    pub fn forbidden(&self, message: impl Into<String>) -> Refusal {
        Refusal::Forbidden { subject: self.subject.clone(), why: Forbidden::Author(message.into()) }
    }

    /// The refusal of one field, as if the field violated the kind's rules.
    pub fn invalid(&self, field: &str, message: &str) -> Refusal {
        let subject = Subject { resource: self.kind.to_owned(), ..self.subject.clone() };
        Refusal::Invalid { subject, causes: Cause::forbidden(field, message).into() }
    }

    /// Whether the user may use `verb` on a cluster-scoped object.
    pub fn allows(&self, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        self.allows_in("", verb, group, resource, name)
    }

    fn allows_in(&self, namespace: &str, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let target = ResourceTarget { group, version: "*", resource, subresource: "", namespace, name, selected: None };
        self.judged(verb, target).is_allowed()
    }

    /// The authorizers' decision on whether the user may use `verb` on `target`.
    pub fn judged(&self, verb: &str, target: ResourceTarget<'_>) -> Judged {
        self.authorizer.authorize(self.user, &Attributes::resource(verb, target))
    }

    /// Whether the update changes only finalizers and fields for garbage collection. Any other change may grant
    /// something: for example, a new label can make another role aggregate this one.
    pub fn only_lets_go(&self) -> bool {
        let essence = |document: &Value| {
            let mut document = document.clone();
            if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
                for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                    metadata.remove(field);
                }
            }
            document
        };
        self.old.is_some_and(|old| essence(old) == essence(self.new))
    }
}

/// Checks the write of a ClusterRole.
pub fn cluster_role(grant: &Grant<'_>) -> Result<(), Refusal> {
    role(grant, RoleKind::ClusterRole)?;
    // Aggregation is open-ended: a user that sets it could grant anything, and a user that removes it makes the
    // aggregated rules permanent. An empty aggregationRule aggregates nothing; validation refuses it.
    let gathers = [Some(grant.new), grant.old].into_iter().flatten().any(gathers);
    if gathers && !may_escalate(grant, RoleKind::ClusterRole) && lacks(grant, &all_rules()).is_some() {
        return Err(grant.forbidden("must have cluster-admin privileges to use the aggregationRule"));
    }
    Ok(())
}

fn gathers(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

/// Checks the write of a Role.
pub fn namespaced_role(grant: &Grant<'_>) -> Result<(), Refusal> {
    role(grant, RoleKind::Role)
}

fn role(grant: &Grant<'_>, kind: RoleKind) -> Result<(), Refusal> {
    if may_escalate(grant, kind) {
        return Ok(());
    }
    match lacks(grant, &PolicyRule::list_from(grant.new)) {
        Some(message) => Err(grant.forbidden(message)),
        None => Ok(()),
    }
}

fn may_escalate(grant: &Grant<'_>, kind: RoleKind) -> bool {
    let (resource, _) = kind.resource();
    grant.only_lets_go() || grant.allows_in(grant.namespace, "escalate", GROUP, resource, grant.name)
}

/// Checks the write of a RoleBinding or ClusterRoleBinding.
pub fn binding(grant: &Grant<'_>) -> Result<(), Refusal> {
    let text = |pointer: &str| grant.new.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/roleRef/kind"), text("/roleRef/name"));
    let role = RoleKind::of_reference(kind);
    let may_bind = match role {
        Some(role) => grant.allows_in(grant.namespace, "bind", GROUP, role.resource().0, name),
        None => grant.user.is_privileged(),
    };
    if may_bind || grant.only_lets_go() {
        return Ok(());
    }
    // Validation refuses an invalid role kind with a better message.
    if role.is_none() {
        return Ok(());
    }
    let rbac = grant.authorizer.rbac;
    let rules = rbac.role_rules(kind, name, grant.namespace).map_err(|_| {
        // As in Kubernetes, the missing role is reported with the binding's resource.
        Refusal::NotFound(Subject { name: name.to_owned(), ..grant.subject.clone() })
    })?;
    if rbac.holds_role(grant.user, grant.namespace, kind, name) {
        return Ok(());
    }
    match lacks(grant, rules.each_listed()) {
        Some(message) => Err(grant.forbidden(message)),
        None => Ok(()),
    }
}

fn lacks<'a>(grant: &Grant<'_>, rules: impl IntoIterator<Item = &'a PolicyRule>) -> Option<String> {
    escalation(&grant.authorizer, grant.user, grant.namespace, rules)
}

/// The maximum number of bytes of the list of missing permissions in a refusal.
const LIST_BYTES_MAX: usize = 64 << 10;

/// Why `user` may not grant `rules` in `namespace`, with the missing permissions; `None` if the user has them all.
pub fn escalation<'a>(
    authorizer: &Authorizer<'_>,
    user: &User,
    namespace: &str,
    rules: impl IntoIterator<Item = &'a PolicyRule>,
) -> Option<String> {
    let missing = missing(authorizer.rbac.holder(user, namespace), rules);
    if missing.is_empty() {
        return None;
    }
    let lines: BTreeSet<String> = compacted(missing.rules).iter().map(PolicyRule::compact_text).collect();
    let (count, mut list) = (lines.len(), Vec::new());
    let mut left = LIST_BYTES_MAX;
    for line in lines {
        let Some(rest) = left.checked_sub(line.len() + 1) else { break };
        left = rest;
        list.push(line);
    }
    let untold = count - list.len();
    match (untold, missing.is_cut) {
        (0, false) => {}
        (0, true) => list.push("and more".to_owned()),
        (_, false) => list.push(format!("and {untold} more")),
        (_, true) => list.push(format!("and more than {untold} more")),
    }
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&user.name),
        quoted_list(&user.groups),
        list.join("\n")
    );
    let errors = authorizer.rbac.rules_for(user, namespace).errors;
    if !errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", joined_errors(errors)));
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::chain::{Chain, Way};
    use crate::authz::{Consulted, RbacIndex};
    use holdfast_value::json;
    use std::sync::Arc;

    /// An [`Elsewhere`] that finds no kinds and no policies.
    struct Nowhere;

    impl Elsewhere for Nowhere {
        fn resource(&self, _: &str, _: &str, _: &str) -> Option<&str> {
            None
        }

        fn validating_parameters(&self, _: &str) -> Option<(&str, &str)> {
            None
        }

        fn mutating_parameters(&self, _: &str) -> Option<(&str, &str)> {
            None
        }
    }

    /// `jane` has `rules` in the namespace `work`, and `joe` has everything everywhere.
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

    /// The message after `is forbidden: ` if `user` may not write `new`, in the namespace `work` or cluster-scoped.
    fn refused(index: &RbacIndex, user: &User, hook: Authorize, old: Option<&Value>, new: &Value) -> Option<String> {
        let subject = Subject::new(GROUP, "roles", "");
        let (chain, consulted) = (Arc::new(Chain::new(vec![Way::Rbac])), Consulted::default());
        let authorizer = Authorizer { chain: &chain, rbac: index, nodes: None, consulted: &consulted };
        let namespace = if new.get("aggregationRule").is_some() { "" } else { "work" };
        let elsewhere = &Nowhere;
        let grant = Grant {
            elsewhere,
            authorizer,
            user,
            namespace,
            name: "",
            subresource: "",
            subject,
            kind: "Role",
            new,
            old,
        };
        match hook(&grant) {
            Ok(()) => None,
            Err(Refusal::Forbidden { why, .. }) => Some(why.to_string()),
            Err(other) => Some(format!("{other:?}")),
        }
    }

    fn check_role(held: Value, user: &User, wanted: Value) -> Option<String> {
        refused(&index(held), user, namespaced_role, None, &json!({"rules": wanted}))
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
        let rule = |rule: Value| json!({"metadata": {"name": "r"}, "aggregationRule": rule, "rules": []});
        let gathering = rule(json!({"clusterRoleSelectors": [{}]}));
        let [bare, empty, none] = [json!({}), json!({"clusterRoleSelectors": []}), Value::Null].map(rule);
        for (old, new, is_refused) in [
            (None, &gathering, true),
            (Some(&none), &gathering, true),
            // A user that may not add an aggregationRule may not remove it either.
            (Some(&gathering), &none, true),
            (Some(&gathering), &empty, true),
            // These roles are allowed here, because validation refuses them.
            (None, &bare, false),
            (None, &empty, false),
            (Some(&none), &empty, false),
        ] {
            let check = |user: &str| refused(&index, &User::new(user, &[]), cluster_role, old, new);
            let expected = is_refused.then_some("must have cluster-admin privileges to use the aggregationRule");
            assert_eq!(check("jane").as_deref(), expected, "{old:?} {new}");
            assert_eq!(check("joe"), None);
        }
    }

    /// A change of labels or annotations is checked too: labels may make other roles aggregate this role, and
    /// annotations may have any effect.
    #[test]
    fn every_change_of_a_role_is_judged_but_those_by_which_it_goes() {
        let index = index(json!([]));
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
        let old = json!({"metadata": {"name": "r", "finalizers": ["x/y"], "resourceVersion": "3"}, "rules": rules});
        let check = |metadata: Value| {
            let new = json!({"metadata": metadata, "rules": rules});
            refused(&index, &User::new("jane", &[]), cluster_role, Some(&old), &new)
        };
        assert_eq!(check(json!({"name": "r"})), None);
        assert_eq!(check(json!({"name": "r", "ownerReferences": [{"uid": "u"}], "managedFields": []})), None);
        for metadata in [json!({"name": "r", "labels": {"a": "b"}}), json!({"name": "r", "annotations": {"a": "b"}})] {
            let why = check(metadata).expect("a refusal");
            assert!(why.contains("attempting to grant RBAC permissions not currently held"), "{why}");
        }
    }

    #[test]
    fn a_binding_needs_the_rules_or_the_verb_bind() {
        let jane = User::new("jane", &[]);
        let bind = json!([{
            "verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"], "resourceNames": ["all"]
        }]);
        let check = |held: &Value, kind: &str, role: &str| {
            refused(&index(held.clone()), &jane, super::binding, None, &binding(kind, role, "friend"))
        };
        assert_eq!(check(&bind, "ClusterRole", "all"), None);
        assert_eq!(check(&bind, "Role", "own"), None);
        let refused = check(&json!([]), "ClusterRole", "all").expect("a refusal");
        assert!(
            refused.contains("not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"),
            "{refused}"
        );
        let missing = check(&bind, "ClusterRole", "none").expect("a refusal");
        assert!(missing.starts_with("NotFound") && missing.contains("\"none\""), "{missing}");
    }

    /// The list of missing permissions in a refusal is limited, because a short request may refer to a role with many
    /// rules.
    #[test]
    fn the_list_of_what_is_missing_ends() {
        let names: Vec<String> = (0..100).map(|number| format!("name{number}")).collect();
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names});
        let jane = User::new("jane", &[]);
        let refused = |rules: usize| check_role(json!([]), &jane, json!(vec![rule.clone(); rules])).expect("a refusal");
        assert!(refused(1).ends_with("ResourceNames:[\"name99\"], Verbs:[\"get\"]}"), "{}", refused(1));
        let distinct: Vec<Value> = (0..1_500)
            .map(|number| json!({"verbs": ["get"], "apiGroups": [""], "resources": [format!("r{number}")], "resourceNames": names}))
            .collect();
        let refused = check_role(json!([]), &jane, json!(distinct)).expect("a refusal");
        assert!(refused.len() < LIST_BYTES_MAX + 1_000, "{}", refused.len());
        let last = refused.lines().last().expect("a line");
        assert!(last.starts_with("and more than ") && last.ends_with(" more"), "{last}");
        // A user bound to the role itself holds all its rules, so no rules are compared.
        let mut index = index(json!([]));
        index.put(RoleKind::Role, "work", "own", &json!({"rules": distinct}));
        let own = binding("Role", "own", "friend");
        assert_eq!(super::tests::refused(&index, &jane, super::binding, None, &own), None);
        assert!(super::tests::refused(&index, &User::new("joan", &[]), super::binding, None, &own).is_some());
    }
}

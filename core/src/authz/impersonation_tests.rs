//! Tables of callers and impersonated users: whether the impersonation is allowed, and the resulting user.

use super::*;
use crate::authz::chain::{Chain, Way};
use crate::authz::role::RoleKind;
use crate::authz::{Consulted, RbacIndex};
use holdfast_value::{Value, json};
use std::sync::Arc;

/// Calls `look` with an authorizer in which the group `callers` has these rules.
fn with_rules<T>(rules: Value, look: impl FnOnce(&Authorizer<'_>) -> T) -> T {
    let mut rbac = RbacIndex::default();
    rbac.put(RoleKind::ClusterRole, "", "r", &json!({"rules": rules}));
    let subjects = json!([{"kind": "Group", "name": "callers"}]);
    let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects});
    rbac.put(RoleKind::ClusterRoleBinding, "", "b", &binding);
    let (chain, consulted) = (Arc::new(Chain::new(vec![Way::Rbac])), Consulted::default());
    look(&Authorizer { chain: &chain, rbac: &rbac, nodes: None, consulted: &consulted })
}

fn rule(verb: &str, group: &str, resource: &str, names: &[&str]) -> Value {
    json!({"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": names})
}

fn wanted(name: &str, groups: &[&str]) -> ActingAs {
    ActingAs { name: name.into(), groups: groups.iter().map(|group| (*group).into()).collect(), ..ActingAs::default() }
}

#[test]
fn everybody_is_known_or_unknown() {
    // The requested name and groups, and the resulting user's groups.
    let cases: [(&str, &[&str], &[&str]); 9] = [
        ("jane", &[], &["system:authenticated"]),
        ("jane", &["a"], &["a", "system:authenticated"]),
        ("jane", &["system:unauthenticated"], &["system:unauthenticated"]),
        ("system:anonymous", &[], &["system:unauthenticated"]),
        ("system:anonymous", &["system:authenticated"], &["system:authenticated", "system:unauthenticated"]),
        (
            "system:serviceaccount:a:b",
            &[],
            &["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
        ),
        ("system:serviceaccount:a:b", &["x"], &["x", "system:authenticated"]),
        ("system:serviceaccount:a:b:c", &[], &["system:authenticated"]),
        ("system:serviceaccount:A:b", &[], &["system:authenticated"]),
    ];
    let caller = User::new("root", &[PRIVILEGED_GROUP]);
    for (name, groups, expected) in cases {
        let user = with_rules(json!([]), |authorizer| legacy(authorizer, &caller, &wanted(name, groups)));
        assert_eq!(user.expect("root may be anybody").groups, expected, "{name} {groups:?}");
    }
}

#[test]
fn each_part_is_asked_for() {
    let caller = User::new("joe", &["callers"]);
    let refused = |rules: Value, wanted: &ActingAs| {
        let message = |refusal: Refusal| refusal.message();
        with_rules(rules, |authorizer| legacy(authorizer, &caller, wanted).map_or_else(message, |_| String::new()))
    };
    let users = rule("impersonate", "", "users", &[]);
    let mut all = wanted("jane", &["a"]);
    (all.uid, all.extra) = (Some("7".into()), [("scopes".to_owned(), vec!["s".to_owned()])].into());
    let rules = [
        users.clone(),
        rule("impersonate", "", "groups", &["a"]),
        rule("impersonate", "authentication.k8s.io", "userextras/scopes", &["s"]),
        rule("impersonate", "authentication.k8s.io", "uids", &["7"]),
    ];
    // Each further rule allows one more part of the impersonation, so that the refusal names the next part.
    let cannot = |subject: &str, resource: &str, group: &str| {
        format!(
            "{subject} is forbidden: User \"joe\" cannot impersonate resource \"{resource}\" in API group \"{group}\" at \
             the cluster scope"
        )
    };
    let group = "authentication.k8s.io";
    let expected = [
        cannot("users \"jane\"", "users", ""),
        cannot("groups \"a\"", "groups", ""),
        cannot("userextras.authentication.k8s.io \"s\"", "userextras/scopes", group),
        cannot("uids.authentication.k8s.io \"7\"", "uids", group),
        String::new(),
    ];
    for (count, expected) in expected.iter().enumerate() {
        assert_eq!(&refused(rules[..count].into(), &all), expected, "{count} rules");
    }
    // No service account can have this name, so it is the name of an ordinary user.
    assert_eq!(refused(json!([users]), &wanted("system:serviceaccount:a:b:c", &[])), "");
    let in_namespace = refused(json!([users]), &wanted("system:serviceaccount:a:b", &[]));
    assert!(in_namespace.contains("resource \"serviceaccounts\" in API group \"\" in the namespace \"a\""));
}

/// A test case: a caller, its rules and the wanted user; then the expected mode and groups, or the expected refusal.
struct ByModes {
    caller: User,
    rules: Value,
    wanted: ActingAs,
    last: Option<Mode>,
    expected: Result<(Mode, &'static [&'static str]), &'static str>,
}

#[test]
fn newer_verbs_hold_for_some_requests() {
    let group = "authentication.k8s.io";
    let joe = || User::new("joe", &["callers"]);
    let on_node = |node: &str| {
        let mut agent = User::service_account("kube-system", "agent", "");
        agent.groups.push("callers".into());
        agent.extra.insert(NODE_NAME.into(), vec![node.into()]);
        agent
    };
    let pods = |verb: &str| rule(verb, "", "pods", &[]);
    let user_info = [pods("impersonate-on:user-info:list"), rule("impersonate:user-info", group, "users", &["jane"])];
    let nodes = [pods("impersonate-on:associated-node:list"), rule("impersonate:associated-node", group, "nodes", &[])];
    let mut with_extra = wanted("jane", &[]);
    with_extra.extra = [("scopes".to_owned(), vec!["s".to_owned()])].into();
    let case = |caller, rules: &[Value], wanted, expected| ByModes {
        caller,
        rules: rules.into(),
        wanted,
        last: None,
        expected,
    };
    let cases = [
        case(joe(), &user_info, wanted("jane", &[]), Ok((Mode::UserInfo, &["system:authenticated"]))),
        case(
            joe(),
            &user_info[1..],
            wanted("jane", &[]),
            Err(
                "pods is forbidden: User \"joe\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" \
                 in the namespace \"n\"",
            ),
        ),
        case(
            joe(),
            &user_info[..1],
            wanted("jane", &[]),
            Err(
                "users.authentication.k8s.io \"jane\" is forbidden: User \"joe\" cannot impersonate:user-info resource \
                 \"users\" in API group \"authentication.k8s.io\" at the cluster scope",
            ),
        ),
        case(
            joe(),
            &user_info,
            wanted("jane", &["system:masters"]),
            Err("groups.authentication.k8s.io \"system:masters\" is forbidden: User \"joe\" cannot \
                 impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: \
                 impersonating the system:masters group is not allowed"),
        ),
        case(
            joe(),
            &user_info,
            with_extra,
            Err("userextras.authentication.k8s.io is forbidden: User \"joe\" cannot impersonate:user-info resource \
                 \"userextras\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating an invalid key \
                 in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \
                 \"acme.io/foo\")"),
        ),
        case(
            joe(),
            &[rule("impersonate", "", "users", &[])],
            wanted("jane", &[]),
            Ok((Mode::Legacy, &["system:authenticated"])),
        ),
        ByModes {
            caller: joe(),
            rules: json!([]),
            wanted: wanted("jane", &[]),
            last: Some(Mode::Legacy),
            expected: Err(
                "users \"jane\" is forbidden: User \"joe\" cannot impersonate resource \"users\" in API group \
                           \"\" at the cluster scope",
            ),
        },
        case(
            on_node("one"),
            &nodes,
            wanted("system:node:one", &[]),
            Ok((Mode::AssociatedNode, &["system:nodes", "system:authenticated"])),
        ),
        case(
            on_node("one"),
            &nodes,
            wanted("system:node:two", &[]),
            Err("pods is forbidden: User \"system:serviceaccount:kube-system:agent\" cannot \
                 impersonate-on:arbitrary-node:list resource \"pods\" in API group \"\" in the namespace \"n\""),
        ),
    ];
    let pods = ResourceTarget { version: "v1", resource: "pods", namespace: "n", ..ResourceTarget::default() };
    let asked = Attributes::resource("list", pods);
    for ByModes { caller, rules, wanted, last, expected } in cases {
        let shown = format!("{} as {wanted:?} by {rules}", caller.name);
        let found = with_rules(rules, |authorizer| by_modes(authorizer, &caller, &wanted, &asked, last));
        match (found, expected) {
            (Ok((mode, user)), Ok((wanted, groups))) => assert_eq!(
                (mode, &user.groups[..]),
                (wanted, &groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>()[..]),
                "{shown}"
            ),
            (Err(refusal), Err(message)) => assert_eq!(refusal.message(), message, "{shown}"),
            (found, _) => panic!("{shown}: {found:?}"),
        }
    }
}

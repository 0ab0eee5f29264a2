//! The default policy: its shape, its counts, the permissions that it must never grant, and its reconciliation.

use super::*;
use crate::authz::chain::{Chain, Way};
use crate::authz::role::RoleKind;
use crate::authz::{Attributes, Authorizer, Consulted, RbacIndex, ResourceTarget, User};
use std::collections::BTreeSet;

fn index() -> RbacIndex {
    let mut index = RbacIndex::default();
    for document in bootstrap_policy() {
        let metadata = &document["metadata"];
        let kind = RoleKind::named(text(&document, "kind")).expect("a role or binding");
        index.put(kind, text(metadata, "namespace"), text(metadata, "name"), &document);
    }
    index
}

fn find(kind: &str, name: &str) -> Value {
    let policy = bootstrap_policy();
    let mut found =
        policy.into_iter().filter(|document| document["kind"] == kind && document["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn the_policy_is_complete_and_marked() {
    let policy = bootstrap_policy();
    let count = |kind: &str| policy.iter().filter(|document| document["kind"] == kind).count();
    let counts = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"].map(count);
    assert_eq!(counts, [70, 51, 7, 7]);
    let mut seen = BTreeSet::new();
    for document in &policy {
        let metadata = &document["metadata"];
        assert_eq!(metadata["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults", "{document}");
        assert_eq!(metadata["annotations"][AUTOUPDATE], "true", "{document}");
        assert_eq!(document["apiVersion"], "rbac.authorization.k8s.io/v1");
        let key = (text(document, "kind"), text(metadata, "namespace"), text(metadata, "name"));
        assert!(seen.insert(key), "{key:?} twice");
        for rule in document.get("rules").and_then(Value::as_array).into_iter().flatten() {
            for list in rule.as_object().expect("a rule").values() {
                let list: Vec<&str> = list.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
                assert!(list.is_sorted() && !list.is_empty(), "{key:?} {rule}");
                assert_eq!(list.len(), list.iter().collect::<BTreeSet<_>>().len(), "{key:?} {rule}");
            }
        }
    }
}

#[test]
fn every_binding_finds_its_role_and_gathering_roles_are_up_to_date() {
    let index = index();
    assert_eq!(index.stale_aggregates(), [""; 0]);
    for document in bootstrap_policy().iter().filter(|document| document.get("roleRef").is_some()) {
        let role = &document["roleRef"];
        let namespace = text(&document["metadata"], "namespace");
        index.role_rules(text(role, "kind"), text(role, "name"), namespace).expect("the role exists");
    }
}

#[test]
fn documents_have_the_form_of_kubernetes() {
    assert_eq!(
        find("ClusterRole", "edit")["metadata"]["labels"],
        json!({
            "kubernetes.io/bootstrapping": "rbac-defaults",
            "rbac.authorization.k8s.io/aggregate-to-admin": "true"
        })
    );
    assert_eq!(
        find("ClusterRole", "edit")["aggregationRule"],
        json!({"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]})
    );
    assert_eq!(
        find("ClusterRole", "cluster-admin")["rules"],
        json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]}
        ])
    );
    assert_eq!(
        find("ClusterRole", "system:aggregate-to-admin")["rules"][1],
        json!({
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["rolebindings", "roles"]
        })
    );
    let binding = find("ClusterRoleBinding", "system:controller:job-controller");
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "job-controller", "namespace": "kube-system"}])
    );
    assert_eq!(
        binding["roleRef"],
        json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:controller:job-controller"})
    );
    assert_eq!(
        find("ClusterRoleBinding", "cluster-admin")["subjects"],
        json!([{"apiGroup": GROUP, "kind": "Group", "name": "system:masters"}])
    );
    assert_eq!(find("ClusterRoleBinding", "system:node").get("subjects"), None);
    assert_eq!(
        find("RoleBinding", "system::extension-apiserver-authentication-reader")["roleRef"],
        json!({"apiGroup": GROUP, "kind": "Role", "name": "extension-apiserver-authentication-reader"})
    );
}

/// Permissions on a new server. Each row has one request and its expected decision.
#[test]
fn a_fresh_server_allows_and_refuses() {
    let mut index = index();
    let subject = |name: &str| json!([{"kind": "User", "name": name}]);
    for role in ["view", "edit", "admin"] {
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subject(role)});
        index.put(RoleKind::RoleBinding, "work", role, &binding);
    }
    let (chain, consulted) = (Arc::new(Chain::new(vec![Way::Rbac])), Consulted::default());
    let authorizer = Authorizer { chain: &chain, rbac: &index, nodes: None, consulted: &consulted };
    let user = |name: &str| match name {
        "anonymous" => User::new("system:anonymous", &["system:unauthenticated"]),
        "node" => User::new("system:node:n1", &["system:nodes", "system:authenticated"]),
        "scheduler" => User::new("system:kube-scheduler", &["system:authenticated"]),
        "manager" => User::new("system:kube-controller-manager", &["system:authenticated"]),
        "proxy" => User::new("system:kube-proxy", &["system:authenticated"]),
        "monitor" => User::new("m", &["system:monitoring", "system:authenticated"]),
        "root" => User::new("root", &["system:masters", "system:authenticated"]),
        name => match name.strip_prefix("sa:") {
            Some(name) => User::service_account("kube-system", name, ""),
            None => User::new(name, &["system:authenticated"]),
        },
    };
    // Columns: user, verb, group/resource[/subresource] or a path, namespace, allowed.
    let rows = [
        ("root", "delete", "/nodes", "", true),
        ("anonymous", "get", "path:/healthz", "", true),
        ("anonymous", "get", "path:/version", "", true),
        ("anonymous", "get", "path:/healthz/etcd", "", false),
        ("anonymous", "get", "path:/api", "", false),
        ("anonymous", "get", "path:/openapi/v2", "", false),
        ("anonymous", "create", "authorization.k8s.io/selfsubjectaccessreviews", "", false),
        ("anonymous", "list", "/pods", "work", false),
        ("nobody", "get", "path:/apis/apps/v1", "", true),
        ("nobody", "get", "path:/openapi/v3/apis/apps/v1", "", true),
        ("nobody", "get", "path:/metrics", "", false),
        ("nobody", "create", "authorization.k8s.io/selfsubjectrulesreviews", "", true),
        ("nobody", "create", "authentication.k8s.io/selfsubjectreviews", "", true),
        ("nobody", "create", "authorization.k8s.io/subjectaccessreviews", "", false),
        ("nobody", "get", "/configmaps", "kube-system", false),
        ("nobody", "get", "path:/.well-known/openid-configuration", "", false),
        ("sa:default", "get", "path:/.well-known/openid-configuration", "", true),
        ("sa:default", "get", "/secrets", "kube-system", false),
        ("monitor", "get", "path:/metrics", "", true),
        ("monitor", "get", "path:/healthz/etcd", "", true),
        ("monitor", "list", "/pods", "", false),
        ("node", "get", "/nodes", "", false),
        ("view", "list", "/pods", "work", true),
        ("view", "list", "/pods", "other", false),
        ("view", "get", "/pods/log", "work", true),
        ("view", "get", "/secrets", "work", false),
        ("view", "create", "/pods", "work", false),
        ("view", "create", "/pods/exec", "work", false),
        ("view", "list", "events.k8s.io/events", "work", true),
        ("view", "list", "rbac.authorization.k8s.io/roles", "work", false),
        ("edit", "get", "/secrets", "work", true),
        ("edit", "create", "/pods/exec", "work", true),
        ("edit", "update", "apps/deployments/scale", "work", true),
        ("edit", "update", "apps/deployments/status", "work", false),
        ("edit", "create", "/resourcequotas", "work", false),
        ("edit", "update", "/endpoints", "work", false),
        ("edit", "create", "rbac.authorization.k8s.io/rolebindings", "work", false),
        ("admin", "create", "rbac.authorization.k8s.io/rolebindings", "work", true),
        ("admin", "escalate", "rbac.authorization.k8s.io/roles", "work", false),
        ("admin", "bind", "rbac.authorization.k8s.io/roles", "work", false),
        ("admin", "create", "authorization.k8s.io/localsubjectaccessreviews", "work", true),
        ("admin", "delete", "/namespaces", "work", false),
        ("admin", "get", "/pods/log", "work", true),
        ("admin", "delete", "apps/deployments", "work", true),
        ("scheduler", "create", "/pods/binding", "work", true),
        ("scheduler", "create", "/bindings", "work", true),
        ("scheduler", "update", "/persistentvolumeclaims", "work", true),
        ("scheduler", "list", "scheduling.k8s.io/workloads", "", true),
        ("scheduler", "get", "/secrets", "work", false),
        ("scheduler", "create", "coordination.k8s.io/leases", "kube-system", true),
        ("scheduler", "get", "/configmaps", "kube-system", false),
        ("manager", "list", "anything.example/things", "", true),
        ("manager", "delete", "/pods", "work", false),
        ("manager", "create", "/serviceaccounts/token", "kube-system", true),
        ("proxy", "watch", "discovery.k8s.io/endpointslices", "", true),
        ("proxy", "update", "/services", "work", false),
        ("sa:generic-garbage-collector", "delete", "anything.example/things", "work", true),
        ("sa:clusterrole-aggregation-controller", "escalate", "rbac.authorization.k8s.io/clusterroles", "", true),
        ("sa:job-controller", "create", "/pods", "work", true),
        ("sa:job-controller", "get", "/secrets", "work", false),
        ("sa:token-cleaner", "delete", "/secrets", "kube-system", true),
        ("sa:token-cleaner", "delete", "/secrets", "work", false),
        ("sa:bootstrap-signer", "get", "/configmaps", "kube-public", true),
        ("sa:bootstrap-signer", "update", "/configmaps", "kube-public", false),
    ];
    for (name, verb, what, namespace, allowed) in rows {
        let attributes = match what.strip_prefix("path:") {
            Some(path) => Attributes::path(verb, path),
            None => {
                let parts: Vec<&str> = what.splitn(3, '/').collect();
                let subresource = parts.get(2).copied().unwrap_or_default();
                let (group, resource) = (parts[0], parts[1]);
                let target = ResourceTarget { group, resource, subresource, namespace, ..Default::default() };
                Attributes::resource(verb, target)
            }
        };
        let verdict = authorizer.authorize(&user(name), &attributes);
        assert_eq!(verdict.is_allowed(), allowed, "{name} {verb} {what} in {namespace:?}: {}", verdict.reason());
    }
}

/// Only these roles may have unrestricted rules: a mistake in the table must not give them to others.
#[test]
fn only_known_roles_hold_dangerous_rules() {
    let mut dangerous = BTreeSet::new();
    for document in bootstrap_policy() {
        for rule in PolicyRule::list_from(&document) {
            let has = |list: &[String], wanted: &[&str]| list.iter().any(|item| wanted.contains(&item.as_str()));
            let writes = has(&rule.verbs, &["*", "create", "update", "patch", "delete", "deletecollection"]);
            let powers = has(&rule.verbs, &["escalate", "bind", "impersonate", "approve", "sign"]);
            if (writes && has(&rule.resources, &["*"])) || powers || has(&rule.non_resource_urls, &["*"]) {
                dangerous.insert(text(&document["metadata"], "name").to_owned());
            }
        }
    }
    let expected = [
        "admin",
        "cluster-admin",
        "edit",
        "system:aggregate-to-edit",
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        "system:certificates.k8s.io:kubelet-serving-approver",
        "system:certificates.k8s.io:legacy-unknown-approver",
        "system:controller:certificate-controller",
        "system:controller:clusterrole-aggregation-controller",
        "system:controller:generic-garbage-collector",
        "system:controller:namespace-controller",
    ];
    assert_eq!(dangerous.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn reconciling_adds_what_is_missing_and_keeps_what_was_added() {
    let wanted = find("ClusterRole", "system:kube-dns");
    assert_eq!(reconcile(None, &wanted), Some(wanted.clone()));
    assert_eq!(reconcile(Some(&wanted), &wanted), None);

    let mut old = wanted.clone();
    old["rules"] = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["endpoints", "services"]},
                          {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    old["metadata"]["labels"] = json!({"mine": "yes", "kubernetes.io/bootstrapping": "changed"});
    let new = reconcile(Some(&old), &wanted).expect("rules are missing");
    assert_eq!(
        new["rules"],
        json!([
            {"verbs": ["list"], "apiGroups": [""], "resources": ["endpoints", "services"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["watch"], "apiGroups": [""], "resources": ["endpoints"]},
            {"verbs": ["watch"], "apiGroups": [""], "resources": ["services"]}
        ])
    );
    assert_eq!(new["metadata"]["labels"], json!({"mine": "yes", "kubernetes.io/bootstrapping": "changed"}));
    assert_eq!(reconcile(Some(&new), &wanted), None, "a second pass finds nothing to do");

    old["metadata"]["annotations"][AUTOUPDATE] = "false".into();
    assert_eq!(reconcile(Some(&old), &wanted), None, "its owner said no");
}

#[test]
fn reconciling_bindings_and_gathering_roles() {
    let wanted = find("ClusterRoleBinding", "system:discovery");
    let mut old = wanted.clone();
    old["subjects"] = json!([{"kind": "User", "name": "extra"}]);
    let new = reconcile(Some(&old), &wanted).expect("a subject is missing");
    assert_eq!(
        new["subjects"],
        json!([
            {"kind": "User", "name": "extra"},
            {"apiGroup": GROUP, "kind": "Group", "name": "system:authenticated"}
        ])
    );
    assert_eq!(reconcile(Some(&new), &wanted), None);
    old["roleRef"]["name"] = "cluster-admin".into();
    assert_eq!(reconcile(Some(&old), &wanted), Some(wanted), "a binding to another role is replaced");

    let wanted = find("ClusterRole", "view");
    let mut old = wanted.clone();
    old["rules"] = json!([]);
    assert_eq!(reconcile(Some(&old), &wanted), None, "gathered rules are not reconciled");
    old["aggregationRule"]["clusterRoleSelectors"] = json!([{"matchLabels": {"own": "1"}}]);
    let new = reconcile(Some(&old), &wanted).expect("a selector is missing");
    assert_eq!(new["aggregationRule"]["clusterRoleSelectors"].as_array().map(Vec::len), Some(2));
}

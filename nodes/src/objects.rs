//! What simulated nodes need in a cluster beside their rights as nodes: an account's role, and the kind of Stages.

use crate::{ACCOUNT, stage};
use holdfast_world::{Action, Key, Resource, Verb};
use serde_json::{Value, json};

const ROLE: &str = "holdfast:simulated-nodes";

/// The requests that make them; those that are there already are left as they are.
pub fn actions() -> Vec<Action> {
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": rules()});
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": ACCOUNT}],
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}});
    let group = "rbac.authorization.k8s.io";
    [
        (Resource::new(group, "v1", "clusterroles", "ClusterRole", false), role),
        (Resource::new(group, "v1", "clusterrolebindings", "ClusterRoleBinding", false), binding),
        (Resource::new("", "v1", "namespaces", "Namespace", false), namespace),
        (
            Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
            stage::definition(),
        ),
    ]
    .map(|(resource, object)| {
        let key = Key::cluster(object["metadata"]["name"].as_str().unwrap_or_default());
        Action::new(&resource, key, Verb::Create(object))
    })
    .into()
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// What kubelets do to nodes, pods, leases and Events, and what Stages may ask for.
fn rules() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!([
        rule("", &["nodes"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule("", &["nodes/status", "pods/status", "pods/resize", "pods/ephemeralcontainers"], &["patch"]),
        rule("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "patch", "watch"]),
        rule(stage::GROUP, &["stages"], &["get", "list", "watch"]),
        rule(stage::GROUP, &["stages/status"], &["patch"]),
    ])
}

//! What simulated nodes need in a cluster beside their rights as nodes: an account's role, and the kind of Stages.

use crate::{ACCOUNT, stage};
use holdfast_world::{Action, Key, Resource, Verb};
use serde_json::{Value, json};

const ROLE: &str = "holdfast:simulated-nodes";

/// The requests that make what nodes need, whoever they act as. What is there already is left as it is.
pub fn needed() -> Vec<Action> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}});
    let definitions = "customresourcedefinitions";
    let definition = Resource::new("apiextensions.k8s.io", "v1", definitions, "CustomResourceDefinition", false);
    let namespaces = Resource::new("", "v1", "namespaces", "Namespace", false);
    vec![create(&namespaces, namespace), create(&definition, stage::definition())]
}

/// The requests that give the account of nodes its rights.
pub fn rights() -> Vec<Action> {
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": rules()});
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": ACCOUNT}],
    });
    let resource = |plural, kind| Resource::new("rbac.authorization.k8s.io", "v1", plural, kind, false);
    let bindings = resource("clusterrolebindings", "ClusterRoleBinding");
    vec![create(&resource("clusterroles", "ClusterRole"), role), create(&bindings, binding)]
}

fn create(resource: &Resource, object: Value) -> Action {
    let key = Key::cluster(object["metadata"]["name"].as_str().unwrap_or_default());
    Action::new(resource, key, Verb::Create(object))
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// What kubelets do to nodes, pods, leases and Events, and what Stages may ask for.
fn rules() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!([
        // Stages may be about objects of any kind. Who may write Stages may do to objects what this account may.
        rule("*", &["*"], &["delete", "get", "list", "patch", "watch"]),
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

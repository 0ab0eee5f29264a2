//! What simulated nodes need in a cluster beside their rights as nodes: an account's role, and the kind of Stages.

use crate::{ACCOUNT, stage};
use holdfast_value::{Value, json};
use holdfast_world::{Action, Key, Resource, Verb};

const ROLE: &str = "holdfast:simulated-nodes";
/// The label of the ClusterRoles of which that role is made.
const PART: &str = "simulate.holdfast.dev/aggregate-to-nodes";

/// The requests that make what nodes need, whoever they act as. What is there already is left as it is.
pub fn needed() -> Vec<Action> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}});
    let definitions = "customresourcedefinitions";
    let definition = Resource::new("apiextensions.k8s.io", "v1", definitions, "CustomResourceDefinition", false);
    let namespaces = Resource::new("", "v1", "namespaces", "Namespace", false);
    vec![create(&namespaces, namespace), create(&definition, stage::definition())]
}

/// The requests that give the account of nodes its rights: a role that gathers others, so that an administrator adds
/// what Stages may do besides, or takes away what they need not.
pub fn rights() -> Vec<Action> {
    let metadata = json!({"name": ROLE});
    let gathers = json!({"clusterRoleSelectors": [{"matchLabels": {PART: "true"}}]});
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "aggregationRule": gathers});
    let mut gathered = role.clone();
    let all = [of_kubelets(), of_stages()];
    gathered["rules"] = all.iter().filter_map(Value::as_array).flatten().cloned().collect();
    let part = |name: &str, rules: Value| {
        let metadata = json!({"name": format!("{ROLE}:{name}"), "labels": {PART: "true"}});
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    };
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": ACCOUNT}],
    });
    let resource = |plural, kind| Resource::new("rbac.authorization.k8s.io", "v1", plural, kind, false);
    let (roles, bindings) =
        (resource("clusterroles", "ClusterRole"), resource("clusterrolebindings", "ClusterRoleBinding"));
    vec![
        create(&roles, part("kubelet", of_kubelets())),
        create(&roles, part("stages", of_stages())),
        // As the controller that gathers would make it: nodes need not wait for that.
        create(&roles, gathered),
        // One of an earlier release held its rules itself.
        Action::new(&roles, Key::cluster(ROLE), Verb::Apply(role)),
        create(&bindings, binding),
    ]
}

fn create(resource: &Resource, object: Value) -> Action {
    let key = Key::cluster(object["metadata"]["name"].as_str().unwrap_or_default());
    Action::new(resource, key, Verb::Create(object))
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named(mut rule: Value, name: &str) -> Value {
    rule["resourceNames"] = json!([name]);
    rule
}

/// What kubelets do to nodes, pods, leases and Events.
fn of_kubelets() -> Value {
    json!([
        rule("", &["nodes"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule("", &["nodes/status", "pods/status", "pods/resize", "pods/ephemeralcontainers"], &["patch"]),
        rule("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "patch", "watch"]),
        rule(stage::GROUP, &["stages"], &["get", "list", "watch"]),
        rule(stage::GROUP, &["stages/status"], &["patch"]),
        // What pods' files and variables come from, read where somebody looks into a container.
        rule("", &["configmaps", "secrets"], &["get"]),
        rule("", &["services"], &["list"]),
        rule("", &["serviceaccounts/token"], &["create"]),
        // Who asks a node, and whether they may.
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        // Whether what they need is there.
        named(rule("", &["namespaces"], &["get"]), "kube-node-lease"),
        named(rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]), stage::DEFINITION),
    ])
}

/// Groups of kinds that neither hold secrets nor say who may do what.
const PLAIN: [&str; 12] = [
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "extensions",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Such kinds among those of the core.
const PLAIN_OF_CORE: [&str; 14] = [
    "configmaps",
    "endpoints",
    "limitranges",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "persistentvolumes",
    "persistentvolumes/status",
    "podtemplates",
    "replicationcontrollers",
    "replicationcontrollers/status",
    "resourcequotas",
    "resourcequotas/status",
    "services",
    "services/status",
];

/// What Stages may do from the start. Whoever may write Stages does it with the rights of the nodes' account.
fn of_stages() -> Value {
    const VERBS: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];
    let mut rules = vec![rule("", &PLAIN_OF_CORE, &VERBS)];
    rules.extend(PLAIN.iter().map(|group| rule(group, &["*"], &VERBS)));
    rules.into()
}

//! The objects that simulated nodes need in addition to their Nodes: the role of their account, and the definition of
//! Stages.

use crate::{ACCOUNT, stage};
use holdfast_value::{Value, json};
use holdfast_world::{Action, Key, Resource, Verb};

const ROLE: &str = "holdfast:simulated-nodes";
/// The label of the ClusterRoles from which the role of the nodes' account is aggregated.
const PART: &str = "simulate.holdfast.dev/aggregate-to-nodes";

/// The actions that create the objects that nodes need, whatever account the nodes use. Objects that exist are not
/// changed.
pub fn needed() -> Vec<Action> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}});
    let definitions = "customresourcedefinitions";
    let definition = Resource::new("apiextensions.k8s.io", "v1", definitions, "CustomResourceDefinition", false);
    let namespaces = Resource::new("", "v1", "namespaces", "Namespace", false);
    vec![create(&namespaces, namespace), create(&definition, stage::definition())]
}

/// The actions that grant the nodes' account its rights. The role is aggregated, so that an administrator can add
/// rights that Stages need, and remove other rights.
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
        // The role is created with the rules that the aggregation controller would give it, so that nodes need not wait
        // for that controller.
        create(&roles, gathered),
        // In an earlier release, the role contained its rules directly, so an existing role is changed to an aggregated
        // role.
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

/// The rules of the role of kubelets: access to nodes, pods, leases and Events.
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
        // The files and variables of pods come from these objects. The objects are read when a client uses a container.
        rule("", &["configmaps", "secrets"], &["get"]),
        rule("", &["services"], &["list"]),
        rule("", &["serviceaccounts/token"], &["create"]),
        // The nodes use these reviews to authenticate and authorize the clients of their kubelet API.
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        // With these rights, the nodes check whether the objects that they need exist.
        named(rule("", &["namespaces"], &["get"]), "kube-node-lease"),
        named(rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]), stage::DEFINITION),
    ])
}

/// API groups whose kinds neither contain secrets nor grant rights.
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

/// The resources of the core group that neither contain secrets nor grant rights.
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

/// The rights that Stages have initially. A user who may write Stages can do through them whatever the nodes' account
/// may do.
fn of_stages() -> Value {
    const VERBS: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];
    let mut rules = vec![rule("", &PLAIN_OF_CORE, &VERBS)];
    rules.extend(PLAIN.iter().map(|group| rule(group, &["*"], &VERBS)));
    rules.into()
}

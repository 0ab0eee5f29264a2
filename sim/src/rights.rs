//! The simulated users, and a simple model of the rights that the roles of the simulated cluster give them.
//!
//! One user may do everything, one user may read everything, and three users may own namespaces. While a RoleBinding
//! exists, the user after whom it is named may do everything in the RoleBinding's namespace. RoleBindings are simulated
//! like all other objects: clients create and delete them, and they are deleted with their namespaces.

use crate::random::Dice;
use crate::shape::{RBAC_GROUP, Sort};
use crate::twin::Twin;
use holdfast_core::authz::User;
use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::object::meta;
use holdfast_core::request::{Request, Verb};
use holdfast_value::{Value, json};
use std::sync::{Arc, OnceLock};

/// The ClusterRole that a RoleBinding gives to the owner of a namespace.
pub const OWNER_ROLE: &str = "sim:owner";
const ADMIN: &str = "sim";
const AUDITOR: &str = "auditor";
const OWNERS: [&str; 3] = ["owner-a", "owner-b", "owner-c"];

/// The administrator. Roles allow this user to do everything; the user is in no privileged group.
pub fn admin() -> Arc<User> {
    users()[0].clone()
}

fn users() -> &'static [Arc<User>] {
    static USERS: OnceLock<Vec<Arc<User>>> = OnceLock::new();
    USERS.get_or_init(|| {
        let names = [ADMIN, AUDITOR].into_iter().chain(OWNERS);
        names.map(|name| Arc::new(User::new(name, &["system:authenticated"]))).collect()
    })
}

/// A random user: in 80 of 100 cases the administrator.
pub fn draw(dice: &mut Dice) -> Arc<User> {
    let at = dice.weighted(&[(80, 0), (5, 1), (5, 2), (5, 3), (5, 4)]);
    users()[at].clone()
}

/// The user who owns the namespaces that have a RoleBinding with the first of the [names](crate::pick::NAMES).
pub fn first_owner() -> Arc<User> {
    users()[2].clone()
}

/// The prefix of names that the server generates.
pub const GENERATED: &str = "gen-";

/// The name of the user who is the subject of the RoleBinding with this name. No client is the subject of a RoleBinding
/// whose name the server generated.
pub fn owner(binding: &str) -> String {
    format!("owner-{}", if binding.starts_with(GENERATED) { "nobody" } else { binding })
}

/// Whether this user may see everything, past versions included.
pub fn sees_all(user: &User) -> bool {
    user.name == ADMIN || user.name == AUDITOR
}

/// Whether the user has a right at a version. An empty namespace stands for the cluster, or for all namespaces.
pub fn may(twin: &Twin, user: &User, verb: Verb, namespace: &str, offset: u64) -> bool {
    if let Some(binding) = user.name.strip_prefix("owner-") {
        let key = meta::key(Some(namespace), binding);
        return !namespace.is_empty() && twin.version_at(Sort::RoleBinding.storage(), &key, offset).is_some();
    }
    // The requests that the server itself makes never exceed its roles.
    user.name != AUDITOR || !verb.is_mutating()
}

/// The namespace in which a request is authorized. A request about a Namespace object is authorized in the namespace of
/// this name.
pub fn namespace_of(sort: Sort, request: &Request) -> &str {
    if sort == Sort::Namespace { request.name() } else { request.namespace().unwrap_or("") }
}

/// Whether the user must not see the content that the namespace had at a version, because it was the content of an
/// earlier namespace of this name.
pub fn is_hidden(twin: &Twin, user: &User, namespace: &str, asked: u64, newest: u64) -> bool {
    if sees_all(user) || namespace.is_empty() || asked >= newest {
        return false;
    }
    let place = (Sort::Namespace.storage().to_owned(), namespace.to_owned());
    let versions = twin.versions_within(&place, 0, newest);
    match versions.iter().rposition(Option::is_none) {
        // Before the namespace was created for the first time, there was nothing to hide.
        None | Some(0) => false,
        Some(at) => versions.get(at + 1).copied().flatten().is_none_or(|first| asked < first.offset),
    }
}

/// The roles and bindings that grant these rights to the users, and the roles and bindings of the server's own
/// accounts.
pub fn policy() -> &'static [Value] {
    static POLICY: OnceLock<Vec<Value>> = OnceLock::new();
    POLICY.get_or_init(|| {
        let needed = "system:controller:namespace-controller";
        let built_in = bootstrap_policy().into_iter().filter(|document| document["metadata"]["name"] == needed);
        let every = |verbs: &[&str]| json!({"apiGroups": ["*"], "resources": ["*"], "verbs": verbs});
        let paths = |verbs: &[&str]| json!({"nonResourceURLs": ["*"], "verbs": verbs});
        let ours = [
            role("sim:admin", json!([every(&["*"]), paths(&["*"])])),
            role("sim:auditor", json!([every(&["get", "list", "watch"]), paths(&["get"])])),
            role(OWNER_ROLE, json!([every(&["*"])])),
            binding("sim:admin", ADMIN),
            binding("sim:auditor", AUDITOR),
        ];
        built_in.chain(ours).collect()
    })
}

fn role(name: &str, rules: Value) -> Value {
    let api_version = format!("{RBAC_GROUP}/v1");
    json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn binding(role: &str, user: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": user}],
    })
}

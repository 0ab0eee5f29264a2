//! Who asks, and what the roles of the simulated cluster let them do, in the simplest words.
//!
//! One user may do everything, one may read everything, and three own namespaces: whoever a RoleBinding is named after
//! may do everything in its namespace for as long as it is there. RoleBindings are objects like all others here: clients
//! make and delete them, and they go with their namespaces.

use crate::random::Dice;
use crate::shape::Sort;
use crate::twin::Twin;
use holdfast_core::authz::User;
use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::object::meta;
use holdfast_core::request::{Request, Verb};
use holdfast_value::{Value, json};
use std::sync::{Arc, OnceLock};

pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The ClusterRole of those who own a namespace.
pub const OWNER_ROLE: &str = "sim:owner";
const ADMIN: &str = "sim";
const AUDITOR: &str = "auditor";
const OWNERS: [&str; 3] = ["owner-a", "owner-b", "owner-c"];

/// May do everything, as far as the roles say so: it is in no privileged group.
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

/// Mostly somebody who may.
pub fn draw(dice: &mut Dice) -> Arc<User> {
    let at = dice.weighted(&[(80, 0), (5, 1), (5, 2), (5, 3), (5, 4)]);
    users()[at].clone()
}

/// Whoever owns the namespaces that have a RoleBinding of the first name.
pub fn first_owner() -> Arc<User> {
    users()[2].clone()
}

/// How names begin that the server makes up.
pub const GENERATED: &str = "gen-";

/// Whom a RoleBinding of this name is for; one with a name that the server made up is for nobody.
pub fn owner(binding: &str) -> String {
    format!("owner-{}", if binding.starts_with(GENERATED) { "nobody" } else { binding })
}

/// Whether this user may look at everything there is and was.
pub fn sees_all(user: &User) -> bool {
    user.name == ADMIN || user.name == AUDITOR
}

/// Whether the user might ask for this at a version; the namespace is empty for the cluster and for all namespaces.
pub fn may(twin: &Twin, user: &User, verb: Verb, namespace: &str, offset: u64) -> bool {
    if let Some(binding) = user.name.strip_prefix("owner-") {
        let key = meta::key(Some(namespace), binding);
        return !namespace.is_empty() && twin.version_at(Sort::RoleBinding.storage(), &key, offset).is_some();
    }
    // The server's own plans ask for no more than their roles allow.
    user.name != AUDITOR || !verb.is_mutating()
}

/// The namespace that decides about a request: a namespace is judged as if it were within itself.
pub fn namespace_of(sort: Sort, request: &Request) -> &str {
    if sort == Sort::Namespace { request.name() } else { request.namespace().unwrap_or("") }
}

/// Whether what was in the namespace at a version is not this user's to see: it belonged to others, if to anybody.
pub fn is_hidden(twin: &Twin, user: &User, namespace: &str, asked: u64, newest: u64) -> bool {
    if sees_all(user) || namespace.is_empty() || asked >= newest {
        return false;
    }
    let place = (Sort::Namespace.storage().to_owned(), namespace.to_owned());
    let versions = twin.versions_within(&place, 0, newest);
    match versions.iter().rposition(Option::is_none) {
        // At the very beginning it was not there, like everything else.
        None | Some(0) => false,
        Some(at) => versions.get(at + 1).copied().flatten().is_none_or(|first| asked < first.offset),
    }
}

/// The roles and bindings that everything above counts on, with those under which the server keeps house.
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
    let api_version = format!("{GROUP}/v1");
    json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn binding(role: &str, user: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    })
}

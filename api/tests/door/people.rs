//! A cluster in this process, and users that make requests.

use holdfast_core::Refusal;
use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::authz::bootstrap_objects::bootstrap_objects;
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_core::request::{Body, Format, Options as RequestOptions, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Clock, Engine, Options as EngineOptions};
use holdfast_service::housekeeping::bootstrap;
use holdfast_service::{Call, CallSubject, Options, Reply, ResourcePath, ResourceRequest, Service};
use holdfast_value::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Seconds(AtomicU64);

impl Clock for Seconds {
    fn stamp(&self) -> Stamp {
        let seed = self.0.fetch_add(1, Ordering::Relaxed);
        let time = jiff::Timestamp::from_second(1_795_255_200 + seed as i64).unwrap();
        Stamp { time, seed }
    }
}

/// A cluster with the objects that every cluster has, under RBAC.
pub async fn cluster(options: Options) -> Arc<Service> {
    let clock = Arc::new(Seconds::default());
    let options_of_engine = EngineOptions::new(Settings::default(), clock).authorized_by(Way::Rbac);
    let log = Arc::new(MemoryLog::default());
    let engine = Engine::open(log, Arc::new(registry().clone()), options_of_engine).unwrap();
    let service = Service::new(engine, options);
    bootstrap::ensure(&service, bootstrap_objects(), bootstrap_policy()).await.unwrap();
    service
}

pub fn admin() -> User {
    User::new("admin", &[PRIVILEGED_GROUP, "system:authenticated"])
}

pub fn jane() -> User {
    User::new("jane", &["system:authenticated"])
}

/// A request with this verb on a path of the API.
pub fn named(verb: Verb, path: &str, body: &Value) -> ResourceRequest {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => panic!("{path} is not a resource"),
    };
    let (namespace, within, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, true, rest),
        ["namespaces", namespace] => (*namespace, false, rest),
        _ => ("", false, rest),
    };
    let part = |index: usize| rest.get(index).copied().unwrap_or("").to_owned();
    let path = ResourcePath {
        group: group.into(),
        version: version.into(),
        namespace: namespace.into(),
        within,
        resource: part(0),
        name: part(1),
        subresource: part(2),
        rest: String::new(),
    };
    let format = if verb == Verb::Patch { Format::MergePatch } else { Format::Json };
    let bytes = if body.is_null() { String::new() } else { body.to_string() };
    let options = RequestOptions { field_manager: Some("test".into()), ..RequestOptions::default() };
    ResourceRequest {
        verb,
        path: path.into(),
        options,
        body: Body { content: bytes.into_bytes().into(), format },
        at: None,
    }
}

pub fn call(user: &User, named: ResourceRequest) -> Call {
    Call::new(Arc::new(user.clone()), CallSubject::Named(Box::new(named)))
}

pub async fn ask(service: &Arc<Service>, user: &User, verb: Verb, path: &str, body: Value) -> Result<Reply, Refusal> {
    service.call(call(user, named(verb, path, &body))).await.reply
}

/// Makes a request that must succeed.
pub async fn must(service: &Arc<Service>, verb: Verb, path: &str, body: Value) -> Reply {
    let told = format!("{} {path}", verb.as_str());
    ask(service, &admin(), verb, path, body).await.unwrap_or_else(|refusal| panic!("{told}: {refusal:?}"))
}

pub fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// Grants a user the permissions of an RBAC rule, in a namespace or everywhere.
pub async fn allow(service: &Arc<Service>, user: &User, namespace: &str, rule: Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let (base, role, binding) = match namespace {
        "" => (rbac.to_owned(), "clusterroles", "clusterrolebindings"),
        namespace => (format!("{rbac}/namespaces/{namespace}"), "roles", "rolebindings"),
    };
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let name = format!("{}-{}", user.name, service.engine().snapshot().offset);
    let document = json!({"metadata": {"name": name}, "rules": [rule]});
    must(service, Verb::Create, &format!("{base}/{role}"), document).await;
    let document = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name}]});
    must(service, Verb::Create, &format!("{base}/{binding}"), document).await;
}

/// Waits until `holds` returns true.
pub async fn until(service: &Arc<Service>, what: &str, holds: impl Fn(&Service) -> bool) {
    for _ in 0..4000 {
        if holds(service) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{what} does not happen");
}

/// Whether the object exists now.
pub fn has(service: &Service, resource: &str, key: &str) -> bool {
    let state = service.engine().snapshot();
    let (kind, _) = state.registry.iter().find(|(_, kind)| kind.resource == resource).unwrap();
    state.get(kind, key).is_some()
}

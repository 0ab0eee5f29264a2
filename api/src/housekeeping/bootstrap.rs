//! Creates the objects that every cluster has and on which clients rely, such as namespaces and roles.

use crate::Service;
use holdfast_core::Refusal;
use holdfast_core::authz::{PRIVILEGED_GROUP, User, bootstrap};
use holdfast_core::kinds::KindId;
use holdfast_core::kinds::known;
use holdfast_core::object::{encode, meta};
use holdfast_core::refusal::Internal;
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_engine::Engine;
use holdfast_value::Value;
use std::sync::Arc;

/// The user in whose name the server creates the objects that every cluster has.
pub const USER: &str = "system:apiserver";
/// The field manager of the server's own writes.
pub(super) const MANAGER: &str = "kube-apiserver";

/// Creates missing objects, and completes roles and bindings that an older release created.
pub async fn ensure(service: &Arc<Service>, documents: Vec<Value>, policy: Vec<Value>) -> Result<(), Refusal> {
    // Namespaces are created first, because other objects are in these namespaces.
    let (namespaces, rest): (Vec<Value>, Vec<Value>) =
        documents.into_iter().partition(|document| document["kind"] == known::NAMESPACE.kind);
    all(service, namespaces, |_, _| None).await?;
    all(service, rest, |_, _| None).await?;
    all(service, policy, |existing, wanted| bootstrap::reconcile(Some(existing), wanted)).await
}

/// Creates all objects concurrently, so that they share a few fsyncs. `reconcile` returns the new form of an existing
/// object, if it must be updated.
async fn all(
    service: &Arc<Service>,
    documents: Vec<Value>,
    reconcile: fn(&Value, &Value) -> Option<Value>,
) -> Result<(), Refusal> {
    let mut tasks = tokio::task::JoinSet::new();
    for document in documents {
        let Some(request) = request(service.engine(), document, reconcile)? else { continue };
        let service = service.clone();
        tasks.spawn(async move { service.act(request).await });
    }
    while let Some(result) = tasks.join_next().await {
        match result.map_err(Refusal::fault)? {
            Ok(_) | Err(Refusal::AlreadyExists { .. }) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(())
}

fn request(
    engine: &Engine,
    document: Value,
    reconcile: fn(&Value, &Value) -> Option<Value>,
) -> Result<Option<Request>, Refusal> {
    let state = engine.snapshot();
    let shown = document["metadata"]["name"].to_string();
    let unknown = || Refusal::Internal(Internal::UnknownBuiltIn { name: shown.clone() });
    let api_version = document["apiVersion"].as_str().ok_or_else(unknown)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = document["kind"].as_str().ok_or_else(unknown)?;
    let (id, version) = state.registry.find_kind(group, version, kind).ok_or_else(unknown)?;
    let name = document["metadata"]["name"].as_str().ok_or_else(unknown)?.to_owned();
    let namespace = document["metadata"]["namespace"].as_str().map(str::to_owned);
    let existing = state.get(id, &meta::key(namespace.as_deref(), &name)).map(|entry| entry.document());
    let (verb, document) = match existing {
        None => (Verb::Create, document),
        Some(existing) => match reconcile(&existing, &document) {
            Some(changed) => (Verb::Update, changed),
            None => return Ok(None),
        },
    };
    let bytes = document.as_object().map(encode::document).unwrap_or_default();
    let target = target(id, version, namespace, (verb == Verb::Update).then_some(name));
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let options = Options { field_manager: Some(MANAGER.into()), ..Options::default() };
    let body = Body { content: bytes.into(), format: Format::Json };
    Ok(Some(Request { user, verb, target, options, body, id: "bootstrap".into() }))
}

fn target(kind: KindId, version: usize, namespace: Option<String>, name: Option<String>) -> Target {
    Target { kind, version, namespace, name, subresource: None }
}

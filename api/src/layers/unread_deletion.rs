//! Deletes an object that cannot be read. The user needs an additional verb for this. As in Kubernetes, the deletion
//! ignores preconditions, finalizers and grace periods, and admission judges it like any other deletion.

use super::RequestContext;
use crate::Service;
use crate::lookup::Found;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::apply::apply;
use holdfast_core::authz::{Attributes, Authorizer, ResourceTarget};
use holdfast_core::etcd::nothing_but;
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::Kind;
use holdfast_core::pipeline::validate_delete_options;
use holdfast_core::refusal::{Cause, Forbidden, Subject};
use holdfast_core::request::{IGNORES_READ_ERRORS, Request, Verb};
use holdfast_core::state::{Change, State};
use holdfast_engine::log::Unreadable;
use holdfast_engine::{Engine, Reply as Written};
use std::sync::Arc;

const VERB: &str = "unsafe-delete-ignore-read-errors";
/// The annotation of audit events for requests that tried to delete an object which cannot be read.
const ANNOTATION: &str = "apiserver.k8s.io/unsafe-delete-ignore-read-error";
/// The maximum number of attempts, if the value changes during each attempt and still cannot be read.
const TRIES_MAX: usize = 5;

/// Whether the request asks to delete an object that cannot be read. If the feature gate
/// AllowUnsafeMalformedObjectDeletion is off, the option to do so is ignored.
pub fn is_asked_for(engine: &Engine, request: &mut Request) -> bool {
    let delete = &mut request.options.delete;
    delete.ignores_read_errors &= engine.settings().unsafe_deletion;
    request.verb == Verb::Delete && delete.ignores_read_errors
}

/// Deletes the object, if it cannot be read.
pub async fn carry_out(
    service: &Arc<Service>,
    found: &Found,
    context: &mut RequestContext,
) -> Result<Written, Refusal> {
    let Found { kind, request, .. } = found;
    validate_delete_options(&request.options.delete, request.options.dry_run)?;
    context.annotations.add(ANNOTATION, "");
    let engine = service.engine().of(request.target.kind);
    found.scene.writable(engine)?;
    let state = service.engine().snapshot();
    service.judged(&state, |authorizer| may(authorizer, &state, kind, request)).await?;
    for _ in 0..TRIES_MAX {
        engine.catch_up().await?;
        let Some(object) = unreadable(engine, kind, request) else { return Err(readable(kind, request)) };
        let mut told = Told::default();
        let admitted = engine.rehearse(&as_if_read(engine, &object), request, &mut told).await;
        context.tell(told);
        admitted?;
        if engine.delete_unreadable(object, request).await? {
            // The UID of an object that cannot be read is unknown. Only the names in its key are known.
            let subject = Subject::new("", kind.kind.clone(), request.name());
            return Ok(Written::Deleted { subject, uid: String::new(), warnings: Vec::new() });
        }
    }
    Err(Refusal::modified(subject(kind, request)))
}

fn unreadable(engine: &Engine, kind: &Kind, request: &Request) -> Option<Unreadable> {
    let key = request.key();
    engine.unreadable(&kind.storage.path, &key, 1).into_iter().find(|one| one.key == key)
}

/// The state on which admission judges the deletion. If the object was never read, this state contains only the
/// object's names.
fn as_if_read(engine: &Engine, object: &Unreadable) -> State {
    let mut state = State::clone(&engine.snapshot());
    let Some(id) = state.registry.by_storage(&object.resource) else { return state };
    if state.get(id, &object.key).is_some() {
        return state;
    }
    let kind = state.registry.share(id);
    let record = Record {
        offset: object.version.0,
        resource: object.resource.clone(),
        key: object.key.clone(),
        operation: Operation::Put as i32,
        object: nothing_but(&kind.hub().api_version(), &kind.kind, &object.key, object.version),
        ..Record::default()
    };
    if let Ok(change) = Change::from_record(&state.registry, &record) {
        apply(&mut state, &change);
    }
    state
}

fn may(authorizer: &Authorizer<'_>, state: &State, kind: &Kind, request: &Request) -> Result<(), Refusal> {
    let version = kind.versions.get(request.target.version).ok_or(Refusal::NoSuchPath)?;
    // A request for a namespace is judged as a request within that namespace.
    let own = if request.target.kind == state.registry.namespaces() { request.name() } else { "" };
    let target = ResourceTarget {
        group: &version.group,
        version: &version.version,
        resource: &kind.resource,
        namespace: request.namespace().unwrap_or(own),
        name: request.name(),
        ..ResourceTarget::default()
    };
    let attributes = Attributes::resource(VERB, target);
    let judged = authorizer.authorize(&request.user, &attributes);
    if judged.is_allowed() {
        return Ok(());
    }
    let why = match judged.error() {
        Some(why) => format!("error while checking permission for \"{VERB}\", {why}"),
        None => format!("not permitted to do \"{VERB}\", reason: {}", judged.reason()),
    };
    Err(Refusal::Forbidden { subject: subject(kind, request), why: Forbidden::Admission(why) })
}

fn readable(kind: &Kind, request: &Request) -> Refusal {
    let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
    let causes = Cause::invalid(IGNORES_READ_ERRORS, &true.into(), why).into();
    Refusal::Invalid { subject: subject(kind, request), causes }
}

fn subject(kind: &Kind, request: &Request) -> Subject {
    let group = kind.versions.get(request.target.version).map(|version| version.group.clone()).unwrap_or_default();
    Subject::new(group, kind.resource.clone(), request.name())
}

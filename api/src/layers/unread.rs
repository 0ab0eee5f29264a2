//! Objects of a shared store whose values cannot be read. As in Kubernetes, requests for such an object fail, and so do
//! lists and watches that would include such an object. If the feature gate AllowUnsafeMalformedObjectDeletion is on,
//! the refusals name the objects that clients may delete without reading them.

use holdfast_core::event::Offset;
use holdfast_core::kinds::Kind;
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::pipeline::parsed;
use holdfast_core::refusal::{Cause, CauseReason, Causes, Internal, Refusal, Subject, Unread, Unreasoned};
use holdfast_core::request::{Request, Target, Verb};
use holdfast_engine::Engine;
use holdfast_engine::log::{Flaw, Unreadable};
use std::sync::Arc;

/// The maximum number of unreadable objects that the refusal of a list counts.
const LOOKED_MAX: usize = 1000;
/// The maximum number of unreadable objects that the refusal of a list names.
const NAMED_MAX: usize = 10;
/// The maximum number of objects for each of which the refusal of a list contains a separate cause, if the feature gate
/// is on.
const CAUSES_MAX: usize = 100;

/// Refuses a request for one object if the object cannot be read. `until` is the version that the request is about;
/// `None` for the newest version.
pub fn object(engine: &Engine, kind: &Kind, key: &str, until: Option<Offset>) -> Result<(), Refusal> {
    let found = engine.unreadable(&kind.storage.path, key, 1).into_iter();
    let mut found = found.filter(|one| one.key == key && until.is_none_or(|until| one.version <= until));
    match found.next() {
        Some(one) if engine.settings().unsafe_deletion => Err(Refusal::fault(corrupt(&one))),
        one => refuse(one.into_iter()),
    }
}

/// Refuses a list or a watch if it would include an object that cannot be read. Only objects whose version is at most
/// `until` and for whose key `includes` returns true are considered.
pub fn selection(
    engine: &Engine,
    kind: &Kind,
    selection: &Selection,
    until: Option<Offset>,
    includes: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    let prefix = selection.key.as_deref().unwrap_or(&selection.prefix);
    let found = engine.unreadable(&kind.storage.path, prefix, LOOKED_MAX).into_iter();
    let found = found.filter(|one| selection.key.as_ref().is_none_or(|key| *key == one.key));
    let found = found.filter(|one| until.is_none_or(|until| one.version <= until) && includes(&one.key));
    if !engine.settings().unsafe_deletion {
        return refuse(found);
    }
    let mut causes = Causes::default();
    for (nth, one) in found.enumerate() {
        if nth == CAUSES_MAX {
            causes.push(Cause::told(CauseReason::TooMany, "", "too many errors, the list is truncated"));
            break;
        }
        causes.push(Cause::told(CauseReason::UnexpectedServerResponse, one.place.clone(), corrupt(&one)));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::StoreRead { subject: Subject::new(kind.hub().group.clone(), kind.resource.clone(), "list"), causes })
}

/// Kubernetes' message about an object that clients may delete without reading it.
fn corrupt(Unreadable { place, version, flaw, .. }: &Unreadable) -> String {
    let why = match flaw {
        Flaw::Locked(why) => format!("data from the storage is not transformable revision=0: {why}"),
        Flaw::Malformed(why) => format!("object not decodable revision={version}: {why}"),
    };
    format!("StorageError: corrupt object, Code: 7, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: {why}")
}

/// Refuses a write of an object that cannot be read, so that its value does not change. The object's name counts as
/// taken.
pub fn write(engine: &Engine, kind: &Kind, request: &Request) -> Result<(), Refusal> {
    if request.verb != Verb::Create || request.target.subresource.is_some() {
        return object(engine, kind, &request.key(), None);
    }
    let namespace = request.namespace();
    let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    if engine.unreadable(&kind.storage.path, &prefix, 1).is_empty() {
        return Ok(());
    }
    // The name is read from the body only if there are unreadable objects.
    let body = parsed(&request.body).unwrap_or_default();
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    object(engine, kind, &meta::key(namespace, name), None).map_err(|_| {
        let group = kind.versions[request.target.version].group.clone();
        let subject = Subject::new(group, kind.resource.clone(), name);
        Refusal::AlreadyExists { subject, is_deleting: false }
    })
}

/// Refuses to remove a namespace that is being deleted while it contains objects that cannot be read, because such
/// objects cannot be deleted.
pub fn release(engine: &Arc<Engine>, target: &Target) -> Result<(), Refusal> {
    let state = engine.snapshot();
    let (Some(name), Some("finalize")) = (&target.name, target.subresource.as_deref()) else { return Ok(()) };
    if target.kind != state.registry.namespaces() {
        return Ok(());
    }
    let prefix = format!("{name}/");
    let kinds = state.registry.iter().filter(|(_, kind)| kind.stored && kind.is_namespaced());
    refuse(kinds.flat_map(|(id, kind)| engine.of(id).unreadable(&kind.storage.path, &prefix, 1)))
}

fn refuse(mut found: impl Iterator<Item = Unreadable>) -> Result<(), Refusal> {
    let Some(Unreadable { place, flaw, .. }) = found.next() else { return Ok(()) };
    let others = found.take(NAMED_MAX - 1).map(|one| one.place).collect();
    let unread = |why| Unread { place, why, others };
    Err(match flaw {
        Flaw::Locked(why) => Refusal::Internal(Internal::Unread(unread(why))),
        Flaw::Malformed(why) => Refusal::Unreasoned(Unreasoned::Unread(unread(why))),
    })
}

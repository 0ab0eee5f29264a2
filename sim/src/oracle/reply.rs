//! Answers against what the object was while the request was on its way: every one must be explained by some
//! moment between the question and the answer.

use super::record::{fixed_uid, fixed_version};
use super::rules::held_by;
use super::{Verdict, ensure};
use crate::shape::{Act, Edit, PatchFormat, Shape, Sort, predict};
use crate::twin::{Twin, Version};
use crate::workload::Order;
use holdfast_core::{Cause, Refusal};
use holdfast_engine::Reply;
use serde_json::Value;

/// From the newest event when the request was made to the newest when it was answered.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    /// The log failed at some time in between.
    pub trouble: bool,
}

/// How many addresses the simulated service range has.
const ADDRESSES: usize = 6;
/// How many node ports there are.
pub const NODE_PORTS: usize = 4;

/// Judges an answer that says yes.
pub fn check_reply(twin: &Twin, order: &Order, reply: &Reply, window: Window) -> Verdict {
    let stored = twin.by_request.get(&order.request.id).map(Vec::as_slice).unwrap_or_default();
    let record = stored.first().and_then(|offset| twin.record(*offset));
    if order.request.options.dry_run {
        return check_rehearsal(twin, order, reply, window);
    }
    match reply {
        Reply::Object { entry, .. } => {
            if let Some(record) = record {
                ensure(record.offset == entry.offset.0, || "the answer has another version than the event".into())?;
                return ensure(record.object == entry.json, || "the answer differs from the event".into());
            }
            // Nothing changed, so the object must have been like this already.
            let was = |version: &&Version| version.offset == entry.offset.0;
            let versions = twin.versions_within(&order.place, window.from, window.to);
            let Some(version) = versions.into_iter().flatten().find(was) else {
                return Err(format!("answered with version {}, which nobody wrote then", entry.offset));
            };
            let before = version.shape(order.sort);
            let after = predict(order.sort, &order.act, Some(&before))?;
            ensure(after.as_ref() == Some(&before), || {
                format!("acknowledged, but nothing was written: {before:?} should be {after:?}")
            })
        }
        Reply::Document { .. } => ensure(record.is_some(), || "acknowledged, but there is no event".into()),
        Reply::Deleted { uid, .. } => {
            let Some(record) = record else { return Err("said to be deleted, but there is no event".into()) };
            let object: Value = serde_json::from_slice(&record.object).map_err(|error| error.to_string())?;
            ensure(record.is_delete(), || "said to be deleted, but it is there".into())?;
            ensure(object["metadata"]["uid"] == *uid, || "the answer has another uid than the event".into())
        }
    }
}

/// A dry run shows what would have been.
fn check_rehearsal(twin: &Twin, order: &Order, reply: &Reply, window: Window) -> Verdict {
    let shown = match reply {
        Reply::Object { entry, .. } => entry.document(),
        Reply::Document { document, .. } if document.get("kind") == Some(&"Status".into()) => return Ok(()),
        Reply::Document { document, .. } => Value::Object(document.clone()),
        Reply::Deleted { .. } => Value::Null,
    };
    let shape = Shape::of(order.sort, &shown);
    let place = match shown["metadata"]["name"].as_str() {
        Some(name) => order.place_of(name),
        None => order.place.clone(),
    };
    let possible = twin.versions_within(&place, window.from, window.to).into_iter().any(|version| {
        let before = version.map(|version| version.shape(order.sort));
        match predict(order.sort, &order.act, before.as_ref()) {
            // What goes is shown in its last state, so there is no shape to compare.
            Ok(None) => true,
            Ok(Some(after)) => after == shape,
            Err(_) => false,
        }
    });
    ensure(possible, || format!("the dry run shows {shape:?}"))
}

/// Judges an answer that says no.
pub fn check_refusal(twin: &Twin, order: &Order, refusal: &Refusal, window: Window) -> Verdict {
    let place = match refusal {
        Refusal::AlreadyExists(subject) => order.place_of(&subject.name),
        _ => order.place.clone(),
    };
    let versions = twin.versions_within(&place, window.from, window.to);
    let present = || versions.iter().flatten();
    let absent = versions.iter().any(Option::is_none);
    let explained = match refusal {
        Refusal::NotFound(subject) if subject.resource == "namespaces" && order.sort != Sort::Namespace => {
            namespaces(twin, order, window).iter().any(Option::is_none)
        }
        Refusal::NotFound(_) => absent && !matches!(order.act, Act::Create { .. }),
        Refusal::AlreadyExists(_) => present().count() > 0 && matches!(order.act, Act::Create { .. }),
        Refusal::Conflict { .. } => conflicts(order, &versions),
        Refusal::Forbidden { .. } => match order.act {
            Act::Delete { .. } => order.sort == Sort::Namespace && order.place.1 == "default",
            _ => namespaces(twin, order, window).iter().flatten().any(|v| v.shape(Sort::Namespace).deleting),
        },
        Refusal::Invalid { causes, .. } => {
            let unavailable = |cause: &Cause| is_unavailable(twin, order, &versions, window, &cause.message);
            (order.sort == Sort::Service && causes.iter().all(unavailable))
                || (order.sort.needs_version() && matches!(order.act, Act::Replace { version: None, .. }))
                || present().any(|version| adds_finalizer(order, version))
        }
        Refusal::Unprocessable { .. } => present().any(|version| breaks_patch(order, version)),
        // A document with a version cannot become a new object.
        Refusal::BadRequest(_) => {
            absent && order.sort.creates_on_update() && matches!(order.act, Act::Replace { version: Some(_), .. })
        }
        Refusal::Internal(message) if message.contains("is full") && order.sort == Sort::Service => {
            is_unavailable(twin, order, &versions, window, message)
        }
        Refusal::Internal(_) | Refusal::Unavailable(_) | Refusal::InsufficientStorage(_) => window.trouble,
        _ => false,
    };
    ensure(explained, || format!("nothing explains the refusal {refusal:?} in {window:?}"))
}

fn namespaces<'a>(twin: &'a Twin, order: &Order, window: Window) -> Vec<Option<&'a Version>> {
    let place = (Sort::Namespace.storage().to_owned(), order.namespace().unwrap_or("").to_owned());
    twin.versions_within(&place, window.from, window.to)
}

/// The object had another version or uid than the client insists on, or a binding came too late.
fn conflicts(order: &Order, versions: &[Option<&Version>]) -> bool {
    versions.iter().any(|version| {
        let other_version = fixed_version(&order.act).is_some_and(|fixed| version.is_none_or(|v| v.offset != fixed));
        let other_uid = fixed_uid(&order.act).is_some_and(|fixed| version.is_none_or(|v| v.uid() != fixed));
        let bound = matches!(order.act, Act::Bind { .. })
            && version.is_some_and(|version| {
                let shape = version.shape(order.sort);
                shape.node.is_some() || shape.deleting
            });
        other_version || other_uid || bound
    })
}

/// An address or port that a service could not have: none was left, another had it, or its own may not change.
fn is_unavailable(twin: &Twin, order: &Order, versions: &[Option<&Version>], window: Window, message: &str) -> bool {
    if message.contains("field is immutable") {
        let sent: Value = serde_json::from_slice(&order.request.body.bytes).unwrap_or(Value::Null);
        let address = &sent["spec"]["clusterIP"];
        return versions.iter().flatten().any(|version| version.document["spec"]["clusterIP"] != *address);
    }
    let full = message.contains("range is full");
    if !full && !message.contains("already allocated") {
        return false;
    }
    (window.from..=window.to).any(|offset| {
        let mut held: Vec<String> = Vec::new();
        for ((storage, _), record) in twin.at(offset) {
            if storage == Sort::Service.storage() {
                let service: Value = serde_json::from_slice(&record.object).unwrap_or(Value::Null);
                held.extend(held_by(&service));
            }
        }
        let ports = held.iter().filter(|held| held.starts_with("node port")).count();
        if full { ports >= NODE_PORTS || held.len() - ports >= ADDRESSES } else { !held.is_empty() }
    })
}

fn adds_finalizer(order: &Order, version: &Version) -> bool {
    let before = version.shape(order.sort);
    let after = match &order.act {
        Act::Replace { wanted, .. } => wanted.clone(),
        Act::Change { edit, .. } => before.clone().edited(edit),
        _ => return false,
    };
    before.deleting && after.finalizers.iter().any(|finalizer| !before.finalizers.contains(finalizer))
}

/// A JSON patch whose test fails, or which removes what is not there.
fn breaks_patch(order: &Order, version: &Version) -> bool {
    let Act::Change { edit, format: PatchFormat::Json, test, .. } = &order.act else { return false };
    let before = version.shape(order.sort);
    let failed = test.as_ref().is_some_and(|value| before.labels.get("app") != Some(value));
    let missing = match edit {
        Edit::Label(key, None) => !before.labels.contains_key(*key),
        Edit::Note(key, None) => !before.notes.contains_key(*key),
        Edit::Data(key, None) => !before.data.contains_key(*key),
        _ => false,
    };
    failed || missing
}

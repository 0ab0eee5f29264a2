//! Checks answers against the versions that the object had while the request was in progress. At some moment between
//! the request and the answer, the state of the object must explain the answer. If this holds for all answers, the
//! history of each object is linearizable.

use super::rules::held_by;
use super::{CheckResult, ensure};
use crate::act::{Act, Edit, PatchFormat, lawful, predict};
use crate::coverage::{Mark, saw};
use crate::custom::{self, Law};
use crate::door::DoorReply;
use crate::owners;
use crate::rights;
use crate::shape::{ObjectShape, Sort};
use crate::twin::{ObjectVersion, Twin};
use crate::workload::Order;
use holdfast_core::object::meta::Document;
use holdfast_core::refusal::{Forbidden, Internal};
use holdfast_core::request::Request;
use holdfast_core::state::Entry;
use holdfast_core::{Cause, Refusal};
use holdfast_value::Value;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The time between a request and its answer: the offset of the newest event when the request was made, and when it was
/// answered.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    /// Whether the log failed in the time between the request and the answer.
    pub trouble: bool,
    /// Whether the log failed in this time because the disk was full.
    pub full: bool,
}

/// The number of addresses in the Service range of the simulation.
const ADDRESSES: usize = 6;
/// The number of node ports in the simulation.
pub const NODE_PORTS: usize = 4;

/// Checks the answer to a request that succeeded.
pub fn check_reply(twin: &Twin, order: &Order, told: &DoorReply, window: Window) -> CheckResult {
    if matches!(order.act, Act::DeleteAll { .. }) {
        let DoorReply::Collection(entries) = told else { return Err("a mass deletion tells of no collection".into()) };
        check_collection(twin, order, entries, window)?;
        return check_mass(twin, order, window);
    }
    if order.request.options.dry_run {
        return check_rehearsal(twin, order, told, window);
    }
    let version = twin.of_request(&order.request.id).last().and_then(|offset| twin.event(*offset));
    if let Some(version) = version {
        let timely = window.from < version.offset && version.offset <= window.to;
        ensure(timely, || format!("event {} did not happen between question and answer", version.offset))?;
    }
    match told {
        DoorReply::Object(entry) => {
            if let Some(version) = version {
                ensure(version.offset == entry.offset.0, || "the answer has another version than the event".into())?;
                return ensure(version.record.object == entry.json(), || "the answer differs from the event".into());
            }
            // The request wrote nothing, so the object must already have had this content.
            let was = |version: &&ObjectVersion| version.offset == entry.offset.0;
            let versions = twin.versions_within(&order.place, window.from, window.to);
            let Some(version) = versions.into_iter().flatten().find(was) else {
                return Err(format!("answered with version {}, which nobody wrote then", entry.offset));
            };
            // One of the definitions that existed during the request must explain the answer. It is enough if one does.
            let mut why = String::new();
            let explained = (window.from..=window.to).chain([version.offset]).any(|offset| {
                let law = law(twin, order, offset);
                let before = lawful(order.sort, version.shape(), law);
                match predict(order.sort, &order.act, Some(version), law) {
                    Ok(after) if after.as_ref() == Some(&before) => return true,
                    Ok(after) => why = format!("acknowledged, but nothing was written: {before:?} should be {after:?}"),
                    Err(error) => why = error,
                }
                false
            });
            ensure(explained, || why)
        }
        // If a pod is already being deleted, its eviction succeeds without an event.
        DoorReply::Success if version.is_none() => {
            let versions = twin.versions_within(&order.place, window.from, window.to);
            let unchanged = |version: &ObjectVersion| {
                predict(order.sort, &order.act, Some(version), None) == Ok(Some(version.shape()))
            };
            let explained = versions.into_iter().flatten().any(unchanged);
            ensure(explained, || "acknowledged, but there is no event".into())
        }
        DoorReply::Success => Ok(()),
        DoorReply::Collection(_) => Err("one request on one object tells of a collection".into()),
        DoorReply::Document(scale) => check_scale(twin, order, scale, version, window),
        DoorReply::Deleted { uid, .. } => {
            let Some(version) = version else { return Err("said to be deleted, but there is no event".into()) };
            ensure(version.deleted, || "said to be deleted, but it is there".into())?;
            ensure(version.uid() == uid, || "the answer has another uid than the event".into())
        }
    }
}

/// Checks that a Scale shows the object after the request's event, or the object that the request did not change.
fn check_scale(
    twin: &Twin,
    order: &Order,
    scale: &Document,
    version: Option<&ObjectVersion>,
    window: Window,
) -> CheckResult {
    let Act::Scale { replicas, .. } = &order.act else { return Err("answered with another document".into()) };
    let said = &scale["spec"]["replicas"];
    // A Scale has no field for replicas if their number is zero.
    ensure(said.as_i64().unwrap_or(0) == *replicas, || format!("{replicas} replicas were asked for, and not {said}"))?;
    let told = version_of(scale);
    let there = || {
        let versions = twin.versions_within(&order.place, window.from, window.to);
        versions.into_iter().flatten().any(|version| version.offset == told)
    };
    ensure(version.map_or_else(there, |version| version.offset == told), || format!("it tells of version {told}"))
}

/// The resource version in a document; 0 if it has none.
pub fn version_of(document: &Document) -> u64 {
    let version = document.get("metadata").and_then(|metadata| metadata["resourceVersion"].as_str());
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Checks that each object that a mass deletion selected was deleted by it, was already being deleted, or was gone at
/// some time after it was selected.
fn check_mass(twin: &Twin, order: &Order, window: Window) -> CheckResult {
    let Act::DeleteAll { pick, limit, .. } = order.act else { return Err("no mass deletion was asked for".into()) };
    if order.request.options.dry_run {
        return Ok(());
    }
    let storage = order.sort.storage();
    let picked = twin.at(storage, window.from).filter(|(key, version)| pick.matches(key, version));
    let by_it = |key: &str| {
        let events = twin.of_request(&order.request.id).iter();
        events.filter_map(|offset| twin.event(*offset)).any(|event| event.record.key == key)
    };
    let going = |key: &str| {
        let versions = twin.versions_within(&(storage.to_owned(), key.to_owned()), window.from, window.to);
        versions.into_iter().any(|version| version.is_none_or(ObjectVersion::is_deleting))
    };
    let left = picked.take(limit.unwrap_or(u64::MAX) as usize).find(|(key, _)| !by_it(key) && !going(key));
    ensure(left.is_none(), || format!("{:?} is left of what was to be deleted", left.map(|(key, _)| key)))
}

/// Checks that a mass deletion shows the selected objects as they were at some moment during the request.
fn check_collection(twin: &Twin, order: &Order, entries: &[Arc<Entry>], window: Window) -> CheckResult {
    let Act::DeleteAll { pick, .. } = order.act else { return Err("no mass deletion was asked for".into()) };
    for entry in entries {
        let version = twin.event(entry.offset.0).ok_or("it tells of an object that never was")?;
        ensure(version.offset <= window.to, || format!("version {} is yet to come", entry.offset))?;
        ensure(pick.matches(&version.record.key, version), || format!("{} was not picked", version.record.key))?;
        ensure(version.record.object == entry.json(), || "the answer differs from the event".into())?;
    }
    Ok(())
}

/// Checks a request against the rights of its user at the versions since the service authorized it. Returns true if the
/// rights alone explain the answer.
pub fn check_rights(
    twin: &Twin,
    order: &Order,
    refusal: Option<&Refusal>,
    versions: RangeInclusive<u64>,
) -> Result<bool, String> {
    let Request { user, verb, .. } = &order.request;
    let may = |offset: u64| rights::may(twin, user, *verb, order.judged_in(), offset);
    let may_at_door = may(*versions.start());
    let forbidden = matches!(refusal, Some(Refusal::Forbidden { .. }));
    ensure(may_at_door || forbidden, || "it is answered to a user without the right".into())?;
    // Some rights are checked once more after the service has authorized the request, so a later version may lack them.
    if forbidden && !versions.into_iter().all(may) {
        saw(Mark::Unauthorized);
        return Ok(true);
    }
    if order.through.is_none() {
        return Ok(false);
    }
    saw(Mark::LedAstray);
    let nowhere = matches!(refusal, Some(Refusal::NoSuchPath));
    ensure(nowhere, || "a path through one namespace leads to another".into()).map(|()| true)
}

/// Checks how many objects the answer to a mass deletion says were deleted.
pub fn check_count(twin: &Twin, order: &Order, count: u64, window: Window) -> CheckResult {
    let Act::DeleteAll { pick, limit, .. } = order.act else { return Err("a count was not asked for".into()) };
    let matching = twin.at(order.sort.storage(), window.from).filter(|(key, version)| pick.matches(key, version));
    let expected = (matching.count() as u64).min(limit.unwrap_or(u64::MAX));
    ensure(count == expected, || format!("{count} objects are said to be deleted of {expected}"))
}

fn law<'a>(twin: &'a Twin, order: &Order, offset: u64) -> Option<Law<'a>> {
    if order.sort.is_custom() { twin.law(offset) } else { None }
}

/// Checks that a dry run shows the object that the request would have written.
fn check_rehearsal(twin: &Twin, order: &Order, told: &DoorReply, window: Window) -> CheckResult {
    let shown = match told {
        DoorReply::Object(entry) => entry.document(),
        DoorReply::Success | DoorReply::Collection(_) => return Ok(()),
        DoorReply::Document(scale) if matches!(order.act, Act::Scale { .. }) => {
            return check_scale(twin, order, scale, None, window);
        }
        DoorReply::Document(document) => Value::Object(document.clone()),
        DoorReply::Deleted { .. } => Value::Null,
    };
    let shape = ObjectShape::of(order.sort, &shown);
    let place = match shown["metadata"]["name"].as_str() {
        Some(name) => order.place_of(name),
        None => order.place.clone(),
    };
    let possible = |version: Option<&ObjectVersion>| {
        // If a dry run would create an object, the version in its request is not checked.
        let act = match (order.act.clone(), version) {
            (Act::Replace { wanted, uid, .. }, None) => Act::Replace { wanted, version: None, uid },
            (act, _) => act,
        };
        (window.from..=window.to).any(|offset| {
            match predict(order.sort, &act, version, law(twin, order, offset)) {
                // A deleted object is shown in its last state, so there is no shape to compare with.
                Ok(None) => true,
                // A dry run shows an unchanged object as it is stored, while readers get the object with defaults.
                Ok(Some(after)) => {
                    after == shape || after == lawful(order.sort, shape.clone(), law(twin, order, offset))
                }
                Err(_) => false,
            }
        })
    };
    let explained = twin.versions_within(&place, window.from, window.to).into_iter().any(possible);
    ensure(explained, || format!("the dry run shows {shape:?}"))
}

/// Checks the answer to a request that was refused.
pub fn check_refusal(twin: &Twin, order: &Order, refusal: &Refusal, window: Window) -> CheckResult {
    let place = match refusal {
        Refusal::AlreadyExists { subject, .. } => order.place_of(&subject.name),
        _ => order.place.clone(),
    };
    let versions = twin.versions_within(&place, window.from, window.to);
    let present = || versions.iter().flatten().copied();
    let absent = versions.iter().any(Option::is_none);
    let explained = match refusal {
        Refusal::NotFound(subject) if subject.resource == "namespaces" && order.sort != Sort::Namespace => {
            namespaces(twin, order, window).iter().any(Option::is_none)
        }
        Refusal::NotFound(_) => absent && !matches!(order.act, Act::Create { .. }),
        Refusal::AlreadyExists { .. } => present().count() > 0 && matches!(order.act, Act::Create { .. }),
        Refusal::Conflict { .. } => conflicts(order, &versions),
        Refusal::ApplyConflict(_) => present().any(|version| match &order.act {
            Act::Apply { fields, manager, force: false } => (window.from..=window.to).any(|offset| {
                let document = custom::managed(law(twin, order, offset), &version.document);
                // The core may name the fields in conflict differently than the model, so only their number is
                // compared.
                (1..=refusal.causes().len()).contains(&owners::conflicts(&document, fields, manager).len())
            }),
            _ => false,
        }),
        Refusal::Forbidden { why: Forbidden::DefinitionTerminating, .. } => {
            let place = (custom::DEFINITIONS.to_owned(), custom::DEFINITION.to_owned());
            let definitions = twin.versions_within(&place, window.from, window.to);
            let creates = matches!(order.act, Act::Create { .. } | Act::Apply { .. });
            order.sort.is_custom() && creates && definitions.into_iter().flatten().any(ObjectVersion::is_deleting)
        }
        Refusal::Forbidden { .. } => match order.act {
            Act::Delete { .. } if order.sort == Sort::Namespace => order.place.1 == "default",
            // An eviction is a request to create an object, and nothing can be created in a namespace that is being
            // deleted.
            Act::Delete { .. } if order.sort != Sort::Pod => false,
            _ => namespaces(twin, order, window).iter().flatten().any(|version| version.is_deleting()),
        },
        Refusal::Invalid { causes, .. } => {
            let unavailable = |cause: &Cause| is_unavailable(twin, order, &versions, window, &cause.message);
            (order.sort == Sort::Service && causes.iter().all(unavailable))
                || (order.sort.needs_version() && matches!(order.act, Act::Replace { version: None, .. }))
                || present().any(|version| adds_finalizer(order, version) || drops_stored(order, version))
        }
        Refusal::Unprocessable => present().any(|version| breaks_patch(order, version)),
        Refusal::UnsupportedMediaType { .. } => {
            order.sort.is_custom() && matches!(order.act, Act::Change { format: PatchFormat::Strategic, .. })
        }
        // If a document names a version, a PUT of this document cannot create an object.
        Refusal::BadRequest(_) => {
            absent && order.sort.creates_on_update() && matches!(order.act, Act::Replace { version: Some(_), .. })
        }
        Refusal::NoSuchPath => {
            order.sort.is_custom() && twin.of_storage(custom::DEFINITIONS, order.seen, window.to).next().is_some()
        }
        Refusal::Internal(Internal::Exhausted(message)) if order.sort == Sort::Service => {
            is_unavailable(twin, order, &versions, window, message)
        }
        Refusal::Internal(_) | Refusal::Unavailable(_) => window.trouble,
        Refusal::InsufficientStorage(_) => window.full,
        _ => false,
    };
    ensure(explained, || format!("nothing explains the refusal {refusal:?} in {window:?}"))
}

fn namespaces<'a>(twin: &'a Twin, order: &Order, window: Window) -> Vec<Option<&'a ObjectVersion>> {
    let place = (Sort::Namespace.storage().to_owned(), order.namespace().unwrap_or("").to_owned());
    twin.versions_within(&place, window.from, window.to)
}

/// Whether the object had another version or UID than the client required, or a pod that should be bound already had a
/// node or was being deleted.
fn conflicts(order: &Order, versions: &[Option<&ObjectVersion>]) -> bool {
    versions.iter().any(|version| {
        let act = &order.act;
        let other_version = act.fixed_version().is_some_and(|fixed| version.is_none_or(|v| v.offset != fixed));
        let other_uid = act.fixed_uid().is_some_and(|fixed| version.is_none_or(|v| v.uid() != fixed));
        let bound = matches!(act, Act::Bind { .. })
            && version.is_some_and(|version| version.shape().node.is_some() || version.is_deleting());
        other_version || other_uid || bound
    })
}

/// Whether a Service could not get an address or a port: no address or port was free, another Service had it, or the
/// Service had another address or port, which must not change.
fn is_unavailable(
    twin: &Twin,
    order: &Order,
    versions: &[Option<&ObjectVersion>],
    window: Window,
    message: &str,
) -> bool {
    if message.contains("may not change once set") {
        let sent: Value = serde_json::from_slice(&order.request.body.content.bytes()).unwrap_or(Value::Null);
        let address = &sent["spec"]["clusterIP"];
        return versions.iter().flatten().any(|version| version.document["spec"]["clusterIP"] != *address);
    }
    let full = message.contains("range is full");
    if !full && !message.contains("already allocated") {
        return false;
    }
    (window.from..=window.to).any(|offset| {
        let services = twin.at(Sort::Service.storage(), offset);
        let held: Vec<String> = services.flat_map(|(_, service)| held_by(&service.document)).collect();
        let ports = held.iter().filter(|held| held.starts_with("node port")).count();
        if full { ports >= NODE_PORTS || held.len() - ports >= ADDRESSES } else { !held.is_empty() }
    })
}

fn adds_finalizer(order: &Order, version: &ObjectVersion) -> bool {
    let before = version.shape();
    let after = match &order.act {
        Act::Replace { wanted, .. } => wanted.clone(),
        Act::Change { edit, .. } => edit.edited(before.clone()),
        _ => return false,
    };
    before.deleting && after.finalizers.iter().any(|finalizer| !before.finalizers.contains(finalizer))
}

/// Whether the request removes a version in which objects are stored. A definition must keep such versions.
fn drops_stored(order: &Order, version: &ObjectVersion) -> bool {
    let wanted = match &order.act {
        Act::Replace { wanted, .. } => wanted.defines.clone(),
        Act::Change { edit: Edit::Define(variant), .. } => Some(variant.fingerprint()),
        _ => return false,
    };
    let variant = custom::VARIANTS.iter().find(|variant| Some(variant.fingerprint()) == wanted);
    order.sort == Sort::CustomResourceDefinition && variant.is_some_and(|variant| !variant.keeps(&version.document))
}

/// Whether the request is a JSON patch whose test fails, or that removes a field which the object does not have.
fn breaks_patch(order: &Order, version: &ObjectVersion) -> bool {
    let Act::Change { edit, format: PatchFormat::Json, test, .. } = &order.act else { return false };
    let before = version.shape();
    let failed = test.as_ref().is_some_and(|value| before.labels.get("app") != Some(value));
    let missing = match edit {
        Edit::Label(key, None) => !before.labels.contains_key(*key),
        Edit::Note(key, None) => !before.notes.contains_key(*key),
        Edit::Data(key, None) => !before.data.contains_key(*key),
        // A JSON patch can add a field only to a parent that exists.
        Edit::Label(..) => before.labels.is_empty(),
        Edit::Note(..) => before.notes.is_empty(),
        Edit::Data(..) => before.data.is_empty(),
        _ => false,
    };
    failed || missing
}

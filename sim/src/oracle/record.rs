//! Checks each event of the log against all events before it: its version, the object's identity, the two phases of
//! deletion, and the request that made the event.

use super::{CheckResult, ensure};
use crate::act::{Act, predict};
use crate::custom;
use crate::owners;
use crate::shape::{ObjectShape, Sort};
use crate::twin::{ObjectVersion, Twin};
use crate::workload::Order;
use holdfast_core::event::Record;
use holdfast_value::Value;
use std::borrow::Cow;

/// Checks the next event of the log. `order` is the request whose id the event contains; `None` if no client made the
/// request.
pub fn check(twin: &Twin, record: &Record, object: &Value, order: Option<&Order>) -> CheckResult {
    let wrong = |why: String| format!("event {} on {} {}: {why}", record.offset, record.resource, record.key);
    ensure(record.offset == twin.last() + 1, || wrong(format!("the one before it was {}", twin.last())))?;
    let before = twin.version_at(&record.resource, &record.key, twin.last());
    let replaces = before.map_or(0, |before| before.offset);
    ensure(record.replaces == replaces, || {
        wrong(format!("it replaces {}, but the object was at {replaces}", record.replaces))
    })?;
    ensure(!record.is_delete() || before.is_some(), || wrong("it deletes what is not there".into()))?;
    identity(twin, record, object, before).map_err(wrong)?;
    if let (None, Some((namespace, _))) = (before, record.key.split_once('/')) {
        let home = twin.version_at(Sort::Namespace.storage(), namespace, twin.last());
        let alive = home.is_some_and(|home| !home.is_deleting());
        ensure(alive, || wrong(format!("it is new in {namespace}, which is gone or on its way")))?;
    }
    if record.resource == custom::STORAGE {
        let definition = twin.version_at(custom::DEFINITIONS, custom::DEFINITION, twin.last());
        ensure(definition.is_some(), || wrong("nothing defines its kind".into()))?;
        let going = definition.is_some_and(ObjectVersion::is_deleting);
        ensure(!going || before.is_some(), || wrong("it is new while its kind goes away".into()))?;
    }
    if record.resource == custom::DEFINITIONS && record.is_delete() {
        let left = twin.present(custom::STORAGE).next().map(|(key, _)| key);
        ensure(left.is_none(), || wrong(format!("the definition goes before {left:?}")))?;
    }
    if let Some(before) = before.filter(|_| record.is_delete()) {
        two_phases(record, &before.document, object).map_err(wrong)?;
    }
    let Some(order) = order else { return Ok(()) };
    obeys(twin, record, object, before, order).map_err(|why| wrong(format!("{why}\n  asked by {}", order.describe())))
}

/// Checks the version, the name, the namespace and the UID in the object.
fn identity(twin: &Twin, record: &Record, object: &Value, before: Option<&ObjectVersion>) -> CheckResult {
    let meta = &object["metadata"];
    let said = meta["resourceVersion"].as_str().and_then(|version| version.parse::<u64>().ok());
    ensure(said == Some(record.offset), || format!("it says it is version {}", meta["resourceVersion"]))?;
    let name = meta["name"].as_str().unwrap_or("");
    let named = match meta["namespace"].as_str() {
        Some(namespace) => record.key.split_once('/') == Some((namespace, name)),
        None => record.key == name,
    };
    ensure(named, || format!("the object calls itself {name} in {}", meta["namespace"]))?;
    let uid = meta["uid"].as_str().unwrap_or("");
    match before {
        Some(before) => {
            ensure(before.uid() == uid, || "the object changed its uid".into())?;
            let (old, new) = (&before.document["metadata"]["generation"], &meta["generation"]);
            ensure(new.as_i64() >= old.as_i64(), || format!("its generation went from {old} to {new}"))
        }
        None => ensure(!uid.is_empty() && !twin.knows_uid(uid), || format!("uid {uid:?} is not new")),
    }
}

/// Checks that a removed object, and the spec of a removed namespace, had no finalizers left, and that an object with
/// finalizers was marked as being deleted before it was removed.
fn two_phases(record: &Record, before: &Value, last: &Value) -> CheckResult {
    let held_by = |object: &Value| -> Vec<String> {
        let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        list.filter_map(|finalizer| finalizer.as_str().map(str::to_owned)).collect()
    };
    ensure(held_by(last).is_empty(), || format!("it went while {:?} held it", held_by(last)))?;
    let was_deleting = !before["metadata"]["deletionTimestamp"].is_null();
    let implied = |finalizer: &String| finalizer == "orphan" || finalizer == "foregroundDeletion";
    ensure(was_deleting || held_by(before).iter().all(implied), || "it went in one step though it was held".into())?;
    let namespace = record.resource == "namespaces";
    let unfinished = namespace && last["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    ensure(!unfinished, || "a namespace went before it was finalized".into())
}

/// Checks that the event makes exactly the change that the request describes.
fn obeys(twin: &Twin, record: &Record, object: &Value, before: Option<&ObjectVersion>, order: &Order) -> CheckResult {
    ensure(!order.request.options.dry_run, || "a dry run was stored".into())?;
    ensure(order.through.is_none(), || "its path leads nowhere".into())?;
    let earlier = twin.of_request(&order.request.id);
    if let Some(before) = before.filter(|before| record.is_delete() && earlier.last() == Some(&before.offset)) {
        return follows(record, object, before);
    }
    match order.act {
        Act::DeleteAll { pick, .. } => {
            let same = |offset: &u64| twin.event(*offset).is_some_and(|version| version.record.key == record.key);
            ensure(!earlier.iter().any(same), || "it was carried out twice".into())?;
            // Each selected object is deleted, even if it has changed since it was selected.
            let picked = pick.matches(&record.key, before.ok_or("it deletes nothing")?)
                || twin
                    .versions_within(&order.place_of(name_of(record)), order.seen, twin.last())
                    .into_iter()
                    .flatten()
                    .any(|version| pick.matches(&record.key, version));
            ensure(picked, || "it was not picked".into())?;
        }
        Act::Create { generated: true, .. } => {
            ensure(earlier.is_empty(), || "it was carried out twice".into())?;
            let name = name_of(record);
            ensure(name.starts_with("gen-") && name.len() == 9, || format!("the generated name is {name}"))?;
        }
        _ => {
            ensure(earlier.is_empty(), || "it was carried out twice".into())?;
            let asked = order.place.0 == record.resource && order.place.1 == record.key;
            ensure(asked, || "another object was asked for".into())?;
        }
    }
    if let Some(version) = order.act.fixed_version() {
        ensure(record.replaces == version, || format!("the client had fixed version {version}"))?;
    }
    if let (Some(uid), Some(before)) = (order.act.fixed_uid(), before) {
        ensure(before.uid() == uid, || format!("the client had fixed uid {uid}"))?;
    }
    let law = if order.sort.is_custom() { twin.law(twin.last()) } else { None };
    let expected = predict(order.sort, &order.act, before, law)?;
    match (expected, record.is_delete()) {
        (None, true) if before.is_some_and(|before| is_marked(record, &before.document)) => Ok(()),
        (None, true) => ensure(record.resource != Sort::Pod.storage(), || "nobody saw it going".into()),
        (None, false) => ensure(is_marked(record, object), || "it should have deleted the object".into()),
        (Some(_), true) => Err("it should not have deleted the object".into()),
        (Some(expected), false) => {
            let found = ObjectShape::of(order.sort, object);
            let account = before.map(|before| custom::managed(law, &before.document));
            let expected = match (&order.act, &account) {
                (Act::Apply { .. }, Some(Cow::Owned(account))) => owners::without_unowned(expected, &found, account),
                _ => expected,
            };
            ensure(found == expected, || {
                let before = before.map(|before| before.document.to_string()).unwrap_or_default();
                format!("expected {expected:?}\n  found    {found:?}\n  before   {before}")
            })?;
            let Some(law) = law else { return managed(record, object, before.map(|before| &before.document), order) };
            // A value that comes from a default belongs to no manager.
            let shown = |document: &Value| custom::shown(law, document, None);
            let old = account.map(|account| shown(&account));
            let verdict = managed(record, object, old.as_ref(), order);
            // If only a default has changed, the managed fields must not change. This includes the managed fields of
            // versions that are not served any more.
            let same =
                before.map(|before| shown(&before.document)).filter(|old| found == ObjectShape::of(order.sort, old));
            verdict.or_else(|why| same.map_or(Err(why), |old| managed(record, object, Some(&old), order)))
        }
    }
}

/// Checks the removal of an object that the same request has just marked as being deleted. Between the mark and the
/// removal the object must not change.
fn follows(record: &Record, object: &Value, before: &ObjectVersion) -> CheckResult {
    ensure(is_marked(record, &before.document), || "it was carried out twice".into())?;
    let mut last = before.document.clone();
    last["metadata"]["resourceVersion"] = record.offset.to_string().into();
    ensure(last == *object, || "it changed between the mark and the removal".into())
}

/// Whether this is a pod that is marked as being deleted. Only pods are checked: no other object is marked and removed
/// by one request.
fn is_marked(record: &Record, object: &Value) -> bool {
    let meta = &object["metadata"];
    record.resource == Sort::Pod.storage() && !meta["deletionTimestamp"].is_null()
}

/// Checks that the managed fields contain the right manager of each field.
fn managed(record: &Record, object: &Value, before: Option<&Value>, order: &Order) -> CheckResult {
    let subresource = order.request.target.subresource.as_deref().unwrap_or("");
    // If a client names no field manager, its user agent is its manager, and simulated clients have no user agent.
    let manager = Some(record.actor.manager.as_str()).filter(|manager| !manager.is_empty()).unwrap_or("unknown");
    match &order.act {
        Act::Apply { fields, manager, .. } => {
            owners::check(before, object, (manager, "Apply", subresource), Some(fields))
        }
        Act::Create { .. } | Act::Replace { .. } | Act::Change { .. } | Act::Scale { .. } => {
            owners::check(before, object, (manager, "Update", subresource), None)
        }
        _ => Ok(()),
    }
}

fn name_of(record: &Record) -> &str {
    record.key.rsplit_once('/').map_or(record.key.as_str(), |(_, name)| name)
}

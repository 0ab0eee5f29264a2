//! One event against all before it: chains, identities, two phases, and what its request asked for.

use super::{Verdict, ensure};
use crate::shape::{Act, Shape, predict};
use crate::twin::Twin;
use crate::workload::Order;
use holdfast_core::event::Record;
use serde_json::Value;

/// Judges the next event of the log; `order` is the request that it carries the id of.
pub fn check(twin: &Twin, record: &Record, order: Option<&Order>) -> Verdict {
    let what = || format!("event {} on {} {}", record.offset, record.resource, record.key);
    let wrong = |why: String| format!("{}: {why}", what());
    ensure(record.offset == twin.last() + 1, || wrong(format!("the one before it was {}", twin.last())))?;
    let place = (record.resource.clone(), record.key.clone());
    let before = twin.version_at(&place, twin.last());
    let replaces = before.map_or(0, |before| before.offset);
    ensure(record.replaces == replaces, || {
        wrong(format!("it replaces {}, but the object was at {replaces}", record.replaces))
    })?;
    ensure(!record.is_delete() || before.is_some(), || wrong("it deletes what is not there".into()))?;
    let object: Value = serde_json::from_slice(&record.object).map_err(|error| wrong(error.to_string()))?;
    identity(twin, record, &object).map_err(wrong)?;
    if let (None, Some((namespace, _))) = (before, record.key.split_once('/')) {
        let place = ("namespaces".to_owned(), namespace.to_owned());
        let alive =
            twin.version_at(&place, twin.last()).is_some_and(|v| v.document["metadata"]["deletionTimestamp"].is_null());
        ensure(alive, || wrong(format!("it is new in {namespace}, which is gone or on its way")))?;
    }
    if let Some(before) = before.filter(|_| record.is_delete()) {
        two_phases(record, &before.document, &object).map_err(wrong)?;
    }
    let Some(order) = order else { return Ok(()) };
    obeys(twin, record, &object, order).map_err(|why| wrong(format!("{why}\n  asked by {}", order.describe())))
}

/// Version, name, namespace and uid.
fn identity(twin: &Twin, record: &Record, object: &Value) -> Verdict {
    let meta = &object["metadata"];
    let version = record.offset.to_string();
    ensure(meta["resourceVersion"] == version, || format!("it says it is version {}", meta["resourceVersion"]))?;
    let name = meta["name"].as_str().unwrap_or("");
    let key = match meta["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    ensure(key == record.key, || format!("the object calls itself {key}"))?;
    let uid = meta["uid"].as_str().unwrap_or("");
    let previous = twin.record(record.replaces).map(|record| serde_json::from_slice::<Value>(&record.object));
    match previous {
        Some(Ok(previous)) => {
            ensure(previous["metadata"]["uid"] == uid, || "the object changed its uid".into())?;
            let (old, new) = (&previous["metadata"]["generation"], &meta["generation"]);
            ensure(new.as_i64() >= old.as_i64(), || format!("its generation went from {old} to {new}"))
        }
        Some(Err(error)) => Err(error.to_string()),
        None => {
            let used = |(_, version): (&_, &crate::twin::Version)| version.uid() == uid;
            ensure(!uid.is_empty() && !twin.present_everywhere().any(used), || format!("uid {uid:?} is not new"))
        }
    }
}

/// What holds an object must be gone before the object goes, and a client must have been able to see it going.
fn two_phases(record: &Record, before: &Value, last: &Value) -> Verdict {
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

/// The event is just what the request asked for.
fn obeys(twin: &Twin, record: &Record, object: &Value, order: &Order) -> Verdict {
    ensure(!order.request.options.dry_run, || "a dry run was stored".into())?;
    ensure(twin.by_request.get(&order.request.id).is_none_or(Vec::is_empty), || "it was carried out twice".into())?;
    let generated = matches!(order.act, Act::Create { generated: true, .. });
    if generated {
        let (_, name) = record.key.rsplit_once('/').unwrap_or(("", &record.key));
        ensure(name.starts_with("gen-") && name.len() == 9, || format!("the generated name is {name}"))?;
    } else {
        ensure(order.place == (record.resource.clone(), record.key.clone()), || "another object was asked for".into())?;
    }
    if let Some(version) = fixed_version(&order.act) {
        ensure(record.replaces == version, || format!("the client had fixed version {version}"))?;
    }
    let before = twin.record(record.replaces).map(|record| serde_json::from_slice::<Value>(&record.object));
    let before = before.transpose().map_err(|error| error.to_string())?;
    if let (Some(uid), Some(before)) = (fixed_uid(&order.act), &before) {
        ensure(before["metadata"]["uid"] == uid, || format!("the client had fixed uid {uid}"))?;
    }
    let shape = before.as_ref().map(|before| Shape::of(order.sort, before));
    let expected = predict(order.sort, &order.act, shape.as_ref())?;
    match (expected, record.is_delete()) {
        (None, true) => Ok(()),
        (None, false) => Err("it should have deleted the object".into()),
        (Some(_), true) => Err("it should not have deleted the object".into()),
        (Some(expected), false) => {
            let found = Shape::of(order.sort, object);
            ensure(found == expected, || format!("expected {expected:?}\n  found    {found:?}"))
        }
    }
}

/// The version that the client insists on.
pub fn fixed_version(act: &Act) -> Option<u64> {
    match act {
        Act::Replace { version, .. }
        | Act::Change { version, .. }
        | Act::Status { version, .. }
        | Act::Scale { version, .. }
        | Act::Delete { version, .. }
        | Act::Finalize { version }
        | Act::Tell { version } => *version,
        Act::Create { .. } | Act::Bind { .. } => None,
    }
}

/// The uid that the client insists on.
pub fn fixed_uid(act: &Act) -> Option<&str> {
    match act {
        Act::Replace { uid, .. } => Some(uid.as_str()).filter(|uid| !uid.is_empty()),
        Act::Delete { uid, .. } => uid.as_deref(),
        _ => None,
    }
}

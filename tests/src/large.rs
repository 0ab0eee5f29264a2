//! Writes logs of many objects without a server, for measurements.

use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_core::object::Draft;
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::{Durability, Reserve, RocksLog};
use holdfast_value::{Value, json};
use std::path::Path;

/// How many events are written at a time.
const BATCH: u64 = 5_000;
/// The distance between objects that are written one after another, so that they are not written in the order of their
/// names.
const STRIDE: u64 = 7_919;

/// Writes a log of `objects` ConfigMaps of 0.6 KB in one namespace, each changed `changes` times in turn. Returns the
/// number of events. The log has no other events: a server that opens it creates the objects of every cluster.
pub fn write(folder: &Path, objects: u64, changes: u64) -> u64 {
    let log = RocksLog::open_with(folder, Durability::Unsynced, Reserve::AsItIs).expect("open the log");
    assert_eq!(log.last().expect("its end"), Offset::ZERO, "{} holds a log already", folder.display());
    let events = 1 + objects * (1 + changes);
    let record = |offset: u64| match offset {
        1 => event(1, 0, "namespaces", "large".into(), &namespace()),
        offset => {
            let (round, nth) = ((offset - 2) / objects, (offset - 2) % objects);
            let name = nth * STRIDE % objects;
            let replaces = if round == 0 { 0 } else { offset - objects };
            event(offset, replaces, "configmaps", format!("large/map-{name:07}"), &map(name, round))
        }
    };
    for begin in (0..events).step_by(BATCH as usize) {
        let batch: Vec<Record> = (begin + 1..=events.min(begin + BATCH)).map(record).collect();
        log.append(&batch).expect("append");
    }
    events
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "large", "uid": "00000000-0000-4000-8000-000000000000",
            "creationTimestamp": "2026-11-21T04:00:00Z", "labels": {"kubernetes.io/metadata.name": "large"}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
}

fn map(name: u64, round: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("map-{name:07}"), "namespace": "large",
            "uid": format!("00000000-0000-4000-8000-{name:012}"), "creationTimestamp": "2026-11-21T04:00:00Z",
            "labels": {"app": format!("app-{}", name % 100)},
            "managedFields": [{"apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {".": {}, "f:text": {}, "f:round": {}},
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}}},
                "manager": "kubectl-create", "operation": "Update", "time": "2026-11-21T04:00:00Z"}]},
        "data": {"round": round.to_string(), "text": "x".repeat(150)}})
}

fn event(offset: u64, replaces: u64, resource: &str, key: String, object: &Value) -> Record {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let document = object.as_object().expect("an object");
    Record {
        offset,
        time_ms: 1_795_233_600_000 + offset as i64,
        resource: resource.into(),
        key,
        replaces,
        operation: Operation::Put as i32,
        actor: Actor {
            user: "kubernetes-admin".into(),
            manager: "kubectl-create".into(),
            verb: if replaces == 0 { "create" } else { "update" }.into(),
            request_id: format!("00000000-0000-4000-9000-{offset:012}"),
            changes: Vec::new(),
        },
        object: Draft::new(text("apiVersion"), text("kind"), document).seal(Offset(offset)),
    }
}

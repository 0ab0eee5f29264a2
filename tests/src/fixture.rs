//! The content of `tests/data/log-format-1`, a small log in format 1, as code.
//!
//! The folder was written once and is never rewritten: a release that cannot read it breaks compatibility.

use bytes::Bytes;
use holdfast_core::event::{Actor, Operation, Record};
use holdfast_engine::Log;
use holdfast_storage_rocks::RocksLog;
use std::path::{Path, PathBuf};

/// The path of the folder `tests/data/log-format-1`.
pub fn folder() -> PathBuf {
    crate::folder().join("data/log-format-1")
}

/// Every event in the log.
pub fn records() -> Vec<Record> {
    let namespace = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"old","uid":"00000000-0000-4000-8000-000000000001","resourceVersion":"1","creationTimestamp":"2026-11-21T04:00:00Z","labels":{"kubernetes.io/metadata.name":"old"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}"#;
    let map = |offset: u64, name: &str, uid: u8, data: &str| {
        format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"old\",\
             \"uid\":\"00000000-0000-4000-8000-0000000000{uid:02}\",\"resourceVersion\":\"{offset}\",\
             \"creationTimestamp\":\"2026-11-21T04:00:00Z\"}},\"data\":{{\"text\":\"{data}\"}}}}"
        )
    };
    vec![
        event(1, "namespaces", "old", 0, Operation::Put, namespace.into()),
        event(2, "configmaps", "old/kept", 0, Operation::Put, map(2, "kept", 2, "first")),
        event(3, "configmaps", "old/gone", 0, Operation::Put, map(3, "gone", 3, "first")),
        event(4, "configmaps", "old/kept", 2, Operation::Put, map(4, "kept", 2, "second, with \u{fc}ml\u{e4}uts")),
        event(5, "configmaps", "old/gone", 3, Operation::Delete, map(5, "gone", 3, "first")),
        event(6, "configmaps", "old/other", 0, Operation::Put, map(6, "other", 6, "only")),
    ]
}

/// Writes the folder. This function is for the next format of the log, whose folder will be beside the folder of format
/// 1.
pub fn write(folder: &Path) {
    let records = records();
    let (first, second) = records.split_at(3);
    // Events written before the log is reopened are in tables, the others in the write-ahead log.
    for part in [first, second] {
        RocksLog::open(folder).expect("open the log").append(part).expect("append");
    }
}

fn event(offset: u64, resource: &str, key: &str, replaces: u64, operation: Operation, object: String) -> Record {
    Record {
        offset,
        time_ms: 1_795_233_600_000 + offset as i64,
        resource: resource.into(),
        key: key.into(),
        replaces,
        operation: operation as i32,
        actor: Actor {
            user: "jane".into(),
            manager: "kubectl".into(),
            verb: "update".into(),
            request_id: format!("request-{offset}"),
            changes: Vec::new(),
        },
        object: Bytes::from(object),
    }
}

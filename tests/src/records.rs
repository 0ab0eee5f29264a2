//! Events made by hand, and what a log holds of them.

use bytes::Bytes;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_engine::LogRead;
use std::collections::BTreeMap;

/// A put, whose object says which it is.
pub fn put(offset: u64, resource: &str, key: &str, replaces: u64) -> Record {
    record(offset, resource, key, replaces, Operation::Put, format!("{{\"is\":\"{resource}/{key}@{offset}\"}}"))
}

pub fn delete(offset: u64, resource: &str, key: &str, replaces: u64) -> Record {
    record(offset, resource, key, replaces, Operation::Delete, format!("{{\"was\":\"{resource}/{key}@{offset}\"}}"))
}

fn record(offset: u64, resource: &str, key: &str, replaces: u64, operation: Operation, object: String) -> Record {
    let text = |word: &str| format!("{word}-{offset}");
    Record {
        offset,
        time_ms: 1_795_000_000_000 + offset as i64,
        resource: resource.to_owned(),
        key: key.to_owned(),
        replaces,
        operation: operation as i32,
        actor: Actor {
            user: text("user"),
            manager: text("manager"),
            verb: "update".into(),
            request_id: text("request"),
            changes: Vec::new(),
        },
        object: Bytes::from(object),
    }
}

/// What is current, by resource and key.
pub fn current(log: &dyn LogRead) -> BTreeMap<(String, String), Record> {
    let mut found = BTreeMap::new();
    log.current(&mut |record| {
        let key = (record.resource.clone(), record.key.clone());
        assert!(found.insert(key, record).is_none(), "an object is visited once");
        Ok(())
    })
    .expect("read what is current");
    found
}

pub fn everything(log: &dyn LogRead) -> Vec<Record> {
    log.scan(None, Offset::ZERO, usize::MAX).expect("scan")
}

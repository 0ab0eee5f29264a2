//! The requirements on every log, as one test suite. [`storage_suite!`](crate::storage_suite) runs the suite on a
//! backend.
//!
//! When the suite reopens a backend without a disk, the backend continues with a copy of the data that would survive on
//! a disk.

pub mod shared;

use super::{AsOf, Changes, Fault, Log, LogRead};
use bytes::Bytes;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A log that the suite can close and open again.
pub trait Backend: Sized {
    /// Makes an empty log.
    fn fresh() -> Self;
    fn log(&self) -> &dyn Log;
    fn reopened(self) -> Self;
    /// Appends as another process would. Returns false if other processes cannot append to logs of this kind.
    fn append_as_other(&self, _: &[Record]) -> bool {
        false
    }
}

/// Makes one test for each case of the suite, on the given backend.
#[macro_export]
macro_rules! storage_suite {
    ($backend:ty) => {
        $crate::storage_suite!(@cases $backend:
            empty, records_read_back, offsets_are_dense, scans_begin_and_end_where_told, resources_do_not_mix,
            current_is_the_newest_of_each, deletes, large_batches, large_records, survives_reopening, recovers,
            readers_beside_the_writer, forgets_what_was_replaced, forgets_in_steps_as_at_once,
            forgets_beside_the_writer, tells_what_was_there,
            tells_what_changed, has_a_secret, tells_its_tail, lets_others_be_first);
    };
    (@cases $backend:ty: $($case:ident),*) => {
        $(#[test]
        fn $case() {
            $crate::log::suite::$case::<$backend>();
        })*
    };
}

/// Makes a put whose object contains its resource, key and offset.
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

/// The newest record of every existing object in the log, by resource and key.
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

fn offsets(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.offset).collect()
}

pub fn empty<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    assert_eq!(log.last().unwrap(), Offset::ZERO);
    for offset in [0, 1, u64::MAX] {
        assert_eq!(log.read(Offset(offset)).unwrap(), None);
    }
    assert_eq!(log.scan(None, Offset::ZERO, 10).unwrap(), []);
    assert_eq!(log.scan(Some("pods"), Offset::ZERO, 10).unwrap(), []);
    assert!(current(log).is_empty());
    log.append(&[]).unwrap();
    assert_eq!(log.last().unwrap(), Offset::ZERO);
}

pub fn records_read_back<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    let written = [put(1, "pods", "a/b", 0), put(2, "nodes", "n", 0), delete(3, "pods", "a/b", 1)];
    log.append(&written).unwrap();
    for record in &written {
        assert_eq!(log.read(record.offset()).unwrap().as_ref(), Some(record));
    }
    assert_eq!(log.read(Offset(0)).unwrap(), None);
    assert_eq!(log.read(Offset(4)).unwrap(), None);
    assert_eq!(everything(log), written);
}

pub fn offsets_are_dense<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    let mut next = 1;
    for size in [1, 5, 2, 64, 1] {
        let batch: Vec<Record> = (next..next + size).map(|offset| put(offset, "pods", "p", offset - 1)).collect();
        log.append(&batch).unwrap();
        next += size;
        assert_eq!(log.last().unwrap(), Offset(next - 1));
    }
    assert_eq!(offsets(&everything(log)), (1..next).collect::<Vec<_>>());
}

pub fn scans_begin_and_end_where_told<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    // Offsets above 255 and above 65535 show whether offsets are ordered as numbers. Odd offsets are pods.
    let resource = |offset: u64| if offset % 2 == 1 { "pods" } else { "nodes" };
    let batch: Vec<Record> = (1..=70_000).map(|offset| put(offset, resource(offset), "x", 0)).collect();
    log.append(&batch).unwrap();
    let cases: &[(Option<&str>, u64, usize, &[u64])] = &[
        (None, 0, 0, &[]),
        (None, 0, 3, &[1, 2, 3]),
        (None, 254, 4, &[255, 256, 257, 258]),
        (None, 65_534, 3, &[65_535, 65_536, 65_537]),
        (None, 69_998, 10, &[69_999, 70_000]),
        (None, 70_000, 10, &[]),
        (None, u64::MAX - 1, 10, &[]),
        (Some("pods"), 0, 3, &[1, 3, 5]),
        (Some("pods"), 1, 2, &[3, 5]),
        (Some("pods"), 2, 2, &[3, 5]),
        (Some("nodes"), 253, 3, &[254, 256, 258]),
        (Some("pods"), 69_997, 10, &[69_999]),
        (Some("nodes"), 70_000, 10, &[]),
        (Some("services"), 0, 10, &[]),
    ];
    for (resource, after, limit, expected) in cases {
        let found = log.scan(*resource, Offset(*after), *limit).unwrap();
        assert_eq!(offsets(&found), *expected, "{resource:?} after {after}, {limit} at most");
        if resource.is_none() && *limit > 0 {
            let mut visited = Vec::new();
            let visit = &mut |record: &Record| {
                visited.push(record.clone());
                if visited.len() < *limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            log.each(Offset(*after), visit).unwrap();
            assert_eq!(visited, found, "one by one after {after}, {limit} at most");
        }
    }
    assert_eq!(log.scan(Some("pods"), Offset::ZERO, usize::MAX).unwrap().len(), 35_000);
}

pub fn resources_do_not_mix<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    // Some names of resources are prefixes of other names, and some keys look like parts of names.
    let names = ["pod", "pods", "pods.x", "podtemplates", "pods/status", "p"];
    let mut batch = Vec::new();
    for round in 0..4 {
        for (index, name) in names.iter().enumerate() {
            let offset = (round * names.len() + index) as u64 + 1;
            batch.push(put(offset, name, &format!("s/pods-{round}"), 0));
        }
    }
    log.append(&batch).unwrap();
    for name in names {
        let expected: Vec<Record> = batch.iter().filter(|record| record.resource == name).cloned().collect();
        assert_eq!(log.scan(Some(name), Offset::ZERO, usize::MAX).unwrap(), expected, "{name}");
    }
    assert_eq!(log.scan(Some(""), Offset::ZERO, usize::MAX).unwrap(), []);
    assert_eq!(current(log).len(), batch.len());
}

pub fn current_is_the_newest_of_each<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    let mut expected = BTreeMap::new();
    for offset in 1..=500u64 {
        // Some keys are prefixes of other keys, such as 1, 10 and 100.
        let key = format!("default/{}", offset * offset % 101);
        let before = expected.get(&key).map_or(0, |record: &Record| record.offset);
        let record = put(offset, "configmaps", &key, before);
        log.append(std::slice::from_ref(&record)).unwrap();
        expected.insert(key, record);
    }
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(key, record)| (("configmaps".to_owned(), key), record)).collect();
    assert_eq!(current(log), expected);
    // If the visitor returns a fault, `current` must stop the visit and return the fault.
    let mut visits = 0;
    let stopped = log.current(&mut |_| {
        visits += 1;
        Err(Fault::Unreadable { what: "enough".into() })
    });
    assert_eq!(stopped.unwrap_err().to_string(), "enough");
    assert_eq!(visits, 1);
}

pub fn deletes<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    log.append(&[put(1, "pods", "a", 0), put(2, "pods", "ab", 0), delete(3, "pods", "a", 1)]).unwrap();
    assert_eq!(offsets(&current(log).into_values().collect::<Vec<_>>()), [2]);
    // An object is created, deleted and created again, partly in one batch.
    log.append(&[put(4, "pods", "a", 0), delete(5, "pods", "a", 4), put(6, "pods", "a", 0)]).unwrap();
    assert_eq!(offsets(&current(log).into_values().collect::<Vec<_>>()), [6, 2]);
    assert_eq!(offsets(&everything(log)), [1, 2, 3, 4, 5, 6], "history stays");
    assert!(log.read(Offset(3)).unwrap().unwrap().is_delete());
    log.append(&[delete(7, "pods", "a", 6), delete(8, "pods", "ab", 2)]).unwrap();
    assert!(current(log).is_empty());
    assert_eq!(log.last().unwrap(), Offset(8));
}

pub fn large_batches<B: Backend>() {
    let backend = B::fresh();
    let batch: Vec<Record> = (1..=20_000).map(|n| put(n, "events", &format!("default/e{n}"), 0)).collect();
    backend.log().append(&batch).unwrap();
    let backend = backend.reopened();
    assert_eq!(everything(backend.log()), batch);
    assert_eq!(current(backend.log()).len(), batch.len());
}

pub fn large_records<B: Backend>() {
    let backend = B::fresh();
    let mut batch: Vec<Record> = (1..=8).map(|offset| put(offset, "configmaps", &format!("a/{offset}"), 0)).collect();
    for (index, record) in batch.iter_mut().enumerate() {
        record.object = vec![b'a' + index as u8; 3 << 20].into();
    }
    backend.log().append(&batch).unwrap();
    let backend = backend.reopened();
    for record in &batch {
        assert!(backend.log().read(record.offset()).unwrap().as_ref() == Some(record), "event {}", record.offset);
    }
}

pub fn survives_reopening<B: Backend>() {
    let mut backend = B::fresh();
    let mut written = Vec::new();
    for round in 0..5u64 {
        let at = round * 3;
        let batch = [
            put(at + 1, "pods", &format!("p{round}"), 0),
            put(at + 2, "pods", "same", at),
            delete(at + 3, "x", "y", 0),
        ];
        backend.log().append(&batch).unwrap();
        written.extend(batch);
        backend = backend.reopened();
        assert_eq!(everything(backend.log()), written);
        assert_eq!(backend.log().last().unwrap(), Offset(at + 3));
    }
    let keys: Vec<String> = current(backend.log()).into_keys().map(|(_, key)| key).collect();
    assert_eq!(keys, ["p0", "p1", "p2", "p3", "p4", "same"]);
}

pub fn recovers<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    log.append(&[put(1, "pods", "a", 0)]).unwrap();
    // The recovery of a log that has no fault must change nothing.
    log.recover().unwrap();
    assert_eq!(offsets(&everything(log)), [1]);
    log.append(&[put(2, "pods", "b", 0)]).unwrap();
    log.recover().unwrap();
    assert_eq!(offsets(&everything(backend.reopened().log())), [1, 2]);
}

/// A reader never sees a part of a batch, and never an older state than before.
pub fn readers_beside_the_writer<B: Backend + Sync>() {
    const BATCH: u64 = 7;
    let backend = B::fresh();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for batch in 0..60 {
                let records: Vec<Record> =
                    (1..=BATCH).map(|n| put(batch * BATCH + n, "pods", &format!("p{n}"), 0)).collect();
                backend.log().append(&records).unwrap();
            }
        });
        let mut before = 0;
        while !writer.is_finished() {
            let count = everything(backend.log()).len() as u64;
            assert_eq!(count % BATCH, 0, "half a batch is seen");
            assert!(count >= before, "{count} records after {before}");
            before = count;
        }
        writer.join().unwrap();
    });
    assert_eq!(backend.log().last().unwrap(), Offset(60 * BATCH));
}

pub fn forgets_what_was_replaced<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    let records = [
        put(1, "pods", "kept", 0),
        put(2, "pods", "changes", 0),
        put(3, "pods", "changes", 2),
        put(4, "pods", "goes", 0),
        delete(5, "pods", "goes", 4),
        put(6, "pods", "goes later", 0),
        put(7, "nodes", "changes", 0),
        put(8, "pods", "changes", 3),
        delete(9, "pods", "goes later", 6),
        put(10, "pods", "goes", 0),
    ];
    log.append(&records).unwrap();
    assert_eq!(log.oldest().unwrap(), Offset::ZERO);
    log.forget(Offset(7)).unwrap();
    // The events of the objects that exist at version 7 stay, and so do all later events.
    let expected = [1, 3, 6, 7, 8, 9, 10];
    assert_eq!(offsets(&everything(log)), expected);
    assert_eq!(log.oldest().unwrap(), Offset(7));
    assert_eq!(log.read(Offset(2)).unwrap(), None);
    assert_eq!(log.scan(Some("pods"), Offset(7), 10).unwrap(), [&records[7..]].concat());
    let kept: Vec<String> = current(log).into_keys().map(|(resource, key)| format!("{resource}/{key}")).collect();
    assert_eq!(kept, ["nodes/changes", "pods/changes", "pods/goes", "pods/kept"]);
    // A call with an earlier version than the call before removes nothing.
    log.forget(Offset(3)).unwrap();
    assert_eq!(log.oldest().unwrap(), Offset(7));
    let backend = backend.reopened();
    let log = backend.log();
    assert_eq!((offsets(&everything(log)), log.oldest().unwrap()), (expected.to_vec(), Offset(7)));
    log.append(&[put(11, "pods", "kept", 1)]).unwrap();
    log.forget(Offset(11)).unwrap();
    assert_eq!(offsets(&everything(log)), [7, 8, 10, 11]);
    assert_eq!(log.last().unwrap(), Offset(11));
    // The first event of the log stays although it is a deletion, because its time is the time of that version. The
    // next call of `forget` removes the deletion.
    log.append(&[delete(12, "pods", "kept", 11)]).unwrap();
    log.compact(true).unwrap();
    log.forget(Offset(99)).unwrap();
    assert_eq!(offsets(&everything(log)), [7, 8, 10, 12]);
    let backend = backend.reopened();
    let log = backend.log();
    assert_eq!((log.last().unwrap(), log.oldest().unwrap()), (Offset(12), Offset(12)));
    log.append(&[put(13, "pods", "kept", 0)]).unwrap();
    log.compact(true).unwrap();
    assert_eq!(offsets(&everything(log)), [7, 8, 10, 12, 13]);
    log.forget(Offset(13)).unwrap();
    assert_eq!(offsets(&everything(log)), [7, 8, 10, 13]);
}

/// Checks that the result of `forget` depends only on the version of the last call, not on the number of calls.
pub fn forgets_in_steps_as_at_once<B: Backend>() {
    let (stepped, at_once) = (B::fresh(), B::fresh());
    let mut newest = BTreeMap::new();
    let mut records = Vec::new();
    for offset in 1..=5_000u64 {
        let key = format!("default/{}", offset * offset % 251);
        let before = newest.get(&key).copied().unwrap_or(0);
        if before > 0 && offset % 7 == 0 {
            records.push(delete(offset, "pods", &key, before));
            newest.remove(&key);
        } else {
            records.push(put(offset, "pods", &key, before));
            newest.insert(key, offset);
        }
    }
    for log in [stepped.log(), at_once.log()] {
        log.append(&records).unwrap();
    }
    let size = stepped.log().size().unwrap();
    for through in [1, 2, 700, 700, 650, 2_499, 3_000, 4_900] {
        stepped.log().forget(Offset(through)).unwrap();
    }
    at_once.log().forget(Offset(4_900)).unwrap();
    let left = everything(at_once.log());
    assert_eq!(offsets(&everything(stepped.log())), offsets(&left));
    let mut expected: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in &records[..4_900] {
        match record.is_delete() {
            true => expected.remove(record.key.as_str()),
            false => expected.insert(&record.key, record),
        };
    }
    let mut expected: Vec<u64> = expected.into_values().map(|record| record.offset).collect();
    assert!(records[4_899].is_delete(), "the event that the log begins with stays, whatever it is");
    expected.push(4_900);
    expected.sort_unstable();
    expected.extend(4_901..=5_000);
    assert_eq!(offsets(&left), expected);
    for log in [stepped.log(), at_once.log()] {
        let now = log.size().unwrap();
        assert_eq!(now.let_go_events as usize, records.len() - left.len());
        assert!(now.let_go_bytes > 0 && now.bytes < size.bytes, "{now:?} after {size:?}");
        for resource in [None, Some("pods")] {
            assert_eq!(offsets(&log.scan(resource, Offset::ZERO, usize::MAX).unwrap()), expected);
        }
        let of_key: usize = newest.keys().map(|key| log.versions("pods", key).unwrap().len()).sum();
        let gone = log.versions("pods", "default/none").unwrap().len();
        assert!(of_key > 0 && gone == 0);
    }
    let mut newest: Vec<u64> = newest.into_values().collect();
    newest.sort_unstable();
    for backend in [stepped, at_once] {
        backend.log().compact(true).unwrap();
        let backend = backend.reopened();
        let mut found = offsets(&current(backend.log()).into_values().collect::<Vec<_>>());
        found.sort_unstable();
        assert_eq!(found, newest);
        assert_eq!(offsets(&everything(backend.log())), expected);
    }
}

/// Checks that events that are appended while `forget` runs are not lost.
pub fn forgets_beside_the_writer<B: Backend + Sync>() {
    let backend = B::fresh();
    let log = backend.log();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for offset in 1..=400u64 {
                log.append(&[put(offset, "pods", &format!("p{}", offset % 10), offset.saturating_sub(10))]).unwrap();
            }
        });
        while !writer.is_finished() {
            let last = log.last().unwrap();
            log.forget(Offset(last.0.saturating_sub(20))).unwrap();
            log.compact(true).unwrap();
        }
        writer.join().unwrap();
    });
    log.forget(Offset(400)).unwrap();
    assert_eq!(offsets(&everything(log)), (391..=400).collect::<Vec<_>>());
    assert_eq!(current(log).len(), 10);
}

/// Compares objects and lists at every version with a plain scan of all events.
pub fn tells_what_was_there<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    // The keys and resources have common prefixes. Most objects have few events, some objects have many; objects are
    // deleted and created again.
    let objects = [
        ("pods", "a/b"),
        ("pods", "a/b-c"),
        ("pods", "a/bc"),
        ("pods", "a.b/c"),
        ("pods", "aa/b"),
        ("podspecs", "a/b"),
        ("x.io/pods", "a/b"),
        ("pods", "b/\u{fc}"),
    ];
    let mut newest: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut written = Vec::new();
    let mut random = 7u64;
    for offset in 1..=400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Half of all events are on the first object of `objects`.
        let (resource, key) = objects[if random >> 63 == 0 { 0 } else { (random >> 33) as usize % objects.len() }];
        let before = newest.get(&(resource, key)).copied();
        match before {
            Some(before) if (random >> 20).is_multiple_of(4) => {
                newest.remove(&(resource, key));
                written.push(delete(offset, resource, key, before));
            }
            before => {
                newest.insert((resource, key), offset);
                written.push(put(offset, resource, key, before.unwrap_or(0)));
            }
        }
    }
    for batch in written.chunks(37) {
        log.append(batch).unwrap();
    }
    let check = |at: u64| {
        let mut there: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for record in written.iter().take(at as usize) {
            match record.is_delete() {
                true => there.remove(&(record.resource.as_str(), record.key.as_str())),
                false => there.insert((&record.resource, &record.key), record.offset),
            };
        }
        for (resource, key) in objects {
            let found = log.version_at(resource, key, Offset(at)).unwrap();
            assert_eq!(found.map(|offset| offset.0), there.get(&(resource, key)).copied(), "{resource}/{key} at {at}");
        }
        for (prefix, after) in [
            ("", None),
            ("a/", None),
            ("a/", Some("a/b")),
            ("", Some("a/b-c")),
            ("a.b/", Some("a")),
            ("b/", Some("b/zz")),
            ("zz/", None),
        ] {
            for (resource, limit) in [("pods", 2), ("pods", 99), ("podspecs", 99), ("services", 99)] {
                let expected: Vec<(String, u64)> = there
                    .iter()
                    .filter(|((of, key), _)| {
                        *of == resource && key.starts_with(prefix) && after.is_none_or(|after| *key > after)
                    })
                    .map(|((_, key), offset)| ((*key).to_owned(), *offset))
                    .take(limit)
                    .collect();
                let mut found = Vec::new();
                let asked = AsOf { resource, prefix, after, at: Offset(at) };
                log.as_of(&asked, &mut |key, offset| {
                    found.push((key.to_owned(), offset.0));
                    if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .unwrap();
                assert_eq!(found, expected, "{resource} {prefix:?} after {after:?} at {at}");
            }
        }
    };
    (0..=400).step_by(7).chain([400, 999]).for_each(check);
    log.forget(Offset(200)).unwrap();
    (200..=400).step_by(9).for_each(check);
}

/// Compares the events on some objects between two versions with a plain scan of all events. In some cases the selected
/// objects have few of the many events. In other cases one object has many events, or more events than one request
/// returns.
pub fn tells_what_changed<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    let key = |offset: u64| match offset {
        offset if offset.is_multiple_of(350) => "a/few",
        offset if offset.is_multiple_of(450) => "a/other",
        offset if offset.is_multiple_of(7) => "b/some",
        _ => "c/many",
    };
    let resource = |offset: u64| if offset.is_multiple_of(11) { "podspecs" } else { "pods" };
    let mut newest: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut written = Vec::new();
    for offset in 1..=3000 {
        let place = (resource(offset), key(offset));
        let before = newest.insert(place, offset).unwrap_or(0);
        written.push(put(offset, place.0, place.1, before));
    }
    written.chunks(1000).for_each(|batch| assert!(log.append(batch).is_ok()));
    let check = |after: u64, until: u64| {
        for (resource, prefix) in [
            ("pods", ""),
            ("pods", "a/"),
            ("pods", "a/few"),
            ("pods", "b/"),
            ("pods", "zz/"),
            ("podspecs", "c/"),
            ("x", ""),
        ] {
            let asked_for = |record: &&Record| record.resource == resource && record.key.starts_with(prefix);
            let between = written.iter().filter(|record| record.offset > after && record.offset <= until);
            let expected: Vec<u64> = between.filter(asked_for).map(|record| record.offset).collect();
            for limit in [1, 5, 10_000] {
                if limit < 10 && expected.len() > 50 {
                    continue;
                }
                let (mut found, mut position) = (Vec::new(), Offset(after));
                while position < Offset(until) {
                    let asked = Changes { resource, prefix, after: position, until: Offset(until) };
                    let next = log.changes(&asked, limit).unwrap();
                    assert!(next.through > position && next.offsets.len() <= limit, "{next:?}");
                    assert!(next.offsets.last().is_none_or(|last| *last <= next.through), "{next:?}");
                    found.extend(next.offsets.iter().map(|offset| offset.0));
                    position = next.through;
                }
                assert_eq!(found, expected, "{resource} {prefix:?} after {after} until {until}, {limit} at a time");
            }
        }
    };
    for (after, until) in [(0, 3000), (0, 3), (700, 700), (699, 1051), (2990, 3000), (2000, 3000)] {
        check(after, until);
    }
    log.forget(Offset(1500)).unwrap();
    check(1500, 3000);
}

pub fn has_a_secret<B: Backend>() {
    let (one, other) = (B::fresh(), B::fresh());
    let secret = one.log().secret().unwrap();
    assert_ne!(secret, [0; 32]);
    assert_ne!(secret, other.log().secret().unwrap());
    assert_eq!(secret, one.log().secret().unwrap());
    assert_eq!(secret, one.reopened().log().secret().unwrap());
}

/// The whole tail after `after`, read in several calls.
fn tail(log: &dyn Log, after: Offset) -> Vec<Record> {
    let (mut found, mut after) = (Vec::new(), after);
    loop {
        let piece = log.tail(after).unwrap();
        let Some(last) = piece.last() else { return found };
        after = last.offset();
        found.extend(piece);
    }
}

pub fn tells_its_tail<B: Backend>() {
    let backend = B::fresh();
    let log = backend.log();
    assert_eq!(log.tail(Offset::ZERO).unwrap(), []);
    let written: Vec<Record> = (1..=3000).map(|offset| put(offset, "pods", &format!("p{offset}"), 0)).collect();
    for batch in written.chunks(700) {
        assert!(log.append(batch).unwrap().is_appended());
    }
    for after in [0, 1, 699, 2999, 3000, 4000] {
        let expected = written.get(after as usize..).unwrap_or_default();
        assert_eq!(offsets(&tail(log, Offset(after))), offsets(expected), "after {after}");
    }
}

/// Two appenders write batches in an order drawn from a seed. If the other appender has appended first, an append must
/// report that its writer is behind, and no event may be lost or duplicated.
pub fn lets_others_be_first<B: Backend>() {
    for seed in 1..=20u64 {
        let backend = B::fresh();
        let log = backend.log();
        let woken = Arc::new(AtomicU64::new(0));
        let counter = woken.clone();
        log.wake_by(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let mut draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut known, mut written, mut others) = (0, Vec::new(), 0);
        for turn in 0..60 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (is_other, count) = (draw >> 33 & 1 == 1, 1 + (draw >> 40) % 3);
            let batch = |after: u64, who: &str| -> Vec<Record> {
                (1..=count).map(|nth| put(after + nth, "pods", &format!("{who}-{turn}-{nth}"), 0)).collect()
            };
            if is_other {
                let theirs = batch(written.len() as u64, "theirs");
                if !backend.append_as_other(&theirs) {
                    continue;
                }
                others += 1;
                written.extend(theirs);
                assert_eq!(woken.load(Ordering::Relaxed), others, "seed {seed}");
                continue;
            }
            let ours = batch(known, "ours");
            if known < written.len() as u64 {
                assert!(log.append(&ours).unwrap().is_behind(), "seed {seed}, turn {turn}");
                let missed = tail(log, Offset(known));
                assert_eq!(missed, written[known as usize..], "seed {seed}, turn {turn}");
                known = written.len() as u64;
            }
            let ours = batch(known, "ours");
            assert!(log.append(&ours).unwrap().is_appended(), "seed {seed}, turn {turn}");
            written.extend(ours);
            known = written.len() as u64;
        }
        assert_eq!(everything(log), written, "seed {seed}");
        assert_eq!(everything(backend.reopened().log()), written, "seed {seed}");
    }
}

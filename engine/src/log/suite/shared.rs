//! Tests of logs to which several servers append. [`shared_storage_suite!`](crate::shared_storage_suite) runs them on a
//! backend.
//!
//! The objects are whole ConfigMaps, because such a log may store objects in a form of its own.

use super::{current, everything};
use crate::log::{AsOf, Changes, Decision, Expected, Proposal, Receipt};
use crate::{Append, Log};
use holdfast_core::event::{Actor, Offset, Operation, Record};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for the events of another server.
const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "configmaps";

/// Two servers that append to one log.
pub trait Backend: Sized + Sync {
    /// Whether a server can read the actor and the time of events that the other server wrote.
    const TELLS_WHO: bool = true;

    /// Makes an empty log for two servers.
    fn fresh() -> Self;
    fn server(&self, nth: usize) -> &dyn Log;
    /// Stops a server. The test does not use the server's log until the server starts again.
    fn stop(&mut self, nth: usize);
    /// Starts a stopped server, with or without the data on its own disk.
    fn start(&mut self, nth: usize, with_its_own: bool);
}

/// Makes one test for each case of the suite, on the given backend.
#[macro_export]
macro_rules! shared_storage_suite {
    ($backend:ty) => {
        $crate::shared_storage_suite!($backend:
            is_empty_at_first, all_servers_read_what_one_has_written, counts_on_what_was_seen,
            decisions_of_a_batch_stand_alone, one_of_two_is_first, several_objects_of_a_decision,
            claims_are_made_once, events_of_others_come_by_themselves, the_last_has_all_that_was_answered,
            all_servers_tell_one_history, a_restart_misses_nothing, a_lost_folder_loses_no_object,
            recovers_where_nothing_is_unknown, has_one_secret, forgets_on_one_server_alone, takes_large_objects);
    };
    // Runs only the named cases, for stores that lack the features which the other cases test.
    ($backend:ty: $($case:ident),*) => {
        $(#[test]
        fn $case() {
            $crate::log::suite::shared::$case::<$backend>();
        })*
    };
}

/// The event with this offset on a ConfigMap. Its writer has read the log up to the previous offset.
fn map(offset: u64, name: &str, value: &str, replaces: u64) -> Record {
    let text = |word: &str| format!("{word}-{name}");
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"creationTimestamp\":\"2026-01-02T03:04:05Z\",\
         \"name\":\"{name}\",\"namespace\":\"a\",\"resourceVersion\":\"{offset}\",\"uid\":\"u-{name}\"}},\
         \"data\":{{\"x\":\"{value}\"}}}}\n"
    );
    Record {
        offset,
        time_ms: 1_795_000_000_000 + offset as i64,
        resource: MAPS.into(),
        key: format!("a/{name}"),
        replaces,
        operation: Operation::Put as i32,
        actor: Actor {
            user: text("user"),
            manager: text("manager"),
            verb: "update".into(),
            request_id: text("request"),
            changes: Vec::new(),
        },
        object: object.into(),
    }
}

fn deletion(record: Record) -> Record {
    Record { operation: Operation::Delete as i32, ..record }
}

fn one(records: Range<usize>) -> Decision {
    Decision { records, expects: Vec::new(), claims: Vec::new(), had: Vec::new() }
}

fn commit(log: &dyn Log, records: &[Record], decisions: &[Decision]) -> Vec<Receipt> {
    match log.commit(&Proposal::new(records, &|| decisions.to_vec())).expect("commit") {
        Append::Numbered(receipts) => {
            assert_eq!(receipts.len(), decisions.len());
            receipts
        }
        other => panic!("a shared log numbers events itself: {other:?}"),
    }
}

/// Commits each record as a decision of its own, in one proposal.
fn each(log: &dyn Log, records: &[Record]) -> Vec<Receipt> {
    let decisions: Vec<Decision> = (0..records.len()).map(|nth| one(nth..nth + 1)).collect();
    commit(log, records, &decisions)
}

fn written(receipt: &Receipt) -> &[Offset] {
    match receipt {
        Receipt::At(offsets) => offsets,
        other => panic!("it is not written: {other:?}"),
    }
}

/// Writes one record, which must succeed. Returns the offset that the log gave the record.
fn write(log: &dyn Log, record: Record) -> u64 {
    written(&each(log, &[record])[0])[0].0
}

fn is_overtaken(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::Overtaken)
}

/// The offset that a writer which has read the whole log would give to the next event.
fn next(log: &dyn Log) -> u64 {
    log.last().expect("the last").0 + 1
}

/// The record with the offset that the log gave the event, also as the object's `resourceVersion`.
fn at(record: &Record, offset: u64) -> Record {
    let version = |offset: u64| format!("\"resourceVersion\":\"{offset}\"");
    let object = String::from_utf8_lossy(&record.object).replace(&version(record.offset), &version(offset));
    Record { offset, object: object.into(), ..record.clone() }
}

/// The record without the parts that only the server which wrote it can read.
fn shared<B: Backend>(record: Record) -> Record {
    if B::TELLS_WHO { record } else { Record { actor: Actor::default(), time_ms: 0, ..record } }
}

/// All events of the log, without the parts that only the server which wrote an event can read.
fn history<B: Backend>(log: &dyn Log) -> Vec<Record> {
    everything(log).into_iter().map(shared::<B>).collect()
}

fn await_event(log: &dyn Log, offset: u64) {
    let deadline = Instant::now() + PATIENCE;
    while !log.tail(Offset(offset - 1)).expect("the tail").iter().any(|record| record.offset == offset) {
        assert!(Instant::now() < deadline, "event {offset} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A backend in which an engine follows the log of each server.
fn followed<B: Backend>() -> B {
    let backend = B::fresh();
    follow(&backend);
    backend
}

fn follow<B: Backend>(backend: &B) {
    (0..2).for_each(|nth| backend.server(nth).wake_by(Arc::new(|| {})));
}

pub fn is_empty_at_first<B: Backend>() {
    let backend = followed::<B>();
    for nth in 0..2 {
        let log = backend.server(nth);
        assert!(log.is_shared());
        assert_eq!(log.tail(Offset::ZERO).unwrap(), []);
        assert!(current(log).is_empty() && everything(log).is_empty());
        assert_eq!(commit(log, &[], &[]).len(), 0);
        assert_eq!(log.read(Offset(u64::MAX - 1)).unwrap(), None);
    }
}

pub fn all_servers_read_what_one_has_written<B: Backend>() {
    let backend = followed::<B>();
    let log = backend.server(0);
    let records: Vec<Record> = (0..200).map(|nth| map(next(log) + nth, &format!("c{nth}"), "1", 0)).collect();
    let receipts = each(log, &records);
    // The tail of the server that wrote the records must have their events as soon as the commit returns.
    let mut expected: Vec<Record> =
        records.iter().zip(&receipts).map(|(record, receipt)| at(record, written(receipt)[0].0)).collect();
    expected.sort_by_key(|record| record.offset);
    assert!(expected.windows(2).all(|pair| pair[0].offset < pair[1].offset), "each event has a number of its own");
    assert_eq!(everything(log), expected);
    let last = expected.last().map(|record| record.offset());
    let expected: Vec<Record> = expected.into_iter().map(shared::<B>).collect();
    for log in [log, backend.server(1)] {
        assert!(Some(log.last().unwrap()) >= last);
        assert_eq!(history::<B>(log), expected);
        for record in &expected {
            assert_eq!(log.read(record.offset()).unwrap().map(shared::<B>).as_ref(), Some(record));
        }
    }
}

pub fn counts_on_what_was_seen<B: Backend>() {
    let backend = followed::<B>();
    let log = backend.server(0);
    let created = write(log, map(next(log), "c", "1", 0));
    let there = write(log, map(next(log), "there", "1", 0));
    let expects = |key: &str, version: Option<u64>| Expected {
        resource: MAPS.into(),
        key: key.into(),
        version: version.map(Offset),
    };
    let before = everything(log);
    for log in [backend.server(1), backend.server(0)] {
        let n = next(log);
        let refused = [
            map(n, "c", "2", 0),
            map(n, "c", "2", created + 1000),
            map(n, "none", "2", created),
            deletion(map(n, "c", "1", created + 1000)),
            deletion(map(n, "none", "1", created)),
        ];
        for record in refused {
            assert!(is_overtaken(&each(log, std::slice::from_ref(&record))[0]), "{record:?}");
        }
        let wrong = [expects("a/there", None), expects("a/there", Some(created)), expects("a/none", Some(created))];
        for expected in wrong {
            let decision = Decision { expects: vec![expected.clone()], ..one(0..1) };
            assert!(is_overtaken(&commit(log, &[map(n, "new", "1", 0)], &[decision])[0]), "{expected:?}");
        }
        assert_eq!(everything(log), before, "nothing of them is in the log");
    }
    let decision = Decision { expects: vec![expects("a/there", Some(there)), expects("a/none", None)], ..one(0..1) };
    let updated = commit(log, &[map(next(log), "c", "2", created)], &[decision]);
    let updated = written(&updated[0])[0].0;
    write(log, deletion(map(next(log), "c", "2", updated)));
    // A deleted object can be created again. A second deletion, which expects the version before the first deletion,
    // must be overtaken.
    let again = write(backend.server(1), map(next(backend.server(1)), "c", "3", 0));
    assert!(is_overtaken(&each(log, &[deletion(map(next(log), "c", "2", updated))])[0]));
    assert_eq!(current(log)[&(MAPS.to_owned(), "a/c".to_owned())].offset, again);
}

pub fn decisions_of_a_batch_stand_alone<B: Backend>() {
    let backend = followed::<B>();
    let log = backend.server(0);
    let n = next(log);
    let taken: Vec<Record> = (0..20).map(|nth| map(n + nth, &format!("c{nth}"), "theirs", 0)).collect();
    each(backend.server(1), &taken);
    // The other server has already created every second object of the 40 objects. This server may not have read the
    // events of these objects yet.
    let ours: Vec<Record> = (0..40)
        .map(|nth| map(n + nth, &if nth % 2 == 0 { format!("c{}", nth / 2) } else { format!("d{nth}") }, "ours", 0))
        .collect();
    for (nth, receipt) in each(log, &ours).iter().enumerate() {
        assert_eq!(is_overtaken(receipt), nth % 2 == 0, "{nth}: {receipt:?}");
    }
    let found = current(log);
    assert_eq!(found.len(), 40);
    assert_eq!(found.values().filter(|record| String::from_utf8_lossy(&record.object).contains("ours")).count(), 20);
}

pub fn one_of_two_is_first<B: Backend>() {
    let backend = followed::<B>();
    let mut version = write(backend.server(0), map(next(backend.server(0)), "c", "0", 0));
    for round in 0..20 {
        let update = |nth: usize| {
            let log = backend.server(nth);
            let receipts = each(log, &[map(version + 1, "c", &format!("{round}-{nth}"), version)]);
            receipts.into_iter().next().expect("one receipt")
        };
        let receipts = std::thread::scope(|scope| {
            let [one, other] = [0, 1].map(|nth| scope.spawn(move || update(nth)));
            [one, other].map(|thread| thread.join().expect("a server"))
        });
        assert_eq!(receipts.iter().filter(|receipt| is_overtaken(receipt)).count(), 1, "{receipts:?}");
        let first = receipts.iter().find(|receipt| !is_overtaken(receipt)).expect("one was first");
        version = written(first)[0].0;
    }
    let versions = backend.server(0).versions(MAPS, "a/c").unwrap();
    assert_eq!(versions.len(), 21);
}

pub fn several_objects_of_a_decision<B: Backend>() {
    let backend = followed::<B>();
    let log = backend.server(0);
    let created = write(log, map(next(log), "c", "1", 0));
    let n = next(log);
    let records = [map(n, "c", "going", created), deletion(map(n + 1, "c", "going", n)), map(n + 2, "sum", "1", 0)];
    let receipts = commit(log, &records, &[one(0..3)]);
    let offsets = written(&receipts[0]);
    assert_eq!(offsets.len(), 3);
    for log in [log, backend.server(1)] {
        assert!(log.last().unwrap() >= *offsets.iter().max().unwrap());
        for (record, offset) in records.iter().zip(offsets) {
            let found = log.read(*offset).unwrap().expect("the event");
            assert_eq!((&found.key, found.is_delete()), (&record.key, record.is_delete()));
        }
        assert!(offsets[0] < offsets[1], "it is marked before it is deleted");
        assert_eq!(log.read(offsets[1]).unwrap().unwrap().replaces, offsets[0].0);
        assert_eq!(current(log).into_keys().map(|(_, key)| key).collect::<Vec<_>>(), ["a/sum"]);
    }
}

pub fn claims_are_made_once<B: Backend>() {
    let backend = followed::<B>();
    for round in 0..10 {
        // Both decisions were judged before either was written.
        let known = next(backend.server(0)).max(next(backend.server(1)));
        let claim = |nth: usize, before: u64, claim: String| {
            let decision = Decision { claims: vec![(0, claim.into())], ..one(0..1) };
            let name = format!("c{round}-{nth}-{before}");
            commit(backend.server(nth), &[map(before, &name, "1", 0)], &[decision]).remove(0)
        };
        let receipts = std::thread::scope(|scope| {
            let threads = [0, 1].map(|nth| scope.spawn(move || claim(nth, known, format!("port/{round}"))));
            threads.map(|thread| thread.join().expect("a server"))
        });
        assert_eq!(receipts.iter().filter(|receipt| is_overtaken(receipt)).count(), 1, "{receipts:?}");
        // The loser has read the winner's event, so it claims another value.
        let nth = usize::from(is_overtaken(&receipts[1]));
        written(&claim(nth, next(backend.server(nth)), format!("other/{round}")));
    }
}

pub fn events_of_others_come_by_themselves<B: Backend>() {
    let backend = B::fresh();
    let woken = Arc::new(AtomicBool::new(false));
    let wake = woken.clone();
    backend.server(0).wake_by(Arc::new(|| {}));
    backend.server(1).wake_by(Arc::new(move || wake.store(true, Ordering::SeqCst)));
    let created = write(backend.server(0), map(1, "c", "1", 0));
    await_event(backend.server(1), created);
    let deadline = Instant::now() + PATIENCE;
    while !woken.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "nobody was woken");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn the_last_has_all_that_was_answered<B: Backend>() {
    let backend = followed::<B>();
    let mut version = 0;
    for round in 0..60 {
        let (writer, reader) = (backend.server(round % 2), backend.server(1 - round % 2));
        version = write(writer, map(version + 1, "c", &round.to_string(), version));
        assert!(reader.last().unwrap() >= Offset(version));
        assert_eq!(current(reader)[&(MAPS.to_owned(), "a/c".to_owned())].offset, version);
    }
}

/// Both servers write objects, in an order drawn from a seed.
fn write_much<B: Backend>(backend: &B, turns: usize) {
    let names = ["b", "b-c", "bc", "b.c", "c", "d", "dd", "e"];
    let mut draw = 7u64;
    for turn in 0..turns {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let log = backend.server((draw >> 60) as usize % 2);
        let n = next(log);
        let found = current(log);
        let mut records = Vec::new();
        // A batch contains each name at most once; half of the batches contain the first name.
        for (nth, name) in names.iter().enumerate().filter(|(nth, _)| *nth == 0 || draw >> (10 + nth) & 3 == 0) {
            let before = found.get(&(MAPS.to_owned(), format!("a/{name}"))).map_or(0, |record| record.offset);
            let record = map(n + nth as u64, name, &turn.to_string(), before);
            let is_deletion = before > 0 && draw >> (20 + nth) & 3 == 0;
            records.push(if is_deletion { deletion(record) } else { record });
        }
        for receipt in each(log, &records) {
            written(&receipt);
        }
    }
}

pub fn all_servers_tell_one_history<B: Backend>() {
    let backend = followed::<B>();
    write_much(&backend, 60);
    let last = backend.server(0).last().unwrap().max(backend.server(1).last().unwrap());
    backend.server(0).last().unwrap();
    let events = history::<B>(backend.server(0));
    assert!(events.len() > 100 && events.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    assert_eq!(history::<B>(backend.server(1)), events);
    for log in [backend.server(0), backend.server(1)] {
        tells(log, &events, Offset::ZERO, last);
    }
}

/// Compares versions, lists and changes with a plain scan of all events.
fn tells(log: &dyn Log, events: &[Record], from: Offset, last: Offset) {
    let mut names: Vec<&str> = events.iter().map(|record| record.key.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    // Some of the versions belong to events, and other versions are in gaps between events.
    let versions = events.iter().map(Record::offset).filter(|at| *at >= from).step_by(5);
    for version in versions.flat_map(|at| [at, Offset(at.0 + 1)]).chain([last, Offset(last.0 + 99)]) {
        let mut there: BTreeMap<&str, u64> = BTreeMap::new();
        for record in events.iter().filter(|record| record.offset() <= version) {
            match record.is_delete() {
                true => there.remove(record.key.as_str()),
                false => there.insert(&record.key, record.offset),
            };
        }
        for name in &names {
            let found = log.version_at(MAPS, name, version).unwrap();
            assert_eq!(found.map(|offset| offset.0), there.get(name).copied(), "{name} at {version:?}");
        }
        for (prefix, after) in [("", None), ("a/", None), ("a/b", Some("a/b")), ("a/d", None), ("b/", None)] {
            let is_asked_for = |key: &&str| key.starts_with(prefix) && after.is_none_or(|after| *key > after);
            let expected: Vec<(String, u64)> = there
                .iter()
                .filter(|(key, _)| is_asked_for(key))
                .map(|(key, offset)| ((*key).to_owned(), *offset))
                .collect();
            let mut found = Vec::new();
            log.as_of(&AsOf { resource: MAPS, prefix, after, at: version }, &mut |key, offset| {
                found.push((key.to_owned(), offset.0));
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(found, expected, "{prefix:?} after {after:?} at {version:?}");
            changes(log, events, &Changes { resource: MAPS, prefix, after: from, until: version });
        }
    }
}

fn changes(log: &dyn Log, events: &[Record], asked: &Changes) {
    let is_asked_for = |record: &&Record| {
        record.offset() > asked.after && record.offset() <= asked.until && record.key.starts_with(asked.prefix)
    };
    let expected: Vec<Offset> = events.iter().filter(is_asked_for).map(Record::offset).collect();
    let (mut found, mut position) = (Vec::new(), asked.after);
    while position < asked.until {
        let more = log.changes(&Changes { after: position, ..*asked }, 7).unwrap();
        assert!(more.through > position && more.offsets.len() <= 7, "{more:?}");
        found.extend(more.offsets);
        position = more.through;
    }
    assert_eq!(found, expected, "{asked:?}");
}

pub fn a_restart_misses_nothing<B: Backend>() {
    let mut backend = followed::<B>();
    for round in 0..3 {
        write_much(&backend, 8);
        backend.stop(0);
        let log = backend.server(1);
        let missed = write(log, map(next(log), &format!("missed-{round}"), "1", 0));
        backend.start(0, true);
        assert!(backend.server(0).last().unwrap() >= Offset(missed), "a start takes over what it has missed");
        let events = history::<B>(log_of_other(&backend));
        assert_eq!(history::<B>(backend.server(0)), events);
        let objects = |log| current(log).into_values().map(shared::<B>).collect::<Vec<_>>();
        assert_eq!(objects(backend.server(0)), objects(log_of_other(&backend)));
        follow(&backend);
    }
}

fn log_of_other<B: Backend>(backend: &B) -> &dyn Log {
    let log = backend.server(1);
    log.last().expect("the last");
    log
}

pub fn a_lost_folder_loses_no_object<B: Backend>() {
    let mut backend = followed::<B>();
    write_much(&backend, 12);
    backend.stop(0);
    backend.start(0, false);
    let log = backend.server(0);
    let (found, expected) = (current(log), current(log_of_other(&backend)));
    // The server that starts without its own data no longer knows who wrote each object, so actors and times are not
    // compared.
    let bare = |found: BTreeMap<(String, String), Record>| {
        let record = |(place, record): ((String, String), Record)| (place, record.offset, record.object);
        found.into_iter().map(record).collect::<Vec<_>>()
    };
    assert_eq!(bare(found), bare(expected));
    assert!(log.oldest().unwrap() > Offset::ZERO, "events are missing before it");
    follow(&backend);
    let last = write(log, map(next(log), "after", "1", 0));
    assert!(backend.server(1).last().unwrap() >= Offset(last));
}

pub fn recovers_where_nothing_is_unknown<B: Backend>() {
    let backend = followed::<B>();
    let log = backend.server(0);
    log.recover().unwrap();
    let first = write(log, map(next(log), "c", "1", 0));
    log.recover().unwrap();
    let second = write(log, map(next(log), "c", "2", first));
    backend.server(1).recover().unwrap();
    assert_eq!(log.versions(MAPS, "a/c").unwrap(), [Offset(first), Offset(second)]);
}

pub fn has_one_secret<B: Backend>() {
    let (mut backend, other) = (B::fresh(), B::fresh());
    let secret = backend.server(0).secret().unwrap();
    assert_ne!(secret, [0; 32]);
    assert_ne!(secret, other.server(0).secret().unwrap());
    assert_eq!(secret, backend.server(1).secret().unwrap());
    for with_its_own in [true, false] {
        backend.stop(1);
        backend.start(1, with_its_own);
        assert_eq!(secret, backend.server(1).secret().unwrap());
    }
}

pub fn forgets_on_one_server_alone<B: Backend>() {
    let backend = followed::<B>();
    write_much(&backend, 40);
    let [log, other] = [backend.server(0), log_of_other(&backend)];
    let (last, events) = (log.last().unwrap(), history::<B>(other));
    let middle = events[events.len() / 2].offset();
    log.forget(middle).unwrap();
    assert_eq!(log.oldest().unwrap(), middle);
    let since = |record: &&Record| record.offset() > middle;
    let kept: Vec<Record> = events.iter().filter(since).cloned().collect();
    let found: Vec<Record> = log.scan(None, middle, usize::MAX).unwrap().into_iter().map(shared::<B>).collect();
    assert_eq!(found, kept);
    assert!(everything(log).len() < events.len());
    tells(log, &events, middle, last);
    assert_eq!(history::<B>(other), events);
}

pub fn takes_large_objects<B: Backend>() {
    let backend = followed::<B>();
    let log = backend.server(0);
    let record = map(next(log), "large", &"x".repeat(1_200_000), 0);
    let offset = write(log, record.clone());
    for log in [log, backend.server(1)] {
        assert!(log.last().unwrap() >= Offset(offset));
        assert!(log.read(Offset(offset)).unwrap().map(shared::<B>) == Some(shared::<B>(at(&record, offset))));
    }
}

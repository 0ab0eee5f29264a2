//! Tests the cost of reads of the past, and the memory that they use. The tests count work and bytes, and never measure
//! times.

use super::stage::{Stage, at_once, create, patch, selection};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::event::{Offset, Record};
use holdfast_engine::volatile::VolatileLog;
use holdfast_engine::{
    Append, AsOf, Changed, Changes, Fault, Log, LogRead, Proposal, ReadMemory, Reader, Wanted, Watch, WatchStart,
};
use holdfast_value::json;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A log that counts the events that are read from it.
#[derive(Default)]
struct Counting {
    log: VolatileLog,
    events: AtomicUsize,
}

impl Counting {
    fn take(&self) -> usize {
        self.events.swap(0, Ordering::Relaxed)
    }
}

impl LogRead for Counting {
    fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.log.read(offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        self.log.current(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let found = self.log.scan(resource, after, limit)?;
        self.events.fetch_add(found.len(), Ordering::Relaxed);
        Ok(found)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        self.log.changes(asked, limit)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        self.log.versions(resource, key)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        self.log.version_at(resource, key, at)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        self.log.as_of(asked, visit)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.log.oldest()
    }
}

impl Log for Counting {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        self.log.commit(proposal)
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        self.log.secret()
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        self.log.forget(through)
    }

    fn recover(&self) -> Result<(), Fault> {
        self.log.recover()
    }
}

/// Makes two namespaces. In `mine` one object is made first and another object last; in `theirs` one object is changed
/// `changes` times, to texts of `bytes` bytes.
fn stage(changes: usize, bytes: usize) -> (Stage, Arc<Counting>) {
    let log = Arc::new(Counting::default());
    let mut stage = Stage::new(log.clone());
    for name in ["mine", "theirs"] {
        stage.must(&create("namespaces", "", json!({"metadata": {"name": name}})));
    }
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "v"}});
    stage.must(&create("configmaps", "mine", map("first")));
    stage.must(&create("configmaps", "theirs", map("busy")));
    for change in 0..changes {
        let text = format!("{change} {}", "x".repeat(bytes));
        stage.must(&patch("configmaps", "theirs", "busy", json!({"data": {"k": text}})));
    }
    stage.must(&create("configmaps", "mine", map("last")));
    log.take();
    (stage, log)
}

fn watch(stage: &Stage, namespace: &str, start: WatchStart, user: &str) -> Watch {
    let selection = selection(&stage.engine.snapshot(), "configmaps", namespace, "", "");
    stage.engine.watch(selection, start).of_user(&User::new(user, &[])).expect("there is room")
}

#[test]
fn a_watch_of_the_past_reads_what_it_shows() {
    let (stage, log) = stage(3000, 1);
    let begin = WatchStart::After(Offset(3));
    for (namespace, told) in [("mine", 2), ("nobodys", 0), ("theirs", 3001)] {
        let mut watch = watch(&stage, namespace, begin, "jane");
        let mut seen = 0;
        while watch.next_ready().expect("no fault").is_some() {
            seen += 1;
        }
        assert_eq!((seen, log.take()), (told, told), "{namespace}");
    }
    // A watch sees every event after its beginning once, even if the events are read in pieces or arrive during a read.
    let mut stage = stage;
    let mut behind = watch(&stage, "", begin, "jane");
    let first = behind.next_ready().expect("no fault").expect("an event").event.change.offset;
    stage.must(&create("configmaps", "mine", json!({"metadata": {"name": "later"}})));
    let mut offsets = vec![first];
    while let Some(delivery) = behind.next_ready().expect("no fault") {
        offsets.push(delivery.event.change.offset);
    }
    assert_eq!(offsets, (4..=stage.engine.snapshot().offset.0).map(Offset).collect::<Vec<_>>());
}

#[test]
fn unread_watches_of_the_past_hold_few_bytes() {
    const BYTES: usize = 200_000;
    let (stage, _) = stage(40, BYTES);
    let memory = stage.engine.reads().memory().clone();
    let mut watches: Vec<Watch> =
        (0..20).map(|_| watch(&stage, "theirs", WatchStart::After(Offset(3)), "jane")).collect();
    for watch in &mut watches {
        assert!(watch.next_ready().expect("no fault").is_some());
    }
    let held = memory.told().bytes;
    assert!(held >= 20 * BYTES as u64 && held < 20 * 3 * BYTES as u64, "{held}");
    assert_eq!(memory.told().holders, 1);
    // After the first watch has read all its events, it has caught up and must use no memory.
    let mut count = 1;
    while watches[0].next_ready().expect("no fault").is_some() {
        count += 1;
    }
    assert_eq!(count, 41);
    assert!(memory.told().bytes < held);
    drop(watches);
    assert_eq!(memory.told().bytes, 0);
}

#[test]
fn a_watch_whose_beginning_was_let_go_of_is_told_so() {
    let (mut stage, _) = stage(0, 1);
    for number in 0..100 {
        stage.must(&create("configmaps", "mine", json!({"metadata": {"name": format!("n{number}")}})));
    }
    let memory = stage.engine.reads().memory().clone();
    let mut slow = watch(&stage, "mine", WatchStart::Now, "jane");
    assert!(slow.next_ready().expect("no fault").is_some());
    assert!(memory.told().bytes > 0);
    // Objects that change before the watch has read its first events stay in memory for this watch alone. Their memory
    // must be limited by the share of the watch's user.
    memory.set_bytes_max(8 << 20);
    let (mut changes, mut renewed) = (0, Vec::new());
    while memory.told().gave_way == 0 {
        changes += 1;
        assert!(changes < 100, "{:?}", memory.told());
        let text = format!("{changes} {}", "x".repeat(400_000));
        for number in [1, 2, 3] {
            let patched = json!({"data": {"k": text}});
            stage.must(&patch("configmaps", "mine", &format!("n{number}"), patched));
        }
        renewed.push(watch(&stage, "mine", WatchStart::Now, "jane"));
    }
    let fault = loop {
        match slow.next_ready() {
            Ok(delivery) => assert!(delivery.is_some()),
            Err(fault) => break fault,
        }
    };
    assert!(matches!(fault, Fault::Forgotten { .. }), "{fault}");
}

#[test]
fn what_a_list_of_the_past_holds_is_its_readers() {
    let (stage, _) = stage(30, 100_000);
    let memory = stage.engine.reads().memory().clone();
    memory.set_bytes_max(1 << 20);
    let reader = Reader::of(&User::new("jane", &[]));
    let at = |version: u64| at_once(stage.engine.past_for(Offset(version), &reader)).expect("a view");
    let picked = selection(&stage.engine.snapshot(), "configmaps", "", "", "");
    let mut held = Vec::new();
    let refused = (10..30).find_map(|version| match at_once(at(version).counted_page(&picked, None, None)) {
        Ok((page, charge)) => {
            assert_eq!(page.entries.len(), 2);
            held.push((page, charge.expect("it is counted")));
            None
        }
        Err(refusal) => Some(refusal),
    });
    assert!(matches!(refused, Some(Refusal::TooManyRequests { .. })), "{refused:?}");
    assert!(memory.told().bytes <= 1 << 19, "{:?}", memory.told());
    // Although this user has no room left, another user must have room.
    let other = Reader::of(&User::new("joe", &[]));
    let view = at_once(stage.engine.past_for(Offset(9), &other)).expect("a view");
    assert!(at_once(view.counted_page(&picked, None, None)).is_ok());
    drop(held);
    assert_eq!(memory.told().bytes, 0);
}

#[test]
fn who_asks_what_was_allowed_reads_roles_alone() {
    let (stage, log) = stage(50, 1000);
    let memory: ReadMemory = stage.engine.reads().memory().clone();
    let reader = Reader::of(&User::new("nobody", &[]));
    for version in 10..40 {
        let namespace = || "theirs".to_owned();
        let admission = Wanted::Admission { namespace: namespace(), object: None };
        for wanted in [Wanted::Roles { namespace: namespace() }, admission] {
            at_once(stage.engine.part_at(Offset(version), wanted, &reader)).expect("a state");
        }
    }
    assert_eq!((log.take(), memory.told().bytes), (0, 0));
    // The memory of a whole state of the past counts while the state stays pinned.
    let state = at_once(stage.engine.state_for(Offset(20), &reader)).expect("a state");
    assert_eq!(state.offset, Offset(20));
    assert!(memory.told().bytes > 1000);
}

//! Tests that a read of the log that waits for the disk delays no other request, and that many such reads run at the
//! same time.

use super::stage::{Stage, config_map, create, options, patch, selection, set, told};
use holdfast_core::event::{Offset, Record};
use holdfast_core::list::Freshness;
use holdfast_core::state::{Entry, State};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Append, AsOf, Engine, Fault, Log, LogRead, Proposal, WatchStart};
use holdfast_value::json;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A log whose reads wait while its gate is closed.
#[derive(Default)]
struct Slow {
    log: MemoryLog,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    is_closed: bool,
    waiting: usize,
}

impl Slow {
    fn set_closed(&self, is_closed: bool) {
        self.gate.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.gate.lock().unwrap().waiting
    }

    fn pass(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        let mut gate = self.changed.wait_while(gate, |gate| gate.is_closed).unwrap();
        gate.waiting -= 1;
    }
}

impl LogRead for Slow {
    fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.pass();
        self.log.read(offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        self.log.current(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        self.pass();
        self.log.scan(resource, after, limit)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        self.pass();
        self.log.as_of(asked, visit)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.pass();
        self.log.oldest()
    }
}

impl Log for Slow {
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

/// The runtime has one worker, so a read that blocked the worker would block all requests.
#[tokio::test(flavor = "current_thread")]
async fn while_reads_of_the_log_wait_others_are_served() {
    let log = Arc::new(Slow::default());
    let mut stage = Stage::new(log.clone());
    for request in [config_map("a"), set("a", "b"), set("a", "c"), config_map("d")] {
        stage.must(&request);
    }
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    let engine = Engine::open(log.clone(), registry, options(&Arc::default())).unwrap();
    let kind = engine.snapshot().registry.by_storage("configmaps").unwrap();
    let view = engine.past(Offset(2)).await.unwrap();
    let picked = selection(&engine.snapshot(), "configmaps", "", "", "");

    log.set_closed(true);
    let mut reads = tokio::task::JoinSet::new();
    let (get, all) = (view.clone(), picked.clone());
    reads.spawn(async move { get.get(kind, "default/a").await.unwrap().unwrap().offset });
    reads.spawn(async move { view.page(&all, None, None).await.unwrap().offset });
    let other = engine.clone();
    reads.spawn(async move { other.view_for(Freshness::Exact(Offset(3)), None).await.unwrap().offset() });
    let other = engine.clone();
    reads.spawn(async move { other.moment("-1h").await.map_or(Offset::ZERO, |offset| offset) });
    let other = engine.clone();
    reads.spawn(async move { other.state_at(Offset(4)).await.unwrap().offset });
    let (other, all) = (engine.clone(), picked.clone());
    reads.spawn(async move {
        let mut watch = other.watch(all, WatchStart::After(Offset(1)));
        assert!(watch.next_ready().unwrap().is_none(), "it is still read");
        assert!(watch.bookmark().unwrap().is_none(), "it is still read");
        let first = watch.next().await.unwrap();
        assert_eq!(told(&first), "ADDED default/a@2");
        first.event.change.offset
    });
    // All six reads are in progress at once, and other requests are served at the same time.
    let served = async {
        while log.waiting() < 6 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        engine.mutate(&config_map("e")).await.unwrap();
        let snapshot = engine.snapshot();
        assert_eq!(snapshot.scan(kind, "", None).count(), 3);
    };
    tokio::time::timeout(PATIENCE, served).await.expect("the worker is held up");
    assert!(reads.try_join_next().is_none());
    log.set_closed(false);
    let mut found = tokio::time::timeout(PATIENCE, reads.join_all()).await.unwrap();
    found.sort();
    assert_eq!(found, [0, 2, 2, 2, 3, 4].map(Offset));
    engine.close();
}

#[test]
fn what_has_not_changed_for_a_while_is_read_as_it_was_written() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let map = |number: usize| {
        let data = json!({"own": number.to_string(), "same": "text ".repeat(200)});
        create("configmaps", "default", json!({"metadata": {"name": format!("map-{number}")}, "data": data}))
    };
    for number in 0..1100 {
        stage.must(&map(number));
    }
    let in_pieces = |stage: &Stage| {
        let state = stage.engine.snapshot();
        let kind = state.registry.find("", "v1", "configmaps").unwrap().0;
        let mut in_pieces = 0;
        for (key, entry) in state.scan(kind, "", None) {
            let written = log.read(entry.offset).unwrap().unwrap().object;
            assert_eq!(entry.json(), written, "{key}");
            let mut item = Vec::new();
            entry.body().append(entry.hub_item(), &mut item);
            assert_eq!(item, Entry::item(&written), "{key}");
            in_pieces += usize::from(entry.body().is_in_pieces());
        }
        in_pieces
    };
    // The newest objects and the objects that watches show are unpacked.
    assert_eq!(in_pieces(&stage), 1100 - 1024 - 1);
    assert_eq!(in_pieces(&stage.restart(&log)), 1100 - 1);
    // A patch of a packed object must change only the patched fields.
    let past = stage.engine.snapshot();
    stage.must(&patch("configmaps", "default", "map-1", json!({"data": {"own": "other"}})));
    let (kind, key) = (past.registry.find("", "v1", "configmaps").unwrap().0, "default/map-1");
    let own = |state: &State| state.get(kind, key).unwrap().document()["data"]["own"].clone();
    assert_eq!((own(&past), own(&stage.engine.snapshot())), (json!("1"), json!("other")));
}

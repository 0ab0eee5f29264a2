//! Tests the order of a commit, and decisions that conflict with one another in one batch.

use super::stage::{Stage, config_map, create, delete, everything, options, patch, poll, selection, set};
use holdfast_core::Refusal;
use holdfast_core::event::{Offset, Record};
use holdfast_engine::commit::{Contested, Rejection};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Append, Engine, Fault, Log, LogRead, Proposal, WatchStart, load};
use holdfast_value::json;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// Called with the number of records while a batch is being made durable.
type During = Box<dyn FnMut(usize) + Send>;

/// A log that runs a test's function while a batch is being made durable.
#[derive(Default)]
struct Witness {
    log: MemoryLog,
    during: Mutex<Option<During>>,
}

impl LogRead for Witness {
    fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.log.read(offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        self.log.current(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        self.log.scan(resource, after, limit)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.log.oldest()
    }
}

impl Log for Witness {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        if let Some(look) = self.during.lock().unwrap().as_mut() {
            look(proposal.records.len());
        }
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

#[test]
fn nothing_is_shown_or_told_before_it_is_durable() {
    let log = Arc::new(Witness::default());
    let mut stage = Stage::new(log.clone());
    let snapshot = stage.engine.snapshot();
    let (good, answer) = stage.decide(&snapshot, &config_map("a"));
    let (stale, refused) = stage.decide(&snapshot, &config_map("a"));
    let watch = stage.engine.watch(selection(&snapshot, "configmaps", "", "", ""), WatchStart::After(snapshot.offset));
    let all = Arc::new(Mutex::new((answer, refused, watch)));
    let looks = Arc::new(Mutex::new(0));
    let (engine, shared, counter) = (stage.engine.clone(), all.clone(), looks.clone());
    *log.during.lock().unwrap() = Some(Box::new(move |records| {
        let mut shared = shared.lock().unwrap();
        assert_eq!(records, 1);
        assert_eq!(engine.snapshot().offset, Offset(1));
        assert_eq!(engine.hub().delivered(), Offset(1));
        assert!(shared.0.try_recv().is_err(), "the answer came first");
        assert!(shared.1.try_recv().is_err(), "a refusal came of what is not durable");
        assert!(shared.2.next_ready().unwrap().is_none(), "the watcher came first");
        *counter.lock().unwrap() += 1;
    }));
    stage.writer.commit(&mut vec![good, stale]);
    let mut shared = all.lock().unwrap();
    assert_eq!(*looks.lock().unwrap(), 1);
    assert_eq!(stage.engine.snapshot().offset, Offset(2));
    assert_eq!(shared.0.try_recv().unwrap().unwrap()[0].offset, Offset(2));
    let kind = snapshot.registry.by_storage("configmaps").unwrap();
    let contested = Contested::Object { kind, key: "default/a".into() };
    assert_eq!(shared.1.try_recv().unwrap().err(), Some(Rejection::Stale(contested)));
    assert!(shared.2.next_ready().unwrap().is_some());
}

/// The second request begins before the first request's command is queued, so the two requests must share one append. A
/// request that waits for something other than the writer must not delay a batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_waits_for_who_is_on_the_way() {
    const LONG: Duration = Duration::from_secs(3600);
    let log = Arc::new(Witness::default());
    Stage::new(log.clone());
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    *log.during.lock().unwrap() = Some(Box::new(move |records| seen.lock().unwrap().push(records)));
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    let engine = Engine::open_patient(log, registry, options(&Arc::default()), LONG).unwrap();
    let begin = |name: &'static str| {
        let writing = engine.clone();
        engine.expect(async move { writing.mutate(&config_map(name)).await.map(drop) })
    };
    let waiting = tokio::spawn(engine.expect(std::future::pending::<()>()));
    let (first, second) = (begin("a"), begin("b"));
    let first = tokio::spawn(first);
    // The loop ends when the writer waits for the second request, or when it has wrongly appended the first write
    // alone.
    while !engine.is_gathering() && sizes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(sizes.lock().unwrap().is_empty());
    second.await.unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(*sizes.lock().unwrap(), [2]);
    waiting.abort();
}

#[test]
fn a_batch_is_one_append() {
    let log = Arc::new(Witness::default());
    let mut stage = Stage::new(log.clone());
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    *log.during.lock().unwrap() = Some(Box::new(move |records| seen.lock().unwrap().push(records)));
    let snapshot = stage.engine.snapshot();
    let (mut batch, answers): (Vec<_>, Vec<_>) =
        (0..20).map(|n| stage.decide(&snapshot, &config_map(&format!("a{n}")))).unzip();
    stage.writer.commit(&mut batch);
    assert_eq!(*sizes.lock().unwrap(), [20]);
    let offsets: Vec<u64> = answers.into_iter().map(|mut a| a.try_recv().unwrap().unwrap()[0].offset.0).collect();
    assert_eq!(offsets, (2..=21).collect::<Vec<u64>>());
    assert!(batch.is_empty());
}

#[test]
fn decisions_of_one_batch_see_each_other() {
    let service = |name: &str, address: &str| {
        create(
            "services",
            "default",
            json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 1}]}}),
        )
    };
    let in_namespace = create("configmaps", "n1", json!({"metadata": {"name": "late"}}));
    let cases = [
        ("the second create", vec![config_map("new"), config_map("new")], vec![true, false]),
        ("the second change", vec![set("old", "a"), set("old", "b")], vec![true, false]),
        ("a change after a delete", vec![delete("configmaps", "default", "old"), set("old", "a")], vec![true, false]),
        ("a delete after a change", vec![set("old", "a"), delete("configmaps", "default", "old")], vec![true, false]),
        ("others", vec![set("old", "a"), set("other", "a"), config_map("new")], vec![true, true, true]),
        ("an address", vec![service("s", "10.0.0.3"), service("t", "10.0.0.3")], vec![true, false]),
        ("addresses", vec![service("s", "10.0.0.3"), service("t", "10.0.0.4")], vec![true, true]),
        (
            "content of a namespace that goes",
            vec![delete("namespaces", "", "n1"), in_namespace.clone()],
            vec![true, false],
        ),
        ("content before it goes", vec![in_namespace, delete("namespaces", "", "n1")], vec![true, true]),
    ];
    for (what, requests, expected) in cases {
        let log = Arc::new(MemoryLog::default());
        let mut stage = Stage::new(log.clone());
        for request in
            [config_map("old"), config_map("other"), create("namespaces", "", json!({"metadata": {"name": "n1"}}))]
        {
            stage.must(&request);
        }
        let snapshot = stage.engine.snapshot();
        let (mut batch, answers): (Vec<_>, Vec<_>) = requests.iter().map(|r| stage.decide(&snapshot, r)).unzip();
        stage.writer.commit(&mut batch);
        let found: Vec<bool> = answers.into_iter().map(|mut answer| answer.try_recv().unwrap().is_ok()).collect();
        assert_eq!(found, expected, "{what}");
        let written = expected.iter().filter(|good| **good).count() as u64;
        assert_eq!(stage.engine.snapshot().offset.0, snapshot.offset.0 + written, "{what}");
        let replayed = load(log.as_ref(), snapshot.registry.clone()).unwrap();
        assert_eq!(everything(&replayed), everything(&stage.engine.snapshot()), "{what}");
    }
}

#[test]
fn what_went_stale_is_decided_again_unless_the_client_fixed_the_version() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    stage.must(&config_map("a"));
    let engine = stage.engine.clone();
    let fixed = patch("configmaps", "default", "a", json!({"metadata": {"resourceVersion": "2"}, "data": {"k": "f"}}));
    let (first, second) = (set("a", "first"), patch("configmaps", "default", "a", json!({"data": {"l": "second"}})));
    let mut futures = [&first, &second, &fixed].map(|request| Box::pin(engine.mutate(request)));
    // All three requests are judged on version 2.
    assert!(futures.iter_mut().all(|future| poll(future).is_pending()));
    stage.commit();
    let [one, two, three] = &mut futures;
    assert!(matches!(poll(one), Poll::Ready(Ok(_))));
    assert!(poll(two).is_pending(), "it decides again");
    assert!(matches!(poll(three), Poll::Ready(Err(Refusal::Conflict { .. }))));
    stage.commit();
    assert!(matches!(poll(two), Poll::Ready(Ok(_))));
    let snapshot = stage.engine.snapshot();
    let kind = snapshot.registry.by_storage("configmaps").unwrap();
    let data = snapshot.get(kind, "default/a").unwrap().document()["data"].clone();
    assert_eq!(data, json!({"k": "first", "l": "second"}));
}

#[test]
fn services_that_race_for_one_address_both_get_one() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let engine = stage.engine.clone();
    let requests: Vec<_> = (0..6)
        .map(|n| {
            create(
                "services",
                "default",
                json!({"metadata": {"name": format!("s{n}")}, "spec": {"ports": [{"port": 1}]}}),
            )
        })
        .collect();
    // All requests, for six Services and six addresses, are judged on one snapshot.
    let mut futures: Vec<_> = requests.iter().map(|request| Box::pin(engine.mutate(request))).collect();
    let mut done = 0;
    for _ in 0..10 {
        futures.retain_mut(|future| match poll(future) {
            Poll::Ready(outcome) => {
                outcome.unwrap();
                done += 1;
                false
            }
            Poll::Pending => true,
        });
        stage.commit();
    }
    assert_eq!(done, 6);
}

#[test]
fn a_dry_run_leaves_no_trace() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let mut request = config_map("a");
    request.options.dry_run = true;
    stage.must(&request);
    assert_eq!(log.last().unwrap(), Offset(1));
    assert!(stage.mutate(&set("a", "b")).is_err());
}

#[test]
fn the_next_write_of_an_object_need_not_read_it() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}]});
    let pod = json!({"metadata": {"name": "a", "labels": {"app": "web"}},
        "spec": {"serviceAccountName": "default", "containers": [container, {"name": "sidecar", "image": "i"}]}});
    for request in
        [create("pods", "default", pod), patch("pods", "default", "a", json!({"metadata": {"labels": {"b": "c"}}}))]
    {
        stage.must(&request);
        let state = stage.engine.snapshot();
        let kind = state.registry.by_storage("pods").expect("pods");
        let entry = state.get(kind, "default/a").expect("the pod");
        let mut read = entry.document();
        read["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
        assert_eq!(state.recent.find(entry), Some(read));
    }
    // An engine that reads the object from its log has to decode it.
    let state = load(log.as_ref(), stage.engine.snapshot().registry.clone()).expect("a state");
    let kind = state.registry.by_storage("pods").expect("pods");
    assert_eq!(state.recent.find(state.get(kind, "default/a").expect("the pod")), None);
}

/// This test runs the writer's thread: with many clients at once no write is lost or doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_count_together() {
    let log = Arc::new(MemoryLog::default());
    let clock = Arc::default();
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    let engine = holdfast_engine::Engine::open(log.clone(), registry, super::stage::options(&clock)).unwrap();
    engine.mutate(&create("namespaces", "", json!({"metadata": {"name": "default"}}))).await.unwrap();
    engine.mutate(&config_map("a")).await.unwrap();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for turn in 0..10 {
                    let body = json!({"data": {(format!("c{client}-{turn}")): "x"}});
                    engine.mutate(&patch("configmaps", "default", "a", body)).await.unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let snapshot = engine.snapshot();
    let kind = snapshot.registry.by_storage("configmaps").unwrap();
    let document = snapshot.get(kind, "default/a").unwrap().document();
    assert_eq!(document["data"].as_object().unwrap().len(), 81);
    assert_eq!(snapshot.offset, Offset(82));
    engine.close();
    assert!(matches!(engine.mutate(&config_map("late")).await, Err(Refusal::Unavailable(_))));
    assert_eq!(everything(&load(log.as_ref(), snapshot.registry.clone()).unwrap()), everything(&snapshot));
}

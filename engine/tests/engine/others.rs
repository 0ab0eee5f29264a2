//! Tests a log to which other servers also append: an overtaken request gets a correct answer, and the other servers'
//! events are published.

use super::stage::{Stage, config_map, create, delete, drain, everything, options, patch, poll, selection, set};
use holdfast_core::event::{Offset, Record};
use holdfast_core::request::Request;
use holdfast_engine::commit::{Contested, Rejection};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::numbering::numbered;
use holdfast_engine::{Engine, LogRead, WatchStart, load};
use holdfast_value::json;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The records that another server writes for a request, judged on the current state.
fn records_of_other(stage: &Stage, request: &Request) -> Vec<Record> {
    let snapshot = stage.engine.snapshot();
    let (command, _) = stage.decide(&snapshot, request);
    numbered(&snapshot, command.writes, &command.actor, command.time_ms)
}

/// Checks that the engine's state and the log agree, and that events are numbered without gaps.
fn check(stage: &Stage, log: &MemoryLog) {
    let served = stage.engine.snapshot();
    let replayed = load(log, Arc::new(holdfast_core::kinds::registry().clone())).unwrap();
    assert_eq!(everything(&replayed), everything(&served));
    let offsets: Vec<u64> = log.scan(None, Offset::ZERO, 999).unwrap().iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (1..=served.offset.0).collect::<Vec<_>>());
}

#[test]
fn what_still_holds_is_numbered_anew_and_what_does_not_is_stale() {
    let service = |name: &str, address: &str| {
        let spec = json!({"clusterIP": address, "ports": [{"port": 1}]});
        create("services", "default", json!({"metadata": {"name": name}, "spec": spec}))
    };
    let in_namespace = create("configmaps", "n1", json!({"metadata": {"name": "late"}}));
    let cases = [
        ("another object", set("other", "x"), vec![set("a", "y"), config_map("new")], vec![true, true]),
        ("the same object", set("a", "x"), vec![set("a", "y"), set("other", "y")], vec![false, true]),
        ("the object is gone", delete("configmaps", "default", "a"), vec![set("a", "y")], vec![false]),
        ("the name is taken", config_map("new"), vec![config_map("new"), config_map("newer")], vec![false, true]),
        ("the address is taken", service("s", "10.0.0.3"), vec![service("t", "10.0.0.3")], vec![false]),
        ("the namespace goes", delete("namespaces", "", "n1"), vec![in_namespace.clone()], vec![false]),
        (
            "what it clashed with in the batch is gone",
            service("s", "10.0.0.4"),
            vec![service("s", "10.0.0.3"), service("t", "10.0.0.3")],
            vec![false, true],
        ),
    ];
    for (what, theirs, ours, expected) in cases {
        let log = Arc::new(MemoryLog::default());
        let mut stage = Stage::new(log.clone());
        let namespace = create("namespaces", "", json!({"metadata": {"name": "n1"}}));
        for request in [config_map("a"), config_map("other"), namespace] {
            stage.must(&request);
        }
        let before = stage.engine.snapshot();
        let start = WatchStart::After(before.offset);
        let mut watches = ["configmaps", "services", "namespaces"]
            .map(|resource| stage.engine.watch(selection(&before, resource, "", "", ""), start));
        let records = records_of_other(&stage, &theirs);
        let (mut batch, answers): (Vec<_>, Vec<_>) = ours.iter().map(|request| stage.decide(&before, request)).unzip();
        log.be_overtaken(move |_| records);
        stage.writer.commit(&mut batch);

        let answers: Vec<_> = answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect();
        let found: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!(found, expected, "{what}");
        // Each answer with a version must mean that the log has an event with that version.
        for entry in answers.into_iter().flatten().flatten() {
            let record = log.read(entry.offset).unwrap().unwrap();
            assert_eq!(record.object, entry.json(), "{what}");
        }
        check(&stage, &log);
        let told: usize = watches.iter_mut().map(|watch| drain(watch).len()).sum();
        assert_eq!(told as u64, stage.engine.snapshot().offset.0 - before.offset.0, "{what}");
    }
}

#[test]
fn who_was_overtaken_decides_again_and_learns_by_whom() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    stage.must(&config_map("a"));
    let before = stage.engine.snapshot();
    let records = records_of_other(&stage, &patch("configmaps", "default", "a", json!({"data": {"theirs": "x"}})));
    let (command, mut answer) = stage.decide(&before, &set("a", "b"));
    let engine = stage.engine.clone();
    let ours = patch("configmaps", "default", "a", json!({"data": {"ours": "y"}}));
    let mut future = Box::pin(engine.mutate(&ours));
    assert!(poll(&mut future).is_pending());
    log.be_overtaken(move |_| records);
    stage.writer.commit(&mut vec![command]);
    let kind = before.registry.by_storage("configmaps").unwrap();
    let contested = Contested::Object { kind, key: "default/a".into() };
    assert_eq!(answer.try_recv().unwrap().err(), Some(Rejection::Stale(contested)));
    stage.commit();
    assert!(poll(&mut future).is_pending(), "it decides again");
    stage.commit();
    assert!(matches!(poll(&mut future), Poll::Ready(Ok(_))));
    let data = stage.engine.snapshot().get(kind, "default/a").unwrap().document()["data"].clone();
    assert_eq!(data, json!({"k": "v", "theirs": "x", "ours": "y"}));
    check(&stage, &log);
}

#[test]
fn others_may_be_first_again_and_again() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    for round in 0..5 {
        // Other servers append two batches that the writer has not read.
        log.append_as_other(&records_of_other(&stage, &config_map(&format!("theirs-{round}"))));
        let before = stage.engine.snapshot();
        let (command, mut answer) = stage.decide(&before, &config_map(&format!("ours-{round}")));
        let last = log.last().unwrap().0;
        let template = log.read(Offset(last)).unwrap().unwrap();
        log.be_overtaken(move |offset| {
            let version = offset.next().0;
            let text = String::from_utf8_lossy(&template.object)
                .replace(&format!("\"resourceVersion\":\"{last}\""), &format!("\"resourceVersion\":\"{version}\""));
            vec![Record { offset: version, replaces: last, object: text.into_bytes().into(), ..template }]
        });
        stage.writer.commit(&mut vec![command]);
        assert_eq!(answer.try_recv().unwrap().unwrap()[0].offset, Offset(last + 2));
        check(&stage, &log);
    }
}

/// Checks that the log wakes the writer even if this server writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_append_is_shown_though_nobody_writes() {
    let log = Arc::new(MemoryLog::default());
    let stage = Stage::new(log.clone());
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    let engine = Engine::open(log.clone(), registry, options(&Arc::default())).unwrap();
    let before = engine.snapshot();
    let mut watch = engine.watch(selection(&before, "configmaps", "", "", ""), WatchStart::After(before.offset));
    for name in ["a", "b"] {
        let mut records = records_of_other(&stage, &config_map(name));
        let offset = log.last().unwrap().next();
        for record in &mut records {
            let text = String::from_utf8_lossy(&record.object).replace(
                &format!("\"resourceVersion\":\"{}\"", record.offset),
                &format!("\"resourceVersion\":\"{offset}\""),
            );
            (record.offset, record.object) = (offset.0, text.into_bytes().into());
        }
        log.append_as_other(&records);
        let delivery = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        assert_eq!(super::stage::told(&delivery), format!("ADDED default/{name}@{offset}"));
        assert_eq!(engine.snapshot().offset, offset);
    }
    engine.close();
}

#[test]
fn what_cannot_be_read_of_others_stops_writes_and_says_why() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let mut records = records_of_other(&stage, &config_map("a"));
    // No built-in kind has this resource, and no custom kind could have this name.
    records[0].resource = "unheard-of".into();
    let (command, mut answer) = stage.decide(&stage.engine.snapshot(), &config_map("b"));
    log.be_overtaken(move |_| records);
    stage.writer.commit(&mut vec![command]);
    let rejection = answer.try_recv().unwrap().err().unwrap();
    assert!(matches!(&rejection, Rejection::Failed(why) if why.contains("unheard-of")), "{rejection:?}");
    assert!(stage.writer.trouble().is_some());
}

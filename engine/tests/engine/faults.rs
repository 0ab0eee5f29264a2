//! Tests a log that fails: the answers to clients, the reads, and the writer's recovery.

use super::stage::{Stage, config_map, create, delete, drain, everything, options, poll, selection, set};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_engine::commit::Rejection;
use holdfast_engine::memory::{MemoryLog, Planned};
use holdfast_engine::{Engine, LogRead, WatchStart, load};
use holdfast_value::json;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

#[test]
fn each_fault_is_told_and_survived() {
    for (fault, durable) in [(Planned::Full, false), (Planned::Lost, false), (Planned::Unacknowledged, true)] {
        let log = Arc::new(MemoryLog::default());
        let mut stage = Stage::new(log.clone());
        stage.must(&config_map("a"));
        let before = stage.engine.snapshot();
        let mut watch =
            stage.engine.watch(selection(&before, "configmaps", "", "", ""), WatchStart::After(before.offset));

        log.plan(fault);
        let refusal = stage.mutate(&set("a", "b")).err().unwrap();
        match fault {
            Planned::Full => assert!(matches!(refusal, Refusal::InsufficientStorage(_)), "{refusal:?}"),
            _ => assert!(matches!(refusal, Refusal::Internal(_)), "{refusal:?}"),
        }
        // Readers see the state before the write, and no watch gets events that may not be stored.
        assert_eq!(stage.engine.snapshot().offset, before.offset, "{fault:?}");
        assert_eq!(drain(&mut watch), Vec::<String>::new(), "{fault:?}");
        assert_eq!(log.last().unwrap(), Offset(if durable { 3 } else { 2 }), "{fault:?}");

        // The next write recovers the log. Events that became durable in spite of the fault precede the event of this
        // write.
        stage.must(&config_map("c"));
        let expected: &[&str] =
            if durable { &["MODIFIED default/a@3", "ADDED default/c@4"] } else { &["ADDED default/c@3"] };
        assert_eq!(drain(&mut watch), expected, "{fault:?}");
        let replayed = load(log.as_ref(), before.registry.clone()).unwrap();
        assert_eq!(everything(&replayed), everything(&stage.engine.snapshot()), "{fault:?}");
        assert_eq!(replayed.offset, stage.engine.snapshot().offset);
    }
}

#[test]
fn while_the_log_does_not_recover_writes_are_refused_and_reads_go_on() {
    for (fault, full) in [(Planned::Full, true), (Planned::Lost, false)] {
        let log = Arc::new(MemoryLog::default());
        let mut stage = Stage::new(log.clone());
        stage.must(&config_map("a"));
        log.plan(fault);
        log.refuse_recoveries(3);
        assert!(stage.mutate(&set("a", "b")).is_err());
        for _ in 0..3 {
            let refusal = stage.mutate(&set("a", "b")).err().unwrap();
            match full {
                true => assert!(matches!(refusal, Refusal::InsufficientStorage(_)), "{refusal:?}"),
                false => assert!(matches!(refusal, Refusal::Unavailable(_)), "{refusal:?}"),
            }
            assert_eq!(everything(&stage.engine.snapshot()).len(), 2);
        }
        stage.must(&set("a", "b"));
        assert_eq!(stage.engine.snapshot().offset, Offset(3));
    }
}

#[test]
fn where_there_is_little_room_what_makes_room_goes_through() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    stage.must(&config_map("a"));
    stage.must(&config_map("b"));
    log.be_short_of_room(true);
    let refusal = stage.mutate(&config_map("c")).err().unwrap();
    assert!(matches!(refusal, Refusal::InsufficientStorage(why) if why == "there is little room"));
    stage.must(&delete("configmaps", "default", "a"));
    log.be_short_of_room(false);
    let refusal = stage.mutate(&delete("configmaps", "default", "b")).err().unwrap();
    assert!(matches!(refusal, Refusal::InsufficientStorage(why) if why.contains("disk under the log is full")));
    assert!(stage.writer.trouble().is_none(), "nothing was tried, so nothing is to be recovered from");
    assert_eq!(log.last().unwrap(), Offset(4));
}

#[test]
fn before_there_is_little_room_those_are_refused_who_fill_it() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let map = |namespace: &str, name: &str, bytes: usize| {
        let body = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}});
        create("configmaps", namespace, body)
    };
    for name in ["large", "small", "another"] {
        stage.must(&create("namespaces", "", json!({"metadata": {"name": name}})));
    }
    stage.must(&map("large", "a", 900_000));
    stage.must(&map("small", "a", 100_000));
    log.be_soon_short_of_room(500);
    let refusal = stage.mutate(&map("large", "b", 10)).err().unwrap();
    let Refusal::InsufficientStorage(why) = refusal else { panic!("{refusal:?}") };
    assert!(
        why.starts_with("there is some room: ") && why.contains("namespace large wrote 0 MiB of the last 0 MiB"),
        "{why}"
    );
    stage.must(&map("small", "b", 10));
    stage.must(&delete("configmaps", "large", "a"));
    log.be_soon_short_of_room(100);
    assert!(matches!(stage.mutate(&map("small", "c", 10)), Err(Refusal::InsufficientStorage(_))));
    stage.must(&map("another", "a", 10));
}

/// If a batch fails, none of its decisions was written. So a decision that conflicts with an earlier decision of the
/// batch must not be answered with a conflict.
#[test]
fn a_clash_within_a_failed_batch_is_no_clash() {
    for (fault, expected) in [
        (Planned::Full, Rejection::Full("the disk under the log is full (append)".into())),
        (Planned::Lost, Rejection::Poisoned("the log cannot append: planned fault".into())),
        (Planned::Unacknowledged, Rejection::Poisoned("the log cannot append: planned fault".into())),
    ] {
        let log = Arc::new(MemoryLog::default());
        let mut stage = Stage::new(log.clone());
        let snapshot = stage.engine.snapshot();
        let (first, _) = stage.decide(&snapshot, &config_map("a"));
        let (second, mut answer) = stage.decide(&snapshot, &config_map("a"));
        log.plan(fault);
        stage.writer.commit(&mut vec![first, second]);
        assert_eq!(answer.try_recv().unwrap().err(), Some(expected));
    }
}

#[test]
fn a_failed_write_may_be_tried_again() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    log.plan(Planned::Unacknowledged);
    assert!(matches!(stage.mutate(&config_map("a")), Err(Refusal::Internal(_))));
    // The request is judged on the published state, in which the object does not exist. At the commit the writer has
    // the state in which it exists.
    let engine = stage.engine.clone();
    let again = config_map("a");
    let mut future = Box::pin(engine.mutate(&again));
    assert!(poll(&mut future).is_pending());
    stage.commit();
    assert!(matches!(poll(&mut future), Poll::Ready(Err(Refusal::AlreadyExists { .. }))));
    assert_eq!(log.last().unwrap(), Offset(2));
}

#[test]
fn a_crash_keeps_what_was_acknowledged() {
    for fault in [None, Some(Planned::Lost), Some(Planned::Unacknowledged)] {
        let log = Arc::new(MemoryLog::default());
        let mut stage = Stage::new(log.clone());
        stage.must(&config_map("a"));
        stage.must(&set("a", "b"));
        let before = everything(&stage.engine.snapshot());
        if let Some(fault) = fault {
            log.plan(fault);
            assert!(stage.mutate(&config_map("c")).is_err());
        }
        let restarted = stage.restart(&log);
        let after = everything(&restarted.engine.snapshot());
        match fault {
            Some(Planned::Unacknowledged) => {
                assert_eq!(after.len(), before.len() + 1);
                assert!(before.iter().all(|(place, object)| after.get(place) == Some(object)));
            }
            _ => assert_eq!(after, before, "{fault:?}"),
        }
    }
}

/// Checks that the writer's own thread recovers a faulty log even when no request writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_writer_heals() {
    let log = Arc::new(MemoryLog::default());
    Stage::new(log.clone());
    let clock = Arc::default();
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    let engine = Engine::open(log.clone(), registry, options(&clock)).unwrap();
    log.plan(Planned::Unacknowledged);
    assert!(matches!(engine.mutate(&config_map("a")).await, Err(Refusal::Internal(_))));
    assert_eq!(engine.snapshot().offset, Offset(1));
    let healed = tokio::time::timeout(Duration::from_secs(10), engine.reach(Offset(2))).await;
    assert_eq!(healed, Ok(Ok(())));
    engine.close();
}

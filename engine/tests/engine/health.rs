//! Tests that a writer that dies is reported, and that a running writer reports whether the log accepts writes.

use super::stage::{Stage, config_map, options};
use holdfast_core::Refusal;
use holdfast_engine::memory::{MemoryLog, Planned};
use holdfast_engine::{Engine, Health};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn open(log: &Arc<MemoryLog>) -> Arc<Engine> {
    Stage::new(log.clone());
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    Engine::open(log.clone(), registry, options(&Arc::default())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_panics_is_told_of_and_nobody_waits_for_it() {
    let log = Arc::new(MemoryLog::default());
    let engine = open(&log);
    assert_eq!(engine.health(PATIENCE).await, Health::Well);
    log.plan(Planned::Panic);
    let writes: Vec<_> = (0..20)
        .map(|n| {
            let (engine, request) = (engine.clone(), config_map(&format!("a{n}")));
            tokio::spawn(async move { engine.mutate(&request).await })
        })
        .collect();
    let why = tokio::time::timeout(PATIENCE, engine.died()).await.unwrap();
    assert!(why.contains("planned panic"), "{why}");
    for write in writes {
        let answer = tokio::time::timeout(PATIENCE, write).await.unwrap().unwrap();
        assert!(matches!(answer, Err(Refusal::Internal(_) | Refusal::Unavailable(_))), "{:?}", answer.err());
    }
    let Health::Dead(told) = engine.health(PATIENCE).await else { panic!("it is said to live") };
    assert_eq!(told, why);
    let Err(Refusal::Unavailable(told)) = engine.mutate(&config_map("late")).await else { panic!("it is taken") };
    assert_eq!(told.to_string(), why);
    // The writer has died, but reads must still work until the process ends.
    assert_eq!(engine.snapshot().offset.0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_takes_no_writes_is_no_dead_writer() {
    let log = Arc::new(MemoryLog::default());
    let engine = open(&log);
    log.plan(Planned::Full);
    log.refuse_recoveries(usize::MAX);
    assert!(engine.mutate(&config_map("a")).await.is_err());
    let Health::ReadOnly(why) = engine.health(PATIENCE).await else { panic!("nobody tells of the full disk") };
    assert!(why.contains("full"), "{why}");
    log.refuse_recoveries(0);
    engine.mutate(&config_map("a")).await.unwrap();
    assert_eq!(engine.health(PATIENCE).await, Health::Well);
    engine.close();
    assert!(matches!(engine.health(PATIENCE).await, Health::Dead(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_hangs_is_told_of() {
    let log = Arc::new(MemoryLog::default());
    let engine = open(&log);
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    // This append takes long, because the function that it calls waits for the test's signal.
    log.be_overtaken(move |_| {
        let _ = begin.send(());
        let _ = wait.recv();
        Vec::new()
    });
    let (writing, request) = (engine.clone(), config_map("a"));
    let write = tokio::spawn(async move { writing.mutate(&request).await.is_ok() });
    begun.await.unwrap();
    assert!(matches!(engine.health(Duration::from_millis(50)).await, Health::Dead(_)));
    go_on.send(()).unwrap();
    assert!(write.await.unwrap());
    assert_eq!(engine.health(PATIENCE).await, Health::Well);
    engine.close();
}

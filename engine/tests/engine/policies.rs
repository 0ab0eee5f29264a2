//! Tests that other requests do not wait for policies that take long.

use super::stage::{Stage, TestClock, config_map, create, options};
use holdfast_core::admission::Admission;
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Engine, Options};
use holdfast_value::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Signals that admission has begun, and waits for the signal to continue.
static LONG: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);
static IS_LONG: AtomicBool = AtomicBool::new(false);

/// Admission first calls this function, its clock. If `IS_LONG` is set, the call takes as long as the evaluation of an
/// expression may take.
fn ticks() -> u64 {
    if IS_LONG.swap(false, Ordering::Relaxed)
        && let Some((begun, end)) = LONG.lock().unwrap().take()
    {
        begun.send(()).unwrap();
        end.recv_timeout(PATIENCE).expect("others go on meanwhile");
    }
    0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_that_takes_long_keeps_no_worker() {
    let log = Arc::new(MemoryLog::default());
    Stage::new(log.clone());
    let Options { settings, clock, .. } = options(&Arc::<TestClock>::default());
    let settings = Settings { admission: Admission::standard(), ticks, ..settings };
    let engine = Engine::open(log, Arc::new(registry().clone()), Options::new(settings, clock)).unwrap();
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    engine.mutate(&create("validatingadmissionpolicies", "", policy)).await.unwrap();
    let (begun, has_begun) = channel();
    let (end, ends) = channel();
    *LONG.lock().unwrap() = Some((begun, ends));
    IS_LONG.store(true, Ordering::Relaxed);
    let writing = tokio::spawn(async move { engine.mutate(&config_map("a")).await.map(drop) });
    has_begun.recv_timeout(PATIENCE).expect("it is judged");
    // The runtime has one worker, which runs the request that is being judged. This task can run only if that request
    // does not block the worker.
    tokio::spawn(async move { end.send(()) });
    writing.await.unwrap().unwrap();
}

//! Keeps house: finishes the deletion of namespaces, gathers the rules of aggregated roles, lets old Events go.
//!
//! The plans are the core's; these loops make their requests, whenever a commit may have changed something, or
//! when time may have.

use crate::engine::Engine;
use holdfast_core::authz::upkeep as roles;
use holdfast_core::event::Offset;
use holdfast_core::expiry;
use holdfast_core::namespace::{Emptying, Step};
use holdfast_core::pipeline;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long commits are gathered before the plan is made again.
const PAUSE: Duration = Duration::from_millis(20);
/// How many plans are made one after the other.
const ROUNDS_MAX: usize = 64;
/// How often Events are looked through: a twentieth of their time, within these bounds.
const EXPIRY_PERIOD_MIN: Duration = Duration::from_millis(100);
const EXPIRY_PERIOD_MAX: Duration = Duration::from_secs(30);

pub async fn run(engine: Arc<Engine>) {
    let hub = engine.hub().clone();
    let engine: Weak<Engine> = {
        let weak = Arc::downgrade(&engine);
        drop(engine);
        weak
    };
    let mut work = Work::default();
    loop {
        let committed = hub.committed().notified();
        tokio::pin!(committed);
        committed.as_mut().enable();
        let again = {
            let Some(engine) = engine.upgrade() else { return };
            work.go_on(&engine).await
        };
        match again {
            Some(again) => _ = tokio::time::timeout(again, committed).await,
            None => committed.await,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lets Events go that have not changed for `ttl`.
pub async fn expire(engine: Weak<Engine>, ttl: Duration) {
    let period = (ttl / 20).clamp(EXPIRY_PERIOD_MIN, EXPIRY_PERIOD_MAX);
    loop {
        tokio::time::sleep(period).await;
        let Some(engine) = engine.upgrade() else { return };
        let mut after = None;
        loop {
            let now_ms = engine.stamp().time.as_millisecond();
            let due = expiry::plan(&engine.snapshot(), ttl, now_ms, after.as_deref());
            let mut requests = tokio::task::JoinSet::new();
            for step in due.steps {
                let engine = engine.clone();
                requests.spawn(async move { engine.mutate(&step.request).await.is_ok() });
            }
            // Those that were refused changed meanwhile, or the disk is full: either way there is no hurry.
            requests.join_all().await;
            after = due.rest;
            if after.is_none() {
                break;
            }
        }
    }
}

/// What is kept from one plan to the next.
#[derive(Default)]
struct Work {
    emptying: Emptying,
    /// The roles have been gathered up to here.
    gathered: Offset,
}

impl Work {
    /// Makes the plans' requests until there are none left. Answers when to plan again though nothing is written.
    async fn go_on(&mut self, engine: &Arc<Engine>) -> Option<Duration> {
        // Each round removes something or is the last, but a request may fail: then the next commit tries again.
        for _ in 0..ROUNDS_MAX {
            let snapshot = engine.snapshot();
            let stamp = engine.stamp();
            let now_ms = stamp.time.as_millisecond();
            let namespaces = self.emptying.plan(&snapshot, stamp);
            let mut steps: Vec<Step> = namespaces.steps;
            if !snapshot.definitions.unsettled.is_empty() {
                steps.extend(pipeline::plan_definitions(&snapshot));
            }
            if snapshot.rbac_offset > self.gathered {
                steps.extend(roles::plan(&snapshot));
                if steps.is_empty() {
                    self.gathered = snapshot.rbac_offset;
                }
            }
            let wait_ms = namespaces.again_ms.map(|again_ms| u64::try_from(again_ms - now_ms).unwrap_or(0));
            if steps.is_empty() && wait_ms != Some(0) {
                return wait_ms.map(Duration::from_millis);
            }
            make(engine, steps).await;
        }
        Some(PAUSE)
    }
}

/// Makes requests all at once, so that they share a few fsyncs.
async fn make(engine: &Arc<Engine>, steps: Vec<Step>) {
    let mut requests = tokio::task::JoinSet::new();
    for step in steps {
        let engine = engine.clone();
        requests.spawn(async move {
            let refused = engine.mutate(&step.request).await.err();
            if let Some(refusal) = &refused {
                tracing::debug!(?refusal, "a step of keeping house was refused");
            }
            refused.is_some()
        });
    }
    if requests.join_all().await.contains(&true) {
        tokio::time::sleep(PAUSE).await;
    }
}

//! Keeps house: finishes the deletion of namespaces, gathers the rules of aggregated roles, lets old Events go.
//!
//! The plans are the core's; these loops make their requests, whenever a commit may have changed something, or
//! when time may have.

use crate::engine::Engine;
use holdfast_core::authz::upkeep as roles;
use holdfast_core::event::Offset;
use holdfast_core::expiry;
use holdfast_core::namespace::{self, Step};
use holdfast_core::pipeline;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long commits are gathered before the plan is made again.
const PAUSE: Duration = Duration::from_millis(20);
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
    let mut gathered = Offset::ZERO;
    loop {
        let committed = hub.committed().notified();
        tokio::pin!(committed);
        committed.as_mut().enable();
        {
            let Some(engine) = engine.upgrade() else { return };
            work(&engine, &mut gathered).await;
        }
        committed.await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lets Events go that have not changed for `ttl`.
pub async fn expire(engine: Weak<Engine>, ttl: Duration) {
    let period = (ttl / 20).clamp(EXPIRY_PERIOD_MIN, EXPIRY_PERIOD_MAX);
    loop {
        tokio::time::sleep(period).await;
        let Some(engine) = engine.upgrade() else { return };
        loop {
            let now_ms = engine.stamp().time.as_millisecond();
            let steps = expiry::plan(&engine.snapshot(), ttl, now_ms);
            let mut requests = tokio::task::JoinSet::new();
            for step in steps {
                let engine = engine.clone();
                requests.spawn(async move { engine.mutate(&step.request).await.is_ok() });
            }
            // Those that were refused changed meanwhile, or the disk is full: either way there is no hurry.
            if !requests.join_all().await.contains(&true) {
                break;
            }
        }
    }
}

/// Makes the plan's requests until it has none left.
async fn work(engine: &Arc<Engine>, gathered: &mut Offset) {
    // Each round removes something or is the last, but a request may fail: then the next commit tries again.
    for _ in 0..64 {
        let snapshot = engine.snapshot();
        let mut steps: Vec<Step> = namespace::plan(&snapshot, engine.stamp());
        if !snapshot.definitions.unsettled.is_empty() {
            steps.extend(pipeline::plan_definitions(&snapshot));
        }
        if snapshot.rbac_offset > *gathered {
            steps.extend(roles::plan(&snapshot));
            if steps.is_empty() {
                *gathered = snapshot.rbac_offset;
            }
        }
        if steps.is_empty() {
            return;
        }
        // All at once, so that they share a few fsyncs.
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
}

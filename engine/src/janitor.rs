//! Keeps house: finishes the deletion of namespaces, and gathers the rules of aggregated roles.
//!
//! The plans are the core's; this loop makes their requests, whenever a commit may have changed something.

use crate::engine::Engine;
use holdfast_core::authz::upkeep as roles;
use holdfast_core::event::Offset;
use holdfast_core::namespace::{self, Step};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long commits are gathered before the plan is made again.
const PAUSE: Duration = Duration::from_millis(20);

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

/// Makes the plan's requests until it has none left.
async fn work(engine: &Arc<Engine>, gathered: &mut Offset) {
    // Each round removes something or is the last, but a request may fail: then the next commit tries again.
    for _ in 0..64 {
        let snapshot = engine.snapshot();
        let mut steps: Vec<Step> = namespace::plan(&snapshot, engine.stamp());
        if snapshot.rbac_offset > *gathered {
            steps.extend(roles::plan(&snapshot));
            if steps.is_empty() {
                *gathered = snapshot.rbac_offset;
            }
        }
        if steps.is_empty() {
            return;
        }
        let mut failed = false;
        for step in steps {
            if let Err(refusal) = engine.mutate(&step.request).await {
                tracing::debug!(?refusal, "a step of keeping house was refused");
                failed = true;
            }
        }
        if failed {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

//! What the server does by itself: finishes the deletion of namespaces, gathers the rules of aggregated roles, lets old
//! Events go, and makes what every cluster has ([`bootstrap`], [`registrar`]).
//!
//! The plans are the core's; these loops make their requests, whenever a commit may have changed something, or when
//! time may have. Each request comes through the door under a name of its own, and the roles say what it may do.

pub mod bootstrap;
pub mod registrar;

use crate::Service;
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

/// Keeps house for as long as somebody else holds the service.
pub async fn run(service: Arc<Service>) {
    let hub = service.engine().hub().clone();
    if let Some(ttl) = service.engine().settings().event_ttl {
        tokio::spawn(expire(Arc::downgrade(&service), ttl));
    }
    let service: Weak<Service> = {
        let weak = Arc::downgrade(&service);
        drop(service);
        weak
    };
    let mut gathered = Offset::ZERO;
    loop {
        let committed = hub.committed().notified();
        tokio::pin!(committed);
        committed.as_mut().enable();
        {
            let Some(service) = service.upgrade() else { return };
            work(&service, &mut gathered).await;
        }
        committed.await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lets Events go that have not changed for `ttl`.
async fn expire(service: Weak<Service>, ttl: Duration) {
    let period = (ttl / 20).clamp(EXPIRY_PERIOD_MIN, EXPIRY_PERIOD_MAX);
    loop {
        tokio::time::sleep(period).await;
        let Some(service) = service.upgrade() else { return };
        loop {
            let now_ms = service.engine().stamp().time.as_millisecond();
            let steps = expiry::plan(&service.engine().snapshot(), ttl, now_ms);
            let mut requests = tokio::task::JoinSet::new();
            for step in steps {
                let service = service.clone();
                requests.spawn(async move { service.act(step.request).await.is_ok() });
            }
            // Those that were refused changed meanwhile, or the disk is full: either way there is no hurry.
            if !requests.join_all().await.contains(&true) {
                break;
            }
        }
    }
}

/// Makes the plan's requests until it has none left.
async fn work(service: &Arc<Service>, gathered: &mut Offset) {
    // Each round removes something or is the last, but a request may fail: then the next commit tries again.
    for _ in 0..64 {
        let snapshot = service.engine().snapshot();
        let mut steps: Vec<Step> = namespace::plan(&snapshot, service.engine().stamp());
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
            let service = service.clone();
            requests.spawn(async move {
                let refused = service.act(step.request).await.err();
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

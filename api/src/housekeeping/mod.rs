//! Work that the server does without a client's request: it finishes the deletion of namespaces and definitions, writes
//! the rules of aggregated roles, deletes old Events, and creates the objects that every cluster has ([`bootstrap`],
//! [`registrar`], [`flow_control`]).
//!
//! The core makes the plans. The loops in these modules send the planned requests whenever a commit may have changed an
//! object that matters, or a planned time is reached. The requests pass the service under the names of controllers'
//! users, and RBAC roles restrict them.

pub mod bootstrap;
pub mod elections;
pub mod flow_control;
pub mod legacy_tokens;
pub mod presence;
pub mod registrar;

use crate::Service;
use crate::layers::unread;
use holdfast_core::authz::upkeep as roles;
use holdfast_core::expiry;
use holdfast_core::kinds::KindId;
use holdfast_core::namespace::{Emptying, Step};
use holdfast_core::pipeline::Clearing;
use holdfast_core::request::Verb;
use holdfast_core::state::State;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The name under which metrics show the queue of this work.
const QUEUE: &str = "housekeeping";
/// The time for which commits are collected before the next plan is made.
const PAUSE: Duration = Duration::from_millis(20);
/// The interval at which a namespace is checked again if its content in another log could not be read.
const PARTS_PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of plans that are made one after another before the loop waits for the next commit.
const ROUNDS_MAX: usize = 64;
/// The minimum interval at which Events are checked for expiry. The interval is a twentieth of the Events' lifetime.
const EXPIRY_PERIOD_MIN: Duration = Duration::from_millis(100);
/// The maximum interval at which Events are checked for expiry.
const EXPIRY_PERIOD_MAX: Duration = Duration::from_secs(30);

/// Does the work of this module until nothing else owns the service.
pub async fn run(service: Arc<Service>) {
    let hub = service.engine().hub().clone();
    let grace = service.engine().settings().namespace_grace;
    if let Some(ttl) = service.engine().settings().event_ttl {
        tokio::spawn(expire(Arc::downgrade(&service), ttl));
    }
    let service: Weak<Service> = {
        let weak = Arc::downgrade(&service);
        drop(service);
        weak
    };
    let mut work = Work { emptying: Emptying::after(grace), clearing: Clearing::default() };
    loop {
        // The notification is registered before the work starts, so that a commit during the work causes another round.
        let committed = hub.committed().notified();
        tokio::pin!(committed);
        committed.as_mut().enable();
        let again = {
            let Some(service) = service.upgrade() else { return };
            work.go_on(&service).await
        };
        match again {
            Some(again) => _ = tokio::time::timeout(again, committed).await,
            None => committed.await,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Deletes Events that have not changed for `ttl`.
async fn expire(service: Weak<Service>, ttl: Duration) {
    let period = (ttl / 20).clamp(EXPIRY_PERIOD_MIN, EXPIRY_PERIOD_MAX);
    loop {
        tokio::time::sleep(period).await;
        let Some(service) = service.upgrade() else { return };
        let mut after = None;
        loop {
            let now_ms = service.engine().stamp().time.as_millisecond();
            let due = expiry::plan(&service.engine().snapshot(), ttl, now_ms, after);
            let mut requests = tokio::task::JoinSet::new();
            for step in due.steps {
                let service = service.clone();
                requests.spawn(async move { service.act(step.request).await.is_ok() });
            }
            // A deletion is refused if the Event changed after it was read, or if the disk is full. The next pass tries
            // again.
            requests.join_all().await;
            after = due.rest;
            if after.is_none() {
                break;
            }
        }
    }
}

/// The data that stay in memory between two plans.
struct Work {
    emptying: Emptying,
    clearing: Clearing,
}

impl Work {
    /// Sends the planned requests until a plan is empty. Returns the time after which to plan again even if nothing is
    /// written.
    async fn go_on(&mut self, service: &Arc<Service>) -> Option<Duration> {
        // Each round removes something or is the last round. If a request fails, the next commit causes a new attempt.
        for _ in 0..ROUNDS_MAX {
            let mut snapshot = service.engine().snapshot();
            if !snapshot.terminating.is_empty() && service.engine().is_divided() {
                // A namespace must be empty when it is removed, but a removal cannot check the versions of objects in
                // other logs. So this server first reads the other logs up to their present end.
                if let Err(refusal) = service.engine().catch_parts_up().await {
                    tracing::debug!(
                        ?refusal,
                        "namespaces are not removed yet: the other etcds are not read up to their ends"
                    );
                    return Some(PARTS_PERIOD);
                }
                snapshot = service.engine().snapshot();
            }
            let stamp = service.engine().stamp();
            let now_ms = stamp.time.as_millisecond();
            self.hurry(service, &snapshot);
            let namespaces = self.emptying.plan(&snapshot, stamp);
            let mut steps: Vec<Step> = namespaces.steps;
            steps.retain(|step| unread::release(service.engine(), &step.request.target).is_ok());
            let definitions = self.clearing.plan(&snapshot, stamp);
            steps.extend(definitions.steps);
            if snapshot.rbac_offset > service.gathered() {
                steps.extend(roles::plan(&snapshot));
                if steps.is_empty() {
                    service.note_gathered(snapshot.rbac_offset);
                }
            }
            let again_ms = [namespaces.again_ms, definitions.again_ms].into_iter().flatten().min();
            let wait_ms = again_ms.map(|again_ms| u64::try_from(again_ms - now_ms).unwrap_or(0));
            if steps.is_empty() && wait_ms != Some(0) {
                return wait_ms.map(Duration::from_millis);
            }
            for (namespace, kind, why) in make(service, steps).await {
                self.emptying.refused(&namespace, kind, why);
            }
        }
        Some(PAUSE)
    }

    /// Gives priority to namespaces that a client watches by name, because the client waits for the end of the
    /// deletion.
    fn hurry(&mut self, service: &Service, state: &State) {
        let hub = service.engine().hub();
        let namespaces = state.registry.namespaces();
        let awaited: Vec<_> =
            self.emptying.left_alone().filter(|name| hub.is_object_watched(namespaces, name)).cloned().collect();
        awaited.iter().for_each(|name| self.emptying.hurry(name));
    }
}

/// Sends the requests concurrently, so that they share a few fsyncs. Returns the deletions within namespaces that were
/// refused, with the reasons.
async fn make(service: &Arc<Service>, steps: Vec<Step>) -> Vec<(String, KindId, String)> {
    let mut requests = tokio::task::JoinSet::new();
    for step in steps {
        let service = service.clone();
        let queued = service.counters().queued(QUEUE);
        requests.spawn(async move {
            let _working = queued.begin();
            let (verb, target) = (step.request.verb, step.request.target.clone());
            let refusal = service.act(step.request).await.err()?;
            tracing::debug!(?refusal, "a step of keeping house was refused");
            let is_told = verb == Verb::Delete && !matches!(refusal.reason(), "NotFound" | "Conflict");
            Some(target.namespace.filter(|_| is_told).map(|namespace| (namespace, target.kind, refusal.message())))
        });
    }
    let refused: Vec<_> = requests.join_all().await.into_iter().flatten().collect();
    if !refused.is_empty() {
        tokio::time::sleep(PAUSE).await;
    }
    refused.into_iter().flatten().collect()
}

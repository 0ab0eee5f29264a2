//! Coordinates leader elections while this server is the coordinator. The core makes the plans.

use super::make;
use super::registrar::follow;
use crate::Service;
use holdfast_core::election::{self, Term};
use holdfast_core::kinds::known;
use holdfast_engine::{Fault, WatchStart};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// The time for which changes are collected before a plan is made.
const PAUSE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_secs(1);
/// The interval at which candidates that no longer exist are searched for and removed.
const COLLECT_PERIOD: Duration = Duration::from_secs(30 * 60);

/// Runs without end. The coordinator's term is renewed at the interval `period`.
pub async fn run(service: Arc<Service>, term: Term, period: Duration) {
    loop {
        if let Err(fault) = coordinate(&service, &term, period).await {
            tracing::warn!(%fault, "the watch of LeaseCandidates ended and starts again");
        }
        sleep(RETRY).await;
    }
}

async fn coordinate(service: &Arc<Service>, term: &Term, period: Duration) -> Result<(), Fault> {
    let engine = service.engine();
    let start = WatchStart::After(engine.snapshot().offset);
    let mut candidates = follow(engine, known::LEASE_CANDIDATE, start)?;
    let mut leases = follow(engine, known::LEASE, start)?;
    let (mut renewing, mut collecting) = (interval(period), interval(COLLECT_PERIOD));
    for interval in [&mut renewing, &mut collecting] {
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut again: Option<Instant> = None;
    loop {
        let steps = tokio::select! {
            event = candidates.next() => event.map(|_| Vec::new())?,
            event = leases.next() => event.map(|_| Vec::new())?,
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => Vec::new(),
            _ = renewing.tick() => term.renew(&engine.snapshot(), engine.stamp()).into_iter().collect(),
            _ = collecting.tick() => election::collect(&engine.snapshot(), engine.stamp()),
        };
        if steps.is_empty() {
            sleep(PAUSE).await;
        } else {
            make(service, steps).await;
        }
        // All changes that have arrived by now are taken, because one plan covers all of them.
        while candidates.next_ready()?.is_some() || leases.next_ready()?.is_some() {}
        again = None;
        let (state, stamp) = (engine.snapshot(), engine.stamp());
        if !term.leads(&state, stamp) {
            continue;
        }
        let plan = election::plan(&state, stamp);
        for why in &plan.stuck {
            tracing::debug!("an election goes no further: {why}");
        }
        let wait = plan.again_ms.map(|again_ms| again_ms.saturating_sub(stamp.time.as_millisecond()));
        again = wait.map(|ms| Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        make(service, plan.steps).await;
    }
}

//! Maintains the mandatory objects of flow control, and applies all flow control objects to the service.

use super::registrar::follow;
use crate::Service;
use crate::fairness::Fairness;
use holdfast_core::flowcontrol::seats::ADJUSTMENT_PERIOD;
use holdfast_core::flowcontrol::upkeep;
use holdfast_core::kinds::known;
use holdfast_engine::{Fault, WatchStart};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The interval at which the objects are checked even if no event arrives.
const UPKEEP_PERIOD: Duration = Duration::from_secs(60);
/// The time for which changes are collected before they are applied.
const PAUSE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_secs(1);

/// Applies the current objects, and restores missing mandatory objects.
pub async fn ensure(service: &Arc<Service>, fairness: &Fairness) {
    let engine = service.engine();
    let state = engine.snapshot();
    fairness.configure(&state);
    super::make(service, upkeep::plan(&state, engine.stamp())).await;
}

/// Maintains and applies the objects of flow control, without end.
pub async fn run(service: Arc<Service>, fairness: Arc<Fairness>) {
    loop {
        if let Err(fault) = keep(&service, &fairness).await {
            tracing::warn!(%fault, "the watch of flow schemas and priority levels ended and starts again");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn keep(service: &Arc<Service>, fairness: &Fairness) -> Result<(), Fault> {
    let engine = service.engine();
    let start = WatchStart::After(engine.snapshot().offset);
    let mut schemas = follow(engine, known::FLOW_SCHEMA, start)?;
    let mut levels = follow(engine, known::PRIORITY_LEVEL_CONFIGURATION, start)?;
    let mut adjusting = interval(Duration::from_nanos(ADJUSTMENT_PERIOD));
    let mut looking = interval(UPKEEP_PERIOD);
    for interval in [&mut adjusting, &mut looking] {
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval.tick().await;
    }
    ensure(service, fairness).await;
    loop {
        tokio::select! {
            event = schemas.next() => drop(event?),
            event = levels.next() => drop(event?),
            _ = looking.tick() => {}
            _ = adjusting.tick() => {
                fairness.adjust();
                continue;
            }
        }
        tokio::time::sleep(PAUSE).await;
        while schemas.next_ready()?.is_some() || levels.next_ready()?.is_some() {}
        ensure(service, fairness).await;
    }
}

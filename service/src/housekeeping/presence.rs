//! Keeps the objects by which the cluster knows this server, while it serves: the core makes the plans.

use super::make;
use crate::Service;
use holdfast_core::namespace::Step;
use holdfast_core::presence::{self, Identity, Settings};
use std::sync::Arc;
use std::time::Duration;

/// How often the Service and its endpoints are checked.
const PERIOD: Duration = Duration::from_secs(10);
/// How often leases of servers that are gone are looked for.
const COLLECT_PERIOD: Duration = Duration::from_secs(3600);

/// Keeps the Service `kubernetes` and its endpoints; [`ensure_service`] has run at the start.
pub async fn keep_service(service: Arc<Service>, settings: Settings) {
    loop {
        tokio::time::sleep(PERIOD).await;
        ensure_service(&service, &settings, false).await;
    }
}

/// Makes the Service and its endpoints what they should be, once.
pub async fn ensure_service(service: &Arc<Service>, settings: &Settings, starts: bool) {
    let steps = presence::plan(&service.engine().snapshot(), settings, starts);
    run(service, steps).await;
}

/// Keeps the server's lease, and deletes the leases of servers that are gone.
pub async fn keep_lease(service: Arc<Service>, identity: Identity, period: Duration) {
    let mut collected: Option<tokio::time::Instant> = None;
    loop {
        let stamp = service.engine().stamp();
        let state = service.engine().snapshot();
        let mut steps: Vec<Step> = presence::renew(&state, &identity, stamp).into_iter().collect();
        if collected.is_none_or(|at| at.elapsed() >= COLLECT_PERIOD) {
            collected = Some(tokio::time::Instant::now());
            steps.extend(presence::collect(&state, stamp));
        }
        drop(state);
        run(&service, steps).await;
        tokio::time::sleep(period).await;
    }
}

async fn run(service: &Arc<Service>, steps: Vec<Step>) {
    if !steps.is_empty() {
        make(service, steps).await;
    }
}

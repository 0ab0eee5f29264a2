//! Maintains the objects that announce this server in the cluster while it serves. The core makes the plans.

use super::make;
use crate::Service;
use holdfast_core::namespace::Step;
use holdfast_core::presence::{self, Identity, Reconciler, Settings};
use std::sync::Arc;
use std::time::Duration;

/// The interval at which the Service `kubernetes` and its endpoints are checked.
const PERIOD: Duration = Duration::from_secs(10);
/// The interval at which leases of servers that no longer run are searched for and deleted.
const COLLECT_PERIOD: Duration = Duration::from_secs(3600);

/// The registry in which servers that share a log announce themselves. The methods block the calling thread.
pub trait Servers: Send + Sync {
    /// Announces the server at this address for some seconds. Returns the addresses of all announced servers.
    fn announce(&self, address: &str) -> Result<Vec<String>, String>;

    /// Withdraws the announcement of the server at this address.
    fn withdraw(&self, address: &str) -> Result<(), String>;
}

/// This server's address, and the registry of the servers that share its log.
#[derive(Clone)]
pub struct Presence {
    pub settings: Settings,
    /// `None` if this server alone uses the log.
    pub servers: Option<Arc<dyn Servers>>,
}

impl Presence {
    /// Announces the server, and returns the settings with the addresses of all servers. If the announcement fails, the
    /// endpoints of the Service `kubernetes` do not change, because the other servers are unknown.
    async fn announced(&self) -> Settings {
        let mut settings = self.settings.clone();
        let Some((address, servers)) = self.told() else { return settings };
        let announced = tokio::task::spawn_blocking(move || servers.announce(&address)).await;
        match announced.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(servers) => settings.servers = servers,
            Err(why) => {
                tracing::warn!(
                    why,
                    "the list of running API servers is unavailable: the endpoints of the Service kubernetes stay as they are"
                );
                settings.reconciler = Reconciler::Nobody;
            }
        }
        settings
    }

    /// Withdraws the announcement when the server ends, so that other servers need not wait until it expires.
    pub async fn withdraw(&self) {
        let Some((address, servers)) = self.told() else { return };
        let withdrawn = tokio::task::spawn_blocking(move || servers.withdraw(&address)).await;
        if let Err(why) = withdrawn.unwrap_or_else(|error| Err(error.to_string())) {
            tracing::warn!(
                why,
                "this API server could not be removed from the list of running ones: its entry expires in some seconds"
            );
        }
    }

    fn told(&self) -> Option<(String, Arc<dyn Servers>)> {
        let is_told = self.settings.reconciler == Reconciler::Lease;
        let servers = self.servers.clone().filter(|_| is_told)?;
        Some((self.settings.address?.to_string(), servers))
    }
}

/// Maintains the Service `kubernetes` and its endpoints. [`ensure_service`] has already corrected the Service and its
/// endpoints at the start.
pub async fn keep_service(service: Arc<Service>, presence: Presence) {
    loop {
        tokio::time::sleep(PERIOD).await;
        ensure_service(&service, &presence, false).await;
    }
}

/// Corrects the Service `kubernetes` and its endpoints once.
pub async fn ensure_service(service: &Arc<Service>, presence: &Presence, starts: bool) {
    let settings = presence.announced().await;
    let steps = presence::plan(&service.engine().snapshot(), &settings, starts);
    run(service, steps).await;
}

/// Renews the server's lease, and deletes the leases of servers that no longer run.
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

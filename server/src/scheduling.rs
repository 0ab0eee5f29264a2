//! The scheduler in the API server's own process.

use crate::inside::{InsideAct, InsideFeed};
use holdfast_component::election::run::host;
use holdfast_runtime::scheduling::metrics::Metrics;
use holdfast_runtime::scheduling::{Work, resources, run};
use holdfast_runtime::{Charged, Rates, apart};
use holdfast_scheduler::Configuration;
use holdfast_transport_http::Transport;
use holdfast_world::Sight;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Schedules pods until the engine is dropped.
pub async fn in_process(configuration: Configuration, transport: Arc<Transport>, rates: Arc<Rates>) {
    let service = transport.service();
    let metrics = Arc::new(Metrics::default());
    service.with_registry(|registry| metrics.register(registry));
    let configuration = Arc::new(configuration);
    let act = Arc::new(Charged::new(InsideAct::new(&transport), rates));
    let feed = InsideFeed::new(service.engine().clone(), resources(), Sight::None);
    let (synced, dump, host, hands) = (Arc::default(), Arc::default(), host(), Handle::current());
    // This process has a single scheduler, so it always leads.
    let (_leads, leads) = watch::channel(true);
    let work = Work { configuration, act, metrics, leads, synced, host, dump, hands, pod_resources: None };
    apart("scheduler", move || run(work, feed)).await;
}

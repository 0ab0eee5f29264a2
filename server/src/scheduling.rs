//! The scheduler in the API server's own process.

use crate::inside::{InsideAct, InsideFeed};
use holdfast_component::election::run::host;
use holdfast_runtime::scheduling::metrics::Metrics;
use holdfast_runtime::scheduling::{SchedulerSetup, resources, run};
use holdfast_runtime::{Charged, Rates, run_on_own_thread};
use holdfast_scheduler::Configuration;
use holdfast_transport_http::Transport;
use holdfast_world::ExtraKinds;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The scheduler that runs in the API server's process.
pub struct InProcess {
    configuration: Arc<Configuration>,
    transport: Weak<Transport>,
    rates: Arc<Rates>,
    metrics: Arc<Metrics>,
}

impl InProcess {
    pub fn new(configuration: Configuration, transport: &Arc<Transport>, rates: Arc<Rates>) -> InProcess {
        let metrics = Arc::new(Metrics::default());
        transport.service().with_registry(|registry| metrics.register(registry));
        InProcess { configuration: Arc::new(configuration), transport: Arc::downgrade(transport), rates, metrics }
    }

    /// Returns a future that schedules pods until it is dropped.
    pub fn run(&self) -> impl Future<Output = ()> + Send + use<> {
        let InProcess { configuration, transport, rates, metrics } = self;
        let (configuration, rates, metrics) = (configuration.clone(), rates.clone(), metrics.clone());
        let transport = transport.clone();
        async move {
            let Some(transport) = transport.upgrade() else { return };
            let act = Arc::new(Charged::new(InsideAct::new(&transport), rates));
            let feed = InsideFeed::new(transport.service().engine().clone(), resources(), ExtraKinds::None);
            drop(transport);
            let (synced, dump, host, request_runtime) = (Arc::default(), Arc::default(), host(), Handle::current());
            // This scheduler runs only while its server leads.
            let (_leads, leads) = watch::channel(true);
            let work = SchedulerSetup {
                configuration,
                act,
                metrics,
                leads,
                synced,
                host,
                dump,
                request_runtime,
                pod_resources: None,
            };
            run_on_own_thread("scheduler", move || run(work, feed)).await;
        }
    }
}

//! The parts that send requests to other servers: aggregated API servers, nodes, pods, Services and webhooks.

use crate::aggregate::{self, Aggregator};
use crate::authenticate::Authenticator;
use crate::connect::connections::Connections;
use crate::effects::{Effects, Images};
use holdfast_core::apiservices::trust::Trust;
use holdfast_engine::{Engine, Outside, WatchStart};
use holdfast_outbound::conversion::{WebhookCredentials, Webhooks};
use holdfast_service::housekeeping::registrar;
use holdfast_service::{Authorities, Service};
use std::sync::Arc;
use tokio::task::JoinSet;

/// The operator's settings of requests to other servers.
#[derive(Default)]
pub struct OtherServersSettings {
    /// How aggregated API servers are reached.
    pub aggregation: aggregate::Settings,
    /// The authorities for client certificates that other servers are to trust; `None` if this server publishes none.
    pub trust: Option<Trust>,
    /// The connections to nodes, pods and Services in the cluster.
    pub connections: Connections,
    /// The server that reviews images; `None` if the admission plug-in for this is off.
    pub images: Option<Arc<dyn Images>>,
    /// The credentials for calls to admission webhooks.
    pub speakers: WebhookCredentials,
}

pub(crate) struct OtherServers {
    /// The parts of the API that other servers serve.
    pub aggregator: Arc<Aggregator>,
    /// The connections to nodes, pods and Services in the cluster.
    pub connections: Arc<Connections>,
    /// The authorities for client certificates that other servers are to trust.
    trust: Option<Arc<Trust>>,
    images: Option<Arc<dyn Images>>,
    speakers: WebhookCredentials,
}

impl OtherServers {
    /// Reads the APIServices, and gives the engine the implementation of its effects outside the process.
    pub fn new(
        settings: OtherServersSettings,
        engine: &Arc<Engine>,
        authenticator: &Authenticator,
        authorities: Option<Arc<dyn Authorities>>,
    ) -> OtherServers {
        let OtherServersSettings { aggregation, trust, connections, images, speakers } = settings;
        let aggregator = Arc::new(Aggregator::new(engine.clone(), aggregation));
        let (connections, trust) = (Arc::new(connections), trust.map(Arc::new));
        let servers = OtherServers { aggregator, connections, trust, images, speakers };
        servers.attach(engine, authenticator, authorities);
        servers
    }

    /// The parts for the engine of a fork, which sends requests to other servers in the same way.
    pub fn beside(
        &self,
        engine: &Arc<Engine>,
        authenticator: &Authenticator,
        authorities: Option<Arc<dyn Authorities>>,
    ) -> OtherServers {
        let servers = OtherServers {
            aggregator: Arc::new(self.aggregator.beside(engine.clone())),
            connections: self.connections.clone(),
            trust: self.trust.clone(),
            images: self.images.clone(),
            speakers: self.speakers.clone(),
        };
        servers.attach(engine, authenticator, authorities);
        servers
    }

    fn attach(&self, engine: &Arc<Engine>, authenticator: &Authenticator, authorities: Option<Arc<dyn Authorities>>) {
        self.aggregator.prime(engine);
        let webhooks = Webhooks::new(engine, self.aggregator.outbound(), self.speakers.clone());
        let (tokens, images) = (authenticator.service_accounts.clone(), self.images.clone());
        let outside: Arc<dyn Outside> = Arc::new(Effects { webhooks, tokens, authorities, images });
        engine.all().for_each(|engine| engine.set_outside(outside.clone()));
    }

    /// Keeps the state of aggregated API servers up to date while the tasks run.
    pub fn follow(&self, service: &Arc<Service>, from: WatchStart, tasks: &mut JoinSet<()>) {
        tasks.spawn(self.aggregator.clone().keep(service.clone(), from));
    }

    /// Keeps the authorities for client certificates published, as long as the tasks run.
    pub fn publish_trust(&self, service: &Arc<Service>, tasks: &mut JoinSet<()>) {
        if let Some(trust) = &self.trust {
            tasks.spawn(registrar::keep_trust(service.clone(), Trust::clone(trust)));
        }
    }
}

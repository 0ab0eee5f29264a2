//! Wires the service and the transport over an engine. No other code does this.

use crate::answers::Answers;
use crate::authenticate::Authenticator;
use crate::manners::Manners;
use crate::spans::Tracer;
use crate::status::STATUSES;
use crate::transport::forks::Forks;
use crate::transport::lifecycle::Lifecycle;
use crate::transport::other_servers::OtherServers;
use crate::transport::server_info::ServerInfo;
use crate::transport::{
    Components, Features, ForkSettings, LifecycleSettings, OtherServersSettings, ServerInfoSettings, Transport,
};
use holdfast_engine::Engine;
use holdfast_service::{Options, Service};
use std::sync::Arc;

/// The parts from which a server is built. [`Builder::new`] has the defaults.
pub struct Builder {
    pub engine: Arc<Engine>,
    pub authenticator: Authenticator,
    /// The settings of the service. [`Builder::build`] sets `tokens` and `constrained_impersonation`, which the
    /// authenticator and the features determine.
    pub service: Options,
    pub features: Features,
    pub manners: Manners,
    pub lifecycle: LifecycleSettings,
    pub other_servers: OtherServersSettings,
    pub forks: ForkSettings,
    pub server_info: ServerInfoSettings,
    /// Starts components in this process for the server and for each fork of the server.
    pub components: Option<Components>,
    /// Chooses the requests that are traced; `None` if requests are not traced.
    pub tracer: Option<Tracer>,
}

impl Builder {
    /// A server with defaults that authenticates only callers within the process.
    pub fn new(engine: Arc<Engine>) -> Builder {
        Builder {
            engine,
            authenticator: Authenticator::default(),
            service: Options::default(),
            features: Features::default(),
            manners: Manners::default(),
            lifecycle: LifecycleSettings::default(),
            other_servers: OtherServersSettings::default(),
            forks: ForkSettings { forker: None, in_memory_max: 0 },
            server_info: ServerInfoSettings::default(),
            components: None,
            tracer: None,
        }
    }

    /// Builds the transport, which is not ready until [`Transport::set_ready`] is called.
    pub fn build(self) -> Arc<Transport> {
        let Builder { engine, authenticator, mut service, features, other_servers, server_info, .. } = self;
        let authorities = service.authorities.clone();
        let other_servers = OtherServers::new(other_servers, &engine, &authenticator, authorities);
        let tokens = authenticator.service_accounts.as_deref();
        let server_info = ServerInfo::new(server_info, tokens);
        if let Some(tokens) = tokens {
            let uses = tokens.uses.clone();
            service.meters.push(Arc::new(move || uses.text()));
        }
        let authenticator = Arc::new(authenticator);
        let (tokens, constrained_impersonation) = (authenticator.clone(), features.constrained_impersonation);
        let options = Options { tokens, constrained_impersonation, statuses: STATUSES, ..service };
        let answers = Answers::new(engine.reads().memory().clone());
        let service = Service::new(engine, options);
        service.with_registry(|registry| other_servers.connections.counts.register(registry));
        Arc::new(Transport {
            service,
            authenticator,
            features,
            manners: Arc::new(self.manners),
            bodies: Default::default(),
            answers,
            lifecycle: Lifecycle::new(self.lifecycle),
            other_servers,
            forks: Forks::new(self.forks),
            server_info,
            components: self.components,
            tracer: self.tracer,
        })
    }
}

//! Wires the door and the transport over an engine: the one place that does.

use crate::aggregate::{self, Aggregator};
use crate::authenticate::Authenticator;

use crate::effects::Effects;
use crate::forks::Forker;
use crate::paths::Library;
use crate::transport::{Features, Transport};
use holdfast_engine::Engine;
use holdfast_outbound::conversion::Webhooks;
use holdfast_service::{Limits, Options, Service};
use std::sync::Arc;
use tokio::sync::watch;

/// What a server is made of. [`Builder::new`] has what suits one without options.
pub struct Builder {
    pub engine: Arc<Engine>,
    pub authenticator: Authenticator,
    pub limits: Limits,
    pub features: Features,
    /// How servers are reached that answer for parts of the API.
    pub aggregation: aggregate::Settings,
    /// As clients reach the server: `10.0.0.1:6443`.
    pub address: String,
    /// Makes forks of the log, where it is on a disk.
    pub forker: Option<Arc<dyn Forker>>,
}

impl Builder {
    /// A server that knows nobody but callers within the process.
    pub fn new(engine: Arc<Engine>) -> Builder {
        Builder {
            engine,
            authenticator: Authenticator::default(),
            limits: Limits::default(),
            features: Features::default(),
            aggregation: Default::default(),
            address: String::new(),
            forker: None,
        }
    }

    /// The transport, which is not ready before somebody [says so](Transport::be_ready).
    pub fn build(self) -> Arc<Transport> {
        let Builder { engine, authenticator, limits, features, aggregation, address, forker } = self;
        let aggregator = Arc::new(Aggregator::new(engine.clone(), aggregation));
        aggregator.prime(&engine);
        let webhooks = Webhooks::new(&engine, aggregator.outbound());
        engine.set_outside(Arc::new(Effects { webhooks, tokens: authenticator.service_accounts.clone() }));
        let authenticator = Arc::new(authenticator);
        let service = Service::new(engine, Options { limits, tokens: authenticator.clone() });
        Arc::new(Transport {
            service,
            authenticator,
            features,
            bodies: Default::default(),
            answers: Default::default(),
            aggregator,
            documents: Library::new(address),
            forker,
            stopping: watch::Sender::new(false),
            sockets: Default::default(),
            ready: watch::Sender::new(false),
        })
    }
}

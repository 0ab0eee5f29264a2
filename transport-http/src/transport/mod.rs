//! The parts of a server over HTTP, and the tasks that it runs. The module `requests` answers requests with these
//! parts.

mod features;
pub(crate) mod forks;
pub(crate) mod lifecycle;
pub(crate) mod live;
pub(crate) mod other_servers;
pub(crate) mod server_info;

pub use features::Features;
pub use forks::ForkSettings;
pub use lifecycle::LifecycleSettings;
pub use other_servers::OtherServersSettings;
pub use server_info::{HealthCheck, ServerInfoSettings, ServerVersion, ShownMetrics};

use crate::aggregate::Aggregator;
use crate::answers::Answers;
use crate::authenticate::Authenticator;
use crate::body::Bodies;
use crate::manners::Manners;
use crate::spans::Tracer;
use forks::Forks;
use holdfast_core::Refusal;
use holdfast_engine::{Engine, Fault, WatchStart};
use holdfast_outbound::kubelets::Kubelets;
use holdfast_service::Service;
use holdfast_service::housekeeping::{self, registrar};
use lifecycle::Lifecycle;
use live::ForkIdentity;
use other_servers::OtherServers;
use server_info::ServerInfo;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often the number of open watches is checked while watches end.
const WATCHES_PERIOD: Duration = Duration::from_millis(20);

/// The API over HTTP. [`Builder`](crate::Builder) makes one.
pub struct Transport {
    pub(crate) service: Arc<Service>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) features: Features,
    pub(crate) manners: Arc<Manners>,
    pub(crate) bodies: Bodies,
    pub(crate) answers: Answers,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) other_servers: OtherServers,
    pub(crate) forks: Forks,
    pub(crate) server_info: ServerInfo,
    pub(crate) components: Option<Components>,
    pub(crate) tracer: Option<Tracer>,
}

/// Starts components in the process of a server. The components end with the tasks in the set.
pub type Components = Arc<dyn Fn(&Arc<Transport>, &mut JoinSet<()>) + Send + Sync>;

impl Transport {
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// The kubelets of the cluster's nodes, and how they are reached.
    pub fn kubelets(&self) -> &Arc<Kubelets> {
        &self.other_servers.connections.kubelets
    }

    pub fn aggregator(&self) -> &Arc<Aggregator> {
        &self.other_servers.aggregator
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.service.engine()
    }

    /// Marks the server as ready. The caller has created all objects on which clients rely.
    pub fn set_ready(&self) {
        self.lifecycle.set_ready();
    }

    /// Makes the server unready, so that load balancers send it no new clients. Until it stops it serves as before.
    pub fn begin_shutdown(&self) {
        self.lifecycle.begin_shutdown();
    }

    /// Stops in the order that the operator chose. Returns when only connections are left to end.
    pub async fn shut_down(&self) {
        self.begin_shutdown();
        if self.lifecycle.settings.send_retry_after {
            self.lifecycle.refuse_requests();
            self.wait_for_requests().await;
            let watches = async {
                while self.service.watches() > 0 {
                    tokio::time::sleep(WATCHES_PERIOD).await;
                }
            };
            let _ = tokio::time::timeout(self.lifecycle.settings.watch_grace, watches).await;
        }
        self.stop();
    }

    /// Waits until requests in progress have their responses, at most as long as a request may take.
    pub(crate) async fn wait_for_requests(&self) {
        self.lifecycle.wait_for_requests(self.manners.request_timeout).await;
    }

    /// Ends watches, and then the server, with all its forks.
    pub fn stop(&self) {
        self.lifecycle.stop();
        self.forks.end();
    }

    /// Makes the APIServices of the APIs that this server serves. While the tasks run, keeps these objects and the
    /// state of other servers up to date.
    pub async fn keep_registered(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Result<(), Refusal> {
        let service = &self.service;
        self.aggregator().prime(service.engine());
        self.other_servers.follow(service, WatchStart::Now, tasks);
        // The two futures run at the same time, so that all writes share a few fsyncs.
        let flow_control = async {
            if let Some(fairness) = service.fairness() {
                housekeeping::flow_control::ensure(service, fairness).await;
            }
        };
        self.keep_tokens(tasks);
        let (registered, ()) = tokio::join!(registrar::ensure(service), flow_control);
        tasks.spawn(registered?.run(service.clone()));
        if let Some(fairness) = service.fairness() {
            tasks.spawn(housekeeping::flow_control::run(service.clone(), fairness.clone()));
        }
        self.other_servers.publish_trust(service, tasks);
        Ok(())
    }

    /// Runs the tasks of a fork. The tasks continue from the state of the server that was forked, so at first they have
    /// nothing to do.
    pub fn keep_fork(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let (service, begin) = (&self.service, self.engine().snapshot().offset);
        tasks.spawn(housekeeping::run(service.clone()));
        self.other_servers.follow(service, WatchStart::After(begin), tasks);
        tasks.spawn(registrar::Registrar::beside(begin).run(service.clone()));
        self.other_servers.publish_trust(service, tasks);
        self.keep_tokens(tasks);
        self.start_components(tasks);
    }

    /// Starts the components that run in the process of this server.
    pub fn start_components(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        if let Some(components) = &self.components {
            components(self, tasks);
        }
    }

    fn keep_tokens(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        if let Some(tokens) = &self.authenticator.service_accounts {
            tasks.spawn(housekeeping::legacy_tokens::run(Arc::downgrade(&self.service), tokens.used.clone()));
        }
    }

    /// The transport over the engine of a fork. This transport authenticates the users of the original server, and
    /// shares the original server's bounds of requests.
    pub(crate) fn beside(&self, engine: Arc<Engine>, identity: ForkIdentity) -> Result<Arc<Transport>, Fault> {
        let cluster = engine.log().identity()?.id.unwrap_or_default();
        let authenticator = Arc::new(self.authenticator.beside(cluster));
        let other_servers = self.other_servers.beside(&engine, &authenticator, self.service.authorities());
        let revision = engine.snapshot().registry.revision();
        Ok(Arc::new(Transport {
            service: self.service.beside(engine, authenticator.clone()),
            authenticator,
            features: self.features,
            manners: self.manners.clone(),
            bodies: self.bodies.clone(),
            answers: self.answers.clone(),
            lifecycle: Lifecycle::new(self.lifecycle.settings),
            other_servers,
            forks: self.forks.beside(identity),
            server_info: self.server_info.beside(revision),
            components: self.components.clone(),
            tracer: self.tracer.clone(),
        }))
    }
}

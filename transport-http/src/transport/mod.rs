//! The parts of a server over HTTP, and the tasks that it runs. `requests` answers requests with them.

pub(crate) mod live;

use crate::aggregate::Aggregator;
use crate::answers::Answers;
use crate::authenticate::Authenticator;
use crate::body::Bodies;
use crate::connect::connections::Connections;
use crate::documents::Library;
use crate::effects::Images;
use crate::forks::forker::Forker;
use crate::manners::Manners;
use crate::pages::Pages;
use crate::spans::Tracer;
use crate::tokens::Published;
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::apiservices::trust::Trust;
use holdfast_engine::{Engine, WatchStart};
use holdfast_outbound::conversion::WebhookCredentials;
use holdfast_outbound::kubelets::Kubelets;
use holdfast_service::Service;
use holdfast_service::housekeeping::{self, registrar};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

/// The API over HTTP. [`Builder`](crate::Builder) makes one.
pub struct Transport {
    pub(crate) service: Arc<Service>,
    pub(crate) authenticator: Arc<Authenticator>,
    /// The documents that OpenID discovery publishes.
    pub(crate) issuer: Option<Arc<Published>>,
    pub(crate) features: Features,
    pub(crate) bodies: Bodies,
    pub(crate) answers: Answers,
    /// The parts of the API that other servers serve.
    pub(crate) aggregator: Arc<Aggregator>,
    /// The authorities for client certificates that other servers are to trust.
    pub(crate) trust: Option<Arc<Trust>>,
    /// The connections to nodes, pods and Services in the cluster.
    pub(crate) connections: Arc<Connections>,
    pub(crate) documents: Library,
    /// Makes forks on the disk; `None` if the log is not on a disk.
    pub(crate) forker: Option<Arc<dyn Forker>>,
    pub(crate) components: Option<Components>,
    pub(crate) images: Option<Arc<dyn Images>>,
    pub(crate) speakers: WebhookCredentials,
    pub(crate) checks: Arc<[Arc<dyn HealthCheck>]>,
    /// The forks in memory, of this server and of its forks.
    pub(crate) live: Arc<live::Live>,
    /// The identity of this server as a fork; `None` if it is no fork.
    pub(crate) place: Option<live::ForkLine>,
    pub(crate) manners: Arc<Manners>,
    /// The minor release that the server emulates, and the oldest minor release with which it is compatible.
    pub(crate) releases: (u32, u32),
    pub(crate) git_version: String,
    pub(crate) pages: Option<Pages>,
    pub(crate) tracer: Option<Tracer>,
    /// Filters the text of `/metrics` before it is shown.
    pub(crate) shown_metrics: Option<ShownMetrics>,
    pub(crate) started: Instant,
    /// Set when the server will stop soon; it still serves as before.
    pub(crate) leaving: AtomicBool,
    /// Set when new requests are refused.
    pub(crate) refusing: AtomicBool,
    /// Becomes true when the server stops: watches end.
    pub(crate) stopping: signal::Sender<bool>,
    /// Becomes true when no more connections are accepted.
    pub(crate) closing: signal::Sender<bool>,
    /// The number of watches begun so far.
    pub(crate) watches_begun: AtomicU64,
    /// Requests in progress that are not long-running.
    pub(crate) requests: TaskTracker,
    /// Upgraded connections: the server waits for them when it stops.
    pub(crate) sockets: TaskTracker,
    /// Becomes true when all objects exist that a new server makes.
    pub(crate) ready: signal::Sender<bool>,
}

/// A check on which the server's health depends.
pub trait HealthCheck: Send + Sync {
    /// The name of the check in paths.
    fn name(&self) -> &str;
    fn check(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// Starts components in the process of a server. They end with the tasks.
pub type Components = Arc<dyn Fn(&Arc<Transport>, &mut JoinSet<()>) + Send + Sync>;

/// Turns the text of all metrics into the text that is shown.
pub type ShownMetrics = Arc<dyn Fn(String) -> String + Send + Sync>;

/// The features that feature gates turn on or off.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    pub list_chunking: bool,
    pub response_compression: bool,
    pub dry_run: bool,
    pub remaining_item_count: bool,
    pub server_side_apply: bool,
    /// Objects and lists have a `selfLink`.
    pub self_links: bool,
    /// There are impersonation verbs that hold only for some requests.
    pub constrained_impersonation: bool,
    /// A GET to `exec`, `attach` or `portforward` of a pod needs the right to create, too.
    pub upgrades_need_create: bool,
    /// Over HTTP/2, the response to an unauthenticated request ends the connection.
    pub strangers_last: bool,
    /// Watches may begin with the current objects.
    pub watch_list: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            list_chunking: true,
            response_compression: true,
            dry_run: true,
            remaining_item_count: true,
            server_side_apply: true,
            self_links: false,
            constrained_impersonation: false,
            upgrades_need_create: true,
            strangers_last: true,
            watch_list: true,
        }
    }
}

impl Transport {
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// How kubelets are reached.
    pub fn kubelets(&self) -> &Arc<Kubelets> {
        &self.connections.kubelets
    }

    pub fn aggregator(&self) -> &Arc<Aggregator> {
        &self.aggregator
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.service.engine()
    }

    /// Marks the server as ready: all objects exist on which clients rely.
    pub fn be_ready(&self) {
        self.ready.send_replace(true);
    }

    /// Makes the APIServices of the APIs that this server serves. While the tasks run, keeps these objects and the
    /// state of other servers up to date.
    pub async fn keep_registered(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Result<(), Refusal> {
        let service = &self.service;
        self.aggregator.prime(service.engine());
        tasks.spawn(self.aggregator.clone().keep(service.clone(), WatchStart::Now));
        // Both run at the same time, so that all writes share a few fsyncs.
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
        self.keep_trust(tasks);
        Ok(())
    }

    /// Runs the tasks of a fork. They continue from the state of the server that was forked, so at first they have
    /// nothing to do.
    pub fn keep_fork(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let (service, begin) = (&self.service, self.engine().snapshot().offset);
        tasks.spawn(housekeeping::run(service.clone()));
        tasks.spawn(self.aggregator.clone().keep(service.clone(), WatchStart::After(begin)));
        tasks.spawn(registrar::Registrar::beside(begin).run(service.clone()));
        self.keep_trust(tasks);
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

    fn keep_trust(&self, tasks: &mut JoinSet<()>) {
        if let Some(trust) = &self.trust {
            tasks.spawn(registrar::keep_trust(self.service.clone(), Trust::clone(trust)));
        }
    }
}

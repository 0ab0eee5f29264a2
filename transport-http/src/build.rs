//! Wires the service and the transport over an engine. No other code does this.

use crate::aggregate::{self, Aggregator};
use crate::answers::Answers;
use crate::authenticate::Authenticator;
use crate::connect::connections::Connections;
use crate::documents::Library;
use crate::effects::{Effects, Images};
use crate::forks::forker::Forker;
use crate::manners::Manners;
use crate::pages::Pages;
use crate::paths::git_version;
use crate::spans::Tracer;
use crate::status::STATUSES;
use crate::transport::live::{ForkLine, Live};
use crate::transport::{Components, Features, HealthCheck, ShownMetrics, Transport};
use holdfast_audit::Auditor;
use holdfast_core::apiservices::trust::Trust;
use holdfast_core::kinds::offered::NEWEST;
use holdfast_engine::{Engine, Fault, Outside};
use holdfast_outbound::conversion::{Speakers, Webhooks};
use holdfast_service::{Authorities, Limits, Meter, Options, Service};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The parts of a server. [`Builder::new`] has the defaults.
pub struct Builder {
    pub engine: Arc<Engine>,
    pub authenticator: Authenticator,
    pub limits: Limits,
    /// The longest wait of requests for their turn under priority and fairness; `None` refuses requests over the limits
    /// instead.
    pub fairness: Option<Duration>,
    pub features: Features,
    /// How aggregated API servers are reached.
    pub aggregation: aggregate::Settings,
    /// The authorities for client certificates that other servers are to trust; `None` if this server publishes none.
    pub trust: Option<Trust>,
    /// The connections to nodes, pods and Services in the cluster.
    pub connections: Connections,
    /// The address at which clients reach the server: `10.0.0.1:6443`.
    pub address: String,
    /// The URL of the keys of service account tokens; `None` if the keys are not published.
    pub keys_url: Option<String>,
    /// Makes forks of a log on a disk.
    pub forker: Option<Arc<dyn Forker>>,
    /// The maximum number of forks in memory at once.
    pub forks_max: u32,
    /// Starts components in this process for the server and for each fork of it.
    pub components: Option<Components>,
    /// Reviews images; `None` if the admission plug-in is off.
    pub images: Option<Arc<dyn Images>>,
    /// The credentials for calls to admission webhooks.
    pub speakers: Speakers,
    /// Records requests; `None` if they are not audited.
    pub auditor: Option<Arc<Auditor>>,
    pub manners: Manners,
    /// The minor release that the server emulates, and the oldest minor release with which it is compatible.
    pub releases: (u32, u32),
    /// The version that the server reports.
    pub git_version: String,
    /// The minimum duration of a watch whose client names none.
    pub watch_min: Duration,
    /// The debug pages of the program.
    pub pages: Option<Pages>,
    /// Samples requests for traces, if they are traced.
    pub tracer: Option<Tracer>,
    pub shown_metrics: Option<ShownMetrics>,
    /// Health checks in addition to the server's own.
    pub checks: Vec<Arc<dyn HealthCheck>>,
    /// Metrics of other parts.
    pub meters: Vec<Meter>,
    /// Calls authorization webhooks, if the chain has any.
    pub authorities: Option<Arc<dyn Authorities>>,
}

impl Builder {
    /// A server with defaults that authenticates only callers within the process.
    pub fn new(engine: Arc<Engine>) -> Builder {
        Builder {
            engine,
            authenticator: Authenticator::default(),
            limits: Limits::default(),
            fairness: None,
            features: Features::default(),
            aggregation: Default::default(),
            trust: None,
            connections: Connections::default(),
            address: String::new(),
            keys_url: None,
            forker: None,
            forks_max: 0,
            components: None,
            images: None,
            speakers: Speakers::default(),
            auditor: None,
            manners: Manners::default(),
            releases: (NEWEST, NEWEST - 1),
            git_version: git_version(),
            watch_min: holdfast_service::WATCH_MIN,
            pages: None,
            tracer: None,
            shown_metrics: None,
            checks: Vec::new(),
            meters: Vec::new(),
            authorities: None,
        }
    }

    /// Builds the transport, which is not ready until [`Transport::be_ready`] is called.
    pub fn build(self) -> Arc<Transport> {
        let Builder { engine, authenticator, limits, features, aggregation, trust, address, forker, .. } = self;
        let (forks_max, auditor, components) = (self.forks_max, self.auditor, self.components);
        let (authorities, images, speakers) = (self.authorities, self.images, self.speakers);
        let aggregator = Aggregator::new(engine.clone(), aggregation);
        let asked =
            OutsideParts { authorities: authorities.clone(), images: images.clone(), speakers: speakers.clone() };
        let aggregator = self::aggregator(aggregator, &engine, &authenticator, asked);
        let tokens = authenticator.service_accounts.as_ref();
        let issuer = self.keys_url.and_then(|url| tokens?.published(&url)).map(Arc::new);
        let mut meters = self.meters;
        if let Some(tokens) = tokens {
            let uses = tokens.uses.clone();
            meters.push(Arc::new(move || uses.text()));
        }
        let authenticator = Arc::new(authenticator);
        let (tokens, fairness, watch_min) = (authenticator.clone(), self.fairness, self.watch_min);
        let Features { constrained_impersonation, upgrades_need_create, .. } = features;
        let options = Options {
            limits,
            fairness,
            tokens,
            auditor,
            meters,
            authorities,
            watch_min,
            constrained_impersonation,
            upgrades_need_create,
            statuses: STATUSES,
        };
        let answers = Answers::new(engine.reads().memory().clone());
        let service = Service::new(engine, options);
        service.with_registry(|registry| self.connections.counts.register(registry));
        Arc::new(Transport {
            service,
            authenticator,
            issuer,
            features,
            bodies: Default::default(),
            answers,
            aggregator,
            trust: trust.map(Arc::new),
            connections: Arc::new(self.connections),
            documents: Library::new(address),
            forker,
            components,
            images,
            speakers,
            checks: self.checks.into(),
            live: Arc::new(Live::new(forks_max)),
            place: None,
            manners: Arc::new(self.manners),
            releases: self.releases,
            git_version: self.git_version,
            pages: self.pages,
            tracer: self.tracer,
            shown_metrics: self.shown_metrics,
            started: Instant::now(),
            leaving: Default::default(),
            refusing: Default::default(),
            stopping: watch::Sender::new(false),
            closing: watch::Sender::new(false),
            watches_begun: Default::default(),
            requests: Default::default(),
            sockets: Default::default(),
            ready: watch::Sender::new(false),
        })
    }
}

impl Transport {
    /// The transport over the engine of a fork: it authenticates the same users, and shares the bounds of requests.
    pub(crate) fn beside(&self, engine: Arc<Engine>, place: ForkLine) -> Result<Arc<Transport>, Fault> {
        let cluster = engine.log().identity()?.id.unwrap_or_default();
        let authenticator = self.authenticator.beside(cluster);
        let (authorities, images, speakers) = (self.service.authorities(), self.images.clone(), self.speakers.clone());
        let asked = OutsideParts { authorities, images, speakers };
        let aggregator = aggregator(self.aggregator.beside(engine.clone()), &engine, &authenticator, asked);
        let authenticator = Arc::new(authenticator);
        let revision = engine.snapshot().registry.revision();
        Ok(Arc::new(Transport {
            service: self.service.beside(engine, authenticator.clone()),
            authenticator,
            issuer: self.issuer.clone(),
            features: self.features,
            bodies: self.bodies.clone(),
            answers: self.answers.clone(),
            aggregator,
            trust: self.trust.clone(),
            connections: self.connections.clone(),
            documents: self.documents.beside(revision),
            // A fork is in memory, and its administrators must not write to the disk.
            forker: None,
            components: self.components.clone(),
            images: self.images.clone(),
            speakers: self.speakers.clone(),
            checks: self.checks.clone(),
            live: self.live.clone(),
            place: Some(place),
            manners: self.manners.clone(),
            releases: self.releases,
            git_version: self.git_version.clone(),
            pages: self.pages.clone(),
            tracer: self.tracer.clone(),
            shown_metrics: self.shown_metrics.clone(),
            started: Instant::now(),
            leaving: Default::default(),
            refusing: Default::default(),
            stopping: watch::Sender::new(false),
            closing: watch::Sender::new(false),
            watches_begun: Default::default(),
            requests: Default::default(),
            sockets: Default::default(),
            ready: watch::Sender::new(false),
        }))
    }
}

/// The parts that send requests to other servers.
struct OutsideParts {
    authorities: Option<Arc<dyn Authorities>>,
    images: Option<Arc<dyn Images>>,
    speakers: Speakers,
}

/// Reads the APIServices, and gives the engine the implementation of its outside effects.
fn aggregator(
    aggregator: Aggregator,
    engine: &Arc<Engine>,
    authenticator: &Authenticator,
    OutsideParts { authorities, images, speakers }: OutsideParts,
) -> Arc<Aggregator> {
    let aggregator = Arc::new(aggregator);
    aggregator.prime(engine);
    let webhooks = Webhooks::new(engine, aggregator.outbound(), speakers);
    let tokens = authenticator.service_accounts.clone();
    let outside: Arc<dyn Outside> = Arc::new(Effects { webhooks, tokens, authorities, images });
    engine.all().for_each(|engine| engine.set_outside(outside.clone()));
    aggregator
}

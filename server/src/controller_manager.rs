//! `holdfast controller-manager`: the controllers for any API server.

use crate::controllers::{self, Chosen};
use crate::settled::{self, Settled};
use anyhow::{Result, anyhow};
use async_trait::async_trait;
use holdfast_component::component::{Component, Features, Kind};
use holdfast_component::files::keep_others_out;
use holdfast_component::logging;
use holdfast_component::metrics::Metrics as Shown;
use holdfast_component::options::{ComponentArgs, ElectionSettings, joined};
use holdfast_component::throttle::Rate;
use holdfast_runtime::metrics::Register;
use holdfast_runtime::remote::{Connect, RemoteAct, RemoteFeed};
use holdfast_runtime::{Metrics, Runtime, System};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_world::Actor;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::registry::Metric;
use std::path::PathBuf;
use std::sync::Arc;

const KIND: Kind =
    Kind { name: "kube-controller-manager", version: API_VERSION, secure_port: 10257, tolerates_lookup_failure: false };
/// The default rate of one controller's requests to the API server.
const RATE: Rate = Rate { qps: 20.0, burst: 30 };

#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    controllers: controllers::Args,
    #[command(flatten)]
    component: ComponentArgs,
    // Values are accepted only where nothing depends on them.
    #[command(flatten)]
    _settled: Settled<settled::Component>,
}

impl Args {
    /// All faults of the options that parsing them does not show.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.component.faults();
        faults.extend(self.election().faults("leaderElection"));
        faults
    }

    fn election(&self) -> ElectionSettings {
        let mut settings = ElectionSettings::usual(KIND.name);
        self.component.election.apply(&mut settings);
        settings
    }
}

/// `flags` are the options with their values, as `/flagz` shows them.
pub fn run(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    if let Some(version) = KIND.version_text(&args.component) {
        println!("{version}");
        return Ok(());
    }
    let _log = logging::init(&args.component.logging).map_err(anyhow::Error::msg)?;
    keep_others_out();
    holdfast_chronicle::runtime()?.block_on(start(args, flags))
}

async fn start(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    let (faults, settings) = (args.faults(), args.election());
    let Args { controllers, component: options, .. } = args;
    if !faults.is_empty() {
        return Err(anyhow::Error::msg(joined(&faults)));
    }
    let gates = options.gates.gates().map_err(anyhow::Error::msg)?;
    let chosen = controllers.chosen(&gates)?;
    let kubeconfig = options.client.kubeconfig.clone();
    let rate = Rate {
        qps: options.client.kube_api_qps.unwrap_or(RATE.qps),
        burst: options.client.kube_api_burst.unwrap_or(RATE.burst),
    };
    let profiling = options.debugging.profiling.unwrap_or(true);
    let features = Features { profiling, leader_election: settings.leader_elect };
    let component = Arc::new(Component::new(KIND, options, flags, features)?);
    component.show("kubecontrollermanager.config.k8s.io", controllers.document());
    component.serve(&[]).await?;
    controllers.settled.warn_of_all();
    let patience = controllers.controller_shutdown_timeout;
    let own_credentials = controllers.use_service_account_credentials;
    let place = ManagerApi { component: component.clone(), kubeconfig: kubeconfig.clone(), rate };
    let work = control(place, chosen, own_credentials);
    component.work(&settings, kubeconfig.as_deref(), rate, patience, work).await.map(drop)
}

/// Runs the controllers.
async fn control(place: ManagerApi, chosen: Chosen, own_credentials: bool) -> Result<()> {
    let metrics = Arc::new(Metrics::default());
    metrics.register(&mut Registering(place.component.metrics()));
    let end = place.component.told_to_end();
    let health = place.component.health().clone();
    // Watches and tokens have clients of their own, so they do not share a controller's rate limit.
    let news = place.component.api_to_watch(place.kubeconfig.as_deref(), "/shared-informers", place.rate).await?;
    let root = place.client_of("tokens-controller").await.map_err(|why| anyhow!(why))?;
    let act = Arc::new(RemoteAct::new(Arc::new(place), root, own_credentials));
    let mut runtime = Runtime::new(act, Arc::new(System), metrics);
    let names: Vec<&'static str> = chosen.controllers.iter().map(|controller| controller.name()).collect();
    tracing::info!(?names, "controllers start");
    // Each controller has a health check of its own while it runs.
    names.iter().for_each(|name| health.add(name, &["healthz"], || Ok(())));
    let workers: Vec<usize> = names.iter().map(|name| chosen.workers(name)).collect();
    for (controller, workers) in chosen.controllers.into_iter().zip(workers) {
        let actor = Actor::of(controller.as_ref());
        runtime.add(controller, actor, workers);
    }
    let driver = runtime.driver();
    let feed = RemoteFeed::new(news.client().clone(), driver.resources().cloned().collect(), driver.sight());
    runtime.run_until(feed, end).await;
    Ok(())
}

/// The address of the API server, and the rate of each controller's requests.
pub struct ManagerApi {
    pub component: Arc<Component>,
    pub kubeconfig: Option<PathBuf>,
    pub rate: Rate,
}

impl ManagerApi {
    /// A client with the process's credentials and a user agent of this name.
    pub async fn client_of(&self, name: &str) -> Result<kube::Client, String> {
        self.client(name, None).await
    }
}

#[async_trait]
impl Connect for ManagerApi {
    async fn client(&self, account: &str, token: Option<&str>) -> Result<kube::Client, String> {
        let api = self.component.api_as(self.kubeconfig.as_deref(), &format!("/{account}"), token, self.rate).await;
        Ok(api.map_err(|error| format!("{error:#}"))?.client().clone())
    }
}

/// Registers metrics on the component's `/metrics` page.
pub struct Registering<'a>(pub &'a Shown);

impl Register for Registering<'_> {
    fn register<M: Metric + EncodeMetric + Clone>(&mut self, name: &str, help: &str, metric: M) {
        self.0.register(name, help, metric);
    }
}

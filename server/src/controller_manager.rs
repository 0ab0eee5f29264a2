//! `holdfast controller-manager`: the controllers for any API server.

use crate::component_process::{self, Registering, RemoteServer};
use crate::controllers::{self, Chosen};
use crate::settled::{self, Settled};
use anyhow::Result;
use holdfast_component::component::{Component, ComponentKind};
use holdfast_component::options::{ComponentArgs, ElectionSettings, joined};
use holdfast_runtime::remote::{RemoteAct, RemoteFeed};
use holdfast_runtime::{Metrics, Runtime, WallClock};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_world::Actor;
use std::sync::Arc;

const KIND: ComponentKind = ComponentKind {
    name: "kube-controller-manager",
    version: API_VERSION,
    secure_port: 10257,
    tolerates_lookup_failure: false,
};
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    controllers: controllers::Args,
    #[command(flatten)]
    component: ComponentArgs,
    // Options that have no effect here. A value that would need an effect is refused.
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
    component_process::run(&KIND, &args.component.clone(), start(args, flags))
}

async fn start(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    let (faults, settings) = (args.faults(), args.election());
    let Args { controllers, component: options, .. } = args;
    if !faults.is_empty() {
        return Err(anyhow::Error::msg(joined(&faults)));
    }
    let gates = options.gates.gates().map_err(anyhow::Error::msg)?;
    let chosen = controllers.chosen(&gates)?;
    let (client, features) = (options.client.clone(), component_process::features(&options, &settings));
    let component = Arc::new(Component::new(KIND, options, flags, features)?);
    component.show("kubecontrollermanager.config.k8s.io", controllers.document());
    component.serve(&[]).await?;
    controllers.settled.warn_of_all();
    let patience = controllers.controller_shutdown_timeout;
    let own_credentials = controllers.use_service_account_credentials;
    let server = RemoteServer::new(&component, &client);
    let (kubeconfig, rate) = (server.kubeconfig.clone(), server.rate);
    let work = control(server, chosen, own_credentials);
    component.run_while_leading(&settings, kubeconfig.as_deref(), rate, patience, work).await.map(drop)
}

/// Runs the controllers.
async fn control(server: RemoteServer, chosen: Chosen, own_credentials: bool) -> Result<()> {
    let metrics = Arc::new(Metrics::default());
    metrics.register(&mut Registering(server.component.metrics()));
    let end = server.component.termination_signal();
    let health = server.component.health().clone();
    // Watches and tokens have clients of their own, so they do not share a controller's rate limit.
    let (news, root) = (server.client_to_watch().await?, server.client_of("tokens-controller").await?);
    let act = Arc::new(RemoteAct::new(Arc::new(server), root, own_credentials));
    let mut runtime = Runtime::new(act, Arc::new(WallClock), metrics);
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
    let feed = RemoteFeed::new(news, driver.resources().cloned().collect(), driver.extra_kinds());
    runtime.run_until(feed, end).await;
    Ok(())
}

//! The start of a process that runs one component for any API server, and its clients of that server.

use anyhow::Result;
use async_trait::async_trait;
use holdfast_component::component::{Component, ComponentKind, Features};
use holdfast_component::files::keep_others_out;
use holdfast_component::logging;
use holdfast_component::metrics::Metrics;
use holdfast_component::options::{ClientArgs, ComponentArgs, ElectionSettings};
use holdfast_component::throttle::Rate;
use holdfast_runtime::metrics::Register;
use holdfast_runtime::remote::Connect;
use kube::Client;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::registry::Metric;
use std::path::PathBuf;
use std::sync::Arc;

/// The default rate of one controller's requests to the API server.
const RATE: Rate = Rate { qps: 20.0, burst: 30 };

/// Prints the version if the options ask for it, otherwise runs the component.
pub fn run(kind: &ComponentKind, options: &ComponentArgs, component: impl Future<Output = Result<()>>) -> Result<()> {
    if let Some(version) = kind.version_text(options) {
        println!("{version}");
        return Ok(());
    }
    let _log = logging::init(&options.logging).map_err(anyhow::Error::msg)?;
    keep_others_out();
    holdfast_chronicle::runtime()?.block_on(component)
}

/// The parts of a controller manager's configuration that change its endpoints.
pub fn features(options: &ComponentArgs, election: &ElectionSettings) -> Features {
    Features { profiling: options.debugging.profiling.unwrap_or(true), leader_election: election.leader_elect }
}

/// The API server, and the rate of each controller's requests.
#[derive(Clone)]
pub struct RemoteServer {
    pub component: Arc<Component>,
    pub kubeconfig: Option<PathBuf>,
    pub rate: Rate,
}

impl RemoteServer {
    pub fn new(component: &Arc<Component>, options: &ClientArgs) -> RemoteServer {
        let qps = options.kube_api_qps.unwrap_or(RATE.qps);
        let rate = Rate { qps, burst: options.kube_api_burst.unwrap_or(RATE.burst) };
        RemoteServer { component: component.clone(), kubeconfig: options.kubeconfig.clone(), rate }
    }

    /// A client with the process's credentials and a user agent of this name.
    pub async fn client_of(&self, name: &str) -> Result<Client> {
        self.client(name, None).await.map_err(anyhow::Error::msg)
    }

    /// A client for watches, which do not share a controller's rate limit.
    pub async fn client_to_watch(&self) -> Result<Client> {
        let api = self.component.api_to_watch(self.kubeconfig.as_deref(), "/shared-informers", self.rate).await?;
        Ok(api.client().clone())
    }
}

#[async_trait]
impl Connect for RemoteServer {
    async fn client(&self, account: &str, token: Option<&str>) -> Result<Client, String> {
        let api = self.component.api_as(self.kubeconfig.as_deref(), &format!("/{account}"), token, self.rate).await;
        Ok(api.map_err(|error| format!("{error:#}"))?.client().clone())
    }
}

/// Gives all controllers the same client, so every request has the same credentials.
pub struct OneClient(pub Client);

#[async_trait]
impl Connect for OneClient {
    async fn client(&self, _: &str, _: Option<&str>) -> Result<Client, String> {
        Ok(self.0.clone())
    }
}

/// Registers metrics on the component's `/metrics` page.
pub struct Registering<'a>(pub &'a Metrics);

impl Register for Registering<'_> {
    fn register<M: Metric + EncodeMetric + Clone>(&mut self, name: &str, help: &str, metric: M) {
        self.0.register(name, help, metric);
    }
}

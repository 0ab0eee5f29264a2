//! `holdfast nodes`: simulated nodes for any API server.

use crate::component_process::OneClient;
use crate::components::node_template;
use crate::simulated_kubelets::Listening;
use anyhow::{Context, Result, anyhow};
use holdfast_component::api::Api;
use holdfast_component::{connect, logging};
use holdfast_runtime::remote::{RemoteAct, RemoteFeed};
use holdfast_runtime::{Act, Metrics, Runtime, WallClock};
use holdfast_world::Actor;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// How many keys of one kind are worked on at once.
const WORKERS: usize = 128;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Kubeconfig of the API server.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long)]
    context: Option<String>,
    /// Number of nodes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=i64::from(holdfast_nodes::node::NODES_MAX)))]
    count: u32,
    /// File with the capacity, labels, taints and zones of the nodes; see docs/NODES.md.
    #[arg(long, value_name = "FILE")]
    node_template: Option<PathBuf>,
    /// Address of this machine, at which the API server reaches the nodes for logs, exec and similar requests. Without
    /// this option these requests fail.
    #[arg(long, value_name = "ADDRESS")]
    kubelet_address: Option<IpAddr>,
    /// Port at --kubelet-address, which all nodes share.
    #[arg(long, value_name = "PORT", default_value_t = holdfast_nodes::node::PORT)]
    kubelet_port: u16,
    #[command(flatten)]
    logging: logging::LoggingArgs,
}

pub fn run(args: Args) -> Result<()> {
    let _log = logging::init(&args.logging).map_err(|why| anyhow!(why))?;
    let mut template = args.node_template.as_deref().map_or_else(|| Ok(Default::default()), node_template)?;
    holdfast_chronicle::runtime()?.block_on(async {
        let ApiConnection { client, news, url } = place(&args).await?;
        if let Some(address) = args.kubelet_address {
            let listening = Listening::at(address, args.kubelet_port)?;
            (template.address, template.port) = (Some(address), listening.address()?.port());
            let ready = listening.ready(Api::new(client.clone()), Arc::new(template.clone()))?;
            tokio::spawn(async move {
                if let Err(error) = ready.serve().await {
                    tracing::error!(%error, "simulated nodes do not answer");
                }
            });
        }
        let act = Arc::new(RemoteAct::new(Arc::new(OneClient(client.clone())), client, false));
        let controllers = holdfast_nodes::all(template, args.count);
        let mut runtime = Runtime::new(act.clone(), Arc::new(WallClock), Arc::new(Metrics::default()));
        let mut needed = holdfast_nodes::objects::needed();
        for controller in controllers {
            let actor = Actor::of(controller.as_ref());
            for action in std::mem::take(&mut needed) {
                // The user may lack the right to create these objects. If they exist, that does not matter.
                if act.is_there(&actor, &action.resource, &action.key).await.is_ok_and(|is_there| is_there) {
                    continue;
                }
                match act.act(&actor, &action).await {
                    Err(refusal) if refusal.is_unanswered() => return Err(anyhow!("{url}: {}", refusal.message)),
                    Err(refusal) if !refusal.is("AlreadyExists") => {
                        tracing::warn!("{} {} could not be made: {}", action.resource, action.key, refusal.message);
                    }
                    _ => {}
                }
            }
            runtime.add(controller, actor, WORKERS);
        }
        let driver = runtime.driver();
        let feed = RemoteFeed::new(news, driver.resources().cloned().collect(), driver.extra_kinds());
        println!("simulating {} nodes on {url}: no container runs", args.count);
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            () = runtime.run(feed) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// The clients of the API server, and its address.
struct ApiConnection {
    client: Client,
    /// The client for watches.
    news: Client,
    url: String,
}

async fn place(args: &Args) -> Result<ApiConnection> {
    let file = args.kubeconfig.display();
    let text = std::fs::read_to_string(&args.kubeconfig).with_context(|| format!("--kubeconfig {file}"))?;
    let read = Kubeconfig::from_yaml(&text).with_context(|| format!("--kubeconfig {file}"))?;
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(read, &options);
    let config = config.await.with_context(|| format!("--kubeconfig {file}"))?;
    let url = config.cluster_url.to_string();
    let news = Client::try_from(config.clone()).context("make a client")?;
    Ok(ApiConnection { client: connect::client(config)?, news, url })
}

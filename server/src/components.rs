//! The components in the API server's process, such as controllers and the scheduler: one line each in
//! [`Components::start`].

use crate::apiserver::read;
use crate::clouds::{self, Named};
use crate::controllers;
use crate::inside::{InsideAct, InsideClock, InsideFeed};
use crate::pki::Pki;
use crate::simulated_kubelets::{self, Listening};
use crate::{scheduling, signing, simulated_metrics};
use anyhow::{Context, Result, anyhow};
use futures_util::future::join_all;
use holdfast_cloud::names as cloud_names;
use holdfast_cloud_controller::counted::Counted;
use holdfast_component::gates::Gates;
use holdfast_controllers::Settings;
use holdfast_controllers::names::{Choice, OF_THE_SERVER};
use holdfast_controllers::storage_versions;
use holdfast_controllers::volumes::standard;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::schema::quantity;
use holdfast_nodes::{metrics, objects};
use holdfast_outbound::Insiders;
use holdfast_runtime::{Act, Metrics, Rates, Runtime, rates};
use holdfast_scheduler::Configuration;
use holdfast_service::housekeeping::bootstrap;
use holdfast_transport_http::Transport;
use holdfast_world::{Action, Actor, Controller};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The feature gate of evicting pods whose devices have `NoExecute` taints.
pub(crate) const DEVICE_TAINTS: &str = "DRADeviceTaints";

/// How many keys of one controller and one namespace are worked on at once. It is high because requests within the
/// process do not wait for a network.
const WORKERS: usize = 64;

/// Which components run.
#[derive(clap::Args, Debug, Clone, Default)]
#[group(skip)]
pub struct Args {
    /// Which controllers run: * for all that run by default, NAME for one, -NAME for all but that one. With -* the API
    /// server is alone [default: *].
    #[arg(long, value_delimiter = ',', value_name = "NAMES", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// How many simulated nodes there are: they take pods through their lives, and run no container
    /// [default: 1, or none where no controller runs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(holdfast_nodes::node::NODES_MAX)))]
    pub nodes: Option<u32>,
    /// How many bytes a second controllers, the scheduler and simulated nodes write for one namespace, once they have
    /// written 64Mi: what is more waits, and nothing else does [default: 32Mi].
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    pub controller_bytes_per_second: Option<u64>,
    /// What simulated nodes are like: a file with capacity, labels, taints, zones; see docs/NODES.md.
    #[arg(long, value_name = "FILE")]
    pub node_template: Option<PathBuf>,
}

/// The components of a server, and of each fork of it.
#[derive(Clone)]
pub struct Components {
    controllers: Choice,
    settings: Settings,
    nodes: u32,
    node_template: holdfast_nodes::Template,
    scheduling: Configuration,
    /// The listener of the simulated nodes. The server that starts first takes it; its forks have none.
    listening: Arc<Mutex<Option<Listening>>>,
    /// The cluster's cloud. The server that starts first takes it; its forks are clusters of their own, and would
    /// delete resources in the cloud that they do not know.
    cloud: Arc<Mutex<Option<Named>>>,
    /// How many bytes a second the components may write in one namespace.
    bytes_a_second: u64,
}

/// How long to wait before connecting again to a cloud that does not answer.
const CLOUD_AGAIN: Duration = Duration::from_secs(5);

impl Components {
    /// Reads the options; `default` are the controllers if no option names any. `pki` is the authority of this machine,
    /// `token_key` the key that signs service account tokens.
    pub fn new(
        args: &Args,
        gates: &Gates,
        default: &str,
        pki: &Pki,
        token_key: &Path,
        cloud: Option<Named>,
    ) -> Result<Components> {
        let settings = Settings {
            root_ca: Some(read(&pki.authority)?),
            signers: signing::all_signers(&pki.authority, &pki.authority_key)?,
            account_tokens: Some(signing::token_signer(token_key)?),
            host_path_provisioner: true,
            device_taints: gates.enabled(DEVICE_TAINTS),
            ..Settings::default()
        };
        let entries: Vec<&str> = match args.controllers.is_empty() {
            true => vec![default],
            false => args.controllers.iter().map(String::as_str).collect(),
        };
        let controllers = controllers::choose(entries.into_iter())?;
        let mut built: Vec<_> =
            holdfast_controllers::all(&settings).iter().map(|controller| controller.name()).collect();
        if cloud.is_some() {
            built.extend(cloud_names::ALL.iter().map(|named| named.name));
        }
        controllers::warn_of_absent(&controllers, |name| built.contains(&name) || OF_THE_SERVER.contains(&name));
        let nodes = args.nodes.unwrap_or(u32::from(!controllers.is_nobody()));
        let mut node_template = args.node_template.as_deref().map_or_else(|| Ok(Default::default()), node_template)?;
        let listening = match nodes {
            0 => None,
            _ => Some(Listening::within(&pki.authority, &pki.authority_key, node_template.port)?),
        };
        if let Some(listening) = &listening {
            node_template.port = listening.address()?.port();
        }
        let listening = Arc::new(Mutex::new(listening));
        let mut scheduling = Configuration::default();
        scheduling.take_gates(|name| gates.enabled(name));
        let bytes_a_second = args.controller_bytes_per_second.unwrap_or(rates::BYTES_A_SECOND);
        let cloud = Arc::new(Mutex::new(cloud));
        Ok(Components { controllers, settings, nodes, node_template, scheduling, listening, cloud, bytes_a_second })
    }

    /// No components at all.
    pub fn none() -> Components {
        let controllers = Choice::parse(["-*"]).unwrap_or_else(|why| unreachable!("{why}"));
        let (settings, node_template) = (Settings::default(), Default::default());
        let (scheduling, bytes_a_second) = (Configuration::default(), rates::BYTES_A_SECOND);
        let (listening, cloud) = Default::default();
        Components { controllers, settings, nodes: 0, node_template, scheduling, listening, cloud, bytes_a_second }
    }

    /// Whether each namespace gets its default ServiceAccount, under which pods run.
    pub fn make_accounts(&self) -> bool {
        self.controllers.runs("serviceaccount-controller")
    }

    /// The servers in this process that answer for parts of the API.
    pub fn inside(&self) -> Insiders {
        match self.nodes {
            0 => Insiders::new(),
            _ => simulated_metrics::inside(self.node_template.clone()),
        }
    }

    /// Starts the components beside a server; they end with `tasks`.
    pub fn start(&self, transport: &Arc<Transport>, tasks: &mut JoinSet<()>) {
        let rates = Arc::new(Rates::new(self.bytes_a_second));
        if !self.controllers.is_nobody() {
            transport.service().note_components(&["controller-manager", "scheduler"]);
            tasks.spawn(scheduling::in_process(self.scheduling.clone(), transport.clone(), rates.clone()));
        }
        let controllers = holdfast_controllers::all(&self.settings);
        let chosen = controllers.into_iter().filter(|controller| self.controllers.runs(controller.name()));
        self.answer(transport, tasks);
        let state = transport.service().engine().snapshot();
        let (mut needed, nodes) = match self.nodes {
            0 => (metrics::without(&state).into_iter().collect(), Vec::new()),
            count => {
                let needed = [objects::rights(), objects::needed(), vec![metrics::api_service()]].concat();
                (needed, holdfast_nodes::all(self.node_template.clone(), count))
            }
        };
        if self.controllers.runs("persistentvolume-binder-controller") {
            needed.extend(standard::lacking(&state));
        }
        if self.controllers.runs(storage_versions::NAME) {
            needed.extend(storage_versions::rights());
        }
        let needed = act_all(InsideAct::new(transport), needed);
        let metrics = Arc::new(Metrics::default());
        transport.service().with_registry(|registry| metrics.register(registry));
        if let Some(named) = self.cloud.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tasks.spawn(run_cloud(named, self.cloud_choice(), transport.clone(), metrics.clone()));
        }
        start(transport, tasks, needed, chosen.chain(nodes), (rates, metrics));
    }
}

impl Components {
    /// The cloud controllers to run. Controllers that the controller manager knows, too, follow `--controllers`; the
    /// others run if any controller does.
    fn cloud_choice(&self) -> Choice {
        let is_known = |name: &str| holdfast_controllers::names::ALL.iter().any(|known| known.name == name);
        let runs = |name: &&str| match is_known(name) {
            true => self.controllers.runs(name),
            false => !self.controllers.is_nobody(),
        };
        let names = cloud_names::ALL.iter().map(|named| named.name).filter(runs);
        Choice::parse_of(&cloud_names::ALL, names).unwrap_or_else(|why| unreachable!("{why}"))
    }

    /// Starts the listener through which the nodes serve logs and exec.
    fn answer(&self, transport: &Arc<Transport>, tasks: &mut JoinSet<()>) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(listening) = listening.filter(|_| self.nodes > 0) else { return };
        if let Err(error) = listening.introduce(transport.kubelets().simulated()) {
            tracing::error!(%error, "simulated nodes are not reached");
        }
        let (api, template) = (simulated_kubelets::inside(transport), Arc::new(self.node_template.clone()));
        tasks.spawn(async move {
            if let Err(error) = listening.serve(api, template).await {
                tracing::error!(%error, "simulated nodes do not answer");
            }
        });
    }
}

/// Parses a number of bytes, such as `32Mi`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = quantity::whole(text).and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("{text:?} is no number of bytes, as 1000000 or 64Mi are"))
}

/// Reads the file of `--node-template`.
pub fn node_template(path: &Path) -> Result<holdfast_nodes::Template> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--node-template {}", path.display()))?;
    holdfast_nodes::Template::parse(&text).map_err(|why| anyhow!("--node-template {}: {why}", path.display()))
}

/// Carries out actions: creates what a cluster and its simulated nodes need unless it is there, or deletes it. Actions
/// on different objects run at the same time, so that they share a few fsyncs; actions on one object run in order.
async fn act_all(act: InsideAct, actions: Vec<Action>) {
    let user = Arc::new(User::new(bootstrap::USER, &[PRIVILEGED_GROUP]));
    let actor = Actor { user, field_manager: "kube-apiserver" };
    let is_same = |one: &Action, other: &Action| (&one.resource, &one.key) == (&other.resource, &other.key);
    let each = actions.chunk_by(is_same).map(async |actions| {
        for action in actions {
            if let Err(refusal) = act.act(&actor, action).await
                && !refusal.is("AlreadyExists")
            {
                tracing::warn!("{} {}: {}", action.resource, action.key, refusal.message);
            }
        }
    });
    join_all(each).await;
}

/// Starts controllers that share a world, once `needed` is done: requests of nodes that have no rights yet would be
/// refused, and retried only later.
fn start(
    transport: &Arc<Transport>,
    tasks: &mut JoinSet<()>,
    needed: impl Future<Output = ()> + Send + 'static,
    controllers: impl Iterator<Item = Box<dyn Controller>>,
    (rates, metrics): (Arc<Rates>, Arc<Metrics>),
) {
    let engine = transport.service().engine().clone();
    let act = Arc::new(InsideAct::new(transport));
    let mut runtime = Runtime::new(act, Arc::new(InsideClock(engine.clone())), metrics).rated(rates);
    for controller in controllers {
        let actor = Actor::of(controller.as_ref());
        runtime.add(controller, actor, WORKERS);
    }
    let driver = runtime.driver();
    if driver.is_empty() {
        tasks.spawn(needed);
        return;
    }
    let feed = InsideFeed::new(engine, driver.resources().cloned().collect(), driver.sight());
    tasks.spawn(async move {
        needed.await;
        runtime.run_apart(feed).await;
    });
}

/// Runs the cloud controllers once the cloud answers.
async fn run_cloud(named: Named, choice: Choice, transport: Arc<Transport>, metrics: Arc<Metrics>) {
    let act = Arc::new(InsideAct::new(&transport));
    let user = Arc::new(User::new(bootstrap::USER, &[PRIVILEGED_GROUP]));
    let actor = Actor { user, field_manager: "cloud-controller-manager" };
    let cloud = loop {
        match named.open(act.clone(), actor.clone()).await {
            Ok(cloud) => break cloud,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the cloud is not asked yet"),
        }
        tokio::time::sleep(CLOUD_AGAIN).await;
    };
    let settings = holdfast_cloud::Settings::default();
    let controllers = match clouds::crew(&*cloud, settings, &choice, true, &*act, &actor).await {
        Ok(controllers) => controllers,
        Err(error) => return tracing::error!(error = format!("{error:#}"), "the cloud is not asked"),
    };
    let (service, cloud) = (transport.service(), Arc::new(Counted::new(cloud)));
    service.with_registry(|registry| cloud.register(registry));
    let engine = service.engine().clone();
    let clock = Arc::new(InsideClock(engine.clone()));
    let mut runtime = Runtime::new(act, clock, metrics).with_cloud(cloud);
    for controller in controllers {
        let actor = Actor::of(controller.as_ref());
        runtime.add(controller, actor, WORKERS);
    }
    let driver = runtime.driver();
    let feed = InsideFeed::new(engine, driver.resources().cloned().collect(), driver.sight());
    drop(transport);
    runtime.run_apart(feed).await;
}

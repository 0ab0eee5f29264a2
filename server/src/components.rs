//! The components in the API server's process, such as controllers and the scheduler, each started in
//! [`Components::start`]. If other servers have the same components, they run on one server at a time ([`Elections`]).

use crate::clouds::{self, ChosenCloud};
use crate::controllers;
use crate::elected::{self, Elections};
use crate::files::read;
use crate::inside::{InsideAct, InsideClock, InsideFeed};
use crate::pki::Pki;
use crate::simulated_kubelets::{self, Listening};
use crate::values::parse_bytes;
use crate::{scheduling, signing, simulated_metrics};
use anyhow::{Context, Result, anyhow};
use futures_util::future::join_all;
use holdfast_cloud::names as cloud_names;
use holdfast_cloud_controller::Provider;
use holdfast_cloud_controller::measured_cloud::MeasuredCloud;
use holdfast_component::gates::{Gates, POD_CERTIFICATES};
use holdfast_controllers::Settings;
use holdfast_controllers::names::{Choice, OF_THE_SERVER};
use holdfast_controllers::storage_versions;
use holdfast_controllers::volumes::standard;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_nodes::{metrics, objects};
use holdfast_outbound::InProcessServices;
use holdfast_runtime::{Act, Metrics, Rates, Runtime, rates};
use holdfast_scheduler::Configuration;
use holdfast_service::housekeeping::bootstrap;
use holdfast_transport_http::Transport;
use holdfast_world::{Action, Actor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

/// How many keys of one controller and one namespace are worked on at once. The number is high, because requests within
/// the process do not wait for a network.
const WORKERS: usize = 64;

/// Which components run.
#[derive(clap::Args, Debug, Clone, Default)]
#[group(skip)]
pub struct Args {
    /// Controllers to run: * for all default ones, NAME for one, -NAME to leave one out. With -* the API server runs
    /// alone [default: *].
    #[arg(long, value_delimiter = ',', value_name = "NAMES", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Number of simulated nodes: their pods become ready, fail and end, but no container runs [default: 1, or none if
    /// no controller runs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(holdfast_nodes::node::NODES_MAX)))]
    pub nodes: Option<u32>,
    /// Maximum number of bytes a second that controllers, the scheduler and simulated nodes write for one namespace,
    /// after the first 64Mi, which are written at once. Further writes for this namespace wait, writes for other
    /// namespaces do not [default: 32Mi].
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    pub controller_bytes_per_second: Option<u64>,
    /// File with the capacity, labels, taints and zones of simulated nodes; see docs/NODES.md.
    #[arg(long, value_name = "FILE")]
    pub node_template: Option<PathBuf>,
    #[command(flatten)]
    pub election: elected::Args,
}

/// The components of a server, and of each fork of it.
#[derive(Clone)]
pub struct Components {
    controllers: Choice,
    settings: Settings,
    nodes: u32,
    node_template: holdfast_nodes::Template,
    scheduling: Configuration,
    /// The listener of the simulated nodes. The server that starts first uses it; its forks have none.
    listening: Arc<Mutex<Option<Listening>>>,
    /// The cluster's cloud. The server that starts first uses it. Its forks are separate clusters, and would delete
    /// those resources in the cloud that the forks do not know.
    cloud: Arc<Mutex<Option<ChosenCloud>>>,
    /// How many bytes a second the components may write in one namespace.
    bytes_a_second: u64,
    elections: Elections,
}

/// The server's parts that its controllers and simulated nodes use.
#[derive(Clone)]
struct Host {
    transport: Weak<Transport>,
    rates: Arc<Rates>,
    metrics: Arc<Metrics>,
}

/// How long to wait before connecting again to a cloud that does not answer.
const CLOUD_AGAIN: Duration = Duration::from_secs(5);

impl Components {
    /// Reads the options; `default` are the controllers if no option names any. `pki` has the keys of this machine,
    /// `token_key` is the key that signs service account tokens. `on_etcd`: other servers may have the same components.
    pub fn new(
        args: &Args,
        gates: &Gates,
        default: &str,
        pki: &Pki,
        token_key: &Path,
        cloud: Option<ChosenCloud>,
        on_etcd: bool,
    ) -> Result<Components> {
        let settings = Settings {
            root_ca: Some(read(&pki.authority)?),
            signers: signing::all_signers(&pki.authority, &pki.authority_key)?,
            account_tokens: Some(signing::token_signer(token_key)?),
            host_path_provisioner: true,
            device_taints: gates.enabled(controllers::DEVICE_TAINTS),
            pod_certificates: gates.enabled(POD_CERTIFICATES),
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
        // If the data is in etcd, every server serves requests to the nodes, on any free port of its machine.
        if let Some(listening) = listening.as_ref().filter(|_| !on_etcd) {
            node_template.port = listening.address()?.port();
        }
        let listening = Arc::new(Mutex::new(listening));
        let mut scheduling = Configuration::default();
        scheduling.apply_feature_gates(|name| gates.enabled(name));
        let bytes_a_second = args.controller_bytes_per_second.unwrap_or(rates::BYTES_A_SECOND);
        let (cloud, elections) = (Arc::new(Mutex::new(cloud)), Elections::new(&args.election));
        Ok(Components {
            controllers,
            settings,
            nodes,
            node_template,
            scheduling,
            listening,
            cloud,
            bytes_a_second,
            elections,
        })
    }

    /// No components: the API server runs alone.
    pub fn none() -> Components {
        let controllers = Choice::parse(["-*"]).unwrap_or_else(|why| unreachable!("{why}"));
        let (settings, node_template) = (Settings::default(), Default::default());
        let (scheduling, bytes_a_second) = (Configuration::default(), rates::BYTES_A_SECOND);
        let (listening, cloud) = Default::default();
        Components {
            controllers,
            settings,
            nodes: 0,
            node_template,
            scheduling,
            listening,
            cloud,
            bytes_a_second,
            elections: Elections::new(&elected::Args::default()),
        }
    }

    pub fn elections(&self) -> &Elections {
        &self.elections
    }

    /// Whether each namespace gets its default ServiceAccount, under which pods run.
    pub fn make_accounts(&self) -> bool {
        self.controllers.runs("serviceaccount-controller")
    }

    /// The servers in this process that serve parts of the API.
    pub fn inside(&self) -> InProcessServices {
        match self.nodes {
            0 => InProcessServices::new(),
            _ => simulated_metrics::inside(self.node_template.clone()),
        }
    }

    /// Starts the components beside a server; they end with `tasks`.
    pub fn start(&self, transport: &Arc<Transport>, tasks: &mut JoinSet<()>) {
        let service = transport.service();
        let (rates, metrics) = (Arc::new(Rates::new(self.bytes_a_second)), Arc::new(Metrics::default()));
        service.with_registry(|registry| metrics.register(registry));
        self.elections.register(transport);
        if !self.controllers.is_nobody() {
            service.note_components(&["controller-manager", "scheduler"]);
            let scheduling = scheduling::InProcess::new(self.scheduling.clone(), transport, rates.clone());
            self.elect(transport, tasks, elected::SCHEDULER, move || scheduling.run());
        }
        self.answer(transport, tasks);
        if let Some(named) = self.cloud.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let cloud = CloudWork::new(named, self.cloud_choice(), transport, metrics.clone());
            self.elect(transport, tasks, elected::CLOUD, move || cloud.clone().run());
        }
        let host = Host { transport: Arc::downgrade(transport), rates, metrics };
        let of = |controllers, nodes| {
            let (components, host) = (self.clone(), host.clone());
            move || components.clone().run(controllers, nodes, host.clone())
        };
        if !self.elections.are_held(transport) {
            // Controllers and nodes run together, and share one feed of objects.
            tasks.spawn(of(true, true)());
            return;
        }
        if !self.controllers.is_nobody() {
            self.elect(transport, tasks, elected::CONTROLLERS, of(true, false));
        }
        if self.nodes > 0 {
            self.elect(transport, tasks, elected::NODES, of(false, true));
        }
    }

    fn elect<W: Future<Output = ()> + Send + 'static>(
        &self,
        transport: &Arc<Transport>,
        tasks: &mut JoinSet<()>,
        lease: &'static str,
        work: impl Fn() -> W + Send + 'static,
    ) {
        let (elections, transport) = (self.elections.clone(), transport.clone());
        tasks.spawn(async move { elections.lead(transport, lease, work).await });
    }

    /// Runs the controllers, the simulated nodes, or both. First creates the objects that controllers and nodes need:
    /// otherwise requests of nodes that have no rights yet would be refused, and retried only later.
    async fn run(self, with_controllers: bool, with_nodes: bool, host: Host) {
        let Some(transport) = host.transport.upgrade() else { return };
        let (mut needed, mut crew) = (Vec::new(), Vec::new());
        let engine = transport.service().engine().clone();
        let state = engine.snapshot();
        if with_nodes && self.nodes > 0 {
            needed.extend([objects::rights(), objects::needed(), vec![metrics::api_service()]].concat());
        }
        if with_controllers {
            needed.extend(metrics::without(&state).filter(|_| self.nodes == 0));
            if self.controllers.runs("persistentvolume-binder-controller") {
                needed.extend(standard::lacking(&state));
            }
            if self.controllers.runs(storage_versions::NAME) {
                needed.extend(storage_versions::rights());
            }
            let controllers = holdfast_controllers::all(&self.settings);
            crew.extend(controllers.into_iter().filter(|controller| self.controllers.runs(controller.name())));
        }
        drop(state);
        if with_nodes && self.nodes > 0 {
            crew.extend(holdfast_nodes::all(self.node_template.clone(), self.nodes));
        }
        act_all(InsideAct::new(&transport), needed).await;
        let act = Arc::new(InsideAct::new(&transport));
        // The controllers run until the end, and must not hold a reference that keeps the transport from being dropped.
        drop(transport);
        let mut runtime = Runtime::new(act, Arc::new(InsideClock(engine.clone())), host.metrics).rated(host.rates);
        for controller in crew {
            let actor = Actor::of(controller.as_ref());
            runtime.add(controller, actor, WORKERS);
        }
        let driver = runtime.driver();
        if driver.is_empty() {
            return;
        }
        let feed = InsideFeed::new(engine, driver.resources().cloned().collect(), driver.extra_kinds());
        runtime.run_on_own_thread(feed).await;
    }
}

impl Components {
    /// The cloud controllers to run. Controllers whose names the controller manager also knows follow `--controllers`;
    /// the other cloud controllers run if any controller runs.
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
        let (api, template) = (simulated_kubelets::inside(transport), Arc::new(self.node_template.clone()));
        let ready = match listening.ready(api, template) {
            Ok(ready) => ready,
            Err(error) => return tracing::error!(%error, "simulated nodes are not reached"),
        };
        ready.introduce(transport.kubelets().simulated(), self.node_template.port);
        tasks.spawn(async move {
            if let Err(error) = ready.serve().await {
                tracing::error!(%error, "simulated nodes stopped answering requests for logs and exec");
            }
        });
    }
}

/// Reads the file of `--node-template`.
pub fn node_template(path: &Path) -> Result<holdfast_nodes::Template> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--node-template {}", path.display()))?;
    holdfast_nodes::Template::parse(&text).map_err(|why| anyhow!("--node-template {}: {why}", path.display()))
}

/// Carries out actions, which create the missing objects that a cluster and its simulated nodes need, or delete such
/// objects. Actions on different objects run at the same time, so that they share a few fsyncs; actions on one object
/// run in order.
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

/// The cloud controllers of a server.
#[derive(Clone)]
struct CloudWork {
    named: ChosenCloud,
    choice: Choice,
    transport: Weak<Transport>,
    metrics: Arc<Metrics>,
    /// The cloud; empty until it has answered for the first time.
    cloud: Arc<OnceCell<(Arc<Provider>, Arc<MeasuredCloud>)>>,
}

impl CloudWork {
    fn new(named: ChosenCloud, choice: Choice, transport: &Arc<Transport>, metrics: Arc<Metrics>) -> CloudWork {
        CloudWork { named, choice, transport: Arc::downgrade(transport), metrics, cloud: Arc::default() }
    }

    /// Runs the cloud controllers once the cloud answers.
    async fn run(self) {
        let Some(transport) = self.transport.upgrade() else { return };
        let act = Arc::new(InsideAct::new(&transport));
        let user = Arc::new(User::new(bootstrap::USER, &[PRIVILEGED_GROUP]));
        let actor = Actor { user, field_manager: "cloud-controller-manager" };
        let service = transport.service();
        let open = async || {
            let cloud = loop {
                match self.named.open(act.clone(), actor.clone()).await {
                    Ok(cloud) => break cloud,
                    Err(error) => tracing::warn!(
                        error = format!("{error:#}"),
                        "the cloud cannot be reached yet; it is tried again"
                    ),
                }
                tokio::time::sleep(CLOUD_AGAIN).await;
            };
            let counted = Arc::new(MeasuredCloud::new(cloud.clone()));
            service.with_registry(|registry| counted.register(registry));
            (cloud, counted)
        };
        let (cloud, counted) = self.cloud.get_or_init(open).await;
        let settings = holdfast_cloud::Settings::default();
        let controllers = match clouds::crew(&**cloud, settings, &self.choice, true, &*act, &actor).await {
            Ok(controllers) => controllers,
            Err(error) => {
                return tracing::error!(error = format!("{error:#}"), "the controllers of the cloud do not run");
            }
        };
        let engine = service.engine().clone();
        let clock = Arc::new(InsideClock(engine.clone()));
        let mut runtime = Runtime::new(act, clock, self.metrics.clone()).with_cloud(counted.clone());
        for controller in controllers {
            let actor = Actor::of(controller.as_ref());
            runtime.add(controller, actor, WORKERS);
        }
        let driver = runtime.driver();
        let feed = InsideFeed::new(engine, driver.resources().cloned().collect(), driver.extra_kinds());
        drop(transport);
        runtime.run_on_own_thread(feed).await;
    }
}

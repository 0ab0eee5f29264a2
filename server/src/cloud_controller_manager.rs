//! `holdfast cloud-controller-manager`: the cloud controllers for any API server.

use crate::clouds::{self, ChosenCloud};
use crate::component_process::{self, Registering, RemoteServer};
use crate::leader_migration::Migration;
use crate::settled::{self, Settled};
use anyhow::Result;
use clap::ArgAction;
use futures_util::future::join_all;
use holdfast_cloud::{Settings, names};
use holdfast_cloud_controller::measured_cloud::MeasuredCloud;
use holdfast_component::component::{Component, ComponentKind};
use holdfast_component::options::{ComponentArgs, ElectionSettings, InsecureArgs, joined};
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_controllers::addresses::Range;
use holdfast_controllers::names::Choice;
use holdfast_core::authz::User;
use holdfast_core::object::{decode, duration};
use holdfast_runtime::remote::{RemoteAct, RemoteFeed};
use holdfast_runtime::{Metrics, Runtime, WallClock};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_value::{Value, json};
use holdfast_world::{Actor, Controller};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

const KIND: ComponentKind = ComponentKind {
    name: "cloud-controller-manager",
    version: API_VERSION,
    secure_port: 10258,
    tolerates_lookup_failure: false,
};
const INSECURE_PORT: u16 = 10253;
/// How many nodes whose kubelets no longer report are looked up in the cloud at once.
const LIFECYCLE_WORKERS: usize = 10;

#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// The cloud: simulated, or external for a provider over gRPC; see docs/CLOUDS.md.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME", help_heading = "Cloud")]
    cloud_provider: String,
    /// File that describes the simulated cloud, or has the address of the external provider; configmap:NAMESPACE/NAME
    /// for a ConfigMap with the key cloud.yaml.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", help_heading = "Cloud")]
    cloud_config: String,
    /// Accept a cloud that does not distinguish between clusters.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL", help_heading = "Cloud")]
    allow_untagged_cloud: bool,
    /// Name of the cluster, unique in the cloud.
    #[arg(long, default_value = "kubernetes", value_name = "NAME", help_heading = "Cloud")]
    cluster_name: String,
    /// Whether the controller manager allocates pod CIDRs to nodes; if so, routes are made for these CIDRs.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL", help_heading = "Cloud")]
    allocate_node_cidrs: bool,
    /// IP ranges of all pods: one CIDR, or one of each family. Routes outside of them are not changed.
    #[arg(long, value_delimiter = ',', value_name = "RANGES", help_heading = "Cloud")]
    cluster_cidr: Vec<String>,
    /// Make routes to nodes' pod CIDRs, with --allocate-node-cidrs.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL", help_heading = "Cloud")]
    configure_cloud_routes: bool,
    /// How often the cloud's routes are compared with the nodes.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Cloud")]
    route_reconciliation_period: Duration,
    /// How often to check in the cloud whether the instance of a node that is not ready still exists.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Cloud")]
    node_monitor_period: Duration,
    /// How often the nodes' addresses are read from the cloud.
    #[arg(long, default_value = "5m0s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Cloud")]
    node_status_update_frequency: Duration,
    /// How often every load balancer is configured again; the actual interval is up to twice as long.
    #[arg(long, default_value = "12h0m0s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Cloud")]
    min_resync_period: Duration,
    /// Controllers to run: * for all, NAME for one, -NAME to leave one out.
    #[arg(long, value_delimiter = ',', default_value = "*", value_name = "NAMES", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// How long to wait between starting two controllers.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    controller_start_interval: Duration,
    /// Run each controller with its own service account in kube-system.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    use_service_account_credentials: bool,
    /// How many Services of one namespace are handled at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    concurrent_service_syncs: u32,
    /// How many nodes are handled at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    concurrent_node_syncs: u32,
    /// Use a second lease for controllers that migrate from one controller manager to another.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL", help_heading = "Leader election")]
    enable_leader_migration: bool,
    /// A LeaderMigrationConfiguration: the name of the second lease, and which component runs each controller while it
    /// holds this lease [default: route, service and cloud-node-lifecycle, run by the leader].
    #[arg(long, value_name = "FILE", help_heading = "Leader election")]
    leader_migration_config: Option<PathBuf>,
    #[command(flatten)]
    component: ComponentArgs,
    #[command(flatten)]
    settled: Settled<settled::CloudControllerManager>,
    // Options that have no effect here. A value that would need an effect is refused.
    #[command(flatten)]
    _settled: Settled<settled::Component>,
    #[command(flatten)]
    insecure: InsecureArgs,
}

impl Args {
    /// All faults of the options that parsing them does not show.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.component.faults();
        faults.extend(self.election().faults("leaderElection"));
        faults.extend(ChosenCloud::parse(&self.cloud_provider, &self.cloud_config).err().map(|why| why.to_string()));
        faults.extend(self.choice().err());
        faults.extend(self.migration().err());
        let ranges: Vec<Option<Range>> = self.ranges().map(Range::parse).collect();
        for (text, _) in self.ranges().zip(&ranges).filter(|(_, range)| range.is_none()) {
            faults.push(format!("--cluster-cidr: invalid CIDR address: {text}"));
        }
        match ranges.as_slice() {
            [] | [_] => {}
            [Some(one), Some(other)] if one.is_v6 != other.is_v6 => {}
            _ => faults.push("--cluster-cidr: one range, or one of each family".into()),
        }
        if self.cluster_name.is_empty() {
            faults.push("--cluster-name: cannot be empty".into());
        }
        for (option, period) in [
            ("route-reconciliation-period", self.route_reconciliation_period),
            ("node-monitor-period", self.node_monitor_period),
            ("node-status-update-frequency", self.node_status_update_frequency),
            ("min-resync-period", self.min_resync_period),
        ] {
            if period < Duration::from_millis(10) {
                faults.push(format!("--{option}: must be 10ms or longer"));
            }
        }
        faults
    }

    fn ranges(&self) -> impl Iterator<Item = &str> {
        self.cluster_cidr.iter().map(|range| range.trim()).filter(|range| !range.is_empty())
    }

    fn choice(&self) -> Result<Choice, String> {
        let parsed = Choice::parse_of(&names::ALL, self.controllers.iter().map(String::as_str));
        parsed.map_err(|why| format!("--controllers: {why}"))
    }

    /// The configuration of a leader migration, if it is enabled.
    fn migration(&self) -> Result<Option<Migration>, String> {
        let file = self.leader_migration_config.as_ref();
        if !self.enable_leader_migration {
            return match file {
                Some(_) => Err("--leader-migration-config: --enable-leader-migration must be true".into()),
                None => Ok(None),
            };
        }
        if !self.election().leader_elect {
            return Err("--enable-leader-migration: --leader-elect must be true".into());
        }
        let Some(file) = file else { return Ok(Some(Migration::default())) };
        let named = |why: String| format!("--leader-migration-config={}: {why}", file.display());
        let text = std::fs::read(file).map_err(|error| named(error.to_string()))?;
        let document = decode::yaml(&text).map_err(|error| named(error.to_string()))?;
        Migration::parse(&document.value).map(Some).map_err(|faults| named(faults.join(", ")))
    }

    fn election(&self) -> ElectionSettings {
        let mut settings = ElectionSettings::usual(KIND.name);
        self.component.election.apply(&mut settings);
        settings
    }

    fn settings(&self) -> Settings {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Settings {
            provider: String::new(),
            cluster_name: self.cluster_name.clone(),
            cluster_ranges: self.ranges().map(str::to_owned).collect(),
            allocate_ranges: self.allocate_node_cidrs,
            routes: self.configure_cloud_routes,
            addresses_millis: millis(self.node_status_update_frequency),
            monitor_millis: millis(self.node_monitor_period),
            routes_millis: millis(self.route_reconciliation_period),
            resync_millis: millis(self.min_resync_period),
        }
    }

    fn workers(&self, name: &str) -> usize {
        match name {
            names::SERVICE => self.concurrent_service_syncs as usize,
            names::NODE => self.concurrent_node_syncs as usize,
            names::LIFECYCLE => LIFECYCLE_WORKERS,
            _ => 1,
        }
    }

    /// The configuration for `/configz`.
    fn document(&self) -> Value {
        json!({
            "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            "kind": "CloudControllerManagerConfiguration",
            "Generic": {
                "Controllers": self.controllers,
                "ControllerStartInterval": duration::text_of(self.controller_start_interval),
                "MinResyncPeriod": duration::text_of(self.min_resync_period),
            },
            "KubeCloudShared": {
                "CloudProvider": {"Name": self.cloud_provider, "CloudConfigFile": self.cloud_config},
                "ClusterName": self.cluster_name,
                "ClusterCIDR": self.cluster_cidr.join(","),
                "AllocateNodeCIDRs": self.allocate_node_cidrs,
                "AllowUntaggedCloud": self.allow_untagged_cloud,
                "ConfigureCloudRoutes": self.configure_cloud_routes,
                "NodeMonitorPeriod": duration::text_of(self.node_monitor_period),
                "RouteReconciliationPeriod": duration::text_of(self.route_reconciliation_period),
                "UseServiceAccountCredentials": self.use_service_account_credentials,
            },
            "NodeStatusUpdateFrequency": duration::text_of(self.node_status_update_frequency),
            "NodeController": {"ConcurrentNodeSyncs": self.concurrent_node_syncs},
            "ServiceController": {"ConcurrentServiceSyncs": self.concurrent_service_syncs},
        })
    }
}

/// `flags` are the options with their values, as `/flagz` shows them.
pub fn run(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    component_process::run(&KIND, &args.component.clone(), start(args, flags))
}

async fn start(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    let (faults, settings) = (args.faults(), args.election());
    if !faults.is_empty() {
        return Err(anyhow::Error::msg(joined(&faults)));
    }
    let features = component_process::features(&args.component, &settings);
    let component = Arc::new(Component::new(KIND, args.component.clone(), flags, features)?);
    let server = RemoteServer::new(&component, &args.component.client);
    component.show("cloudcontrollermanager.config.k8s.io", args.document());
    let insecure: Vec<_> = args.insecure.address(INSECURE_PORT).into_iter().collect();
    component.serve(&insecure).await?;
    args.settled.warn();
    let metrics = Arc::new(Metrics::default());
    metrics.register(&mut Registering(component.metrics()));
    let (choice, migration) =
        (args.choice().map_err(anyhow::Error::msg)?, args.migration().map_err(anyhow::Error::msg)?);
    let beside = Beside { args, metrics, cloud: OnceCell::new() };
    let lead = |settings: ElectionSettings, choice: Choice| {
        let (work, server) = (control(server.clone(), &beside, choice), server.clone());
        async move {
            let RemoteServer { component, kubeconfig, rate } = server;
            component.run_while_leading(&settings, kubeconfig.as_deref(), rate, Duration::ZERO, work).await.map(drop)
        }
    };
    let Some(migration) = migration else { return lead(settings, choice).await };
    let only = |runs: &dyn Fn(&str) -> bool| {
        let names = names::ALL.iter().map(|named| named.name).filter(|name| choice.runs(name) && runs(name));
        Choice::parse_of(&names::ALL, names).map_err(anyhow::Error::msg)
    };
    let second = ElectionSettings {
        resource_name: migration.leader.clone(),
        resource_lock: migration.lock.clone(),
        ..settings.clone()
    };
    let (stays, moves) = (only(&|name| migration.stays(name))?, only(&|name| migration.moves(name, KIND.name))?);
    tokio::try_join!(lead(settings, stays), lead(second, moves)).map(drop)
}

/// The state that the controllers of the main lease and of the migration lease share in this process.
struct Beside {
    args: Args,
    metrics: Arc<Metrics>,
    cloud: OnceCell<Arc<MeasuredCloud>>,
}

/// Runs the chosen controllers.
async fn control(server: RemoteServer, beside: &Beside, choice: Choice) -> Result<()> {
    let Beside { args, metrics, cloud } = beside;
    let named = ChosenCloud::parse(&args.cloud_provider, &args.cloud_config)?;
    let (health, component) = (server.component.health().clone(), server.component.clone());
    let (news, root) = (server.client_to_watch().await?, server.client_of("cloud-controller-manager").await?);
    let act = Arc::new(RemoteAct::new(Arc::new(server), root, args.use_service_account_credentials));
    // Requests of this actor have the process's own credentials.
    let own = Actor { user: Arc::new(User::new(KIND.name, &[])), field_manager: KIND.name };
    let open = async || {
        let cloud = Arc::new(MeasuredCloud::new(named.open(act.clone(), own.clone()).await?));
        cloud.register(&mut Registering(component.metrics()));
        anyhow::Ok(cloud)
    };
    let cloud = cloud.get_or_try_init(open).await?;
    let may_be_untagged = args.allow_untagged_cloud;
    let controllers = clouds::crew(&**cloud, args.settings(), &choice, may_be_untagged, &*act, &own).await?;
    let names: Vec<&'static str> = controllers.iter().map(|controller| controller.name()).collect();
    tracing::info!(?names, provider = args.cloud_provider, "controllers start");
    // Each controller has a health check of its own while it runs.
    names.iter().for_each(|name| health.add(name, &["healthz"], || Ok(())));
    // With a start interval each controller is a group of its own, so that the groups can start one after another.
    let groups: Vec<Vec<Box<dyn Controller>>> = match args.controller_start_interval.is_zero() {
        true => vec![controllers],
        false => controllers.into_iter().map(|controller| vec![controller]).collect(),
    };
    let runs = groups.into_iter().zip(0u32..).map(|(group, number)| {
        let mut runtime = Runtime::new(act.clone(), Arc::new(WallClock), metrics.clone()).with_cloud(cloud.clone());
        for controller in group {
            let (actor, workers) = (Actor::of(controller.as_ref()), args.workers(controller.name()));
            runtime.add(controller, actor, workers);
        }
        let driver = runtime.driver();
        let feed = RemoteFeed::new(news.clone(), driver.resources().cloned().collect(), driver.extra_kinds());
        let (end, pause) = (component.termination_signal(), args.controller_start_interval * number);
        async move {
            tokio::time::sleep(pause).await;
            runtime.run_until(feed, end).await;
        }
    });
    join_all(runs).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn faults(options: &[&str]) -> Vec<String> {
        let all = ["holdfast", "--cloud-provider=simulated"];
        match Cli::try_parse_from(all.iter().chain(options)) {
            Ok(cli) => cli.args.faults(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[test]
    fn options_that_cannot_be_are_refused_together() {
        assert_eq!(faults(&[]), Vec::<String>::new());
        assert_eq!(faults(&["--cluster-cidr=10.0.0.0/8,fd00::/48", "--controllers=service,-route"]), [""; 0]);
        let wrong = faults(&[
            "--cloud-provider=openstack",
            "--cluster-cidr=10.0.0.0/8,10.1.0.0/16",
            "--controllers=nodes",
            "--node-monitor-period=0s",
            "--cluster-name=",
        ]);
        assert_eq!(wrong.len(), 5, "{wrong:#?}");
    }

    #[test]
    fn controllers_have_two_names() {
        let runs = |option: &str, name: &str| {
            let cli = Cli::try_parse_from(["holdfast", option]).expect("options");
            cli.args.choice().expect("known").runs(name)
        };
        assert!(runs("--controllers=route", names::ROUTE) && !runs("--controllers=route", names::SERVICE));
        assert!(!runs("--controllers=*,-cloud-node-lifecycle", names::LIFECYCLE));
        assert!(runs("--controllers=cloud-node-controller", names::NODE));
    }
}

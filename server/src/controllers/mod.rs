//! The options of controllers, and the controllers that they choose.

mod node_ranges;

use crate::files::read;
use crate::settled::{ControllerManager, Settled};
use crate::signing;
use anyhow::{Result, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use holdfast_component::gates::{Gates, POD_CERTIFICATES};
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_controllers::Settings;
use holdfast_controllers::names::{Choice, OF_THE_SERVER, UNSUPPORTED};
use holdfast_controllers::settings::{AutoscalingSettings, ServiceSettings};
use holdfast_value::{Value, json};
use holdfast_world::Controller;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the feature gate for taints of devices.
pub const DEVICE_TAINTS: &str = "DRADeviceTaints";

/// The options of `holdfast controller-manager` in addition to the options that every component has.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// Controllers to run: * for all default ones, NAME for one, -NAME to leave one out.
    #[arg(long, value_delimiter = ',', default_value = "*", value_name = "NAMES", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Run each controller with its own service account in kube-system.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub use_service_account_credentials: bool,
    /// Delete objects whose owners are gone. Must have the same value as the API server's option.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    enable_garbage_collector: bool,
    /// CA certificates for the API server, published in every namespace and in the Secrets of service account tokens.
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// Provision volumes for claims whose StorageClass names a provisioner.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    enable_dynamic_provisioning: bool,
    /// Provision volumes as folders on the node; for tests on one node.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    enable_hostpath_provisioner: bool,
    /// How often pending claims are tried again.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "DURATION")]
    pvclaimbinder_sync_period: Duration,
    /// Maximum number of pods that have ended; above it the oldest are deleted; 0 for no limit.
    #[arg(long, default_value_t = 12_500, allow_negative_numbers = true, value_name = "COUNT")]
    terminated_pod_gc_threshold: i64,
    /// How long an unused service account token in a Secret is kept.
    #[arg(long, default_value = "8760h0m0s", value_parser = parse_duration, value_name = "DURATION")]
    legacy_service_account_token_clean_up_period: Duration,
    /// How long a node may fail to report before it counts as unhealthy.
    #[arg(long, default_value = "50s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Nodes")]
    node_monitor_grace_period: Duration,
    /// How long a new node may fail to report before it counts as unhealthy.
    #[arg(long, default_value = "1m0s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Nodes")]
    node_startup_grace_period: Duration,
    /// Number of unhealthy nodes a second whose pods are evicted.
    #[arg(long, default_value_t = 0.1, value_name = "RATE", help_heading = "Nodes")]
    node_eviction_rate: f64,
    /// Number of unhealthy nodes a second whose pods are evicted, in an unhealthy zone.
    #[arg(long, default_value_t = 0.01, value_name = "RATE", help_heading = "Nodes")]
    secondary_node_eviction_rate: f64,
    /// In an unhealthy zone with at most this number of nodes, no pods are evicted.
    #[arg(long, default_value_t = 50, value_name = "COUNT", help_heading = "Nodes")]
    large_cluster_size_threshold: usize,
    /// A zone counts as unhealthy if at least this share of its nodes, from 0 to 1, is unhealthy.
    #[arg(long, default_value_t = 0.55, value_name = "PART", help_heading = "Nodes")]
    unhealthy_zone_threshold: f64,
    #[command(flatten)]
    autoscaling: AutoscalingArgs,
    #[command(flatten)]
    services: ServiceArgs,
    #[command(flatten)]
    ranges: node_ranges::Args,
    /// Keep a volume attached to a node that is not ready as long as the node reports it in use. Without this option
    /// the volume is detached after six minutes.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    disable_force_detach_on_timeout: bool,
    /// Private key that signs service account tokens for Secrets. Without it such Secrets get no token.
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    /// How long controllers may take to finish when the process stops.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    pub controller_shutdown_timeout: Duration,
    #[command(flatten)]
    signing: signing::Args,
    /// Lifetime of signed certificates, unless a request asks for a shorter lifetime.
    #[arg(long, default_value = "8760h0m0s", value_parser = parse_duration, value_name = "DURATION")]
    cluster_signing_duration: Duration,
    #[command(flatten)]
    workers: Workers,
    #[command(flatten)]
    pub settled: Settled<ControllerManager>,
}

/// How HorizontalPodAutoscalers work.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Autoscaling")]
struct AutoscalingArgs {
    /// How often each autoscaler is evaluated.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "DURATION")]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// How far back recommendations are considered before scaling down; the highest recommendation is used.
    #[arg(long, default_value = "5m0s", value_parser = parse_duration, value_name = "DURATION")]
    horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// How far usage may be from its target, as a share, before the number of pods changes.
    #[arg(long, default_value_t = 0.1, value_name = "PART")]
    horizontal_pod_autoscaler_tolerance: f64,
    /// For this long after a pod's start, its CPU usage counts only if it was measured while the pod was ready.
    #[arg(long, default_value = "5m0s", value_parser = parse_duration, value_name = "DURATION")]
    horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// Changes of a pod's readiness within this time after its start count as part of the start.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "DURATION")]
    horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

impl AutoscalingArgs {
    fn settings(&self) -> Result<AutoscalingSettings> {
        let tolerance = self.horizontal_pod_autoscaler_tolerance;
        ensure!(
            tolerance.is_finite() && tolerance >= 0.0,
            "--horizontal-pod-autoscaler-tolerance={tolerance}: it is a part of the target, and no less than 0"
        );
        Ok(AutoscalingSettings {
            period_millis: millis(self.horizontal_pod_autoscaler_sync_period),
            down_window_seconds: seconds(self.horizontal_pod_autoscaler_downscale_stabilization),
            tolerance,
            cpu_start_seconds: seconds(self.horizontal_pod_autoscaler_cpu_initialization_period),
            readiness_seconds: seconds(self.horizontal_pod_autoscaler_initial_readiness_delay),
        })
    }
}

/// How Endpoints and EndpointSlices are written.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Addresses of Services")]
struct ServiceArgs {
    /// Maximum number of endpoints in an EndpointSlice.
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_endpoints_per_slice: u32,
    /// Maximum number of addresses of one subset of Endpoints that are copied into EndpointSlices.
    #[arg(long, default_value_t = 1000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    mirroring_max_endpoints_per_subset: u32,
    /// How long to collect changes of pods before Endpoints are written.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    endpoint_updates_batch_period: Duration,
    /// How long to collect changes of pods before EndpointSlices are written.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    endpointslice_updates_batch_period: Duration,
    /// How long to collect changes of Endpoints before the EndpointSlices that mirror them are written.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    mirroring_endpointslice_updates_batch_period: Duration,
}

impl ServiceArgs {
    fn settings(&self) -> ServiceSettings {
        ServiceSettings {
            endpoints_per_slice: self.max_endpoints_per_slice as usize,
            mirrored_per_subset: self.mirroring_max_endpoints_per_subset as usize,
            endpoints_batch_millis: millis(self.endpoint_updates_batch_period),
            slices_batch_millis: millis(self.endpointslice_updates_batch_period),
            mirrored_batch_millis: millis(self.mirroring_endpointslice_updates_batch_period),
        }
    }
}

/// The number of seconds in a duration, rounded up.
fn seconds(duration: Duration) -> i64 {
    let part = u64::from(duration.subsec_nanos() > 0);
    i64::try_from(duration.as_secs().saturating_add(part)).unwrap_or(i64::MAX)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The controllers that run, with their numbers of workers.
pub struct Chosen {
    pub controllers: Vec<Box<dyn Controller>>,
    workers: BTreeMap<&'static str, usize>,
}

impl Args {
    pub fn settings(&self) -> Result<Settings> {
        for (option, part) in [
            ("node-eviction-rate", self.node_eviction_rate),
            ("secondary-node-eviction-rate", self.secondary_node_eviction_rate),
        ] {
            ensure!(part.is_finite() && part >= 0.0, "--{option}={part}: it is a number of nodes a second");
        }
        let part = self.unhealthy_zone_threshold;
        ensure!((0.0..=1.0).contains(&part), "--unhealthy-zone-threshold={part}: it is a part, from 0 to 1");
        let mut settings = Settings {
            root_ca: self.root_ca_file.as_ref().map(read).transpose()?,
            signers: self.signing.signers()?,
            signing_seconds: seconds(self.cluster_signing_duration),
            account_token_period_seconds: seconds(self.legacy_service_account_token_clean_up_period),
            terminated_pod_threshold: self.terminated_pod_gc_threshold,
            claim_binder_period_seconds: seconds(self.pvclaimbinder_sync_period),
            dynamic_provisioning: self.enable_dynamic_provisioning,
            host_path_provisioner: self.enable_hostpath_provisioner,
            account_tokens: self.service_account_private_key_file.as_deref().map(signing::token_signer).transpose()?,
            force_detach: !self.disable_force_detach_on_timeout,
            services: self.services.settings(),
            autoscaling: self.autoscaling.settings()?,
            ..Settings::default()
        };
        self.ranges.apply(&mut settings)?;
        let nodes = &mut settings.nodes;
        nodes.monitor_grace_seconds = seconds(self.node_monitor_grace_period);
        nodes.startup_grace_seconds = seconds(self.node_startup_grace_period);
        nodes.eviction_rate = self.node_eviction_rate;
        nodes.secondary_eviction_rate = self.secondary_node_eviction_rate;
        nodes.large_cluster = self.large_cluster_size_threshold;
        nodes.unhealthy_zone = self.unhealthy_zone_threshold;
        Ok(settings)
    }

    /// Makes the controllers that `--controllers` chooses.
    pub fn chosen(&self, gates: &Gates) -> Result<Chosen> {
        let settings = Settings {
            device_taints: gates.enabled(DEVICE_TAINTS),
            pod_certificates: gates.enabled(POD_CERTIFICATES),
            ..self.settings()?
        };
        let choice = choose(self.controllers.iter().map(String::as_str))?;
        let collects = |name: &str| self.enable_garbage_collector || name != "garbage-collector-controller";
        let controllers: Vec<Box<dyn Controller>> = holdfast_controllers::all(&settings)
            .into_iter()
            .filter(|controller| choice.runs(controller.name()) && collects(controller.name()))
            .collect();
        let is_there = |name: &str| controllers.iter().any(|controller| controller.name() == name);
        warn_of_absent(&choice, is_there);
        Ok(Chosen { controllers, workers: self.workers.0.clone() })
    }

    /// The configuration for `/configz`.
    pub fn document(&self) -> Value {
        json!({
            "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
            "kind": "KubeControllerManagerConfiguration",
            "Generic": {"Controllers": self.controllers},
            "GarbageCollectorController": {"EnableGarbageCollector": self.enable_garbage_collector},
            "KubeCloudShared": {"UseServiceAccountCredentials": self.use_service_account_credentials},
        })
    }
}

impl Chosen {
    /// How many keys of a controller are worked on at once.
    pub fn workers(&self, name: &str) -> usize {
        self.workers.get(name).copied().unwrap_or(1)
    }
}

/// Parses `--controllers`. Accepts every controller name of Kubernetes, even if there is no such controller here.
pub fn choose<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Choice> {
    Choice::parse(entries).map_err(|why| anyhow!("--controllers: {why}"))
}

/// Warns of controllers that were named and do not start.
pub fn warn_of_absent(choice: &Choice, is_there: impl Fn(&str) -> bool) {
    for name in choice.named().filter(|name| !is_there(name)) {
        tracing::warn!("{name} does not start: {}", why_not(name));
    }
}

/// Why a named controller does not start.
fn why_not(name: &str) -> &'static str {
    if OF_THE_SERVER.contains(&name) {
        return "an API server of Holdfast does its work itself";
    }
    let left_out = UNSUPPORTED.iter().find(|(left, _)| *left == name);
    left_out.map_or("an option that it needs is missing", |(_, why)| why)
}

/// How many keys of one namespace each controller works on at once.
#[derive(Debug, Clone)]
struct Workers(BTreeMap<&'static str, usize>);

/// Each option with its controller and its default.
const WORKERS: &[(&str, &str, usize)] = &[
    ("concurrent-cron-job-syncs", "cronjob-controller", 5),
    ("concurrent-daemonset-syncs", "daemonset-controller", 2),
    ("concurrent-deployment-syncs", "deployment-controller", 5),
    ("concurrent-device-taint-eviction-syncs", "device-taint-eviction-controller", 8),
    ("concurrent-endpoint-syncs", "endpoints-controller", 5),
    ("concurrent-ephemeralvolume-syncs", "ephemeral-volume-controller", 5),
    ("concurrent-gc-syncs", "garbage-collector-controller", 20),
    ("concurrent-horizontal-pod-autoscaler-syncs", "horizontal-pod-autoscaler-controller", 5),
    ("concurrent-job-syncs", "job-controller", 5),
    ("concurrent-rc-syncs", "replicationcontroller-controller", 5),
    ("concurrent-replicaset-syncs", "replicaset-controller", 5),
    ("concurrent-resource-quota-syncs", "resourcequota-controller", 5),
    ("concurrent-resourceclaim-syncs", "resourceclaim-controller", 50),
    ("concurrent-service-endpoint-syncs", "endpointslice-controller", 5),
    ("concurrent-serviceaccount-token-syncs", "serviceaccount-token-controller", 5),
    ("concurrent-statefulset-syncs", "statefulset-controller", 5),
    ("concurrent-ttl-after-finished-syncs", "ttl-after-finished-controller", 5),
    ("concurrent-validating-admission-policy-status-syncs", "validatingadmissionpolicy-status-controller", 5),
    ("mirroring-concurrent-service-endpoint-syncs", "endpointslice-mirroring-controller", 5),
];

impl clap::FromArgMatches for Workers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Workers, clap::Error> {
        let workers = WORKERS.iter().map(|(option, name, default)| {
            let given = matches.get_one::<u32>(option).map(|given| *given as usize);
            (*name, given.unwrap_or(*default))
        });
        Ok(Workers(workers.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Workers::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Workers {
    fn augment_args(command: Command) -> Command {
        WORKERS.iter().fold(command, |command, (option, name, default)| {
            let parser = clap::value_parser!(u32).range(1..=10_000);
            let help =
                format!("How many objects of the same namespace are handled at once by {name} [default: {default}]");
            let arg = Arg::new(*option).long(*option).value_parser(parser).help(help);
            command.arg(arg.value_name("COUNT").help_heading("Workers"))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        controllers: Args,
    }

    fn chosen(options: &[&str]) -> Result<Vec<String>, String> {
        let cli = Cli::try_parse_from(["holdfast"].iter().chain(options)).map_err(|error| error.to_string())?;
        let chosen = cli.controllers.chosen(&Gates::default()).map_err(|error| error.to_string())?;
        Ok(chosen.controllers.iter().map(|controller| controller.name().to_owned()).collect())
    }

    #[test]
    fn every_option_of_workers_is_of_a_controller_that_runs_here() {
        let absent: Vec<&str> = OF_THE_SERVER.into_iter().chain(UNSUPPORTED.map(|(name, _)| name)).collect();
        for (option, name, _) in WORKERS {
            assert!(!absent.contains(name), "{option} has no effect: tell it in settled.rs");
        }
    }

    #[test]
    fn controllers_are_chosen_by_their_names_old_and_new() {
        assert_eq!(chosen(&["--controllers=job,garbagecollector"]).expect("known").len(), 2);
        assert_eq!(
            chosen(&["--controllers=gc"]).expect_err("unknown"),
            "--controllers: \"gc\" is not in the list of known controllers"
        );
        assert!(
            !chosen(&["--enable-garbage-collector=false"])
                .expect("known")
                .contains(&"garbage-collector-controller".to_owned())
        );
        let asked = chosen(&["--controllers=selinux-warning-controller,storage-version-gc"]).expect("built");
        assert_eq!(asked.len(), 2);
        let all = chosen(&["--controllers=*"]).expect("known");
        for name in ["storage-version-migrator-controller", "nodeipam", "namespace", "service-lb-controller"] {
            let more = chosen(&[&format!("--controllers=*,{name}")]).expect("a name that Kubernetes has");
            assert_eq!(more, all, "{name} does not start");
        }
        assert_eq!(why_not("namespace-controller"), "an API server of Holdfast does its work itself");
        assert_eq!(why_not("node-route-controller"), "it is a cloud controller manager's");
        assert_eq!(why_not("node-ipam-controller"), "an option that it needs is missing");
    }

    #[test]
    fn options_come_to_settings() {
        let settings = |options: &[&str]| {
            let cli = Cli::try_parse_from(["holdfast"].iter().chain(options)).map_err(|error| error.to_string())?;
            cli.controllers.settings().map_err(|error| error.to_string())
        };
        let read = settings(&[
            "--horizontal-pod-autoscaler-sync-period=500ms",
            "--horizontal-pod-autoscaler-downscale-stabilization=1500ms",
            "--horizontal-pod-autoscaler-tolerance=0.2",
            "--max-endpoints-per-slice=7",
            "--endpoint-updates-batch-period=2s",
            "--disable-force-detach-on-timeout",
        ])
        .expect("settings");
        assert_eq!((read.autoscaling.period_millis, read.autoscaling.down_window_seconds), (500, 2));
        assert_eq!((read.services.endpoints_per_slice, read.services.endpoints_batch_millis), (7, 2000));
        assert!(!read.force_detach && (read.autoscaling.tolerance - 0.2).abs() < 1e-9);
        let usual = settings(&[]).expect("defaults");
        let expected = Settings::default();
        assert_eq!(format!("{usual:?}"), format!("{expected:?}"), "the options' defaults are those of the settings");
        for (option, why) in [
            ("--horizontal-pod-autoscaler-tolerance=-1", "no less than 0"),
            ("--horizontal-pod-autoscaler-tolerance=NaN", "no less than 0"),
            ("--max-endpoints-per-slice=1001", "1001"),
            ("--mirroring-max-endpoints-per-subset=0", "0"),
            ("--endpoint-updates-batch-period=5", "missing unit"),
            ("--service-account-private-key-file=/none", "/none"),
        ] {
            let refused = settings(&[option]).expect_err(option);
            assert!(refused.contains(why), "{option}: {refused}");
        }
    }

    #[test]
    fn workers_are_counted_by_controller() {
        let workers = |options: &[&str], name: &str| {
            let cli = Cli::try_parse_from(["holdfast"].iter().chain(options)).expect("options");
            cli.controllers.chosen(&Gates::default()).expect("controllers").workers(name)
        };
        assert_eq!(workers(&[], "deployment-controller"), 5);
        assert_eq!(workers(&["--concurrent-deployment-syncs=9"], "deployment-controller"), 9);
        assert_eq!(workers(&["--concurrent-rc-syncs=3"], "replicationcontroller-controller"), 3);
        assert_eq!(workers(&[], "node-ttl-controller"), 1);
        assert!(Cli::try_parse_from(["holdfast", "--concurrent-gc-syncs=0"]).is_err());
    }
}

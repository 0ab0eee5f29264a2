//! `holdfast scheduler`: its options, its configuration from options and a file, and its work while it leads.

use crate::component_process::{self, OneClient};
use crate::settled::{self, Settled};
use anyhow::{Context, Result, bail};
use holdfast_component::api::Api;
use holdfast_component::component::{Component, ComponentKind, Features};
use holdfast_component::election::Terms;
use holdfast_component::election::run::host;
use holdfast_component::files::{Readers, WriteMode};
use holdfast_component::options::{ComponentArgs, ElectionSettings, InsecureArgs, joined};
use holdfast_component::serving::paths::PageResponse;
use holdfast_component::throttle::Rate;
use holdfast_component::values::parse_duration;
use holdfast_core::wire::yaml::yaml;
use holdfast_runtime::remote::{RemoteAct, RemoteFeed};
use holdfast_runtime::scheduling::metrics::Metrics;
use holdfast_runtime::scheduling::pod_resources::{CONTENT_TYPE, PodResources};
use holdfast_runtime::scheduling::{SchedulerSetup, resources, run as run_scheduler};
use holdfast_scheduler::Configuration;
use holdfast_scheduler::configuration::{LeaderElection, PolicySource};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_world::ExtraKinds;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

/// The suffix of the user agent for all requests except the requests of the leader election.
const AGENT: &str = "/scheduler";
/// The key under which a ConfigMap contains a Policy.
const POLICY_KEY: &str = "policy.cfg";
const INSECURE_PORT: u16 = 10251;
/// The gate of coordinated leader election, in which the API server, not the candidates, chooses the leader. The gate
/// must stay off.
const COORDINATED: &str = "CoordinatedLeaderElection";

const KIND: ComponentKind =
    ComponentKind { name: "kube-scheduler", version: API_VERSION, secure_port: 10259, tolerates_lookup_failure: true };

#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Args {
    /// Configuration file: a KubeSchedulerConfiguration of any version. Options on the command line override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the resulting configuration, complete and in version v1, to this file, and exit.
    #[arg(long, value_name = "OUTPUT")]
    write_config_to: Option<PathBuf>,
    /// Deprecated: use the plug-ins of this algorithm provider of old releases: DefaultProvider or
    /// ClusterAutoscalerProvider.
    #[arg(long, value_name = "NAME", help_heading = "Algorithm")]
    algorithm_provider: Option<String>,
    /// Deprecated: file with a Policy, in JSON or YAML; used if no ConfigMap is named.
    #[arg(long, value_name = "FILE", help_heading = "Algorithm")]
    policy_config_file: Option<PathBuf>,
    /// Deprecated: name of a ConfigMap with a Policy under the key policy.cfg.
    #[arg(long, value_name = "NAME", help_heading = "Algorithm")]
    policy_configmap: Option<String>,
    /// Deprecated: namespace of the ConfigMap in --policy-configmap.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", help_heading = "Algorithm")]
    policy_configmap_namespace: String,
    /// Deprecated: read the Policy from its file even if a ConfigMap is named.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = holdfast_component::values::parse_bool, value_name = "BOOL", help_heading = "Algorithm")]
    use_legacy_policy_config: bool,
    /// Deprecated: score (0 to 100) that a node gets for each running pod whose required affinity matches the pod to be
    /// scheduled.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, help_heading = "Algorithm")]
    hard_pod_affinity_symmetric_weight: Option<i64>,
    /// Deprecated: the scheduler name in pods that this scheduler handles.
    #[arg(long, value_name = "NAME", help_heading = "Algorithm")]
    scheduler_name: Option<String>,
    /// Deprecated: how long an unschedulable pod waits before it is tried again even if nothing changed.
    #[arg(long, default_value = "5m0s", value_parser = parse_duration, value_name = "DURATION", help_heading = "Algorithm")]
    pod_max_in_unschedulable_pods_duration: Duration,
    /// Deprecated: the same as --leader-elect-resource-name.
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    lock_object_name: Option<String>,
    /// Deprecated: the same as --leader-elect-resource-namespace.
    #[arg(long, value_name = "NAMESPACE", help_heading = "Leader election")]
    lock_object_namespace: Option<String>,
    #[command(flatten)]
    component: ComponentArgs,
    // Options that have no effect here. A value that would need an effect is refused.
    #[command(flatten)]
    _settled: Settled<settled::Component>,
    #[command(flatten)]
    insecure: InsecureArgs,
}

impl Args {
    /// All faults of the options that parsing them does not show.
    pub fn faults(&self) -> Vec<String> {
        configure(self).err().unwrap_or_default()
    }
}

/// `flags` are the options with their values, as `/flagz` shows them.
pub fn run(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    component_process::run(&KIND, &args.component.clone(), start(args, flags))
}

async fn start(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    let mut configuration = configure(&args).map_err(|faults| anyhow::Error::msg(joined(&faults)))?;
    for why in &configuration.ignored_fields {
        tracing::warn!(why, "the configuration has unknown fields, which are ignored");
    }
    // From this call on the process catches SIGUSR2, so that the signal does not end it.
    let dump = dumps()?;
    let leader_election = configuration.leader_election.leader_elect;
    let features = Features { profiling: configuration.enable_profiling, leader_election };
    let component = Component::new(KIND, args.component.clone(), flags, features)?;
    let client = &configuration.client_connection;
    let rate = Rate { qps: client.qps, burst: client.burst };
    let kubeconfig = Some(PathBuf::from(&client.kubeconfig)).filter(|file| !file.as_os_str().is_empty());
    if let Some(PolicySource::ConfigMap { namespace, name }) = configuration.policy.take() {
        let api = component.api_as(kubeconfig.as_deref(), AGENT, None, rate).await?;
        let text = policy_of(&api, &namespace, &name).await?;
        configuration.apply_policy(&text).map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            anyhow::Error::msg(joined(&faults)).context(format!("ConfigMap {namespace}/{name}"))
        })?;
    }
    if let Some(file) = &args.write_config_to {
        WriteMode::Synced.file(file, &yaml(&configuration.document()), Readers::Owner)?;
        for field in configuration.unwritten() {
            tracing::warn!(field, "version v1 has no such field: it takes effect here, and is not written");
        }
        tracing::info!(file = %file.display(), "wrote configuration");
        return Ok(());
    }
    component.show("componentconfig", configuration.document());
    component.serve(&insecure_places(&args, &configuration)).await?;
    let settings = election(&configuration.leader_election);
    let api = component.api_as(kubeconfig.as_deref(), AGENT, None, rate).await?;
    let news = component.api_to_watch(kubeconfig.as_deref(), "/shared-informers", rate).await?;
    let work = work(configuration, &component, api.client().clone(), news.client().clone(), dump);
    component.run_while_leading(&settings, kubeconfig.as_deref(), rate, Duration::ZERO, work).await.map(drop)
}

/// The notification of each SIGUSR2, which asks for a dump of the scheduler's state.
fn dumps() -> Result<Arc<Notify>> {
    let (mut asked, dump) = (signal(SignalKind::user_defined2())?, Arc::new(Notify::new()));
    let told = dump.clone();
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            told.notify_one();
        }
    });
    Ok(dump)
}

/// The work of a scheduler. The scheduler follows the cluster from the start, or, if the configuration delays this,
/// only once it leads. It schedules pods while the future is polled.
fn work(
    configuration: Configuration,
    component: &Component,
    client: kube::Client,
    news: kube::Client,
    dump: Arc<Notify>,
) -> impl Future<Output = Result<()>> + use<> {
    let synced = Arc::new(AtomicBool::new(false));
    let seen = synced.clone();
    component.health().add("sched-handler-sync", &["readyz"], move || match seen.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("handlers are not fully synchronized".into()),
    });
    let metrics = Arc::new(Metrics::default());
    component.metrics().with_registry(|registry| metrics.register(registry));
    let (lead, leads) = watch::channel(false);
    let pod_resources = Arc::new(PodResources::default());
    show_resources(component, pod_resources.clone(), leads.clone());
    let waits = configuration.delay_cache_until_active && configuration.leader_election.leader_elect;
    let begin = move || {
        let act = Arc::new(RemoteAct::new(Arc::new(OneClient(client.clone())), client, false));
        let feed = RemoteFeed::new(news, resources(), ExtraKinds::None);
        let (configuration, pod_resources) = (Arc::new(configuration), Some(pod_resources));
        let (host, request_runtime) = (host(), Handle::current());
        let work =
            SchedulerSetup { configuration, act, metrics, leads, synced, host, dump, request_runtime, pod_resources };
        tokio::spawn(run_scheduler(work, feed))
    };
    let mut begin = Some(begin);
    let mut running = if waits { None } else { begin.take().map(|begin| begin()) };
    async move {
        if let Some(begin) = begin {
            running = Some(begin());
        }
        lead.send_replace(true);
        match running {
            Some(running) => running.await.context("the scheduler has ended"),
            None => Ok(()),
        }
    }
}

/// Serves the metrics of pods' resource requests; the text is empty unless this process leads.
fn show_resources(component: &Component, resources: Arc<PodResources>, leads: watch::Receiver<bool>) {
    let page = move || {
        let text = if *leads.borrow() { resources.render() } else { String::new() };
        PageResponse { code: http::StatusCode::OK, content_type: CONTENT_TYPE, text }
    };
    component.page("/metrics/resources", Arc::new(page));
}

/// The configuration from file and options, or all its faults.
fn configure(args: &Args) -> Result<Configuration, Vec<String>> {
    let mut faults = args.component.faults();
    let mut configuration = match read_file(args) {
        Ok(configuration) => configuration,
        Err(wrong) => {
            faults.extend(wrong);
            Configuration::default()
        }
    };
    // The option is applied before a Policy, which may override the weight.
    match args.hard_pod_affinity_symmetric_weight {
        Some(weight @ 0..=100) => configuration.set_hard_pod_affinity_weight(weight),
        Some(weight) => {
            faults.push(format!("hardPodAffinitySymmetricWeight: Invalid value: {weight}: not in valid range [0-100]"))
        }
        None => {}
    }
    faults.extend(take_algorithm(args, &mut configuration));
    faults.extend(take_options(args, &mut configuration));
    if let Ok(gates) = args.component.gates.gates() {
        configuration.apply_feature_gates(|name| gates.enabled(name));
        if gates.enabled(COORDINATED) {
            faults.push(format!("cannot set feature gate {COORDINATED} to true: the scheduler takes its lease itself"));
        }
    }
    if faults.is_empty() { Ok(configuration) } else { Err(faults) }
}

fn read_file(args: &Args) -> Result<Configuration, Vec<String>> {
    let Some(file) = &args.config else { return Ok(Configuration::default()) };
    let text = std::fs::read_to_string(file).map_err(|error| vec![format!("--config={}: {error}", file.display())])?;
    Configuration::read(&text).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

/// Applies the legacy algorithm that options or the file name: a Policy or an algorithm provider.
fn take_algorithm(args: &Args, configuration: &mut Configuration) -> Vec<String> {
    let file = args.policy_config_file.as_ref();
    let map = args.policy_configmap.as_ref().filter(|name| !name.is_empty());
    if args.use_legacy_policy_config && file.is_none() {
        return vec!["policyConfigFile: Required value: required when --use-legacy-policy-config is true".into()];
    }
    if let Some(file) = file.filter(|_| args.use_legacy_policy_config || map.is_none()) {
        configuration.policy = Some(PolicySource::File(file.display().to_string()));
    } else if let Some(name) = map {
        let namespace = args.policy_configmap_namespace.clone();
        configuration.policy = Some(PolicySource::ConfigMap { namespace, name: name.clone() });
    } else if let Some(provider) = &args.algorithm_provider
        && let Err(fault) = configuration.apply_provider(provider)
    {
        return vec![fault.to_string()];
    }
    let Some(PolicySource::File(file)) = configuration.policy.clone() else { return Vec::new() };
    configuration.policy = None;
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => return vec![format!("missing policy config file {file}: {error}")],
    };
    let taken = configuration.apply_policy(&text);
    taken.err().into_iter().flatten().map(|fault| format!("{file}: {fault}")).collect()
}

/// Overrides the file's values by options; returns the faults.
fn take_options(args: &Args, configuration: &mut Configuration) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(name) = &args.scheduler_name {
        configuration.rename(name);
    }
    configuration.pod_max_in_unschedulable_seconds = args.pod_max_in_unschedulable_pods_duration.as_secs_f64();
    let ComponentArgs { client, debugging, election: asked, .. } = &args.component;
    let connection = &mut configuration.client_connection;
    if let Some(file) = &client.kubeconfig {
        connection.kubeconfig = file.display().to_string();
    }
    connection.qps = client.kube_api_qps.unwrap_or(connection.qps);
    connection.burst = client.kube_api_burst.unwrap_or(connection.burst);
    if let Some(content_type) = &client.kube_api_content_type {
        connection.content_type.clone_from(content_type);
    }
    if connection.burst < 0 {
        faults.push(format!("clientConnection.burst: Invalid value: {}: must be non-negative", connection.burst));
    }
    configuration.enable_profiling = debugging.profiling.unwrap_or(configuration.enable_profiling);
    configuration.enable_contention_profiling =
        debugging.contention_profiling.unwrap_or(configuration.enable_contention_profiling);
    let mut settings = election(&configuration.leader_election);
    for (from, to) in [
        (&args.lock_object_name, &mut settings.resource_name),
        (&args.lock_object_namespace, &mut settings.resource_namespace),
    ] {
        if let Some(from) = from {
            to.clone_from(from);
        }
    }
    asked.apply(&mut settings);
    faults.extend(settings.faults("leaderElection"));
    configuration.leader_election = LeaderElection {
        leader_elect: settings.leader_elect,
        lease_duration_seconds: settings.terms.lease.as_secs_f64(),
        renew_deadline_seconds: settings.terms.renew.as_secs_f64(),
        retry_period_seconds: settings.terms.retry.as_secs_f64(),
        resource_lock: settings.resource_lock,
        resource_name: settings.resource_name,
        resource_namespace: settings.resource_namespace,
    };
    faults
}

fn election(election: &LeaderElection) -> ElectionSettings {
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    ElectionSettings {
        leader_elect: election.leader_elect,
        terms: Terms {
            lease: duration(election.lease_duration_seconds),
            renew: duration(election.renew_deadline_seconds),
            retry: duration(election.retry_period_seconds),
        },
        resource_lock: election.resource_lock.clone(),
        resource_name: election.resource_name.clone(),
        resource_namespace: election.resource_namespace.clone(),
    }
}

/// Where to serve without TLS, from the options or from a configuration file of an old version. Such a file may name
/// one address for health and another for metrics; each address serves both.
fn insecure_places(args: &Args, configuration: &Configuration) -> Vec<(IpAddr, u16)> {
    if args.insecure.port.is_some() || args.insecure.address.is_some() {
        return args.insecure.address(INSECURE_PORT).into_iter().collect();
    }
    let place = |text: &str| -> Option<(IpAddr, u16)> {
        let place: SocketAddr = match text.strip_prefix(':') {
            Some(port) => (Ipv4Addr::UNSPECIFIED, port.parse().ok()?).into(),
            None => text.parse().ok()?,
        };
        Some((place.ip(), place.port())).filter(|(_, port)| *port != 0)
    };
    let (health, metrics) = (&configuration.healthz_bind_address, &configuration.metrics_bind_address);
    let mut places: Vec<_> = [health, metrics].into_iter().flatten().filter_map(|text| place(text)).collect();
    places.dedup();
    places
}

async fn policy_of(api: &Api, namespace: &str, name: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let map = api.get(&path).await.with_context(|| format!("couldn't get policy config map {namespace}/{name}"))?;
    match map["data"][POLICY_KEY].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => bail!("missing policy config map value at key {POLICY_KEY:?}"),
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
        scheduler: Args,
    }

    fn outcome(options: &[&str]) -> Result<Configuration, String> {
        let cli = Cli::try_parse_from(["holdfast"].iter().chain(options)).map_err(|error| error.to_string())?;
        configure(&cli.scheduler).map_err(|faults| joined(&faults))
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it is written");
        file
    }

    fn option(name: &str, file: &tempfile::NamedTempFile) -> String {
        format!("--{name}={}", file.path().display())
    }

    #[test]
    fn options_overrule_the_file() {
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 3\n\
                    clientConnection: {qps: 7, kubeconfig: /k}\nleaderElection: {resourceName: file, leaseDuration: 20s}\n\
                    enableProfiling: false";
        let config = file(text);
        let config = option("config", &config);
        let plain = outcome(&[&config]).unwrap();
        assert_eq!((plain.parallelism, plain.client_connection.qps, plain.enable_profiling), (3, 7.0, false));
        assert_eq!(plain.leader_election.resource_name, "file");
        let given = outcome(&[
            &config,
            "--kube-api-qps=9",
            "--lock-object-name=lock",
            "--profiling",
            "--leader-elect-lease-duration=30s",
            "--hard-pod-affinity-symmetric-weight=4",
            "--scheduler-name=mine",
        ])
        .unwrap();
        assert_eq!((given.client_connection.qps, given.enable_profiling), (9.0, true));
        assert_eq!(given.client_connection.kubeconfig, "/k");
        assert_eq!(
            (given.leader_election.resource_name.as_str(), given.leader_election.lease_duration_seconds),
            ("lock", 30.0)
        );
        assert_eq!(&*given.profiles[0].scheduler_name, "mine");
        let both = outcome(&["--lock-object-name=lock", "--leader-elect-resource-name=lease"]).unwrap();
        assert_eq!(both.leader_election.resource_name, "lease", "the newer option counts");
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let config = file(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 0\nfoo: 1",
        );
        let told = outcome(&[
            &option("config", &config),
            "--hard-pod-affinity-symmetric-weight=101",
            "--leader-elect-lease-duration=1s",
            "--requestheader-allowed-names=",
            "--kube-api-burst=-1",
            "--feature-gates=CoordinatedLeaderElection=true",
        ]);
        let told = told.expect_err("it is wrong");
        for part in [
            "parallelism: Invalid value: 0: should be an integer value greater than zero",
            "strict decoding error: unknown field \"foo\"",
            "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]",
            "leaderElection.leaseDuration: Invalid value: \"1s\": LeaseDuration must be greater than RenewDeadline",
            "empty value in \"requestheader-allowed-names\"",
            "cannot set feature gate CoordinatedLeaderElection to true: the scheduler takes its lease itself",
            "clientConnection.burst: Invalid value: -1: must be non-negative",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert!(told.starts_with('[') && told.ends_with(']'));
    }

    #[test]
    fn the_algorithm_comes_from_where_it_did_of_old() {
        let policy = file("kind: Policy\npredicates: []\npriorities: [{name: ImageLocalityPriority, weight: 5}]");
        let policy = option("policy-config-file", &policy);
        let scores = |configuration: &Configuration| {
            let scores = configuration.profiles[0].at(holdfast_scheduler::plugin::ExtensionPoint::Score);
            scores.iter().map(|enabled| (enabled.plugin.name(), enabled.weight)).collect::<Vec<_>>()
        };
        assert_eq!(scores(&outcome(&[&policy]).unwrap()), [("ImageLocality", 5)]);
        let provided = outcome(&["--algorithm-provider=ClusterAutoscalerProvider"]).unwrap();
        assert!(scores(&provided).contains(&("NodeResourcesMostAllocated", 1)));
        // A ConfigMap takes precedence over a file, unless `--use-legacy-policy-config` is set.
        let mapped = outcome(&[&policy, "--policy-configmap=p"]).unwrap();
        let expected = PolicySource::ConfigMap { namespace: "kube-system".into(), name: "p".into() };
        assert_eq!(mapped.policy, Some(expected));
        let legacy = outcome(&[&policy, "--policy-configmap=p", "--use-legacy-policy-config"]).unwrap();
        assert_eq!((legacy.policy.clone(), scores(&legacy)), (None, vec![("ImageLocality", 5)]));
        for (options, why) in [
            (vec!["--use-legacy-policy-config"], "policyConfigFile: Required value"),
            (vec!["--algorithm-provider=Nobody"], "algorithm provider \"Nobody\" is not registered"),
            (vec!["--policy-config-file=/nowhere"], "missing policy config file /nowhere"),
        ] {
            let told = outcome(&options).expect_err("it is wrong");
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn ports_without_tls_are_asked_for_by_options_or_old_files() {
        let old = |rest: &str| {
            file(&format!("apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n{rest}"))
        };
        let places = |options: &[&str]| {
            let cli = Cli::parse_from(["holdfast"].iter().chain(options));
            insecure_places(&cli.scheduler, &configure(&cli.scheduler).unwrap())
        };
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(places(&[]), []);
        for (rest, expected) in [
            ("", vec![(any, 10251)]),
            ("healthzBindAddress: ':7'", vec![(any, 7), (any, 10251)]),
            ("healthzBindAddress: ':7'\nmetricsBindAddress: 0.0.0.0:7", vec![(any, 7)]),
            ("healthzBindAddress: ''\nmetricsBindAddress: 127.0.0.1:9", vec![(local, 9)]),
            ("healthzBindAddress: ':0'\nmetricsBindAddress: ':0'", vec![]),
        ] {
            let old = old(rest);
            assert_eq!(places(&[&option("config", &old)]), expected, "{rest}");
            assert_eq!(places(&[&option("config", &old), "--port=0"]), [], "{rest}");
        }
        assert_eq!(places(&["--port=8", "--address=127.0.0.1"]), [(local, 8)]);
    }

    /// The weight that the option sets applies with a Policy from a file or a ConfigMap, unless the Policy sets a
    /// weight.
    #[test]
    fn a_policy_may_say_what_affinity_is_worth() {
        let worth = |configuration: &Configuration| {
            let arguments = &configuration.profiles[0].document.arguments;
            let own = arguments.iter().find(|(name, _)| name == "InterPodAffinity");
            own.and_then(|(_, arguments)| arguments["hardPodAffinityWeight"].as_i64())
        };
        let weight = "--hard-pod-affinity-symmetric-weight=44";
        for (policy, expected) in
            [("kind: Policy", Some(44)), ("kind: Policy\nhardPodAffinitySymmetricWeight: 9", Some(9))]
        {
            let in_file = file(policy);
            let from_file = outcome(&[&option("policy-config-file", &in_file), weight]).unwrap();
            assert_eq!(worth(&from_file), expected, "{policy}");
            let mut from_map = outcome(&["--policy-configmap=p", weight]).unwrap();
            from_map.apply_policy(policy).unwrap();
            assert_eq!(worth(&from_map), expected, "{policy}");
        }
        assert_eq!(worth(&outcome(&[weight]).unwrap()), Some(44));
    }

    #[test]
    fn gates_are_switches() {
        let scores = |configuration: &Configuration| {
            let scores = configuration.profiles[0].at(holdfast_scheduler::plugin::ExtensionPoint::Score);
            scores.iter().any(|enabled| enabled.plugin.name() == "NodeResourceLimits")
        };
        let usual = outcome(&[]).unwrap();
        assert!(usual.pops_from_backoff && usual.nominates_expected_nodes && !scores(&usual));
        let gates =
            "SchedulerPopFromBackoffQ=false,NominatedNodeNameForExpectation=false,ResourceLimitsPriorityFunction=true";
        let turned = outcome(&[&format!("--feature-gates={gates}")]).unwrap();
        assert!(!turned.pops_from_backoff && !turned.nominates_expected_nodes && scores(&turned));
        for gate in ["SchedulerAsyncPreemption=false", "StorageCapacityScoring=true", "VolumeLimitScaling=true"] {
            let told = outcome(&[&format!("--feature-gates={gate}")]).expect_err("it cannot be turned");
            assert!(told.contains(gate.split('=').next().unwrap()), "{told}");
        }
    }
}

//! The scheduler's configuration: `KubeSchedulerConfiguration` in all versions that ever existed, and the older Policy.
//! Reading is strict: unknown fields are errors. All errors are reported at once.

mod adjust;
mod arguments;
mod build;
pub mod extender;
mod global_options;
mod policy;
mod profiles;
#[cfg(test)]
mod tests;
mod version;
mod write;

use crate::plugin::ExtensionPoint;
use crate::plugins::legacy;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use extender::Extender;
use holdfast_core::object::decode;
pub use holdfast_core::object::reader;
use holdfast_value::Value;
use reader::{Fault, Faults, Reader};
use version::Version;

pub use global_options::GlobalOptions;

#[derive(Debug, Clone)]
pub struct Configuration {
    pub parallelism: i64,
    pub leader_election: LeaderElection,
    pub client_connection: ClientConnection,
    pub enable_profiling: bool,
    pub enable_contention_profiling: bool,
    pub percentage_of_nodes_to_score: i64,
    pub pod_initial_backoff_seconds: i64,
    pub pod_max_backoff_seconds: i64,
    /// A pod that has been unschedulable for this many seconds is tried again, even without an event that may help it.
    pub pod_max_in_unschedulable_seconds: f64,
    pub delay_cache_until_active: bool,
    /// The address on which the scheduler serves /healthz without client certificates; only versions before v1beta2 can
    /// set it.
    pub healthz_bind_address: Option<String>,
    /// The address on which the scheduler serves /metrics without client certificates; only versions before v1beta2 can
    /// set it.
    pub metrics_bind_address: Option<String>,
    /// The place of the Policy that replaces the only profile. The caller reads the Policy and calls
    /// [`Configuration::apply_policy`].
    pub policy: Option<PolicySource>,
    pub global_options: GlobalOptions,
    pub profiles: Vec<Profile>,
    pub extenders: Vec<Extender>,
    /// Whether extended resources may be satisfied by devices: the feature gate DRAExtendedResource.
    pub extended_resources: bool,
    /// Whether a pod may be tried before its back-off is over if no pod is active: the feature gate
    /// SchedulerPopFromBackoffQ.
    pub pops_from_backoff: bool,
    /// Whether a pod whose binding takes long is nominated to its node: the feature gate
    /// NominatedNodeNameForExpectation.
    pub nominates_expected_nodes: bool,
    /// The errors about unknown fields that were ignored because the version is lenient; a strict version would have
    /// reported them.
    pub ignored_fields: Vec<String>,
}

/// Where a Policy is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    File(String),
    ConfigMap { namespace: String, name: String },
}

/// The kinds of object that may be the lock of leader election, over all versions. The old kinds are needed while
/// schedulers of older versions take part in the election.
const LOCKS: [&str; 5] = ["leases", "endpoints", "configmaps", "endpointsleases", "configmapsleases"];

#[derive(Debug, Clone, PartialEq)]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration_seconds: f64,
    pub renew_deadline_seconds: f64,
    pub retry_period_seconds: f64,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClientConnection {
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    pub qps: f64,
    pub burst: i64,
}

impl Default for LeaderElection {
    fn default() -> Self {
        LeaderElection {
            leader_elect: true,
            lease_duration_seconds: 15.0,
            renew_deadline_seconds: 10.0,
            retry_period_seconds: 2.0,
            resource_lock: "leases".into(),
            resource_name: "kube-scheduler".into(),
            resource_namespace: "kube-system".into(),
        }
    }
}

impl Default for ClientConnection {
    fn default() -> Self {
        ClientConnection {
            kubeconfig: String::new(),
            accept_content_types: String::new(),
            content_type: "application/vnd.kubernetes.protobuf".into(),
            qps: 50.0,
            burst: 100,
        }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Configuration {
            parallelism: 16,
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            percentage_of_nodes_to_score: 0,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            pod_max_in_unschedulable_seconds: 300.0,
            delay_cache_until_active: false,
            healthz_bind_address: None,
            metrics_bind_address: None,
            policy: None,
            global_options: GlobalOptions::default(),
            profiles: vec![Profile::default()],
            extenders: Vec::new(),
            extended_resources: false,
            pops_from_backoff: true,
            nominates_expected_nodes: true,
            ignored_fields: Vec::new(),
        }
    }
}

impl Configuration {
    /// An empty snapshot that reads the fields which these profiles and gates need.
    pub fn new_snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        snapshot.set_extended_resources(self.extended_resources);
        if self.profiles.iter().any(|profile| profile.has(ExtensionPoint::Score, legacy::RESOURCE_LIMITS)) {
            snapshot.read_limits();
        }
        snapshot
    }

    /// Reads a configuration in YAML or JSON. If it is invalid, returns all errors, each with the path of its field.
    pub fn read(text: &str) -> Result<Self, Vec<Fault>> {
        let fault = |message: String| vec![Fault { path: String::new(), message }];
        let decoded = decode::yaml(text.as_bytes()).map_err(|error| fault(error.to_string()))?;
        let duplicates: Vec<Fault> =
            decoded.strict_errors().iter().flat_map(|why| fault(format!("strict decoding error: {why}"))).collect();
        let errors = match Self::of(&decoded.value) {
            Ok(configuration) if duplicates.is_empty() => return Ok(configuration),
            read => read.err().into_iter().flatten().chain(duplicates),
        };
        let errors: Vec<Fault> = errors.collect();
        let version = decoded.value["apiVersion"].as_str().and_then(Version::named);
        if !version.is_some_and(Version::is_lenient) {
            return Err(errors);
        }
        let read = Self::read_document(&decoded.value, false)?;
        Ok(Configuration { ignored_fields: errors.iter().map(ToString::to_string).collect(), ..read })
    }

    /// The configuration that a document contains.
    pub fn of(document: &Value) -> Result<Self, Vec<Fault>> {
        Self::read_document(document, true)
    }

    fn read_document(document: &Value, strictly: bool) -> Result<Self, Vec<Fault>> {
        let faults = Faults::default();
        let mut document = document.clone();
        let version = document["apiVersion"].as_str().and_then(Version::named);
        if let Some(extenders) = document.as_object_mut().and_then(|fields| fields.get_mut("extenders"))
            && version.is_some_and(Version::has_policy_extenders)
        {
            extender::name_fields(extenders);
        }
        let reader = Reader::new(&document, "", &faults);
        let configuration = reader.and_then(|reader| read(&if strictly { reader } else { reader.lenient() }));
        match (configuration, faults.into_inner()) {
            (Some(configuration), faults) if faults.is_empty() => Ok(configuration),
            (_, faults) => Err(faults),
        }
    }

    /// The profile for pods that name this scheduler.
    pub fn profile(&self, scheduler_name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| &*profile.scheduler_name == scheduler_name)
    }
}

fn read(reader: &Reader<'_>) -> Option<Configuration> {
    let Some(version) = Version::of(reader) else {
        // Which fields are known depends on the version. The version is unknown, so no field is reported as unknown.
        reader.ask_for_all();
        return None;
    };
    let defaults = Configuration::default();
    let configuration = Configuration {
        parallelism: checked_int(reader, "parallelism", "should be an integer value greater than zero", |one| one > 0)
            .unwrap_or(defaults.parallelism),
        leader_election: leader_election(reader, version),
        client_connection: client_connection(reader),
        enable_profiling: reader.bool("enableProfiling").unwrap_or(true),
        enable_contention_profiling: reader.bool("enableContentionProfiling").unwrap_or(true),
        percentage_of_nodes_to_score: percentage_of_nodes(reader).unwrap_or(0),
        pod_initial_backoff_seconds: checked_int(reader, "podInitialBackoffSeconds", "must be greater than 0", |one| {
            one > 0
        })
        .unwrap_or(1),
        pod_max_backoff_seconds: reader.int("podMaxBackoffSeconds").unwrap_or(10),
        delay_cache_until_active: version == Version::V1 && reader.bool("delayCacheUntilActive").unwrap_or(false),
        healthz_bind_address: version.read_address(reader, "healthzBindAddress"),
        metrics_bind_address: version.read_address(reader, "metricsBindAddress"),
        global_options: GlobalOptions::read(reader, version),
        extenders: extender::read_all(reader),
        profiles: Vec::new(),
        ..defaults
    };
    if configuration.pod_max_backoff_seconds < configuration.pod_initial_backoff_seconds {
        let message = "must be greater than or equal to PodInitialBackoffSeconds";
        reader.invalid("podMaxBackoffSeconds", configuration.pod_max_backoff_seconds, message);
    }
    let (mut profiles, policy) = profiles::read_all(reader, version, &configuration.global_options);
    let ignored = configuration.extenders.iter().flat_map(|extender| &extender.managed_resources);
    let ignored: Vec<_> = ignored.filter(|one| one.ignored_by_scheduler).map(|one| one.name.clone()).collect();
    build::ignore_resources(&mut profiles, &ignored);
    Some(Configuration { profiles, policy, ..configuration })
}

/// Reads an integer. If `is_valid` is false for it, that is an error with the reason `why`.
fn checked_int(reader: &Reader<'_>, field: &str, why: &str, is_valid: impl Fn(i64) -> bool) -> Option<i64> {
    let number = reader.int(field)?;
    if !is_valid(number) {
        reader.invalid(field, number, why);
    }
    Some(number)
}

fn percentage_of_nodes(reader: &Reader<'_>) -> Option<i64> {
    checked_int(reader, "percentageOfNodesToScore", "not in valid range [0-100]", |one| (0..=100).contains(&one))
}

/// A duration in the form in which errors show it.
fn quoted(seconds: f64) -> String {
    format!("\"{}\"", write::duration(seconds))
}

fn leader_election(reader: &Reader<'_>, version: Version) -> LeaderElection {
    let defaults = LeaderElection { resource_lock: version.default_lock().into(), ..LeaderElection::default() };
    let Some(own) = reader.child("leaderElection") else { return defaults };
    // An empty string or a 0 means the default, as an absent field does.
    let text =
        |field: &str, defaults: &str| own.text(field).filter(|text| !text.is_empty()).unwrap_or(defaults).to_owned();
    let seconds = |field: &str, defaults: f64| own.seconds(field).filter(|seconds| *seconds != 0.0).unwrap_or(defaults);
    let (old_name, old_namespace) = version.read_lock_object(&own);
    let election = LeaderElection {
        leader_elect: own.bool("leaderElect").unwrap_or(defaults.leader_elect),
        lease_duration_seconds: seconds("leaseDuration", defaults.lease_duration_seconds),
        renew_deadline_seconds: seconds("renewDeadline", defaults.renew_deadline_seconds),
        retry_period_seconds: seconds("retryPeriod", defaults.retry_period_seconds),
        resource_lock: text("resourceLock", &defaults.resource_lock),
        resource_name: text("resourceName", old_name.unwrap_or(&defaults.resource_name)),
        resource_namespace: text("resourceNamespace", old_namespace.unwrap_or(&defaults.resource_namespace)),
    };
    if election.leader_elect {
        check_leader_election(&own, &election);
    }
    election
}

fn check_leader_election(own: &Reader<'_>, election: &LeaderElection) {
    let durations = [
        ("leaseDuration", election.lease_duration_seconds),
        ("renewDeadline", election.renew_deadline_seconds),
        ("retryPeriod", election.retry_period_seconds),
    ];
    for (field, seconds) in durations.iter().filter(|(_, seconds)| *seconds < 0.0) {
        own.invalid(field, quoted(*seconds), "must be greater than zero");
    }
    let (lease, deadline) = (election.lease_duration_seconds, election.renew_deadline_seconds);
    if lease <= deadline {
        own.invalid("leaseDuration", quoted(lease), "LeaseDuration must be greater than RenewDeadline");
    }
    if deadline <= 1.2 * election.retry_period_seconds {
        own.invalid("renewDeadline", quoted(deadline), "RenewDeadline must be greater than RetryPeriod*JitterFactor");
    }
    if !LOCKS.contains(&election.resource_lock.as_str()) {
        let known: Vec<String> = LOCKS.iter().map(|lock| format!("\"{lock}\"")).collect();
        let message =
            format!("Unsupported value: \"{}\": supported values: {}", election.resource_lock, known.join(", "));
        own.fault("resourceLock", message);
    }
}

fn client_connection(reader: &Reader<'_>) -> ClientConnection {
    let defaults = ClientConnection::default();
    let Some(own) = reader.child("clientConnection") else { return defaults };
    let text = |field: &str, defaults: String| match own.text(field) {
        None | Some("") => defaults,
        Some(text) => text.to_owned(),
    };
    let qps = own.get("qps").map_or(Some(defaults.qps), Value::as_f64);
    let qps = qps.unwrap_or_else(|| {
        own.fault("qps", "Invalid value: must be a number");
        defaults.qps
    });
    ClientConnection {
        kubeconfig: text("kubeconfig", defaults.kubeconfig),
        accept_content_types: text("acceptContentTypes", defaults.accept_content_types),
        content_type: text("contentType", defaults.content_type),
        qps: if qps == 0.0 { defaults.qps } else { qps },
        burst: checked_int(&own, "burst", "must be non-negative", |one| one >= 0)
            .filter(|burst| *burst != 0)
            .unwrap_or(defaults.burst),
    }
}

//! What the operator set and decisions depend on.

use crate::admission::{Admission, Ticks};
use crate::authz::chain::{Configured, Way};
use crate::kinds::core::ServiceRanges;
use crate::list::TokenKey;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    pub service_ranges: ServiceRanges,
    /// First and last node port.
    pub node_ports: (u16, u16),
    /// Whether containers may be privileged.
    pub allow_privileged: bool,
    /// How requests are authorized: nobody may grant more than that allows them.
    pub authorization: Configured,
    pub admission: Admission,
    /// Seals continue tokens.
    pub token_key: TokenKey,
    /// How long Events are kept after their last change; `None` for ever.
    pub event_ttl: Option<Duration>,
    /// How long a namespace is left to whoever deleted it before its content is removed.
    pub namespace_grace: Duration,
    /// Whom tokens of service accounts are for that name nobody; empty: the signer knows.
    pub api_audiences: Vec<String>,
    /// For how long tokens of service accounts are given at most, where it is less than anybody may ask for.
    pub token_seconds_max: Option<i64>,
    /// Whether tokens that nodes get for pods are good for longer than they say, so that old clients go on.
    pub extend_tokens: bool,
    /// Whether a deletion says what becomes of what the object owns: somebody does it.
    pub garbage_collection: bool,
    /// The clock that admission is measured by; without one everything takes no time.
    pub ticks: Ticks,
    /// How many objects of a collection are deleted at once.
    pub deletions_max: usize,
    /// How many bytes the objects of one namespace may be where no quota of it says otherwise; `None`: any number.
    pub namespace_bytes: Option<u64>,
    /// The gates that are off, of those that fields of objects hang on.
    pub gates_off: BTreeSet<&'static str>,
}

/// So many that they share a few fsyncs.
const DELETIONS_MAX: usize = 256;
/// As in Kubernetes.
const GATES_OFF: [&str; 12] = [
    "CRDObservedGenerationTracking",
    "ClusterTrustBundleProjection",
    "ContainerStopSignals",
    "CoordinatedLeaderElection",
    "CrossNamespaceVolumeDataSource",
    "HPAScaleToZero",
    "MaxUnavailableStatefulSet",
    "MutablePVNodeAffinity",
    "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "RelaxedServiceNameValidation",
    "UserNamespacesHostNetworkSupport",
];
/// As in Kubernetes.
const EVENT_TTL: Duration = Duration::from_secs(3600);

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_ranges: ServiceRanges::default(),
            node_ports: (30000, 32767),
            allow_privileged: true,
            authorization: Way::AlwaysAllow.into(),
            admission: Admission::default(),
            token_key: TokenKey::default(),
            event_ttl: Some(EVENT_TTL),
            namespace_grace: Duration::ZERO,
            api_audiences: Vec::new(),
            token_seconds_max: None,
            extend_tokens: true,
            garbage_collection: true,
            ticks: || 0,
            deletions_max: DELETIONS_MAX,
            namespace_bytes: None,
            gates_off: GATES_OFF.into(),
        }
    }
}

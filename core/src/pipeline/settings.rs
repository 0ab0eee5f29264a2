//! The operator's settings that decisions depend on.

use crate::admission::{Admission, Ticks};
use crate::kinds::core::ServiceRanges;
use crate::list::TokenKey;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    pub service_ranges: ServiceRanges,
    /// The first and the last port of the range of node ports.
    pub node_ports: (u16, u16),
    pub ports_elsewhere: PortsElsewhere,
    /// Whether a pod may have privileged containers.
    pub allow_privileged: bool,
    pub admission: Admission,
    /// The key that seals continue tokens.
    pub token_key: TokenKey,
    /// The time for which Events are kept after their last change; `None` means forever.
    pub event_ttl: Option<Duration>,
    /// How long the server waits for the client to remove the content of a deleted namespace.
    pub namespace_grace: Duration,
    /// The audiences of a service account token if the request for it names none. If this list is empty, the signer
    /// uses its own default audiences.
    pub api_audiences: Vec<String>,
    /// The longest lifetime of a service account token in seconds, if it is shorter than the API's maximum.
    pub token_seconds_max: Option<i64>,
    /// Whether a token that a node requests for a pod is valid for longer than requested. Old clients, which do not
    /// read a renewed token, then keep working.
    pub extend_tokens: bool,
    /// Whether a garbage collector runs: a deletion then adds the finalizers of its propagation policy.
    pub garbage_collection: bool,
    /// The clock that measures the duration of admission. Without a clock every duration is zero.
    pub ticks: Ticks,
    /// The maximum number of objects of a collection that are deleted at once.
    pub deletions_max: usize,
    /// The maximum number of bytes of a namespace's objects, unless a ResourceQuota in the namespace sets a limit;
    /// `None` for no maximum.
    pub namespace_bytes: Option<u64>,
    /// Whether requests may delete objects that cannot be read from the store, with the option
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`.
    pub unsafe_deletion: bool,
    /// The disabled feature gates on which fields of objects depend.
    pub gates_off: BTreeSet<&'static str>,
}

/// Says whether any of the servers that share a log has allocated a node port.
type HasPort = Arc<dyn Fn(u16) -> bool + Send + Sync>;

/// The node ports that servers sharing a log have allocated, including the node ports of Services whose events have not
/// arrived yet.
#[derive(Clone, Default)]
pub struct PortsElsewhere(Option<HasPort>);

impl PortsElsewhere {
    pub fn new(has: HasPort) -> PortsElsewhere {
        PortsElsewhere(Some(has))
    }

    pub fn has(&self, port: u16) -> bool {
        self.0.as_ref().is_some_and(|has| has(port))
    }
}

impl fmt::Debug for PortsElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PortsElsewhere").field(&self.0.is_some()).finish()
    }
}

/// The default of `deletions_max`. It is so large that deleting a collection needs few fsyncs.
const DELETIONS_MAX: usize = 256;
/// The feature gates that are off by default in Kubernetes.
const GATES_OFF: [&str; 13] = [
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
    "PodLogsQuerySplitStreams",
    "RelaxedServiceNameValidation",
    "UserNamespacesHostNetworkSupport",
];
/// Kubernetes' default for `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(3600);

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_ranges: ServiceRanges::default(),
            node_ports: (30000, 32767),
            ports_elsewhere: PortsElsewhere::default(),
            allow_privileged: true,
            admission: Admission::default(),
            token_key: TokenKey::default(),
            event_ttl: Some(EVENT_TTL),
            namespace_grace: Duration::ZERO,
            api_audiences: Vec::new(),
            token_seconds_max: None,
            extend_tokens: true,
            garbage_collection: true,
            unsafe_deletion: false,
            ticks: || 0,
            deletions_max: DELETIONS_MAX,
            namespace_bytes: None,
            gates_off: GATES_OFF.into(),
        }
    }
}

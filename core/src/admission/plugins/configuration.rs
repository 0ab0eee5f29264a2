//! The operator's configuration of plug-ins. The configuration of each plug-in is a document of its own kind, parsed
//! strictly.

use super::{EventLimit, ImagePolicy, Limited, PodSecurity};
use crate::object::reader::Reader;
use holdfast_value::{Map, Value};

/// The operator's configuration of all plug-ins.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    pub toleration_seconds: TolerationSeconds,
    pub limited_resources: Vec<Limited>,
    pub event_limits: Vec<EventLimit>,
    pub pod_security: PodSecurity,
    pub image_policy: Option<ImagePolicy>,
    /// The path of the kubeconfig with the credentials for calling mutating webhooks.
    pub mutating_users: Option<String>,
    /// The path of the kubeconfig with the credentials for calling validating webhooks.
    pub validating_users: Option<String>,
    /// For PodNodeSelector: node selectors by namespace, and the cluster's default.
    pub node_selectors: Map,
    /// For PodTolerationRestriction: the cluster's default tolerations, and the allowed tolerations.
    pub tolerations: Value,
}

/// How long a pod without a toleration of its own tolerates a node that is not ready or unreachable, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct TolerationSeconds {
    pub not_ready: i64,
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    fn default() -> Self {
        Self { not_ready: 300, unreachable: 300 }
    }
}

/// Records a fault unless the document has this kind and group; `group` may include a version, otherwise any version
/// fits.
pub(super) fn check(document: &Reader, group: &str, kind: &str) {
    let text = |field: &str| document.text(field).unwrap_or("");
    let names_version = group.split_once('/').is_some_and(|(_, version)| !version.is_empty());
    let is_of_group = if names_version { text("apiVersion") == group } else { text("apiVersion").starts_with(group) };
    if !is_of_group || text("kind") != kind {
        let message = format!(
            "no kind \"{}\" is registered for version \"{}\": it must be {kind} of {}",
            text("kind"),
            text("apiVersion"),
            group.trim_end_matches('/')
        );
        document.fault("", message);
    }
}

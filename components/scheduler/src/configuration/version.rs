//! What differs between the versions of the configuration.

use super::reader::Reader;
use crate::plugin::ExtensionPoint;
use crate::plugins::{
    image_locality, inter_pod_affinity, legacy, node_affinity, node_resources_fit, node_volume_limits, taint_toleration,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V1Alpha1,
    V1Alpha2,
    V1Beta1,
    V1Beta2,
    V1Beta3,
    V1,
}

pub const GROUP: &str = "kubescheduler.config.k8s.io";

const VERSIONS: [(&str, Version); 6] = [
    ("v1alpha1", Version::V1Alpha1),
    ("v1alpha2", Version::V1Alpha2),
    ("v1beta1", Version::V1Beta1),
    ("v1beta2", Version::V1Beta2),
    ("v1beta3", Version::V1Beta3),
    ("v1", Version::V1),
];

/// Plug-ins that existed before v1. Today each of them is a part of the plug-in NodeVolumeLimits.
const VOLUME_LIMITS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
/// The name that the plug-in SelectorSpread had first.
const FIRST_SELECTOR_SPREAD: &str = "DefaultPodTopologySpread";

/// The former default address on which /healthz and /metrics are served without client certificates.
const OLD_ADDRESS: &str = "0.0.0.0:10251";

impl Version {
    /// The version with this `apiVersion`.
    pub fn named(text: &str) -> Option<Version> {
        let name = text.strip_prefix(GROUP)?.strip_prefix('/')?;
        VERSIONS.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// The version that a document names.
    pub fn of(reader: &Reader<'_>) -> Option<Version> {
        let (kind, version) = (reader.text("kind").unwrap_or(""), reader.text("apiVersion").unwrap_or(""));
        if kind != "KubeSchedulerConfiguration" {
            reader.invalid("kind", format!("\"{kind}\""), "must be KubeSchedulerConfiguration");
        }
        let found = Version::named(version);
        if found.is_none() {
            let message = format!("no kind \"KubeSchedulerConfiguration\" is registered for version \"{version}\"");
            reader.fault("apiVersion", message);
        }
        found
    }

    /// Whether the version has `multiPoint`, which enables a plug-in at all of its points.
    pub fn has_multi_point(self) -> bool {
        self >= Version::V1Beta3
    }

    /// The default weight that a plug-in has in this version; `weight` is the default weight in v1.
    pub fn default_weight(self, plugin: &str, weight: i64) -> i64 {
        let once_one = [taint_toleration::NAME, node_affinity::NAME, inter_pod_affinity::NAME, image_locality::NAME];
        if self < Version::V1Beta3 && once_one.contains(&plugin) { 1 } else { weight }
    }

    /// The plug-in that this version enables by default at a point where v1 enables `plugin`.
    pub fn default_plugin(self, plugin: &'static str, point: ExtensionPoint) -> &'static str {
        let scores = matches!(point, ExtensionPoint::PreScore | ExtensionPoint::Score);
        if self < Version::V1Beta2 && scores && plugin == node_resources_fit::NAME {
            return legacy::LEAST_ALLOCATED;
        }
        plugin
    }

    /// The name in v1 of a plug-in that this version may call by another name.
    pub fn current_name(self, plugin: &str) -> &str {
        match plugin {
            FIRST_SELECTOR_SPREAD if self < Version::V1Beta2 => legacy::SELECTOR_SPREAD,
            _ if self.is_merged_plugin(plugin) => node_volume_limits::NAME,
            _ => plugin,
        }
    }

    /// Whether a plug-in of this version is a part of another plug-in in v1.
    pub fn is_merged_plugin(self, plugin: &str) -> bool {
        self < Version::V1 && VOLUME_LIMITS.contains(&plugin)
    }

    /// Whether a plug-in of earlier versions does not exist in this version any more, so naming it is an error.
    pub fn is_removed(self, plugin: &str) -> bool {
        self >= Version::V1 && VOLUME_LIMITS.contains(&plugin)
    }

    /// Whether unknown fields are ignored, as long as all known fields can be read.
    pub fn is_lenient(self) -> bool {
        self == Version::V1Alpha1
    }

    /// The plug-ins that this version enables by default and v1 does not, with their weights.
    pub fn former_defaults(self) -> &'static [(&'static str, i64)] {
        match self {
            Version::V1Alpha1 | Version::V1Alpha2 => {
                &[(legacy::NODE_PREFER_AVOID_PODS, 10000), (legacy::SELECTOR_SPREAD, 1)]
            }
            Version::V1Beta1 => &[(legacy::NODE_PREFER_AVOID_PODS, 10000)],
            _ => &[],
        }
    }

    /// Whether PodTopologySpread by default spreads also pods that have no constraints of their own.
    pub fn has_spread_defaults(self) -> bool {
        self >= Version::V1Beta1
    }

    pub fn default_lock(self) -> &'static str {
        if self < Version::V1Beta1 { "endpointsleases" } else { "leases" }
    }

    /// Reads the name and namespace of the leader election's lock, also from their former fields. If a document has
    /// both the former and the present field, their values must be equal.
    pub fn read_lock_object<'a>(self, election: &Reader<'a>) -> (Option<&'a str>, Option<&'a str>) {
        if self > Version::V1Alpha1 {
            return (None, None);
        }
        let read = |old: &str, current: &str, names: [&str; 2]| {
            let set = |field: &str| election.text(field).filter(|text| !text.is_empty());
            let (old, current) = (set(old), set(current));
            if let (Some(old), Some(current)) = (old, current)
                && old != current
            {
                let [first, second] = names;
                let values = format!("{first}: {current}, {second}: {old}");
                election.fault("", format!("{first} and {second} are both set and do not match, {values}"));
            }
            old
        };
        (
            read("lockObjectName", "resourceName", ["ResourceName", "LockObjectName"]),
            read("lockObjectNamespace", "resourceNamespace", ["ResourceNamespace", "LockObjectNamespace"]),
        )
    }

    /// The name that the set of a point has in this version; `current` is its name in v1. Returns `None` if this
    /// version has no such set.
    pub fn set_name(self, point: ExtensionPoint, current: &'static str) -> Option<&'static str> {
        match point {
            // In v1alpha1 the plug-ins of `postFilter` ran before scoring, which is the point `preScore` today.
            ExtensionPoint::PreScore if self == Version::V1Alpha1 => Some("postFilter"),
            ExtensionPoint::PostFilter if self == Version::V1Alpha1 => None,
            _ => Some(current),
        }
    }

    /// Whether extenders have the fields that they have in a Policy.
    pub fn has_policy_extenders(self) -> bool {
        self <= Version::V1Alpha2
    }

    /// Reads an address on which to serve without client certificates. v1beta2 still has the fields for these
    /// addresses, but allows only a value that turns them off.
    pub fn read_address(self, reader: &Reader<'_>, field: &str) -> Option<String> {
        if self > Version::V1Beta2 {
            return None;
        }
        let address = reader.text(field);
        if self < Version::V1Beta2 {
            return Some(address.unwrap_or(OLD_ADDRESS).to_owned());
        }
        if let Some(address) = address.filter(|address| !address.is_empty() && !address.ends_with(":0")) {
            reader.invalid(field, format!("\"{address}\""), "must be empty or with an explicit 0 port");
        }
        None
    }

    /// Whether the version has the options for all profiles together that turn preemption off and limit the time of
    /// binding.
    pub fn has_global_options(self) -> bool {
        self < Version::V1Beta1
    }
}

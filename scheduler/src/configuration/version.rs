//! In what the versions of the configuration differ.

use super::reader::Reader;
use crate::plugin::Point;
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

/// Plug-ins that were there until v1, and are parts of one today.
const VOLUME_LIMITS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
/// What SelectorSpread was called when it was new.
const FIRST_SELECTOR_SPREAD: &str = "DefaultPodTopologySpread";

/// Where /healthz and /metrics once were without a certificate.
const OLD_ADDRESS: &str = "0.0.0.0:10251";

impl Version {
    /// The version of this name.
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

    /// Whether `multiPoint` enables plug-ins wherever they answer.
    pub fn has_multi_point(self) -> bool {
        self >= Version::V1Beta3
    }

    /// The plug-ins that were scored by default, with their weights, where these were not those of today.
    pub fn usual_weight(self, plugin: &str, weight: i64) -> i64 {
        let once_one = [taint_toleration::NAME, node_affinity::NAME, inter_pod_affinity::NAME, image_locality::NAME];
        if self < Version::V1Beta3 && once_one.contains(&plugin) { 1 } else { weight }
    }

    /// The plug-in that was enabled by default at a point where another one is today.
    pub fn usual_name(self, plugin: &'static str, point: Point) -> &'static str {
        let scores = matches!(point, Point::PreScore | Point::Score);
        if self < Version::V1Beta2 && scores && plugin == node_resources_fit::NAME {
            return legacy::LEAST_ALLOCATED;
        }
        plugin
    }

    /// What a plug-in of this name is called today.
    pub fn name_today(self, plugin: &str) -> &str {
        match plugin {
            FIRST_SELECTOR_SPREAD if self < Version::V1Beta2 => legacy::SELECTOR_SPREAD,
            _ if self.is_part(plugin) => node_volume_limits::NAME,
            _ => plugin,
        }
    }

    /// Whether a plug-in is a part of another one today.
    pub fn is_part(self, plugin: &str) -> bool {
        self < Version::V1 && VOLUME_LIMITS.contains(&plugin)
    }

    /// Whether there is no such plug-in any more: naming it is a mistake.
    pub fn is_removed(self, plugin: &str) -> bool {
        self >= Version::V1 && VOLUME_LIMITS.contains(&plugin)
    }

    /// Whether fields that nobody knows are passed over, as long as all others can be read.
    pub fn is_lenient(self) -> bool {
        self == Version::V1Alpha1
    }

    /// Plug-ins that were enabled by default and are no more, with their weights.
    pub fn once_usual(self) -> &'static [(&'static str, i64)] {
        match self {
            Version::V1Alpha1 | Version::V1Alpha2 => {
                &[(legacy::NODE_PREFER_AVOID_PODS, 10000), (legacy::SELECTOR_SPREAD, 1)]
            }
            Version::V1Beta1 => &[(legacy::NODE_PREFER_AVOID_PODS, 10000)],
            _ => &[],
        }
    }

    /// Whether the plug-in spreads pods without constraints by default.
    pub fn has_spread_defaults(self) -> bool {
        self >= Version::V1Beta1
    }

    pub fn usual_lock(self) -> &'static str {
        if self < Version::V1Beta1 { "endpointsleases" } else { "leases" }
    }

    /// The name and namespace of the lock by their names of old, which must be those that they have by their names of
    /// today, where they have both.
    pub fn read_lock_object<'a>(self, election: &Reader<'a>) -> (Option<&'a str>, Option<&'a str>) {
        if self > Version::V1Alpha1 {
            return (None, None);
        }
        let read = |old: &str, today: &str, names: [&str; 2]| {
            let set = |field: &str| election.text(field).filter(|text| !text.is_empty());
            let (old, today) = (set(old), set(today));
            if let (Some(old), Some(today)) = (old, today)
                && old != today
            {
                let [first, second] = names;
                let values = format!("{first}: {today}, {second}: {old}");
                election.fault("", format!("{first} and {second} are both set and do not match, {values}"));
            }
            old
        };
        (
            read("lockObjectName", "resourceName", ["ResourceName", "LockObjectName"]),
            read("lockObjectNamespace", "resourceNamespace", ["ResourceNamespace", "LockObjectNamespace"]),
        )
    }

    /// The name of the set of plug-ins for a point, which has this one today; `None` where there was no such set.
    pub fn set_name(self, point: Point, today: &'static str) -> Option<&'static str> {
        match point {
            // What comes before scores today came after filters once, whether nodes were found or not.
            Point::PreScore if self == Version::V1Alpha1 => Some("postFilter"),
            Point::PostFilter if self == Version::V1Alpha1 => None,
            _ => Some(today),
        }
    }

    /// Whether extenders are written as in a Policy.
    pub fn has_extenders_of_policies(self) -> bool {
        self <= Version::V1Alpha2
    }

    /// Where to serve without a certificate. v1beta2 knows the field only to forbid what it was for.
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

    /// Whether preemption could be switched off, and binding be given a time, for all profiles at once.
    pub fn has_global_switches(self) -> bool {
        self < Version::V1Beta1
    }
}

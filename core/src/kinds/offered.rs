//! The versions of built-in kinds that the server offers to clients: all versions, unless the server emulates an older
//! release or the operator disables some. The server itself also uses versions that it does not offer.

use super::{Kind, Registry, Version, compare_versions};
use std::collections::{BTreeMap, BTreeSet};

/// The minor release of Kubernetes whose API the server has.
pub const NEWEST: u32 = 35;
/// The oldest minor release that the server can emulate.
pub const OLDEST: u32 = 18;

/// The minor release that introduced a version of a group, or of some of its kinds. The first matching row counts;
/// versions without a row are at least as old as `OLDEST`.
const SINCE: &[(&str, &[&str], u32)] = &[
    ("admissionregistration.k8s.io/v1", MUTATING, 36),
    ("admissionregistration.k8s.io/v1beta1", MUTATING, 34),
    ("admissionregistration.k8s.io/v1alpha1", MUTATING, 32),
    ("admissionregistration.k8s.io/v1", VALIDATING, 30),
    ("admissionregistration.k8s.io/v1beta1", VALIDATING, 28),
    ("admissionregistration.k8s.io/v1alpha1", VALIDATING, 26),
    ("authentication.k8s.io/v1", &["SelfSubjectReview"], 28),
    ("authentication.k8s.io/v1beta1", &["SelfSubjectReview"], 27),
    ("authentication.k8s.io/v1alpha1", &["SelfSubjectReview"], 26),
    ("autoscaling/v2", &[], 23),
    ("batch/v1", &["CronJob"], 21),
    ("certificates.k8s.io/v1", &[], 19),
    ("certificates.k8s.io/v1beta1", &["ClusterTrustBundle"], 33),
    ("certificates.k8s.io/v1beta1", &["PodCertificateRequest"], 35),
    ("certificates.k8s.io/v1alpha1", &["PodCertificateRequest"], 34),
    ("certificates.k8s.io/v1alpha1", &[], 27),
    ("coordination.k8s.io/v1beta1", &["LeaseCandidate"], 33),
    ("coordination.k8s.io/v1alpha2", &[], 32),
    ("discovery.k8s.io/v1", &[], 21),
    ("events.k8s.io/v1", &[], 19),
    ("flowcontrol.apiserver.k8s.io/v1", &[], 29),
    ("flowcontrol.apiserver.k8s.io/v1beta3", &[], 26),
    ("flowcontrol.apiserver.k8s.io/v1beta2", &[], 23),
    ("flowcontrol.apiserver.k8s.io/v1beta1", &[], 20),
    ("internal.apiserver.k8s.io/v1alpha1", &[], 20),
    ("networking.k8s.io/v1", &["Ingress", "IngressClass"], 19),
    ("networking.k8s.io/v1", NETWORKS, 33),
    ("networking.k8s.io/v1beta1", NETWORKS, 31),
    ("node.k8s.io/v1", &[], 20),
    ("policy/v1", &[], 21),
    ("resource.k8s.io/v1", &[], 34),
    ("resource.k8s.io/v1beta2", &[], 33),
    ("resource.k8s.io/v1beta1", &[], 32),
    ("resource.k8s.io/v1alpha3", &[], 31),
    ("scheduling.k8s.io/v1alpha1", &["Workload"], 35),
    ("storage.k8s.io/v1", &["CSIStorageCapacity"], 24),
    ("storage.k8s.io/v1beta1", &["CSIStorageCapacity"], 21),
    ("storage.k8s.io/v1alpha1", &["CSIStorageCapacity"], 19),
    ("storage.k8s.io/v1", &["VolumeAttributesClass"], 34),
    ("storage.k8s.io/v1beta1", &["VolumeAttributesClass"], 31),
    ("storage.k8s.io/v1alpha1", &["VolumeAttributesClass"], 29),
    ("storagemigration.k8s.io/v1beta1", &[], 35),
    ("storagemigration.k8s.io/v1alpha1", &[], 30),
];

const MUTATING: &[&str] = &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];
const VALIDATING: &[&str] = &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
const NETWORKS: &[&str] = &["IPAddress", "ServiceCIDR"];

/// The operator's settings about the offered versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The minor release that the server emulates.
    pub release: u32,
    /// Whether versions newer than the emulated release are offered too. A kind gets a newer version only if the
    /// emulated release has a less stable version of the kind, which must be at least a beta.
    pub forward: bool,
    /// Whether versions that the operator enables by group and version may be newer than the emulated release.
    pub asked_forward: bool,
    /// The operator's entries, on or off: `api/all`, `api/beta`, `apps/v1`, `apps/v1/deployments`. A more specific
    /// entry has precedence.
    pub asked: BTreeMap<String, bool>,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer { release: NEWEST, forward: false, asked_forward: false, asked: BTreeMap::new() }
    }
}

/// The stability of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

impl Stage {
    fn of(version: &str) -> Stage {
        match version {
            _ if version.contains("alpha") => Stage::Alpha,
            _ if version.contains("beta") => Stage::Beta,
            _ => Stage::Stable,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Stage::Alpha => "api/alpha",
            Stage::Beta => "api/beta",
            Stage::Stable => "api/ga",
        }
    }
}

fn since(kind: &Kind, version: &Version) -> u32 {
    // A version newer than `NEWEST` that this server has counts as `NEWEST`.
    introduced(kind, version).min(NEWEST)
}

/// The minor release of Kubernetes that introduced a version of a kind; zero if there is no row.
fn introduced(kind: &Kind, version: &Version) -> u32 {
    let (api_version, kind) = (version.api_version(), kind.kind.as_str());
    let row = SINCE.iter().find(|(of, kinds, _)| *of == api_version && (kinds.is_empty() || kinds.contains(&kind)));
    row.map_or(0, |(.., since)| *since)
}

impl Kind {
    /// The version in which servers of a minor release store objects in a store shared with Kubernetes: the best
    /// version of the hub's group that the previous release has too, so that servers of that release can read the
    /// objects.
    pub fn stored_version(&self, release: u32) -> usize {
        if self.custom.is_some() {
            // A CustomResourceDefinition chooses the version in which its objects are stored.
            return 0;
        }
        let own = self.versions.iter().enumerate().filter(|(_, version)| version.group == self.hub().group);
        let mut own: Vec<(usize, &Version)> = own.collect();
        own.sort_by(|(_, a), (_, b)| compare_versions(&a.version, &b.version));
        let is_known = |version: &Version| match self.storage.stored_in {
            Some((only, until)) if release <= until => version.version == only,
            _ => introduced(self, version) < release,
        };
        own.iter().find(|(_, version)| is_known(version)).or(own.first()).map_or(0, |(index, _)| *index)
    }
}

impl Offer {
    /// All faults in the settings.
    pub fn faults(&self, built_in: &Registry) -> Vec<String> {
        let mut faults = Vec::new();
        if self.asked.len() == 1 && self.asked.get("api/all") == Some(&false) {
            faults.push("invalid key with only api/all=false".into());
        }
        let groups: BTreeSet<&str> =
            built_in.iter().flat_map(|(_, kind)| kind.versions.iter().map(|version| version.group.as_str())).collect();
        for (name, on) in &self.asked {
            if matches!(name.as_str(), "api/all" | "api/ga" | "api/beta" | "api/alpha") {
                continue;
            }
            let named: Vec<u32> = built_in
                .iter()
                .flat_map(|(_, kind)| kind.versions.iter().map(move |version| (kind, version)))
                .filter(|(kind, version)| names(kind, version).contains(name))
                .map(|(kind, version)| since(kind, version))
                .collect();
            match named.iter().min() {
                None => {
                    let group = name.split('/').next().unwrap_or_default();
                    let unknown = match groups.contains(group) {
                        true => String::new(),
                        false => format!("unknown api groups {group}: "),
                    };
                    faults.push(format!("{unknown}{name} is not served"));
                }
                Some(since) if *on && *since > self.release && !self.asked_forward => faults.push(format!(
                    "cannot enable {name}: it was introduced in 1.{since}, after the emulation version 1.{}; use \
                     --runtime-config-emulation-forward-compatible",
                    self.release
                )),
                Some(_) => {}
            }
        }
        faults
    }

    /// Whether clients are offered a version of a kind.
    fn offers(&self, kind: &Kind, version: &Version) -> bool {
        let there = self.is_there(kind, version);
        let mut names = names(kind, version).into_iter();
        // Entries for a resource or a version have precedence over the general entries.
        if let Some(on) = names.find_map(|name| self.asked.get(&name).copied()) {
            return on && (there || self.asked_forward);
        }
        let stage = Stage::of(&version.version);
        let many = [stage.name(), "api/all"].into_iter().find_map(|name| self.asked.get(name).copied());
        there && many.unwrap_or(true)
    }

    /// Whether the emulated release has this version of the kind, or `forward` allows the version.
    fn is_there(&self, kind: &Kind, version: &Version) -> bool {
        let stage = Stage::of(&version.version);
        let grew = |other: &Version| {
            let before = Stage::of(&other.version);
            other.group == version.group
                && before >= Stage::Beta
                && stage > before
                && since(kind, other) <= self.release
        };
        since(kind, version) <= self.release || self.forward && kind.versions.iter().any(grew)
    }

    /// The registry of the built-in kinds with the offered versions.
    pub fn registry(&self, built_in: &Registry) -> Registry {
        let mut registry = built_in.clone();
        if *self != Offer::default() {
            registry.offer(self.release, |kind, version| self.offers(kind, version));
        }
        registry
    }
}

/// The settings' names for a version of a kind, with the most specific name first.
fn names(kind: &Kind, version: &Version) -> [String; 2] {
    let api_version = version.api_version();
    [format!("{api_version}/{}", kind.resource), api_version]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;

    fn offered(offer: &Offer) -> Vec<String> {
        let registry = offer.registry(registry());
        let groups = registry.groups().into_iter();
        let all = groups.flat_map(|group| {
            group.versions.into_iter().map(move |version| super::super::api_version(&group.group, &version))
        });
        all.collect()
    }

    fn asking(asked: &[(&str, bool)]) -> Offer {
        let asked = asked.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        Offer { asked, ..Offer::default() }
    }

    /// A row may name a version that this release has removed, but every kind is still served in another version.
    #[test]
    fn every_row_names_a_group_and_kinds_of_it() {
        for (api_version, kinds, _) in SINCE {
            let (group, _) = api_version.split_once('/').unwrap();
            let of_group = |kind: &Kind| kind.versions.iter().any(|served| served.group == group);
            let known: Vec<&str> =
                registry().iter().filter(|(_, kind)| of_group(kind)).map(|(_, kind)| &*kind.kind).collect();
            assert!(!known.is_empty(), "{api_version}");
            for kind in *kinds {
                assert!(known.contains(kind), "{api_version} {kind}");
            }
        }
    }

    /// Checks the stored versions of all releases since 1.33.
    #[test]
    fn objects_are_stored_so_that_the_release_before_can_read_them() {
        for (group, resource, stored) in [
            (
                "admissionregistration.k8s.io",
                "mutatingadmissionpolicies",
                ["v1alpha1", "v1alpha1", "v1beta1", "v1beta1"],
            ),
            ("resource.k8s.io", "resourceclaims", ["v1beta1", "v1beta2", "v1", "v1"]),
            ("resource.k8s.io", "devicetaintrules", ["v1alpha3", "v1alpha3", "v1alpha3", "v1alpha3"]),
            ("storage.k8s.io", "volumeattributesclasses", ["v1beta1", "v1beta1", "v1beta1", "v1"]),
            ("networking.k8s.io", "ipaddresses", ["v1beta1", "v1", "v1", "v1"]),
            ("coordination.k8s.io", "leasecandidates", ["v1alpha2", "v1beta1", "v1beta1", "v1beta1"]),
            ("certificates.k8s.io", "clustertrustbundles", ["v1alpha1", "v1beta1", "v1beta1", "v1beta1"]),
            ("storagemigration.k8s.io", "storageversionmigrations", ["v1beta1", "v1beta1", "v1beta1", "v1beta1"]),
            ("autoscaling", "horizontalpodautoscalers", ["v2", "v2", "v2", "v2"]),
            ("flowcontrol.apiserver.k8s.io", "flowschemas", ["v1", "v1", "v1", "v1"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", ["v1beta1", "v1beta1", "v1beta1", "v1beta1"]),
            ("apiregistration.k8s.io", "apiservices", ["v1", "v1", "v1", "v1"]),
            ("", "events", ["v1", "v1", "v1", "v1"]),
            ("networking.k8s.io", "ingresses", ["v1", "v1", "v1", "v1"]),
        ] {
            let of = |kind: &&Kind| kind.resource == resource && kind.hub().group == group;
            let kind = registry().iter().map(|(_, kind)| kind).find(of).expect(resource);
            for (release, stored) in (33..).zip(stored) {
                assert_eq!(kind.versions[kind.stored_version(release)].version, stored, "{resource} in 1.{release}");
            }
        }
        // All other kinds are stored in a stable version.
        for (_, kind) in registry().iter().filter(|(_, kind)| kind.stored) {
            let (hub, stored) = (kind.hub(), &kind.versions[kind.stored_version(NEWEST)]);
            assert!(stored.group == hub.group && (stored.version == hub.version || stored.version == "v1beta1"));
        }
    }

    #[test]
    fn an_older_release_has_what_it_had() {
        let at_18 = offered(&Offer { release: 18, ..Offer::default() });
        for there in ["v1", "apps/v1", "batch/v1", "batch/v1beta1", "policy/v1beta1", "extensions/v1beta1"] {
            assert!(at_18.iter().any(|one| one == there), "{there} in {at_18:?}");
        }
        for missing in ["policy/v1", "autoscaling/v2", "resource.k8s.io/v1", "events.k8s.io/v1", "discovery.k8s.io/v1"]
        {
            assert!(!at_18.iter().any(|one| one == missing), "{missing} in {at_18:?}");
        }
        let registry = Offer { release: 18, ..Offer::default() }.registry(registry());
        let (cron_job, version) = registry.find("batch", "v1", "cronjobs").expect("the server knows it");
        assert!(!registry.offers(cron_job, version));
        assert!(registry.served("batch", "v1").all(|(id, _)| registry.get(id).resource == "jobs"));
        let grown = offered(&Offer { release: 18, forward: true, ..Offer::default() });
        assert!(grown.iter().any(|one| one == "policy/v1") && !grown.iter().any(|one| one == "resource.k8s.io/v1"));
    }

    #[test]
    fn a_release_tells_what_it_knew_to_be_deprecated() {
        for (release, told) in [(18, [false, false]), (19, [true, false]), (33, [true, true]), (NEWEST, [true, true])] {
            let registry = Offer { release, ..Offer::default() }.registry(registry());
            // Ingress of `extensions` is deprecated since 1.14, and Endpoints since 1.33.
            let versions = [("extensions", "v1beta1", "ingresses"), ("", "v1", "endpoints")];
            let warned = versions.map(|(group, version, resource)| {
                let (id, version) = registry.find(group, version, resource).expect("the server knows it");
                registry.warning(registry.get(id), version).is_some()
            });
            assert_eq!(warned, told, "1.{release}");
        }
    }

    #[test]
    fn what_says_more_counts_more() {
        let offer = asking(&[
            ("api/all", false),
            ("v1", true),
            ("v1/pods", false),
            ("apps/v1", true),
            ("apps/v1/daemonsets", false),
        ]);
        assert_eq!(offer.faults(registry()), Vec::<String>::new());
        assert_eq!(offered(&offer), ["v1", "apps/v1"]);
        let registry = offer.registry(registry());
        let resources: Vec<&str> =
            registry.served("apps", "v1").map(|(id, _)| registry.get(id).resource.as_str()).collect();
        assert!(resources.contains(&"deployments") && !resources.contains(&"daemonsets"), "{resources:?}");
        let stable = offered(&asking(&[("api/alpha", false), ("api/beta", false)]));
        assert!(stable.iter().all(|one| !one.contains("alpha") && !one.contains("beta")), "{stable:?}");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let faults = asking(&[("nonsense.io/v1", true), ("batch/v9", false), ("apps/v1/nonsense", true)]);
        assert_eq!(
            faults.faults(registry()),
            [
                "apps/v1/nonsense is not served",
                "batch/v9 is not served",
                "unknown api groups nonsense.io: nonsense.io/v1 is not served",
            ]
        );
        assert_eq!(asking(&[("api/all", false)]).faults(registry()), ["invalid key with only api/all=false"]);
        let newer = Offer { release: 18, ..asking(&[("policy/v1", true)]) };
        assert!(newer.faults(registry())[0].contains("introduced in 1.21, after the emulation version 1.18"));
        let asked = Offer { asked_forward: true, ..newer };
        assert_eq!(asked.faults(registry()), Vec::<String>::new());
        assert!(offered(&asked).iter().any(|one| one == "policy/v1"));
    }
}

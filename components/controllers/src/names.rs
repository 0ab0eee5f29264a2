//! The names of controllers, and which of them run: the option `--controllers` of Kubernetes' controller manager.

/// A controller's name, and the name that it had before Kubernetes 1.27, which `--controllers` still accepts. The old
/// name is empty if the controller never had another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerName {
    pub name: &'static str,
    pub alias: &'static str,
    /// Whether the entry `*` of `--controllers` enables the controller.
    pub by_default: bool,
}

pub const fn named(name: &'static str, alias: &'static str) -> ControllerName {
    ControllerName { name, alias, by_default: true }
}

const fn unless_asked(name: &'static str, alias: &'static str) -> ControllerName {
    ControllerName { name, alias, by_default: false }
}

/// All controllers that Kubernetes has, whether Holdfast has them or not.
pub const ALL: [ControllerName; 52] = [
    named("serviceaccount-token-controller", "serviceaccount-token"),
    named("endpoints-controller", "endpoint"),
    named("endpointslice-controller", "endpointslice"),
    named("endpointslice-mirroring-controller", "endpointslicemirroring"),
    named("replicationcontroller-controller", "replicationcontroller"),
    named("pod-garbage-collector-controller", "podgc"),
    named("resourcequota-controller", "resourcequota"),
    named("namespace-controller", "namespace"),
    named("serviceaccount-controller", "serviceaccount"),
    named("garbage-collector-controller", "garbagecollector"),
    named("daemonset-controller", "daemonset"),
    named("job-controller", "job"),
    named("deployment-controller", "deployment"),
    named("replicaset-controller", "replicaset"),
    named("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    named("disruption-controller", "disruption"),
    named("statefulset-controller", "statefulset"),
    named("cronjob-controller", "cronjob"),
    named("certificatesigningrequest-signing-controller", "csrsigning"),
    named("certificatesigningrequest-approving-controller", "csrapproving"),
    named("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    named("podcertificaterequest-cleaner-controller", ""),
    named("ttl-controller", "ttl"),
    unless_asked("bootstrap-signer-controller", "bootstrapsigner"),
    unless_asked("token-cleaner-controller", "tokencleaner"),
    named("node-ipam-controller", "nodeipam"),
    named("node-lifecycle-controller", "nodelifecycle"),
    named("taint-eviction-controller", ""),
    named("device-taint-eviction-controller", ""),
    named("persistentvolume-binder-controller", "persistentvolume-binder"),
    named("persistentvolume-attach-detach-controller", "attachdetach"),
    named("persistentvolume-expander-controller", "persistentvolume-expander"),
    named("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    named("persistentvolumeclaim-protection-controller", "pvc-protection"),
    named("persistentvolume-protection-controller", "pv-protection"),
    named("volumeattributesclass-protection-controller", ""),
    named("ttl-after-finished-controller", "ttl-after-finished"),
    named("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    named("kube-apiserver-serving-clustertrustbundle-publisher-controller", ""),
    named("ephemeral-volume-controller", "ephemeral-volume"),
    // Kubernetes runs this controller only with the feature gate StorageVersionAPI, which is off by default.
    unless_asked("storageversion-garbage-collector-controller", "storage-version-gc"),
    named("resourceclaim-controller", "resource-claim-controller"),
    named("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    named("validatingadmissionpolicy-status-controller", ""),
    named("service-cidr-controller", ""),
    named("storage-version-migrator-controller", ""),
    unless_asked("selinux-warning-controller", ""),
    named("resourcepoolstatusrequest-controller", ""),
    named("podgroup-protection-controller", ""),
    named("service-lb-controller", "service"),
    named("node-route-controller", "route"),
    named("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
];

/// Controllers whose work Holdfast's API server always does itself, so no controller of that name runs.
pub const OF_THE_SERVER: [&str; 2] = ["namespace-controller", "clusterrole-aggregation-controller"];

/// Controllers that Holdfast does not have, and why.
pub const UNSUPPORTED: [(&str, &str); 7] = [
    (
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "its feature gate is off by default and not built",
    ),
    ("storage-version-migrator-controller", "nothing has to be stored anew: all versions are read for ever"),
    ("resourcepoolstatusrequest-controller", "ResourcePoolStatusRequests are not served"),
    ("podgroup-protection-controller", "PodGroups are not served"),
    ("service-lb-controller", NO_CLOUD),
    ("node-route-controller", NO_CLOUD),
    ("cloud-node-lifecycle-controller", NO_CLOUD),
];

const NO_CLOUD: &str = "it is a cloud controller manager's";

/// Which controllers run, according to `--controllers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// All controllers that `--controllers` may name.
    all: &'static [ControllerName],
    /// The entries for single controllers in the order of the option, with current names: whether the entry enables the
    /// controller, and the controller's name.
    entries: Vec<(bool, &'static str)>,
    /// Whether controllers without an entry run: `true` with `*`, and `false` with `-*` or if the option has neither.
    /// If it has both, the entry that comes first decides.
    others: bool,
}

impl Choice {
    /// Parses the entries of `--controllers`: `*`, `name`, `-name`. If several entries name one controller, the first
    /// of them decides.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Choice, String> {
        Choice::parse_of(&ALL, entries)
    }

    /// Like [`Choice::parse`], but the entries may name only the controllers in `all`.
    pub fn parse_of<'a>(
        all: &'static [ControllerName],
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Choice, String> {
        let mut choice = Choice { all, entries: Vec::new(), others: false };
        let mut unknown = Vec::new();
        let mut is_open = true;
        for entry in entries.into_iter().map(str::trim) {
            let (wanted, name) = entry.strip_prefix('-').map_or((true, entry), |name| (false, name));
            if name == "*" {
                choice.others = wanted && is_open;
                is_open = false;
                continue;
            }
            match all.iter().find(|named| named.name == name || !name.is_empty() && named.alias == name) {
                Some(named) => choice.entries.push((wanted, named.name)),
                None => unknown.push(format!("{name:?} is not in the list of known controllers")),
            }
        }
        if unknown.is_empty() { Ok(choice) } else { Err(unknown.join(", ")) }
    }

    /// Whether the controller of this name runs.
    pub fn runs(&self, name: &str) -> bool {
        let by_default = self.all.iter().any(|named| named.name == name && named.by_default);
        let entry = self.entries.iter().find(|(_, entry)| *entry == name);
        entry.map_or(self.others && by_default, |(wanted, _)| *wanted)
    }

    /// The controllers that `--controllers` enables by name.
    pub fn named(&self) -> impl Iterator<Item = &'static str> {
        let first = |place: usize, name: &str| self.entries.iter().position(|(_, entry)| *entry == name) == Some(place);
        let wanted: Vec<&'static str> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(at, (wanted, name))| *wanted && first(*at, name))
            .map(|(_, entry)| entry.1)
            .collect();
        wanted.into_iter()
    }

    /// Whether `--controllers` disables all controllers.
    pub fn is_nobody(&self) -> bool {
        !self.all.iter().any(|named| self.runs(named.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(entries: &str, name: &str) -> bool {
        Choice::parse(entries.split(',')).expect("known names").runs(name)
    }

    #[test]
    fn the_first_entry_that_names_a_controller_decides() {
        let rows = [
            ("*", "job-controller", true),
            ("*", "bootstrap-signer-controller", false),
            ("*,bootstrapsigner", "bootstrap-signer-controller", true),
            ("-job,*", "job-controller", false),
            ("*,-job-controller", "job-controller", false),
            ("job,-job-controller", "job-controller", true),
            ("-job,job", "job-controller", false),
            ("job", "deployment-controller", false),
            ("-*", "job-controller", false),
            ("-*,job", "job-controller", true),
        ];
        for (entries, name, expected) in rows {
            assert_eq!(runs(entries, name), expected, "{entries} {name}");
        }
    }

    #[test]
    fn unknown_names_are_refused_and_nobody_is_told_apart() {
        let refused = Choice::parse(["*", "jobs", ""]).expect_err("unknown");
        assert_eq!(
            refused,
            "\"jobs\" is not in the list of known controllers, \"\" is not in the list of known controllers"
        );
        assert!(Choice::parse(["-*"]).expect("known").is_nobody());
        assert!(!Choice::parse(["-*", "job"]).expect("known").is_nobody());
        let choice = Choice::parse(["-job", "job", "ttl", "*"]).expect("known");
        assert_eq!(choice.named().collect::<Vec<_>>(), ["ttl-controller"]);
    }

    #[test]
    fn every_controller_is_there_or_told_why_not() {
        let settings = crate::Settings {
            allocate_node_ranges: true,
            cluster_ranges: vec!["10.0.0.0/16".into()],
            device_taints: true,
            pod_certificates: true,
            ..crate::Settings::default()
        };
        let built: Vec<&str> = crate::all(&settings).iter().map(|controller| controller.name()).collect();
        for ControllerName { name, .. } in ALL {
            let left_out = UNSUPPORTED.iter().any(|(left, _)| *left == name);
            let is_there = built.contains(&name) || OF_THE_SERVER.contains(&name);
            assert!(is_there != left_out, "{name}");
        }
        for controller in crate::all(&crate::Settings::default()) {
            let is_known = ALL.iter().any(|named| named.name == controller.name());
            assert!(is_known, "{}", controller.name());
        }
    }
}

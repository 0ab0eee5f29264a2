//! `--feature-gates`: which gates there are, and which of them this server can turn.
//!
//! The list and its defaults are those of Kubernetes 1.18, so that the arguments of an old cluster keep their meaning.
//! Most of those features have become fixed parts of the API since, or were given up: their gates take only the value
//! that the server has, and say why otherwise, rather than promise what does not happen. Gates that other components
//! read are taken with any value, as one list serves all components.

mod newer;

use crate::values::parse_bool;
use Effect::{Elsewhere, Fixed, Grown, Switch};
use Stage::{Alpha, Beta, Deprecated};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The gates that the server obeys, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiGates {
    pub list_chunking: bool,
    pub response_compression: bool,
    pub dry_run: bool,
    pub remaining_item_count: bool,
    pub remove_self_link: bool,
    pub server_side_apply: bool,
    pub kms_v1: bool,
}

impl From<&Gates> for ApiGates {
    fn from(gates: &Gates) -> ApiGates {
        ApiGates {
            list_chunking: gates.enabled("APIListChunking"),
            response_compression: gates.enabled("APIResponseCompression"),
            dry_run: gates.enabled("DryRun"),
            remaining_item_count: gates.enabled("RemainingItemCount"),
            remove_self_link: gates.enabled("RemoveSelfLink"),
            server_side_apply: gates.enabled("ServerSideApply"),
            kms_v1: gates.enabled("KMSv1"),
        }
    }
}

// No doc comment: it would become the text about the command that takes these options.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Features")]
pub struct GateArgs {
    /// Features to turn on or off. Repeatable.
    #[arg(long, value_name = "NAME=BOOL,...", long_help = help())]
    pub feature_gates: Vec<Request>,
}

impl GateArgs {
    pub fn gates(&self) -> Result<Gates, String> {
        Gates::new(&self.feature_gates)
    }

    /// The same for a component that stands for a minor release.
    pub fn gates_of(&self, release: u32) -> Result<Gates, String> {
        Gates::of_release(&self.feature_gates, release)
    }
}

/// One use of the option: names that exist, with values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request(Vec<(&'static str, bool)>);

impl FromStr for Request {
    type Err = String;

    fn from_str(text: &str) -> Result<Request, String> {
        let mut asked = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            // Newer releases name the component whose gate it is.
            let (name, value) = (name.trim().trim_start_matches("kube:"), value.trim());
            if !part.contains('=') {
                return Err(format!("missing bool value for {name}"));
            }
            let value = parse_bool(value).map_err(|error| format!("invalid value of {name}={value}, err: {error}"))?;
            let known = ALL_OF_STAGE.iter().map(|(name, _)| *name).chain(GATES.iter().map(|gate| gate.name));
            let known = known.chain(newer::SERVED.iter().copied());
            let known = known.into_iter().find(|known| *known == name);
            asked.push((known.ok_or_else(|| format!("unrecognized feature gate: {name}"))?, value));
        }
        Ok(Request(asked))
    }
}

/// Every gate with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates(BTreeMap<&'static str, bool>);

impl Default for Gates {
    fn default() -> Gates {
        let values = GATES.iter().map(|gate| (gate.name, gate.value()));
        Gates(values.chain(ALL_OF_STAGE.iter().map(|(name, _)| (*name, false))).collect())
    }
}

impl Gates {
    /// Later requests overrule earlier ones; a gate's own name overrules the name of its whole stage.
    pub fn new(requests: &[Request]) -> Result<Gates, String> {
        Gates::of_release(requests, u32::MAX)
    }

    /// The same with the defaults of a minor release.
    pub fn of_release(requests: &[Request], release: u32) -> Result<Gates, String> {
        let asked: BTreeMap<&'static str, bool> =
            requests.iter().flat_map(|request| request.0.iter().copied()).collect();
        let mut gates = Gates::default();
        for gate in GATES {
            if let Grown(since) = gate.effect {
                gates.0.insert(gate.name, release >= since);
            }
        }
        if let Some(name) = newer::SERVED.iter().find(|name| asked.get(*name) == Some(&false)) {
            return Err(format!("cannot set feature gate {name} to false: what it guards is always served"));
        }
        for (all, stage) in ALL_OF_STAGE {
            let Some(&value) = asked.get(all) else { continue };
            gates.0.insert(all, value);
            // What already is the gate's default is not a wish, or `AllAlpha=false` would ask for features to go away
            // that have long since stopped to be alpha.
            let unnamed =
                |gate: &&Gate| gate.stage == *stage && gate.default != value && !asked.contains_key(gate.name);
            let wanted: Vec<&Gate> = GATES.iter().filter(unnamed).collect();
            let refused: Vec<&str> = wanted.iter().filter(|gate| !gate.takes(value)).map(|gate| gate.name).collect();
            if !refused.is_empty() {
                return Err(format!(
                    "cannot set feature gate {all} to {value}: this server cannot turn {}; name those that you need",
                    refused.join(", ")
                ));
            }
            gates.0.extend(wanted.into_iter().map(|gate| (gate.name, value)));
        }
        for gate in GATES {
            let Some(&value) = asked.get(gate.name) else { continue };
            if let Fixed(fixed, reason) = gate.effect
                && value != fixed
            {
                return Err(format!("cannot set feature gate {} to {value}: {reason}", gate.name));
            }
            gates.0.insert(gate.name, value);
        }
        Ok(gates)
    }

    /// Whether a gate is on. One that does not exist is not.
    pub fn enabled(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }

    /// Every gate with its stage, and whether it is on.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let stages = ALL_OF_STAGE.iter().map(|(name, stage)| (*name, stage.name()));
        let stages = stages.chain(GATES.iter().map(|gate| (gate.name, gate.stage.name())));
        stages.map(|(name, stage)| (name, stage, self.enabled(name)))
    }
}

/// The known gates, a line each.
pub fn help() -> String {
    let mut lines: Vec<String> = ALL_OF_STAGE
        .iter()
        .map(|(name, stage)| format!("{name}=true|false ({} - default=false)", stage.name()))
        .chain(GATES.iter().map(|gate| {
            let fixed = match gate.effect {
                Fixed(value, _) => format!("; always {value} here"),
                Grown(_) => "; true here".into(),
                Switch | Elsewhere => String::new(),
            };
            format!("{}=true|false ({} - default={}{fixed})", gate.name, gate.stage.name(), gate.default)
        }))
        .chain(newer::SERVED.iter().map(|name| format!("{name}=true (always served here)")))
        .collect();
    lines.sort();
    format!(
        "Features to turn on or off, as NAME=true|false, separated by commas. Repeatable. They are:\n{}",
        lines.join("\n")
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Deprecated,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Alpha => "ALPHA",
            Beta => "BETA",
            Deprecated => "DEPRECATED",
        }
    }
}

struct Gate {
    name: &'static str,
    stage: Stage,
    default: bool,
    effect: Effect,
}

impl Gate {
    fn takes(&self, value: bool) -> bool {
        !matches!(self.effect, Fixed(fixed, _) if fixed != value)
    }

    /// What the gate is when nobody asks.
    fn value(&self) -> bool {
        match self.effect {
            Fixed(value, _) => value,
            Grown(_) => true,
            Switch | Elsewhere => self.default,
        }
    }
}

/// What a gate does in this server.
enum Effect {
    /// It turns something on or off.
    Switch,
    /// A switch that is on unless somebody turns it off: the feature has long since become a fixed part.
    /// It is on by default since this minor release.
    Grown(u32),
    /// Other components read it, or nothing that a client sees depends on it. Both values are taken.
    Elsewhere,
    /// The server always behaves as under this value, for this reason.
    Fixed(bool, &'static str),
}

const fn gate(name: &'static str, stage: Stage, default: bool, effect: Effect) -> Gate {
    Gate { name, stage, default, effect }
}

/// Gates that stand for all of a stage.
const ALL_OF_STAGE: &[(&str, Stage)] = &[("AllAlpha", Alpha), ("AllBeta", Beta)];

const GATES: &[Gate] = &[
    gate("APIListChunking", Beta, true, Switch),
    gate(
        "APIPriorityAndFairness",
        Alpha,
        false,
        Fixed(false, "requests wait in no queues; limits on requests in progress apply instead"),
    ),
    gate("APIResponseCompression", Beta, true, Switch),
    // Logs of node agents are not passed on, so there is no connection that could be insecure.
    gate("AllowInsecureBackendProxy", Beta, true, Elsewhere),
    gate("AnyVolumeDataSource", Alpha, false, Fixed(true, "claims keep a data source of any kind")),
    gate("AppArmor", Beta, true, Fixed(true, "pods keep their AppArmor profiles")),
    gate("BalanceAttachedNodeVolumes", Alpha, false, Elsewhere),
    gate("BoundServiceAccountTokenVolume", Alpha, false, Fixed(false, "no token volume is put into pods")),
    gate("CPUManager", Beta, true, Elsewhere),
    gate("CRIContainerLogRotation", Beta, true, Elsewhere),
    gate("CSIInlineVolume", Beta, true, Fixed(true, "pods keep their inline CSI volumes")),
    gate("CSIMigration", Beta, true, Elsewhere),
    gate("CSIMigrationAWS", Beta, false, Elsewhere),
    gate("CSIMigrationAWSComplete", Alpha, false, Elsewhere),
    gate("CSIMigrationAzureDisk", Alpha, false, Elsewhere),
    gate("CSIMigrationAzureDiskComplete", Alpha, false, Elsewhere),
    gate("CSIMigrationAzureFile", Alpha, false, Elsewhere),
    gate("CSIMigrationAzureFileComplete", Alpha, false, Elsewhere),
    gate("CSIMigrationGCE", Beta, false, Elsewhere),
    gate("CSIMigrationGCEComplete", Alpha, false, Elsewhere),
    gate("CSIMigrationOpenStack", Beta, false, Elsewhere),
    gate("CSIMigrationOpenStackComplete", Alpha, false, Elsewhere),
    gate("ConfigurableFSGroupPolicy", Alpha, false, Fixed(true, "pods keep fsGroupChangePolicy")),
    gate("CustomCPUCFSQuotaPeriod", Alpha, false, Elsewhere),
    // The controllers read it: the scheduler minds taints of devices always.
    gate("DRADeviceTaints", Alpha, false, Elsewhere),
    // The scheduler reads it.
    gate("DRAExtendedResource", Alpha, false, Elsewhere),
    gate("DefaultIngressClass", Beta, true, Fixed(false, "ingresses get no class by themselves")),
    gate("DevicePlugins", Beta, true, Elsewhere),
    gate("DryRun", Beta, true, Switch),
    gate("DynamicAuditing", Alpha, false, Fixed(false, "Kubernetes gave up dynamic audit sinks in 1.19")),
    gate("DynamicKubeletConfig", Beta, true, Fixed(true, "nodes keep spec.configSource")),
    gate("EndpointSlice", Beta, true, Elsewhere),
    gate("EndpointSliceProxying", Alpha, false, Elsewhere),
    gate("EphemeralContainers", Alpha, false, Fixed(true, "pods have ephemeral containers")),
    gate("EvenPodsSpread", Beta, true, Fixed(true, "pods keep topologySpreadConstraints")),
    gate("ExpandCSIVolumes", Beta, true, Fixed(true, "volumes keep the secrets that expansion needs")),
    gate("ExpandInUsePersistentVolumes", Beta, true, Elsewhere),
    gate("ExpandPersistentVolumes", Beta, true, Fixed(true, "claims may grow")),
    gate("ExperimentalHostUserNamespaceDefaulting", Beta, false, Elsewhere),
    // The scheduler reads it.
    gate("GangScheduling", Alpha, false, Elsewhere),
    gate("HPAScaleToZero", Alpha, false, Fixed(true, "autoscalers may ask for no replicas at all")),
    gate("HugePageStorageMediumSize", Alpha, false, Fixed(true, "volumes may name a size of huge pages")),
    gate("HyperVContainer", Alpha, false, Elsewhere),
    gate("IPv6DualStack", Alpha, false, Fixed(false, "services get addresses of one family")),
    gate("ImmutableEphemeralVolumes", Alpha, false, Fixed(true, "secrets and config maps may be immutable")),
    // Encryption at rest by plug-ins of version 1: off by default since 1.29.
    gate("KMSv1", Deprecated, false, Switch),
    gate("KubeletPodResources", Beta, true, Elsewhere),
    gate("LegacyNodeRoleBehavior", Alpha, true, Elsewhere),
    gate("LocalStorageCapacityIsolation", Beta, true, Fixed(true, "limits of local storage are kept")),
    gate("LocalStorageCapacityIsolationFSQuotaMonitoring", Alpha, false, Elsewhere),
    gate("NodeDisruptionExclusion", Alpha, false, Elsewhere),
    gate("NonPreemptingPriority", Alpha, false, Fixed(true, "priority classes keep preemptionPolicy")),
    gate("PodDisruptionBudget", Beta, true, Elsewhere),
    gate("PodOverhead", Beta, true, Fixed(true, "pods and runtime classes keep their overhead")),
    gate("ProcMountType", Alpha, false, Fixed(true, "containers keep procMount")),
    gate("QOSReserved", Alpha, false, Elsewhere),
    gate("RemainingItemCount", Beta, true, Switch),
    gate("RemoveSelfLink", Alpha, false, Grown(20)),
    gate("ResourceLimitsPriorityFunction", Alpha, false, Elsewhere),
    gate("RotateKubeletClientCertificate", Beta, true, Elsewhere),
    gate("RotateKubeletServerCertificate", Beta, true, Elsewhere),
    gate("RunAsGroup", Beta, true, Fixed(true, "security contexts keep runAsGroup")),
    gate("RuntimeClass", Beta, true, Fixed(true, "pods keep runtimeClassName")),
    gate("SCTPSupport", Alpha, false, Fixed(true, "SCTP is a protocol like the others")),
    // Looking up pods by node is indexed, always: the answers are the same either way.
    gate("SelectorIndex", Alpha, false, Elsewhere),
    gate("ServerSideApply", Beta, true, Switch),
    gate("ServiceAccountIssuerDiscovery", Alpha, false, Fixed(false, "the documents about the issuer are not served")),
    gate("ServiceAppProtocol", Alpha, false, Fixed(true, "ports keep appProtocol")),
    gate("ServiceNodeExclusion", Alpha, false, Elsewhere),
    gate("ServiceTopology", Alpha, false, Fixed(false, "Kubernetes gave up topologyKeys in 1.22")),
    gate("StartupProbe", Beta, true, Fixed(true, "containers keep startupProbe")),
    gate("StorageVersionHash", Beta, true, Fixed(true, "discovery always tells the hash")),
    gate("SupportNodePidsLimit", Beta, true, Elsewhere),
    gate("SupportPodPidsLimit", Beta, true, Elsewhere),
    gate("Sysctls", Beta, true, Fixed(true, "pods keep their sysctls")),
    gate("TTLAfterFinished", Alpha, false, Fixed(true, "jobs keep ttlSecondsAfterFinished")),
    gate("TokenRequest", Beta, true, Fixed(true, "tokens of service accounts are always issued on request")),
    gate("TokenRequestProjection", Beta, true, Fixed(true, "pods keep projected tokens")),
    gate("TopologyManager", Beta, true, Elsewhere),
    gate("ValidateProxyRedirects", Beta, true, Fixed(true, "redirects of node agents are never followed")),
    gate("VolumeSnapshotDataSource", Beta, true, Fixed(true, "claims keep a snapshot as data source")),
    gate("WinDSR", Alpha, false, Elsewhere),
    gate("WinOverlay", Alpha, false, Elsewhere),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser, Debug)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        gates: GateArgs,
    }

    fn gates(values: &[&str]) -> Result<Gates, String> {
        let requests: Result<Vec<Request>, String> = values.iter().map(|value| value.parse()).collect();
        Gates::new(&requests?)
    }

    #[test]
    fn without_requests_every_gate_has_its_default() {
        let gates = gates(&[]).unwrap();
        for gate in GATES {
            assert_eq!(gates.enabled(gate.name), gate.value(), "{}", gate.name);
        }
        assert!(!gates.enabled("AllAlpha") && !gates.enabled("AllBeta") && !gates.enabled("NoSuchGate"));
        let all = ApiGates {
            list_chunking: true,
            response_compression: true,
            dry_run: true,
            remaining_item_count: true,
            remove_self_link: true,
            server_side_apply: true,
            kms_v1: false,
        };
        assert_eq!(ApiGates::from(&gates), all);
    }

    #[test]
    fn the_table_has_the_gates_of_the_release() {
        let count = |stage, default| GATES.iter().filter(|gate| gate.stage == stage && gate.default == default).count();
        // With three of today that the scheduler and controllers know; with the gates that bear a vendor's name, without those of a whole stage.
        let counts = [count(Beta, true), count(Beta, false), count(Alpha, true), count(Alpha, false)];
        assert_eq!(counts, [37, 4, 1, 40]);
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name), "sorted, and none twice");
        assert!(newer::SERVED.is_sorted_by(|a, b| a < b), "sorted, and none twice");
        assert!(GATES.iter().all(|gate| !newer::SERVED.contains(&gate.name)), "each in one table");
    }

    #[test]
    fn each_switch_turns_one_thing() {
        type Read = fn(&ApiGates) -> bool;
        let read: [(&str, Read); 7] = [
            ("APIListChunking", |gates| gates.list_chunking),
            ("APIResponseCompression", |gates| gates.response_compression),
            ("DryRun", |gates| gates.dry_run),
            ("KMSv1", |gates| gates.kms_v1),
            ("RemainingItemCount", |gates| gates.remaining_item_count),
            ("RemoveSelfLink", |gates| gates.remove_self_link),
            ("ServerSideApply", |gates| gates.server_side_apply),
        ];
        let switches: Vec<&str> =
            GATES.iter().filter(|gate| matches!(gate.effect, Switch | Grown(_))).map(|gate| gate.name).collect();
        assert_eq!(switches, read.map(|(name, _)| name));
        let usual = ApiGates::from(&Gates::default());
        for (name, own) in read {
            let turned = format!("{name}={}", !own(&usual));
            let gates = ApiGates::from(&gates(&[&turned]).unwrap());
            for (other, value) in read {
                assert_eq!(value(&gates) != value(&usual), other == name, "{other} under {turned}");
            }
        }
    }

    #[test]
    fn requests_add_up_and_the_last_one_counts() {
        for (values, on, off) in [
            (vec!["DryRun=false, ServerSideApply = F"], vec!["APIListChunking"], vec!["DryRun", "ServerSideApply"]),
            (vec!["DryRun=false", "WinDSR=true,"], vec!["WinDSR"], vec!["DryRun"]),
            (vec!["DryRun=false,DryRun=1"], vec!["DryRun"], vec![]),
            (vec!["DryRun=false", "DryRun=T"], vec!["DryRun"], vec![]),
            (vec!["kube:DryRun=false"], vec![], vec!["DryRun"]),
            (vec!["", ","], vec!["DryRun"], vec!["WinDSR"]),
            (vec!["EphemeralContainers=true"], vec!["EphemeralContainers"], vec![]),
            (vec!["DynamicResourceAllocation=true"], vec!["DryRun"], vec!["WinDSR"]),
            (vec!["AllAlpha=false"], vec!["RemoveSelfLink"], vec!["AllAlpha", "LegacyNodeRoleBehavior", "WinDSR"]),
            (vec!["LegacyNodeRoleBehavior=true,AllAlpha=false"], vec!["LegacyNodeRoleBehavior"], vec![]),
        ] {
            let gates = gates(&values).unwrap();
            for (names, expected) in [(on, true), (off, false)] {
                for name in names {
                    assert_eq!(gates.enabled(name), expected, "{name} under {values:?}");
                }
            }
        }
    }

    #[test]
    fn wrong_requests_are_refused_by_name() {
        for (value, expected) in [
            ("NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
            ("dryrun=true", "unrecognized feature gate: dryrun"),
            ("DryRun", "missing bool value for DryRun"),
            ("WinDSR=true,DryRun", "missing bool value for DryRun"),
            ("DryRun=abc", "invalid value of DryRun=abc, err: strconv.ParseBool: parsing \"abc\": invalid syntax"),
            ("DryRun=", "invalid value of DryRun=, err: strconv.ParseBool: parsing \"\": invalid syntax"),
            (
                "DynamicResourceAllocation=false",
                "cannot set feature gate DynamicResourceAllocation to false: what it guards is always served",
            ),
            ("SCTPSupport=false", "cannot set feature gate SCTPSupport to false: SCTP is a protocol like the others"),
            (
                "DynamicAuditing=true",
                "cannot set feature gate DynamicAuditing to true: Kubernetes gave up dynamic audit sinks in 1.19",
            ),
            (
                "AllAlpha=true",
                "cannot set feature gate AllAlpha to true: this server cannot turn APIPriorityAndFairness, \
                 BoundServiceAccountTokenVolume, DynamicAuditing, IPv6DualStack, ServiceAccountIssuerDiscovery, \
                 ServiceTopology; name those that you need",
            ),
        ] {
            assert_eq!(gates(&[value]).unwrap_err(), expected, "{value}");
        }
        assert!(gates(&["AllBeta=false"]).unwrap_err().contains(" AppArmor, CSIInlineVolume, "));
    }

    /// Whoever names what cannot be turned may turn the rest of a stage at once.
    #[test]
    fn a_stage_is_turned_around_what_is_fixed() {
        let exceptions: Vec<String> = GATES
            .iter()
            .filter_map(|gate| match gate.effect {
                Fixed(value, _) => Some(format!("{}={value}", gate.name)),
                Switch | Grown(_) | Elsewhere => None,
            })
            .collect();
        let exceptions = exceptions.join(",");
        let gates = gates(&["AllAlpha=true,AllBeta=false", &exceptions]).unwrap();
        for gate in GATES.iter().filter(|gate| !matches!(gate.effect, Fixed(..))) {
            assert_eq!(gates.enabled(gate.name), gate.stage == Alpha, "{}", gate.name);
        }
        assert!(!ApiGates::from(&gates).dry_run);
    }

    #[test]
    fn every_gate_takes_what_it_has() {
        for gate in GATES {
            let request = format!("{}={}", gate.name, gate.value());
            assert_eq!(gates(&[&request]), Ok(Gates::default()), "{request}");
        }
    }

    #[test]
    fn the_option_is_repeatable_and_its_help_lists_the_gates() {
        let cli = Cli::try_parse_from(["holdfast", "--feature-gates=DryRun=false", "--feature-gates", "WinDSR=true"]);
        let gates = cli.unwrap().gates.gates().unwrap();
        assert!(!gates.enabled("DryRun") && gates.enabled("WinDSR"));
        let error = Cli::try_parse_from(["holdfast", "--feature-gates=X=true"]).unwrap_err().to_string();
        assert!(error.contains("unrecognized feature gate: X"), "{error}");
        let help = Cli::command().render_long_help().to_string();
        for line in [
            "APIListChunking=true|false (BETA - default=true)",
            "AllAlpha=true|false (ALPHA - default=false)",
            "RemoveSelfLink=true|false (ALPHA - default=false; true here)",
        ] {
            assert!(help.lines().any(|shown| shown.trim() == line), "{line} in {help}");
        }
    }
}

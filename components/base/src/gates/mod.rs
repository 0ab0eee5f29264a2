//! `--feature-gates`: the known gates, and the effect of each in Holdfast.
//!
//! The gates of Kubernetes 1.18 and of 1.35 are known, so the arguments of old clusters keep their meaning. If the
//! server cannot switch a gate, the gate accepts only the value that the server has. The other value is refused with
//! the reason, because an operator would be misled if the value were accepted without effect. Gates that only other
//! components read accept both values, because operators pass one list to all components. `AllAlpha` and `AllBeta`
//! switch the gates that can be switched.

mod table;

use crate::values::parse_bool;
use Effect::{Ahead, Always, Elsewhere, Kinds, Never, Switch, Unseen};
use GateStage::{Alpha, Beta};
use holdfast_core::kinds::field_gates;
use holdfast_core::kinds::offered::{NEWEST, OLDEST};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use table::{GATES, Gate, STABLE_GATES};

/// The gate of PodCertificateRequests, and of the controller that deletes old requests.
pub const POD_CERTIFICATES: &str = "PodCertificateRequest";

/// Which features of the API server are on, by the gates that switch them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiGates {
    pub list_chunking: bool,
    pub response_compression: bool,
    pub dry_run: bool,
    pub remaining_item_count: bool,
    pub remove_self_link: bool,
    pub server_side_apply: bool,
    pub kms_v1: bool,
    pub priority_and_fairness: bool,
    pub identity: bool,
    pub coordinated_election: bool,
    pub issuer_discovery: bool,
    pub request_header_uid: bool,
    pub constrained_impersonation: bool,
    pub certificate_uids: bool,
    pub dual_stack: bool,
    pub unauthenticated_http2_dos_mitigation: bool,
    pub watch_list: bool,
    pub upgrades_need_create: bool,
    pub unsafe_deletion: bool,
    pub translated_websockets: bool,
    pub tunnelled_ports: bool,
    pub websockets_to_kubelets: bool,
    pub insecure_backends: bool,
    pub egress_of_issuers: bool,
    pub flagz: bool,
    pub statusz: bool,
    /// Resources that gates turn off unless an option names them, as `GROUP/VERSION/RESOURCE`.
    pub kinds_off: Vec<&'static str>,
    /// Admission plug-ins that gates turn off.
    pub plugins_off: Vec<&'static str>,
    /// Gates that are off and that would add fields to objects.
    pub fields_off: BTreeSet<&'static str>,
}

/// Gates of admission plug-ins, each with the name of its plug-in.
const PLUGINS: [(&str, &str); 3] = [
    ("DefaultIngressClass", "DefaultIngressClass"),
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicy"),
    ("PodTopologyLabelsAdmission", "PodTopologyLabels"),
];

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
            priority_and_fairness: gates.enabled("APIPriorityAndFairness"),
            identity: gates.enabled("APIServerIdentity"),
            coordinated_election: gates.enabled("CoordinatedLeaderElection"),
            issuer_discovery: gates.enabled("ServiceAccountIssuerDiscovery"),
            request_header_uid: gates.enabled("RemoteRequestHeaderUID"),
            constrained_impersonation: gates.enabled("ConstrainedImpersonation"),
            dual_stack: gates.enabled("IPv6DualStack"),
            certificate_uids: gates.enabled("AllowParsingUserUIDFromCertAuth"),
            unauthenticated_http2_dos_mitigation: gates.enabled("UnauthenticatedHTTP2DOSMitigation"),
            watch_list: gates.enabled("WatchList"),
            unsafe_deletion: gates.enabled("AllowUnsafeMalformedObjectDeletion"),
            upgrades_need_create: gates.enabled("AuthorizePodWebsocketUpgradeCreatePermission"),
            translated_websockets: gates.enabled("TranslateStreamCloseWebsocketRequests"),
            tunnelled_ports: gates.enabled("PortForwardWebsockets"),
            websockets_to_kubelets: gates.enabled("ExtendWebSocketsToKubelet"),
            insecure_backends: gates.enabled("AllowInsecureBackendProxy"),
            flagz: gates.enabled("ComponentFlagz"),
            statusz: gates.enabled("ComponentStatusz"),
            egress_of_issuers: gates.enabled("StructuredAuthenticationConfigurationEgressSelector"),
            kinds_off: gates.kinds_off(),
            plugins_off: PLUGINS.iter().filter(|(gate, _)| !gates.enabled(gate)).map(|(_, plugin)| *plugin).collect(),
            fields_off: field_gates().into_iter().filter(|gate| !gates.enabled(gate)).collect(),
        }
    }
}

// This type must have no doc comment, because the comment would become the help text of the command that takes these
// options.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Features")]
pub struct GateArgs {
    /// Feature gates to turn on or off. Repeatable.
    #[arg(long, value_name = "NAME=BOOL,...", long_help = help())]
    pub feature_gates: Vec<GateRequest>,
}

impl GateArgs {
    pub fn gates(&self) -> Result<Gates, String> {
        Gates::new(&self.feature_gates)
    }

    /// The value of every gate, with the defaults of the minor release that a component emulates.
    pub fn gates_of(&self, release: u32) -> Result<Gates, String> {
        Gates::of_release(&self.feature_gates, release)
    }
}

/// The gates of one `--feature-gates` argument, each with its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateRequest(Vec<(&'static str, bool)>);

impl FromStr for GateRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<GateRequest, String> {
        let (mut asked, mut faults) = (Vec::new(), Vec::new());
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match read(part) {
                Ok(gate) => asked.push(gate),
                Err(why) => faults.push(why),
            }
        }
        if faults.is_empty() { Ok(GateRequest(asked)) } else { Err(faults.join("; ")) }
    }
}

/// Parses `NAME=BOOL`. A gate that does not exist is an error.
fn read(part: &str) -> Result<(&'static str, bool), String> {
    let (name, value) = part.split_once('=').unwrap_or((part, ""));
    // Newer releases put the component's name before the gate's name.
    let (name, value) = (name.trim().trim_start_matches("kube:"), value.trim());
    if !part.contains('=') {
        return Err(format!("missing bool value for {name}"));
    }
    let value = parse_bool(value).map_err(|error| format!("invalid value of {name}={value}, err: {error}"))?;
    let known = ALL_OF_STAGE.iter().map(|(name, _)| *name).chain(GATES.iter().map(|gate| gate.name));
    let known = known.chain(STABLE_GATES.iter().copied()).find(|known| *known == name);
    Ok((known.ok_or_else(|| format!("unrecognized feature gate: {name}"))?, value))
}

/// Every gate with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    release: u32,
    values: BTreeMap<&'static str, bool>,
    /// Messages about `AllAlpha` and `AllBeta`: which gates the server could not switch as requested.
    notes: Vec<String>,
}

impl Default for Gates {
    fn default() -> Gates {
        Gates::standing_for(NEWEST)
    }
}

impl Gates {
    /// The gates that these requests give. Later requests override earlier requests; a gate's own name overrides
    /// `AllAlpha` and `AllBeta`.
    pub fn new(requests: &[GateRequest]) -> Result<Gates, String> {
        Gates::of_release(requests, NEWEST)
    }

    fn standing_for(release: u32) -> Gates {
        let values = GATES.iter().map(|gate| (gate.name, gate.value(release)));
        let values = values.chain(STABLE_GATES.iter().map(|name| (*name, true)));
        let values = values.chain(ALL_OF_STAGE.iter().map(|(name, _)| (*name, false)));
        Gates { release, values: values.collect(), notes: Vec::new() }
    }

    /// Like [`Gates::new`], with the defaults of a minor release, such as 18 for 1.18. The error lists every invalid
    /// request.
    pub fn of_release(requests: &[GateRequest], release: u32) -> Result<Gates, String> {
        let asked: BTreeMap<&'static str, bool> =
            requests.iter().flat_map(|request| request.0.iter().copied()).collect();
        let mut gates = Gates::standing_for(release);
        let mut faults = Vec::new();
        for (all, stage) in ALL_OF_STAGE {
            let Some(&value) = asked.get(all) else { continue };
            gates.values.insert(all, value);
            if ![OLDEST, NEWEST].contains(&release) {
                faults.push(format!(
                    "cannot set feature gate {all}: its list of gates is known for 1.{OLDEST} and 1.{NEWEST} only"
                ));
                continue;
            }
            // Only gates whose default differs from the value are switched. Otherwise `AllAlpha=false` would switch
            // features off that have long since left alpha.
            let is_unnamed =
                |gate: &&Gate| gate.spec(release) == Some((*stage, !value)) && !asked.contains_key(gate.name);
            let (wanted, fixed): (Vec<&Gate>, Vec<&Gate>) =
                GATES.iter().filter(is_unnamed).partition(|gate| gate.takes(value));
            if !fixed.is_empty() {
                let fixed: Vec<&str> = fixed.iter().map(|gate| gate.name).collect();
                gates.notes.push(format!(
                    "{all}={value} does not change gates that are fixed in this server: {}",
                    fixed.join(", ")
                ));
            }
            gates.values.extend(wanted.into_iter().map(|gate| (gate.name, value)));
        }
        for (name, value) in asked {
            let refusal = match GATES.iter().find(|gate| gate.name == name) {
                Some(Gate { effect: Always(why), .. }) if !value => Some(*why),
                Some(Gate { effect: Never(why), .. }) if value => Some(*why),
                None if STABLE_GATES.contains(&name) && !value => Some("the feature is always on"),
                _ => None,
            };
            faults.extend(refusal.map(|why| format!("cannot set feature gate {name} to {value}: {why}")));
            gates.values.insert(name, value);
        }
        if faults.is_empty() { Ok(gates) } else { Err(faults.join("; ")) }
    }

    /// Whether a gate is on. A gate that does not exist counts as off.
    pub fn enabled(&self, name: &str) -> bool {
        self.values.get(name).copied().unwrap_or(false)
    }

    /// Messages about `AllAlpha` and `AllBeta`: which gates the server could not switch as requested.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn kinds_off(&self) -> Vec<&'static str> {
        let off = GATES.iter().filter(|gate| !self.enabled(gate.name));
        let kinds = off.filter_map(|gate| match gate.effect {
            Kinds(kinds) => Some(kinds),
            _ => None,
        });
        kinds.flatten().copied().collect()
    }

    /// Every gate of the release, with its stage and whether it is on.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let stages = ALL_OF_STAGE.iter().map(|(name, stage)| (*name, stage.name()));
        let of_release = GATES.iter().filter_map(|gate| Some((gate.name, gate.spec(self.release)?.0.name())));
        stages.chain(of_release).map(|(name, stage)| (name, stage, self.enabled(name)))
    }
}

/// The help text of `--feature-gates`: the known gates, one on each line.
pub fn help() -> String {
    let mut lines: Vec<String> = ALL_OF_STAGE
        .iter()
        .map(|(name, stage)| format!("{name}=true|false ({} - default=false)", stage.name()))
        .chain(GATES.iter().map(|gate| {
            // If neither 1.18 nor 1.35 has the gate, the gate belongs to the release after 1.35, in which it is beta.
            let (stage, default) = gate.now.or(gate.then).unwrap_or((Beta, true));
            let here = match gate.effect {
                Always(_) => "; always true here",
                Never(_) => "; always false here",
                Ahead(_) | Kinds(_) if !default => "; true here",
                Ahead(_) | Kinds(_) | Switch(..) | Elsewhere | Unseen => "",
            };
            format!("{}=true|false ({} - default={default}{here})", gate.name, stage.name())
        }))
        .chain(STABLE_GATES.iter().map(|name| format!("{name}=true (always served here)")))
        .collect();
    lines.sort();
    format!(
        "Feature gates to turn on or off, as NAME=true|false, separated by commas. Repeatable. The gates are:\n{}",
        lines.join("\n")
    )
}

/// The known gates as rows of a table: the name, the state in 1.18 and in 1.35, and the effect in Holdfast.
pub fn rows() -> Vec<[String; 4]> {
    let shown = |spec: GateSpec| spec.map_or(String::new(), |(stage, on)| format!("{} {on}", stage.name()));
    let effect = |gate: &Gate| match gate.effect {
        Switch(_, what) => format!("a switch: {what}"),
        Ahead(what) => format!("a switch, on by default as in 1.36: {what}"),
        Kinds(kinds) => format!("a switch, on by default here: {} are served", kinds.join(", ")),
        Always(why) => format!("always true: {why}"),
        Never(why) => format!("always false: {why}"),
        Elsewhere => "no effect: the API server does not use it".to_owned(),
        Unseen => "no effect: clients see no difference".to_owned(),
    };
    let named = GATES.iter().map(|gate| [gate.name.to_owned(), shown(gate.then), shown(gate.now), effect(gate)]);
    let stable = STABLE_GATES.iter().map(|name| {
        [(*name).to_owned(), String::new(), "GA true".to_owned(), "always true: the feature is always on".to_owned()]
    });
    let mut rows: Vec<[String; 4]> = named.chain(stable).collect();
    rows.sort();
    rows
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateStage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

impl GateStage {
    fn name(self) -> &'static str {
        match self {
            Alpha => "ALPHA",
            Beta => "BETA",
            GateStage::Stable => "GA",
            GateStage::Deprecated => "DEPRECATED",
        }
    }
}

/// A gate's stage and default in a release; `None` if the release has no such gate.
type GateSpec = Option<(GateStage, bool)>;

impl Gate {
    fn spec(&self, release: u32) -> GateSpec {
        if release == OLDEST { self.then } else { self.now }
    }

    fn takes(&self, value: bool) -> bool {
        match self.effect {
            Always(_) => value,
            Never(_) => !value,
            Switch(..) | Ahead(_) | Kinds(_) | Elsewhere | Unseen => true,
        }
    }

    /// A gate's default in a release.
    fn value(&self, release: u32) -> bool {
        let is_on = |spec: GateSpec, gone: bool| spec.map_or(gone, |(_, on)| on);
        match self.effect {
            Always(_) => true,
            Never(_) => false,
            Ahead(_) => release >= NEWEST || is_on(self.then, false),
            Kinds(_) => true,
            Switch(since, _) if release >= since => is_on(self.now, true),
            Switch(..) => is_on(self.then, false),
            // Other components may emulate another release. So if `release` does not have the gate, the gate has its
            // default of 1.35, or else of 1.18.
            Elsewhere => is_on(self.spec(release).or(self.now).or(self.then), false),
            Unseen => is_on(self.spec(release), self.now.is_none()),
        }
    }
}

/// The effect of a gate in this server.
enum Effect {
    /// The gate switches the named feature. If the emulated release has at least this minor version, the gate's default
    /// is the default of 1.35, or on if 1.35 has no such gate. Otherwise the gate's default is the default of 1.18.
    Switch(u32, &'static str),
    /// Like `Switch`, for a feature that is on by default in the release after 1.35, which may be the first release
    /// that has the gate. The feature is on in Holdfast, too, because clients of that release rely on it.
    Ahead(&'static str),
    /// The gate switches whether these resources are served, as `--runtime-config` does. By default they are served.
    Kinds(&'static [&'static str]),
    /// The server always behaves as if the gate were on, for the reason in this text.
    Always(&'static str),
    /// The server always behaves as if the gate were off, for the reason in this text.
    Never(&'static str),
    /// Only other components read the gate; the server ignores it.
    Elsewhere,
    /// The gate switches how Kubernetes implements something, which makes no difference for clients.
    Unseen,
}

/// The gates that stand for all gates of a stage, each with its stage.
const ALL_OF_STAGE: &[(&str, GateStage)] = &[("AllAlpha", Alpha), ("AllBeta", Beta)];

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

    fn gates_of(values: &[&str], release: u32) -> Result<Gates, String> {
        let requests: Result<Vec<GateRequest>, String> = values.iter().map(|value| value.parse()).collect();
        Gates::of_release(&requests?, release)
    }

    fn gates(values: &[&str]) -> Result<Gates, String> {
        gates_of(values, NEWEST)
    }

    #[test]
    fn the_table_has_the_gates_of_both_releases() {
        let count = |spec: fn(&Gate) -> GateSpec, stage, default| {
            GATES.iter().filter(|gate| spec(gate) == Some((stage, default))).count()
        };
        let counts =
            |spec| [(Beta, true), (Beta, false), (Alpha, true), (Alpha, false)].map(|(s, d)| count(spec, s, d));
        // The expected counts include the gates with a vendor's name, and exclude `AllAlpha` and `AllBeta`.
        assert_eq!(counts(|gate| gate.then), [37, 4, 1, 37]);
        assert_eq!(counts(|gate| gate.now), [72, 14, 0, 53]);
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name), "sorted, and none twice");
        assert!(STABLE_GATES.is_sorted_by(|a, b| a < b), "sorted, and none twice");
        assert!(GATES.iter().all(|gate| !STABLE_GATES.contains(&gate.name)), "each in one table");
        let is_ahead = |gate: &Gate| matches!(gate.effect, Ahead(_));
        let is_of_some_release = |gate: &Gate| gate.then.is_some() || gate.now.is_some() || is_ahead(gate);
        assert!(GATES.iter().all(is_of_some_release), "each in one of the releases, or in the one after");
    }

    /// If a gate has an effect, switching the gate changes a setting of the server. If the server has only one of the
    /// two values, the other value is refused. All other gates accept both values without effect on the server.
    #[test]
    fn every_gate_does_what_it_says() {
        let usual = ApiGates::from(&Gates::default());
        for gate in GATES {
            let turned = |value: bool| gates(&[&format!("{}={value}", gate.name)]);
            match gate.effect {
                Switch(..) | Ahead(_) | Kinds(_) => {
                    let other = ApiGates::from(&turned(!gate.value(NEWEST)).expect(gate.name));
                    assert_ne!(other, usual, "{} turns nothing", gate.name);
                }
                Always(why) | Never(why) => {
                    let value = matches!(gate.effect, Always(_));
                    assert_eq!(turned(value), Ok(Gates::default()), "{}", gate.name);
                    let expected = format!("cannot set feature gate {} to {}: {why}", gate.name, !value);
                    assert_eq!(turned(!value).unwrap_err(), expected);
                }
                Elsewhere | Unseen => {
                    for value in [true, false] {
                        assert_eq!(ApiGates::from(&turned(value).expect(gate.name)), usual, "{}", gate.name);
                    }
                }
            }
        }
        for name in STABLE_GATES {
            assert_eq!(gates(&[&format!("{name}=true")]), Ok(Gates::default()), "{name}");
            let expected = format!("cannot set feature gate {name} to false: the feature is always on");
            assert_eq!(gates(&[&format!("{name}=false")]).unwrap_err(), expected);
        }
        for gate in field_gates() {
            let effect = &find(gate).effect;
            assert!(matches!(effect, Switch(..) | Ahead(_) | Kinds(_)), "fields hang on {gate}, which is not a switch");
        }
        let off: BTreeSet<&str> = holdfast_core::pipeline::Settings::default().gates_off;
        assert_eq!(off, usual.fields_off, "what is not told of gates has the defaults of this release");
    }

    fn find(name: &str) -> &'static Gate {
        GATES.iter().find(|gate| gate.name == name).unwrap_or_else(|| panic!("{name} is in no row"))
    }

    #[test]
    fn a_release_has_its_own_defaults() {
        for (name, release, expected) in [
            ("RemoveSelfLink", 19, false),
            ("RemoveSelfLink", 20, true),
            ("APIPriorityAndFairness", 18, false),
            ("APIPriorityAndFairness", 20, true),
            ("KMSv1", 28, true),
            ("KMSv1", 29, false),
            ("StartupProbe", 18, true),
            ("TTLAfterFinished", 18, false),
            ("TTLAfterFinished", NEWEST, true),
            ("PodLevelResources", 33, false),
            ("CoordinatedLeaderElection", 18, false),
            ("ServiceAccountIssuerDiscovery", 18, false),
            ("SchedulerPopFromBackoffQ", 18, true),
            ("SchedulerPopFromBackoffQ", NEWEST, true),
            ("GangScheduling", 18, false),
            ("ResourceLimitsPriorityFunction", 18, false),
            ("ResourceLimitsPriorityFunction", NEWEST, false),
        ] {
            assert_eq!(gates_of(&[], release).unwrap().enabled(name), expected, "{name} of 1.{release}");
        }
        // A server that emulates 1.18 has the defaults of 1.18 for gates that can be switched.
        for gate in GATES.iter().filter(|gate| matches!(gate.effect, Switch(..)) && gate.then.is_some()) {
            assert_eq!(gate.value(OLDEST), gate.then.is_some_and(|(_, on)| on), "{}", gate.name);
        }
        let names: Vec<&str> = gates_of(&[], OLDEST).unwrap().states().map(|(name, ..)| name).collect();
        assert!(names.contains(&"TTLAfterFinished") && !names.contains(&"PodLevelResources"), "{names:?}");
    }

    #[test]
    fn requests_add_up_and_the_last_one_counts() {
        for (values, on, off) in [
            (vec!["DryRun=false, ServerSideApply = F"], vec!["APIListChunking"], vec!["DryRun", "ServerSideApply"]),
            (vec!["DryRun=false", "WinDSR=false,"], vec![], vec!["DryRun", "WinDSR"]),
            (vec!["DryRun=false,DryRun=1"], vec!["DryRun"], vec![]),
            (vec!["DryRun=false", "DryRun=T"], vec!["DryRun"], vec![]),
            (vec!["kube:DryRun=false"], vec![], vec!["DryRun"]),
            (vec!["", ","], vec!["DryRun", "RemoveSelfLink"], vec!["CoordinatedLeaderElection"]),
            (vec!["EphemeralContainers=true"], vec!["EphemeralContainers"], vec![]),
            (vec!["AllAlpha=false"], vec!["RemoveSelfLink"], vec!["AllAlpha", "MemoryQoS"]),
            (
                vec!["AllBeta=true"],
                vec!["AllBeta", "CoordinatedLeaderElection", "CRDObservedGenerationTracking"],
                vec!["MemoryQoS"],
            ),
        ] {
            let gates = gates(&values).unwrap_or_else(|why| panic!("{values:?}: {why}"));
            for (names, expected) in [(on, true), (off, false)] {
                for name in names {
                    assert_eq!(gates.enabled(name), expected, "{name} under {values:?}");
                }
            }
        }
        let old = gates_of(&["AllAlpha=false"], OLDEST).unwrap();
        assert!(!old.enabled("LegacyNodeRoleBehavior") && old.enabled("DryRun"));
    }

    #[test]
    fn wrong_requests_are_refused_by_name() {
        for (value, expected) in [
            ("NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
            ("dryrun=true", "unrecognized feature gate: dryrun"),
            ("DryRun", "missing bool value for DryRun"),
            ("X=true,DryRun", "unrecognized feature gate: X; missing bool value for DryRun"),
            ("DryRun=abc", "invalid value of DryRun=abc, err: strconv.ParseBool: parsing \"abc\": invalid syntax"),
            ("DryRun=", "invalid value of DryRun=, err: strconv.ParseBool: parsing \"\": invalid syntax"),
            (
                "DynamicAuditing=true,StorageVersionHash=false",
                "cannot set feature gate DynamicAuditing to true: Kubernetes removed dynamic audit sinks in 1.19; cannot \
                 set feature gate StorageVersionHash to false: discovery always contains the hash",
            ),
        ] {
            assert_eq!(gates(&[value]).unwrap_err(), expected, "{value}");
        }
        let all = gates(&["AllAlpha=true"]).unwrap();
        assert!(all.enabled("HPAScaleToZero") && !all.enabled("CBORServingAndStorage"));
        let expected = "AllAlpha=true does not change gates that are fixed in this server: CBOR";
        assert!(all.notes()[0].starts_with(expected), "{:?}", all.notes());
        let none = gates(&["AllBeta=false"]).unwrap();
        assert!(!none.enabled("DRAAdminAccess") && none.enabled("OpenAPIEnums"));
        assert!(none.notes()[0].contains(" OpenAPIEnums, "), "{:?}", none.notes());
        assert!(gates_of(&["AllBeta=true"], 27).unwrap_err().contains("1.18 and 1.35"));
    }

    /// `AllAlpha` and `AllBeta` switch all gates that can be switched, if the request also names the value of each gate
    /// that cannot be switched.
    #[test]
    fn a_stage_is_turned_around_what_is_fixed() {
        for release in [OLDEST, NEWEST] {
            let fixed = GATES.iter().filter(|gate| gate.takes(true) != gate.takes(false));
            let exceptions: Vec<String> = fixed.map(|gate| format!("{}={}", gate.name, gate.value(release))).collect();
            let exceptions = exceptions.join(",");
            let gates = gates_of(&["AllAlpha=true,AllBeta=false", &exceptions], release).unwrap();
            for gate in GATES.iter().filter(|gate| gate.takes(true) && gate.takes(false)) {
                if let Some((stage @ (Alpha | Beta), usual)) = gate.spec(release)
                    && usual != (stage == Alpha)
                {
                    assert_eq!(gates.enabled(gate.name), stage == Alpha, "{} of 1.{release}", gate.name);
                }
            }
        }
    }

    #[test]
    fn the_option_is_repeatable_and_its_help_lists_the_gates() {
        let cli =
            Cli::try_parse_from(["holdfast", "--feature-gates=DryRun=false", "--feature-gates", "MemoryQoS=true"]);
        let gates = cli.unwrap().gates.gates().unwrap();
        assert!(!gates.enabled("DryRun") && gates.enabled("MemoryQoS"));
        let error = Cli::try_parse_from(["holdfast", "--feature-gates=X=true"]).unwrap_err().to_string();
        assert!(error.contains("unrecognized feature gate: X"), "{error}");
        let help = Cli::command().render_long_help().to_string();
        for line in [
            "APIListChunking=true|false (BETA - default=true)",
            "AllAlpha=true|false (ALPHA - default=false)",
            "CBORServingAndStorage=true|false (ALPHA - default=false; always false here)",
            "DRAPartitionableDevices=true|false (ALPHA - default=false; true here)",
        ] {
            assert!(help.lines().any(|shown| shown.trim() == line), "{line} in {help}");
        }
    }
}

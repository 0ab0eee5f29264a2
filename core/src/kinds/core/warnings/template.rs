//! Warnings about pods and pod templates.

use super::addresses::of_address;
use super::{fraction, list, of_claim, of_each, of_term, old_label, part, paths};
use crate::kinds::Kind;
use crate::object::meta::{Document, metadata};
use crate::refusal::Texts;
use holdfast_value::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Warns about a pod only on create, because people seldom make later changes.
pub fn pod(_: &Kind, pod: &Document, old: Option<&Document>) -> Texts {
    if old.is_some() {
        return Texts::default();
    }
    let mut warnings = name(pod, "the Pod's hostname");
    let template = Template { at: "", metadata: metadata(pod), spec: part(pod, "spec") };
    template.warn(&mut warnings);
    warnings
}

/// Warns about the template at this path, if the object is new or its spec has changed.
pub fn template(object: &Document, old: Option<&Document>, path: &'static str) -> Texts {
    // The top-level field of the path: `spec`, or `template` for a PodTemplate.
    let top = path.split('.').next().unwrap_or_default();
    if old.is_some_and(|old| part(old, top) == part(object, top)) {
        return Texts::default();
    }
    let template = path.split('.').skip(1).fold(part(object, top), |at, name| &at[name]);
    let empty = Map::new();
    let metadata = template["metadata"].as_object().unwrap_or(&empty);
    let mut warnings = Texts::default();
    Template { at: path, metadata, spec: &template["spec"] }.warn(&mut warnings);
    warnings
}

/// Like [`template`]. Also warns about the name of a new object if it is not a DNS label.
pub fn workload(object: &Document, old: Option<&Document>, path: &'static str) -> Texts {
    let mut warnings = if old.is_none() { name(object, "Pod names and hostnames") } else { Texts::default() };
    warnings.append(template(object, old, path));
    warnings
}

/// Like [`workload`]. Also warns about jobs with more indexes than their status can list.
pub fn job(object: &Document, old: Option<&Document>, spec: &'static str, path: &'static str) -> Texts {
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let mut warnings = if old.is_none() { name(object, "Pod names and hostnames") } else { Texts::default() };
    let job = spec.split('.').skip(1).fold(part(object, "spec"), |at, name| &at[name]);
    let is_over = |field: &str, most: i64| job[field].as_i64().is_some_and(|count| count > most);
    let is_new = old.is_none_or(|old| part(old, "spec") != part(object, "spec"));
    if is_new
        && job["completionMode"] == "Indexed"
        && is_over("completions", COMPLETIONS)
        && is_over("parallelism", PARALLELISM)
    {
        warnings.push(format!(
            "{spec}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.append(template(object, old, path));
    warnings
}

fn name(object: &Document, used: &str) -> Texts {
    let name = metadata(object).get("name").and_then(Value::as_str).unwrap_or_default();
    let mut faults = Vec::new();
    if name.len() > 63 {
        faults.push("must be no more than 63 characters");
    }
    if name.contains('.') {
        faults.push("must not contain dots");
    }
    if faults.is_empty() {
        return Texts::default();
    }
    let faults = faults.join(" ");
    let told = format!(
        "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: \
         [{faults}]"
    );
    told.into()
}

/// A pod or a pod template.
struct Template<'a> {
    /// The path of the template; empty for a pod.
    at: &'static str,
    metadata: &'a Document,
    spec: &'a Value,
}

const SYSCTLS: &str = "non-functional in v1.11+; use the \"sysctls\" field instead";
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APP_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

/// Annotations that were replaced by fields, and the warnings about them.
const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", SYSCTLS),
    ("security.alpha.kubernetes.io/unsafe-sysctls", SYSCTLS),
];

/// Deprecated or removed volume sources: the field, the name in the warning, and the warning.
const VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The maximum number of comparisons of ports with equal numbers, and so the maximum number of warnings.
const COMPARED_MAX: usize = 100;

impl<'a> Template<'a> {
    fn path(&self, part: &str) -> String {
        if self.at.is_empty() { part.to_owned() } else { format!("{}.{part}", self.at) }
    }

    /// Adds all warnings in Kubernetes' order.
    fn warn(&self, warnings: &mut Texts) {
        self.nodes(warnings);
        for (key, why) in ANNOTATIONS {
            self.annotation(key, why, warnings);
        }
        self.volumes(warnings);
        self.repeated("hostAliases", "ip", warnings);
        self.repeated("imagePullSecrets", "name", warnings);
        let spec = self.path("spec");
        for (index, secret) in list(&self.spec["imagePullSecrets"]).iter().enumerate() {
            if secret["name"].as_str().unwrap_or_default().is_empty() {
                warnings.push(format!("{spec}.imagePullSecrets[{index}].name: invalid empty name \"\""));
            }
        }
        for name in ["memory", "ephemeral-storage"] {
            fraction(&self.spec["overhead"], name, &format!("{spec}.overhead"), warnings);
        }
        if self.spec["securityContext"]["seccompProfile"].is_null() {
            self.annotation("seccomp.security.alpha.kubernetes.io/pod", SECCOMP, warnings);
        }
        for (container, at) in self.containers() {
            self.profiles(container, warnings);
            of_container(container, &at, warnings);
        }
        self.ports(warnings);
        self.port_names(warnings);
        if self.spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
            warnings.push(format!(
                "{spec}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
            ));
        }
        self.selectors(warnings);
        let servers = &self.spec["dnsConfig"]["nameservers"];
        of_each(servers, &format!("{spec}.dnsConfig.nameservers"), of_address, warnings);
        for (index, alias) in list(&self.spec["hostAliases"]).iter().enumerate() {
            let at = format!("{spec}.hostAliases[{index}].ip");
            of_address(alias["ip"].as_str().unwrap_or_default(), &at, warnings);
        }
    }

    /// All containers of the template, each with its path in the object.
    fn containers(&self) -> impl Iterator<Item = (&'a Value, String)> + use<'a> {
        let (spec, at) = (self.spec, self.path("spec"));
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |field| {
            let at = at.clone();
            let all = list(&spec[field]).iter().enumerate();
            all.map(move |(index, container)| (container, format!("{at}.{field}[{index}]")))
        })
    }

    fn annotation(&self, key: &str, why: &str, warnings: &mut Texts) {
        if self.metadata.get("annotations").is_some_and(|annotations| !annotations[key].is_null()) {
            warnings.push(format!("{}[{key}]: {why}", self.path("metadata.annotations")));
        }
    }

    /// Warns about security profiles of a container that are in annotations but not in fields. The profiles of the
    /// whole pod have already been copied to fields.
    fn profiles(&self, container: &Value, warnings: &mut Texts) {
        let name = container["name"].as_str().unwrap_or_default();
        let own = &container["securityContext"];
        if own["seccompProfile"].is_null() {
            self.annotation(&format!("container.seccomp.security.alpha.kubernetes.io/{name}"), SECCOMP, warnings);
        }
        let field = "appArmorProfile";
        if self.at.is_empty() || (own[field].is_null() && self.spec["securityContext"][field].is_null()) {
            self.annotation(&format!("container.apparmor.security.beta.kubernetes.io/{name}"), APP_ARMOR, warnings);
        }
    }

    /// Warns of older node labels, and of constraints that select nothing.
    fn nodes(&self, warnings: &mut Texts) {
        let spec = self.path("spec");
        for key in self.spec["nodeSelector"].as_object().into_iter().flat_map(|labels| labels.keys()) {
            if let Some(why) = old_label(key) {
                warnings.push(format!("{spec}.nodeSelector[{key}]: {why}"));
            }
        }
        let affinity = &self.spec["affinity"]["nodeAffinity"];
        for (index, term) in list(&affinity[REQUIRED]["nodeSelectorTerms"]).iter().enumerate() {
            let at = format!("{spec}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[{index}]");
            of_term(term, &at, false, warnings);
        }
        for (index, term) in list(&affinity[PREFERRED]).iter().enumerate() {
            let at = format!("{spec}.affinity.nodeAffinity.{PREFERRED}[{index}].preference");
            of_term(&term["preference"], &at, true, warnings);
        }
        for (index, constraint) in list(&self.spec["topologySpreadConstraints"]).iter().enumerate() {
            let at = format!("{spec}.topologySpreadConstraints[{index}]");
            let key = constraint["topologyKey"].as_str().unwrap_or_default();
            if let Some(why) = old_label(key) {
                warnings.push(format!("{at}.topologyKey: {key} is {why}"));
            }
            no_selector(constraint, &at, warnings);
        }
    }

    /// Warns of an absent label selector, which matches no pods, although many people expect it to match all.
    fn selectors(&self, warnings: &mut Texts) {
        let spec = self.path("spec");
        for kind in ["podAffinity", "podAntiAffinity"] {
            let affinity = &self.spec["affinity"][kind];
            for (index, term) in list(&affinity[REQUIRED]).iter().enumerate() {
                no_selector(term, &format!("{spec}.affinity.{kind}.{REQUIRED}[{index}]"), warnings);
            }
            for (index, term) in list(&affinity[PREFERRED]).iter().enumerate() {
                let at = format!("{spec}.affinity.{kind}.{PREFERRED}[{index}].podAffinityTerm");
                no_selector(&term["podAffinityTerm"], &at, warnings);
            }
        }
    }

    fn volumes(&self, warnings: &mut Texts) {
        let spec = self.path("spec");
        for (index, volume) in list(&self.spec["volumes"]).iter().enumerate() {
            let at = format!("{spec}.volumes[{index}]");
            for (_, told, why) in VOLUMES.iter().filter(|(source, ..)| volume[*source].is_object()) {
                warnings.push(format!("{at}.{told}: {why}"));
            }
            let claim = &volume["ephemeral"]["volumeClaimTemplate"];
            of_claim(&claim["spec"], &format!("{at}.ephemeral.volumeClaimTemplate.spec"), warnings);
        }
        for volume in list(&self.spec["volumes"]) {
            paths::of_volume(volume, warnings);
        }
    }

    /// Warns of list entries that repeat the key of an earlier entry.
    fn repeated(&self, field: &str, key: &str, warnings: &mut Texts) {
        let at = self.path("spec");
        let mut seen = BTreeSet::new();
        for (index, entry) in list(&self.spec[field]).iter().enumerate() {
            let text = entry[key].as_str().unwrap_or_default();
            if !seen.insert(text) {
                warnings.push(format!("{at}.{field}[{index}].{key}: duplicate {key} \"{text}\""));
            }
        }
    }

    /// Warns about ports with overlapping definitions, and about a `hostIP` without a `hostPort`.
    fn ports(&self, warnings: &mut Texts) {
        struct HostPort<'a> {
            at: String,
            address: &'a str,
            host: i64,
        }
        let mut known: BTreeMap<(i64, &str), Vec<HostPort>> = BTreeMap::new();
        let mut told = 0;
        for (container, at) in self.containers() {
            for (index, port) in list(&container["ports"]).iter().enumerate() {
                let at = format!("{at}.ports[{index}]");
                let text = |field: &str| port[field].as_str().unwrap_or_default();
                let number = |field: &str| port[field].as_i64().unwrap_or_default();
                let (address, host) = (text("hostIP"), number("hostPort"));
                if !address.is_empty() && host == 0 {
                    warnings.push(format!(
                        "{at}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} \
                         HostIP:{address}}}",
                        text("name"),
                        number("containerPort"),
                        text("protocol"),
                    ));
                }
                let others = known.entry((number("containerPort"), text("protocol"))).or_default();
                for other in others.iter().take(COMPARED_MAX.saturating_sub(told)) {
                    let what = if (address, host) == (other.address, other.host) {
                        "duplicate"
                    } else if host == 0 || other.host == 0 {
                        "overlapping"
                    } else if host == other.host && address.is_empty() != other.address.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    warnings.push(format!("{at}: {what} port definition with {}", other.at));
                    told += 1;
                }
                others.push(HostPort { at, address, host });
            }
        }
    }

    /// Warns about port names that two concurrently running containers share.
    fn port_names(&self, warnings: &mut Texts) {
        let mut known: BTreeMap<&str, String> = BTreeMap::new();
        let is_beside = |container: &Value, at: &str| {
            !at[self.at.len()..].contains("initContainers[") || container["restartPolicy"] == "Always"
        };
        for (container, at) in self.containers().filter(|(container, at)| is_beside(container, at)) {
            for (index, port) in list(&container["ports"]).iter().enumerate() {
                let name = port["name"].as_str().unwrap_or_default();
                let at = format!("{at}.ports[{index}]");
                match known.get(name) {
                    _ if name.is_empty() => {}
                    Some(first) => warnings.push(format!(
                        "{at}: duplicate port name \"{name}\" with {first}, services and probes that select ports by \
                         name will use {first}"
                    )),
                    None => _ = known.insert(name, at),
                }
            }
        }
    }
}

fn no_selector(term: &Value, at: &str, warnings: &mut Texts) {
    if term["labelSelector"].is_null() {
        warnings.push(format!("{at}.labelSelector: {NULL_SELECTOR}"));
    }
}

fn of_container(container: &Value, at: &str, warnings: &mut Texts) {
    for name in ["memory", "ephemeral-storage"] {
        for part in ["limits", "requests"] {
            fraction(&container["resources"][part], name, &format!("{at}.resources.{part}"), warnings);
        }
    }
    let mut seen = BTreeSet::new();
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        let name = variable["name"].as_str().unwrap_or_default();
        let value = variable["value"].as_str().unwrap_or_default();
        let reference = format!("$({name})");
        // A variable that adds text to its own earlier definition, as in `$(PATH):/bin`, does not hide that definition.
        // A value that is only `$(PATH)` counts as hiding it.
        let adds = variable["valueFrom"].is_null() && value != reference && value.contains(&reference);
        if !seen.insert(name) && !adds {
            warnings.push(format!(
                "{at}.env[{index}]: hides previous definition of \"{name}\", which may be dropped when using apply"
            ));
        }
    }
}

//! What Kubernetes warns of in pods and their templates, in services and secrets: what is kept, and will not do what
//! its author may expect.

use crate::kinds::Kind;
use crate::object::meta::{Document, metadata};
use crate::schema::quantity;
use base64::Engine as _;
use holdfast_value::{Map, Value};

/// A pod is looked at when it is made: later it is seldom people who change it.
pub fn pod(_: &Kind, pod: &Document, old: Option<&Document>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut warnings = name(pod, "the Pod's hostname");
    let template = Template { at: "", metadata: metadata(pod), spec: part(pod, "spec") };
    template.warn(&mut warnings);
    warnings
}

/// Of the template at this path, when the object is made or its spec changes.
pub fn template(object: &Document, old: Option<&Document>, path: &'static str) -> Vec<String> {
    // The spec, or what a PodTemplate has in its place.
    let top = path.split('.').next().unwrap_or_default();
    if old.is_some_and(|old| part(old, top) == part(object, top)) {
        return Vec::new();
    }
    let template = path.split('.').skip(1).fold(part(object, top), |at, name| &at[name]);
    let empty = Map::new();
    let metadata = template["metadata"].as_object().unwrap_or(&empty);
    let mut warnings = Vec::new();
    Template { at: path, metadata, spec: &template["spec"] }.warn(&mut warnings);
    warnings
}

/// The same with what a name would be used for that is no DNS label, of a new object.
pub fn workload(object: &Document, old: Option<&Document>, path: &'static str) -> Vec<String> {
    let mut warnings = if old.is_none() { name(object, "Pod names and hostnames") } else { Vec::new() };
    warnings.extend(template(object, old, path));
    warnings
}

fn name(object: &Document, used: &str) -> Vec<String> {
    let name = metadata(object).get("name").and_then(Value::as_str).unwrap_or_default();
    let mut faults = Vec::new();
    if name.len() > 63 {
        faults.push("must be no more than 63 characters");
    }
    if name.contains('.') {
        faults.push("must not contain dots");
    }
    if faults.is_empty() {
        return Vec::new();
    }
    let faults = faults.join(" ");
    vec![format!(
        "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: \
         [{faults}]"
    )]
}

pub fn service(_: &Kind, service: &Document, _: Option<&Document>) -> Vec<String> {
    let spec = part(service, "spec");
    let mut warnings = Vec::new();
    if spec["externalIPs"].as_array().is_some_and(|addresses| !addresses.is_empty()) {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    warnings
}

/// A certificate and a key that are none.
pub fn secret(_: &Kind, secret: &Document, _: Option<&Document>) -> Vec<String> {
    if secret.get("type").is_none_or(|ty| ty != "kubernetes.io/tls") {
        return Vec::new();
    }
    let has_pem = |key: &str| {
        let data = secret.get("data").and_then(|data| data[key].as_str()).unwrap_or_default();
        let data = base64::engine::general_purpose::STANDARD.decode(data).unwrap_or_default();
        data.windows(11).any(|window| window == b"-----BEGIN ")
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !has_pem(key));
    missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

/// A pod, or what pods are made of.
struct Template<'a> {
    /// Its path; empty for a pod.
    at: &'static str,
    metadata: &'a Document,
    spec: &'a Value,
}

/// Annotations that have become fields, and what is said of them.
const ANNOTATIONS: [(&str, &str); 4] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("seccomp.security.alpha.kubernetes.io/pod", "non-functional in v1.27+; use the \"seccompProfile\" field instead"),
    (
        "container.seccomp.security.alpha.kubernetes.io/",
        "non-functional in v1.27+; use the \"seccompProfile\" field instead",
    ),
    (
        "container.apparmor.security.beta.kubernetes.io/",
        "deprecated since v1.30; use the \"appArmorProfile\" field instead",
    ),
];

/// Labels of nodes that have other names now: since which version, and which.
const LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// Sources of volumes that are on their way out, or gone.
const VOLUMES: [(&str, &str); 9] = [
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

impl Template<'_> {
    fn path(&self, part: &str) -> String {
        if self.at.is_empty() { part.to_owned() } else { format!("{}.{part}", self.at) }
    }

    fn warn(&self, warnings: &mut Vec<String>) {
        self.annotations(warnings);
        self.nodes(warnings);
        self.selectors(warnings);
        self.volumes(warnings);
        let spec = self.path("spec");
        for (index, secret) in list(&self.spec["imagePullSecrets"]).iter().enumerate() {
            if secret["name"].as_str().unwrap_or_default().is_empty() {
                warnings.push(format!("{spec}.imagePullSecrets[{index}].name: invalid empty name \"\""));
            }
        }
        if self.spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
            warnings.push(format!(
                "{spec}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
            ));
        }
        fractions(&self.spec["overhead"], &format!("{spec}.overhead"), warnings);
        for field in ["initContainers", "containers"] {
            for (index, container) in list(&self.spec[field]).iter().enumerate() {
                of_container(container, &format!("{spec}.{field}[{index}]"), warnings);
            }
        }
    }

    fn annotations(&self, warnings: &mut Vec<String>) {
        let annotations = self.metadata.get("annotations").and_then(Value::as_object);
        for key in annotations.into_iter().flat_map(|annotations| annotations.keys()) {
            let names = |known: &str| if known.ends_with('/') { key.starts_with(known) } else { key == known };
            if let Some((_, why)) = ANNOTATIONS.iter().find(|(known, _)| names(known)) {
                warnings.push(format!("{}[{key}]: {why}", self.path("metadata.annotations")));
            }
        }
    }

    fn nodes(&self, warnings: &mut Vec<String>) {
        let spec = self.path("spec");
        let old = |key: &str| LABELS.iter().find(|(label, ..)| *label == key);
        for key in self.spec["nodeSelector"].as_object().into_iter().flat_map(|labels| labels.keys()) {
            if let Some((_, since, now)) = old(key) {
                warnings.push(format!("{spec}.nodeSelector[{key}]: deprecated since {since}; use \"{now}\" instead"));
            }
        }
        let mut expressions = |term: &Value, at: String| {
            for (index, expression) in list(&term["matchExpressions"]).iter().enumerate() {
                if let Some((key, since, now)) = expression["key"].as_str().and_then(old) {
                    warnings.push(format!(
                        "{at}.matchExpressions[{index}].key: {key} is deprecated since {since}; use \"{now}\" instead"
                    ));
                }
            }
        };
        let affinity = &self.spec["affinity"]["nodeAffinity"];
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(&affinity[required]["nodeSelectorTerms"]).iter().enumerate() {
            expressions(term, format!("{spec}.affinity.nodeAffinity.{required}.nodeSelectorTerms[{index}]"));
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(&affinity[preferred]).iter().enumerate() {
            expressions(&term["preference"], format!("{spec}.affinity.nodeAffinity.{preferred}[{index}].preference"));
        }
        for (index, constraint) in list(&self.spec["topologySpreadConstraints"]).iter().enumerate() {
            if let Some((key, since, now)) = constraint["topologyKey"].as_str().and_then(old) {
                warnings.push(format!(
                    "{spec}.topologySpreadConstraints[{index}].topologyKey: {key} is deprecated since {since}; use \
                     \"{now}\" instead"
                ));
            }
        }
    }

    /// Selectors that are not there match nothing, and not everything.
    fn selectors(&self, warnings: &mut Vec<String>) {
        let spec = self.path("spec");
        let mut check = |term: &Value, at: String| {
            if term["labelSelector"].is_null() {
                warnings.push(format!("{at}.labelSelector: {NULL_SELECTOR}"));
            }
        };
        for kind in ["podAffinity", "podAntiAffinity"] {
            let affinity = &self.spec["affinity"][kind];
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            for (index, term) in list(&affinity[required]).iter().enumerate() {
                check(term, format!("{spec}.affinity.{kind}.{required}[{index}]"));
            }
            let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
            for (index, term) in list(&affinity[preferred]).iter().enumerate() {
                let term = &term["podAffinityTerm"];
                check(term, format!("{spec}.affinity.{kind}.{preferred}[{index}].podAffinityTerm"));
            }
        }
        for (index, constraint) in list(&self.spec["topologySpreadConstraints"]).iter().enumerate() {
            check(constraint, format!("{spec}.topologySpreadConstraints[{index}]"));
        }
    }

    fn volumes(&self, warnings: &mut Vec<String>) {
        let spec = self.path("spec");
        for (index, volume) in list(&self.spec["volumes"]).iter().enumerate() {
            for (source, why) in VOLUMES.iter().filter(|(source, _)| volume[*source].is_object()) {
                warnings.push(format!("{spec}.volumes[{index}].{source}: {why}"));
            }
            let projected = volume.get("projected").filter(|projected| projected.is_object());
            let is_nothing = |source: &Value| source.as_object().is_none_or(Map::is_empty);
            if projected.is_some_and(|projected| list(&projected["sources"]).iter().all(is_nothing)) {
                let name = volume["name"].as_str().unwrap_or_default();
                warnings.push(format!("volume \"{name}\" (Projected) has no sources provided"));
            }
        }
    }
}

fn of_container(container: &Value, at: &str, warnings: &mut Vec<String>) {
    for part in ["limits", "requests"] {
        fractions(&container["resources"][part], &format!("{at}.resources.{part}"), warnings);
    }
    let variables = list(&container["env"]);
    for (index, variable) in variables.iter().enumerate() {
        let name = variable["name"].as_str().unwrap_or_default();
        let uses_it = variable["value"].as_str().is_some_and(|value| value.contains(&format!("$({name})")));
        if !uses_it && variables[..index].iter().any(|earlier| earlier["name"] == name) {
            warnings.push(format!(
                "{at}.env[{index}]: hides previous definition of \"{name}\", which may be dropped when using apply"
            ));
        }
    }
    for (index, port) in list(&container["ports"]).iter().enumerate() {
        let text = |field: &str| port[field].as_str().unwrap_or_default();
        if !text("hostIP").is_empty() && port["hostPort"].as_i64().unwrap_or_default() == 0 {
            warnings.push(format!(
                "{at}.ports[{index}]: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} \
                 HostIP:{}}}",
                text("name"),
                port["containerPort"].as_i64().unwrap_or_default(),
                text("protocol"),
                text("hostIP")
            ));
        }
    }
}

/// Bytes come whole.
fn fractions(resources: &Value, at: &str, warnings: &mut Vec<String>) {
    for name in ["ephemeral-storage", "memory"] {
        let Some(amount) = resources[name].as_str() else { continue };
        if quantity::nanos(amount).is_some_and(|nanos| nanos % 1_000_000_000 != 0) {
            warnings.push(format!("{at}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"));
        }
    }
}

fn part<'a>(document: &'a Document, name: &str) -> &'a Value {
    document.get(name).unwrap_or(&Value::Null)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn pods() {
        let document = json!({
            "metadata": {"name": "a.b", "annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"}},
            "spec": {
                "nodeSelector": {"beta.kubernetes.io/os": "linux"},
                "imagePullSecrets": [{}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k"}]}},
                "volumes": [{"name": "v", "projected": {}}],
                "containers": [{
                    "name": "c",
                    "env": [{"name": "A"}, {"name": "A", "value": "$(A)b"}, {"name": "A", "value": "c"}],
                    "resources": {"limits": {"memory": "100m", "cpu": "100m"}},
                    "ports": [{"containerPort": 80, "hostIP": "::1", "protocol": "TCP"}],
                }],
            },
        });
        let Value::Object(document) = document else { unreachable!() };
        let (kind, _) = crate::kinds::registry().known(crate::kinds::known::POD).unwrap();
        let kind = crate::kinds::registry().get(kind);
        let expected = [
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
             recommended: [must not contain dots]",
            "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \
             \"seccompProfile\" field instead",
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null \
             labelSelector results in matching no pod",
            "volume \"v\" (Projected) has no sources provided",
            "spec.imagePullSecrets[0].name: invalid empty name \"\"",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP \
             HostIP:::1}",
        ];
        assert_eq!(pod(kind, &document, None), expected);
        assert!(pod(kind, &document, Some(&document)).is_empty());
    }
}

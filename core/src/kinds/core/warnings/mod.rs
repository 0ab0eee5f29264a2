//! Kubernetes' warnings: valid objects that may not do what their author expects.

pub(crate) mod addresses;
mod paths;
mod template;

use crate::kinds::Kind;
use crate::object::meta::{Document, metadata};
use crate::object::names;
use crate::refusal::Texts;
use crate::schema::quantity;
use addresses::{of_address, of_network};
use base64::Engine as _;
use holdfast_value::Value;
pub use template::{job, pod, template, workload};

/// Warns about the set's template, claims and history.
pub fn stateful_set(_: &Kind, set: &Document, old: Option<&Document>) -> Texts {
    let mut warnings = template(set, old, "spec.template");
    let spec = part(set, "spec");
    // As in Kubernetes, the path has the part `.Spec` on update, and no such part on create.
    let field = if old.is_some() { ".Spec" } else { "" };
    for (index, claim) in list(&spec["volumeClaimTemplates"]).iter().enumerate() {
        of_claim(&claim["spec"], &format!("spec.volumeClaimTemplates[{index}]{field}"), &mut warnings);
    }
    if spec["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.push(format!("spec.revisionHistoryLimit: {why}"));
    }
    warnings
}

pub fn service(_: &Kind, service: &Document, _: Option<&Document>) -> Texts {
    let spec = part(service, "spec");
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let mut warnings = Texts::default();
    let mut say = |warning: &str| warnings.push(warning.to_owned());
    if annotation(service, "service.kubernetes.io/topology-aware-hints").is_some() {
        say("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
             service.kubernetes.io/topology-mode instead");
    }
    let external = list(&spec["externalIPs"]);
    if text("type") == "ClusterIP" && text("clusterIP") == "None" {
        if !text("loadBalancerIP").is_empty() {
            say("spec.loadBalancerIP is ignored for headless services");
        }
        if !external.is_empty() {
            say("spec.externalIPs is ignored for headless services");
        }
        if text("sessionAffinity") != "None" {
            say("spec.SessionAffinity is ignored for headless services");
        }
    }
    if !external.is_empty() {
        say("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    if !matches!(text("clusterIP"), "" | "None") {
        of_each(&spec["clusterIPs"], "spec.clusterIPs", of_address, &mut warnings);
    }
    of_each(&spec["externalIPs"], "spec.externalIPs", of_address, &mut warnings);
    of_address(text("loadBalancerIP"), "spec.loadBalancerIP", &mut warnings);
    of_each(&spec["loadBalancerSourceRanges"], "spec.loadBalancerSourceRanges", of_network, &mut warnings);
    match text("type") {
        "ExternalName" if !external.is_empty() => {
            warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
        }
        "ExternalName" => {}
        _ if !text("externalName").is_empty() => {
            warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
        }
        _ => {}
    }
    if spec["trafficDistribution"] == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    warnings
}

/// Warns about addresses that users wrote. Addresses from the endpoints controller need no check.
pub fn endpoints(_: &Kind, endpoints: &Document, _: Option<&Document>) -> Texts {
    let mut warnings = Texts::default();
    if label(endpoints, "endpoints.kubernetes.io/managed-by") == Some("endpoint-controller") {
        return warnings;
    }
    for (index, subset) in list(part(endpoints, "subsets")).iter().enumerate() {
        for field in ["addresses", "notReadyAddresses"] {
            for (nth, address) in list(&subset[field]).iter().enumerate() {
                let at = format!("subsets[{index}].{field}[{nth}].ip");
                of_address(address["ip"].as_str().unwrap_or_default(), &at, &mut warnings);
            }
        }
    }
    warnings
}

/// Like [`endpoints`]. It also warns of the address type FQDN, but only on create, because the type cannot change.
pub fn endpoint_slice(_: &Kind, slice: &Document, old: Option<&Document>) -> Texts {
    let mut warnings = Texts::default();
    if old.is_none() && *part(slice, "addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let writer = label(slice, "endpointslice.kubernetes.io/managed-by").unwrap_or_default();
    if matches!(writer, "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io") {
        return warnings;
    }
    for (index, endpoint) in list(part(slice, "endpoints")).iter().enumerate() {
        of_each(&endpoint["addresses"], &format!("endpoints[{index}].addresses"), of_address, &mut warnings);
    }
    warnings
}

/// Warns of a TLS secret whose certificate or key is not PEM.
pub fn secret(_: &Kind, secret: &Document, _: Option<&Document>) -> Texts {
    if secret.get("type").is_none_or(|ty| ty != "kubernetes.io/tls") {
        return Texts::default();
    }
    let has_pem = |key: &str| {
        let data = secret.get("data").and_then(|data| data[key].as_str()).unwrap_or_default();
        let data = base64::engine::general_purpose::STANDARD.decode(data).unwrap_or_default();
        data.windows(11).any(|window| window == b"-----BEGIN ")
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !has_pem(key));
    missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

/// Volume sources that are deprecated or removed: the field, the name in the warning, and the warning.
const SOURCES: [(&str, &str, &str); 6] = [
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const STORAGE_CLASS: (&str, &str) =
    ("volume.beta.kubernetes.io/storage-class", "deprecated since v1.8; use \"storageClassName\" attribute instead");
const MOUNT_OPTIONS: (&str, &str) =
    ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead");

pub fn persistent_volume(_: &Kind, volume: &Document, _: Option<&Document>) -> Texts {
    let spec = part(volume, "spec");
    let mut warnings = Texts::default();
    for (key, why) in [STORAGE_CLASS, MOUNT_OPTIONS] {
        of_annotation(volume, key, why, &mut warnings);
    }
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let terms = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    for (index, term) in list(terms).iter().enumerate() {
        of_term(term, &format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]"), false, &mut warnings);
    }
    for (_, told, why) in SOURCES.iter().filter(|(source, ..)| spec[*source].is_object()) {
        warnings.push(format!("spec.{told}: {why}"));
    }
    warnings
}

pub fn claim(_: &Kind, claim: &Document, _: Option<&Document>) -> Texts {
    let mut warnings = Texts::default();
    of_annotation(claim, STORAGE_CLASS.0, STORAGE_CLASS.1, &mut warnings);
    of_claim(part(claim, "spec"), "spec", &mut warnings);
    warnings
}

pub fn node(_: &Kind, node: &Document, _: Option<&Document>) -> Texts {
    let spec = part(node, "spec");
    let mut warnings = Texts::default();
    if spec["configSource"].is_object() {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if spec["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    warnings
}

/// Warns about the annotation `enforce-mountable-secrets` if the write adds it.
pub fn service_account(_: &Kind, account: &Document, old: Option<&Document>) -> Texts {
    const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
    let mut warnings = Texts::default();
    if old.and_then(|old| annotation(old, ENFORCED)).is_none() {
        let why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        of_annotation(account, ENFORCED, why, &mut warnings);
    }
    warnings
}

/// Warns of a claim that requests a fraction of a byte.
fn of_claim(spec: &Value, at: &str, warnings: &mut Texts) {
    for part in ["requests", "limits"] {
        fraction(&spec["resources"][part], "storage", &format!("{at}.resources.{part}"), warnings);
    }
}

fn fraction(resources: &Value, name: &str, at: &str, warnings: &mut Texts) {
    let Some(amount) = resources[name].as_str() else { return };
    if quantity::nanos(amount).is_some_and(|nanos| nanos % 1_000_000_000 != 0) {
        warnings.push(format!("{at}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"));
    }
}

/// Older node labels: the label, the version that deprecated it, and the newer label.
const LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// The warning for an older node label; `None` for other labels.
pub(crate) fn old_label(key: &str) -> Option<String> {
    let (_, since, now) = LABELS.iter().find(|(label, ..)| *label == key)?;
    Some(format!("deprecated since {since}; use \"{now}\" instead"))
}

/// Warns about the expressions of a node selector term. If `with_values` is true, it also warns about the values, for
/// terms whose values validation does not check.
pub(crate) fn of_term(term: &Value, at: &str, with_values: bool, warnings: &mut Texts) {
    for (index, expression) in list(&term["matchExpressions"]).iter().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let key = expression["key"].as_str().unwrap_or_default();
        if let Some(why) = old_label(key) {
            warnings.push(format!("{at}.key: {key} is {why}"));
        }
        for (nth, value) in list(&expression["values"]).iter().enumerate().filter(|_| with_values) {
            let value = value.as_str().unwrap_or_default();
            let faults = names::label_value(value);
            warnings.extend(faults.iter().map(|fault| format!("{at}.values[{nth}]: {value} is invalid, {fault}")));
        }
    }
}

/// Calls `of` for each text of a list.
pub(crate) fn of_each(texts: &Value, at: &str, of: fn(&str, &str, &mut Texts), warnings: &mut Texts) {
    for (index, text) in list(texts).iter().enumerate() {
        of(text.as_str().unwrap_or_default(), &format!("{at}[{index}]"), warnings);
    }
}

fn of_annotation(object: &Document, key: &str, why: &str, warnings: &mut Texts) {
    if annotation(object, key).is_some() {
        warnings.push(format!("metadata.annotations[{key}]: {why}"));
    }
}

fn annotation<'a>(object: &'a Document, key: &str) -> Option<&'a str> {
    metadata(object).get("annotations").and_then(|annotations| annotations[key].as_str())
}

fn label<'a>(object: &'a Document, key: &str) -> Option<&'a str> {
    metadata(object).get("labels").and_then(|labels| labels[key].as_str())
}

fn part<'a>(document: &'a Document, name: &str) -> &'a Value {
    document.get(name).unwrap_or(&Value::Null)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;

//! The objects to which pods and volumes refer, and which a node must read to run them.

use holdfast_value::Value;
use std::borrow::Cow;

/// The annotation of a mirror pod, which represents a static pod that a node runs from a file.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Volume sources with a secret in the field `secretRef`.
const BY_SECRET_REF: [&str; 7] = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

/// An object in the pod's namespace to which the pod refers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference<'a> {
    Secret(Cow<'a, str>),
    ConfigMap(Cow<'a, str>),
    Claim(Cow<'a, str>),
    Account(Cow<'a, str>),
    ResourceClaim(Cow<'a, str>),
}

/// If none of these texts occurs in a stored pod, its references depend only on its spec.
pub const CHANGING: [&str; 3] =
    ["\"kubernetes.io/config.mirror\"", "\"resourceClaimStatuses\"", "\"extendedResourceClaimStatus\""];

/// Every object that a pod refers to, with repetitions. A mirror pod has no references, because the node itself writes
/// it.
pub fn of_pod<'a>(pod: &'a Value, mut each: impl FnMut(Reference<'a>)) {
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return;
    }
    let spec = &pod["spec"];
    if let Some(account) = named(&spec["serviceAccountName"]) {
        each(Reference::Account(account));
    }
    of_spec(spec, &mut each);
    for volume in list(&spec["volumes"]) {
        if let Some(claim) = named(&volume["persistentVolumeClaim"]["claimName"]) {
            each(Reference::Claim(claim));
        }
        if volume["ephemeral"]["volumeClaimTemplate"].is_object() {
            let text = |value: &'a Value| value.as_str().unwrap_or_default();
            let name = format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]));
            each(Reference::Claim(name.into()));
        }
    }
    for claim in list(&spec["resourceClaims"]) {
        let made = || {
            let statuses = list(&pod["status"]["resourceClaimStatuses"]);
            statuses.filter(|status| status["name"] == claim["name"]).find_map(|own| named(&own["resourceClaimName"]))
        };
        if let Some(name) = named(&claim["resourceClaimName"]).or_else(made) {
            each(Reference::ResourceClaim(name));
        }
    }
    if let Some(name) = named(&pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]) {
        each(Reference::ResourceClaim(name));
    }
}

/// The secrets and ConfigMaps that a pod's spec refers to.
pub fn of_spec<'a>(spec: &'a Value, each: &mut impl FnMut(Reference<'a>)) {
    let mut secret = |value: &'a Value| {
        if let Some(name) = named(value) {
            each(Reference::Secret(name));
        }
    };
    list(&spec["imagePullSecrets"]).for_each(|own| secret(&own["name"]));
    for volume in list(&spec["volumes"]) {
        secret(&volume["secret"]["secretName"]);
        secret(&volume["azureFile"]["secretName"]);
        secret(&volume["csi"]["nodePublishSecretRef"]["name"]);
        BY_SECRET_REF.iter().for_each(|source| secret(&volume[*source]["secretRef"]["name"]));
        list(&volume["projected"]["sources"]).for_each(|source| secret(&source["secret"]["name"]));
    }
    for container in containers(spec) {
        list(&container["envFrom"]).for_each(|source| secret(&source["secretRef"]["name"]));
        list(&container["env"]).for_each(|own| secret(&own["valueFrom"]["secretKeyRef"]["name"]));
    }
    let mut configuration = |value: &'a Value| {
        if let Some(name) = named(value) {
            each(Reference::ConfigMap(name));
        }
    };
    for volume in list(&spec["volumes"]) {
        configuration(&volume["configMap"]["name"]);
        list(&volume["projected"]["sources"]).for_each(|source| configuration(&source["configMap"]["name"]));
    }
    for container in containers(spec) {
        list(&container["envFrom"]).for_each(|source| configuration(&source["configMapRef"]["name"]));
        list(&container["env"]).for_each(|own| configuration(&own["valueFrom"]["configMapKeyRef"]["name"]));
    }
}

/// The secrets that a node needs to mount a volume, each with its namespace (by default the namespace of the claim).
pub fn of_volume<'a>(volume: &'a Value, mut each: impl FnMut(&'a str, &'a str)) {
    let spec = &volume["spec"];
    let own = spec["claimRef"]["namespace"].as_str().unwrap_or_default();
    let mut secret = |namespace: &'a Value, name: &'a Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            each(namespace.as_str().filter(|namespace| !namespace.is_empty()).unwrap_or(own), name);
        }
    };
    let file = &spec["azureFile"];
    secret(&file["secretNamespace"], &file["secretName"]);
    let by_reference = BY_SECRET_REF.iter().map(|source| &spec[*source]["secretRef"]);
    // Secrets that only controllers use are not included.
    let by_driver = ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let by_driver = by_driver.iter().map(|field| &spec["csi"][*field]);
    for reference in by_reference.chain(by_driver) {
        secret(&reference["namespace"], &reference["name"]);
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().flat_map(|field| list(&spec[*field]))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn named(value: &Value) -> Option<Cow<'_, str>> {
    value.as_str().filter(|name| !name.is_empty()).map(Cow::Borrowed)
}

//! What several plug-ins look at in a pod.

use serde_json::Value;

/// The annotation of a pod that stands for one which a kubelet runs by itself.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The items of a list; none where there is no list.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn has_annotation(object: &Value, key: &str) -> bool {
    object["metadata"]["annotations"].get(key).is_some()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key).and_then(Value::as_str)
}

pub(super) fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["spec"]["volumes"])
}

/// All containers of a pod's spec with where they stand: init containers first, ephemeral ones last.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().flat_map(|field| list(&spec[*field]))
}

pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Whether a pod names a Secret anywhere.
pub(super) fn names_secrets(pod: &Value) -> bool {
    const SOURCES: [&str; 9] =
        ["azureFile", "cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos", "csi"];
    let is_named = |name: &Value| name.as_str().is_some_and(|name| !name.is_empty());
    let spec = &pod["spec"];
    let in_container = |container: &Value| {
        list(&container["envFrom"]).any(|source| is_named(&source["secretRef"]["name"]))
            || list(&container["env"]).any(|variable| is_named(&variable["valueFrom"]["secretKeyRef"]["name"]))
    };
    let in_volume = |volume: &Value| {
        let sources = SOURCES.iter().map(|source| &volume[*source]);
        is_named(&volume["secret"]["secretName"])
            || list(&volume["projected"]["sources"]).any(|source| is_named(&source["secret"]["name"]))
            || sources.into_iter().any(|source| {
                is_named(&source["secretName"])
                    || is_named(&source["secretRef"]["name"])
                    || is_named(&source["nodePublishSecretRef"]["name"])
            })
    };
    list(&spec["imagePullSecrets"]).any(|secret| is_named(&secret["name"]))
        || containers(spec).any(in_container)
        || volumes(pod).any(in_volume)
}

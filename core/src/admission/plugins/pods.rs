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

/// What of the API a pod counts on by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Referenced {
    Secret,
    ConfigMap,
    Claim,
}

pub(super) struct Reference<'a> {
    pub kind: Referenced,
    pub name: &'a str,
}

/// Every Secret, ConfigMap and claim that a pod names.
pub(super) fn references(pod: &Value) -> Vec<Reference<'_>> {
    let mut found: Vec<Reference<'_>> = Vec::new();
    let spec = &pod["spec"];
    for secret in list(&spec["imagePullSecrets"]) {
        push(&mut found, Referenced::Secret, &secret["name"]);
    }
    for container in containers(spec) {
        for source in list(&container["envFrom"]) {
            push(&mut found, Referenced::Secret, &source["secretRef"]["name"]);
            push(&mut found, Referenced::ConfigMap, &source["configMapRef"]["name"]);
        }
        for variable in list(&container["env"]) {
            push(&mut found, Referenced::Secret, &variable["valueFrom"]["secretKeyRef"]["name"]);
            push(&mut found, Referenced::ConfigMap, &variable["valueFrom"]["configMapKeyRef"]["name"]);
        }
    }
    for volume in volumes(pod) {
        push(&mut found, Referenced::Secret, &volume["secret"]["secretName"]);
        push(&mut found, Referenced::ConfigMap, &volume["configMap"]["name"]);
        push(&mut found, Referenced::Claim, &volume["persistentVolumeClaim"]["claimName"]);
        for source in list(&volume["projected"]["sources"]) {
            push(&mut found, Referenced::Secret, &source["secret"]["name"]);
            push(&mut found, Referenced::ConfigMap, &source["configMap"]["name"]);
        }
        for driver in ["azureFile", "cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos", "csi"] {
            let source = &volume[driver];
            push(&mut found, Referenced::Secret, &source["secretName"]);
            push(&mut found, Referenced::Secret, &source["secretRef"]["name"]);
            push(&mut found, Referenced::Secret, &source["nodePublishSecretRef"]["name"]);
        }
    }
    found
}

fn push<'a>(found: &mut Vec<Reference<'a>>, kind: Referenced, name: &'a Value) {
    if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
        found.push(Reference { kind, name });
    }
}

//! Validation of persistent volumes.

use super::claims::{access_modes, not_less_than_nothing};
use super::placement::{node_selector, same_but_for_old_labels};
use super::resources::positive;
use super::source::{Owner, PERSISTENT, check};
use crate::kinds::Judging;
use crate::kinds::rules::{At, immutable, known, named_if_any, need, one_of, same, twice_on_update};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const SOURCE_FIXED: &str = "spec.persistentvolumesource is immutable after creation";

pub fn volume(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let metadata = root.get("metadata");
    let spec = root.get("spec");
    volume_spec(spec, metadata.get("name").text(), &mut causes);
    mount_options(metadata, spec, &mut causes);
    twice_on_update(old, &mut causes);
    let Some(old) = old else { return causes };
    let old = &old["spec"];
    let mut source = sources_of(spec.value);
    if old["csi"].is_object() && old["csi"]["controllerExpandSecretRef"].is_null() {
        // The secret for volume expansion may be added later.
        if let Some(csi) = source["csi"].as_object_mut() {
            csi.remove("controllerExpandSecretRef");
        }
    }
    if !same(&source, &sources_of(old)) {
        let path = spec.get("persistentvolumesource").path();
        causes.push(Cause::changed(path, SOURCE_FIXED, &sources_of(old), &source));
    }
    // Kubernetes omits `spec` from the paths of `volumeMode` and `nodeAffinity`.
    immutable(root.get("volumeMode").holding(&spec.value["volumeMode"]), &old["volumeMode"], &mut causes);
    let affinity = root.get("nodeAffinity").holding(&spec.value["nodeAffinity"]);
    if old["nodeAffinity"].is_object() && !same_but_for_old_labels(affinity.value, &old["nodeAffinity"]) {
        causes.push(affinity.invalid("field is immutable, except for updating from beta label to GA"));
    }
    let class = spec.get("volumeAttributesClassName");
    if !old["volumeAttributesClassName"].is_null() && !class.is_set() {
        causes.push(class.forbidden("update from non-nil value to nil is forbidden"));
    }
    causes
}

fn sources_of(spec: &Value) -> Value {
    PERSISTENT.iter().map(|source| (source.field, spec[source.field].clone())).collect()
}

/// While the gate `MutablePVNodeAffinity` is on, the node affinity of a volume may change.
pub fn free_affinity(judging: &Judging<'_>, causes: &mut Causes) {
    if judging.is_on("MutablePVNodeAffinity") {
        causes.retain(|cause| cause.field != "nodeAffinity");
    }
}

/// Validates mount options in the older annotation, which some volume types do not support.
fn mount_options(metadata: At, spec: At, causes: &mut Causes) {
    const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
    const WITHOUT: [&str; 8] =
        ["hostPath", "local", "fc", "flexVolume", "flocker", "portworxVolume", "scaleIO", "storageos"];
    let annotations = metadata.get("annotations");
    let options = annotations.get(OPTIONS);
    if options.is_set() && WITHOUT.iter().any(|source| spec.get(source).is_set()) {
        causes.push(options.forbidden("may not specify mount options for this volume type"));
    }
}

/// Validates the volume inside a VolumeAttachment: it has no claim, and must be a CSI volume.
pub fn inline_volume(spec: At, causes: &mut Causes) {
    for field in ["claimRef", "capacity"] {
        let at = spec.get(field);
        if !at.is_empty() {
            causes.push(at.forbidden("may not be specified in the context of inline volumes"));
        }
    }
    if !spec.get("csi").is_set() {
        causes.push(spec.get("csi").required("has to be specified in the context of inline volumes"));
    }
    of_any_volume(spec, "", causes);
}

fn volume_spec(spec: At, name: &str, causes: &mut Causes) {
    capacity(spec.get("capacity"), causes);
    of_any_volume(spec, name, causes);
}

fn capacity(capacity: At, causes: &mut Causes) {
    need(capacity, causes);
    if capacity.value["storage"].is_null() || capacity.len() > 1 {
        causes.push(Cause::not_supported(capacity.path(), capacity.value, &["storage"]));
    }
    for (_, size) in capacity.entries() {
        not_less_than_nothing(size, causes);
        positive(size, causes);
    }
}

fn of_any_volume(spec: At, name: &str, causes: &mut Causes) {
    access_modes(spec.get("accessModes"), "", causes);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    one_of(policy, &["Delete", "Recycle", "Retain"], causes);
    let affinity = spec.get("nodeAffinity");
    if affinity.is_set() {
        let required = affinity.get("required");
        if required.is_set() {
            node_selector(required, causes);
        } else {
            causes.push(required.required("must specify required node constraints"));
        }
    }
    let owner = Owner { volume: spec, name, pod: "", is_pod: false };
    let source = check(spec, PERSISTENT, &owner, causes).map_or("", |source| source.field);
    if source == "local" && !affinity.is_set() {
        causes.push(affinity.required("Local volume requires node affinity"));
    }
    let path = spec.value["hostPath"]["path"].as_str().unwrap_or("");
    let is_root = path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."));
    if is_root && policy.text() == "Recycle" {
        causes.push(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
    named_if_any(spec.get("storageClassName"), names::subdomain, causes);
    known(spec.get("volumeMode"), &["Block", "Filesystem"], causes);
    let class = spec.get("volumeAttributesClassName");
    if class.is_set() {
        if class.is_empty() {
            causes.push(class.required("an empty string is disallowed"));
        }
        named_if_any(class, names::subdomain, causes);
        let driver = spec.get("csi");
        if !driver.is_set() {
            causes.push(driver.required("has to be specified when using volumeAttributesClassName"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    fn volume() -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "csi": {"driver": "disk.example.com", "volumeHandle": "a"},
            },
        })
    }

    #[test]
    fn each_rule_of_a_volume() {
        let zone = |key: &str| {
            json!({"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": ["a"]}]}]}})
        };
        check_rows(
            &volume(),
            &[
                ("/spec/csi", Value::Null, "spec: Required value: must specify a volume type"),
                ("/spec/nfs", json!({"server": "a", "path": "/"}), "spec.csi: Forbidden: may not specify more than 1"),
                ("/spec/csi/volumeHandle", json!(""), "spec.csi.volumeHandle: Required value"),
                (
                    "/spec/csi/nodeExpandSecretRef",
                    json!({"name": "a"}),
                    "spec.csi.nodeExpandSecretRef.namespace: Required value",
                ),
                ("/spec/capacity", Value::Null, "spec.capacity: Required value"),
                ("/spec/capacity/storage", json!("0"), "spec.capacity[storage]: Invalid value: \"0\": must be greater"),
                (
                    "/spec/capacity/cpu",
                    json!("1"),
                    "spec.capacity: Unsupported value: {\"cpu\":\"1\",\"storage\":\"1Gi\"}: supported values: \"stor",
                ),
                ("/spec/accessModes", json!([]), "spec.accessModes: Required value"),
                (
                    "/spec/persistentVolumeReclaimPolicy",
                    json!("Burn"),
                    "spec.persistentVolumeReclaimPolicy: Unsupported value: \"Burn\": supported values: \"Delete\", ",
                ),
                ("/spec/nodeAffinity", json!({}), "spec.nodeAffinity.required: Required value: must specify required"),
                ("/spec/nodeAffinity", zone("topology.kubernetes.io/zone"), ""),
                (
                    "/spec",
                    json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "local": {"path": "/a"}}),
                    "spec.nodeAffinity: Required value: Local volume requires node affinity",
                ),
                (
                    "/spec",
                    json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                        "hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"}),
                    "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
                ),
            ],
        );
        let mut old = volume();
        old["spec"]["nodeAffinity"] = zone("failure-domain.beta.kubernetes.io/zone");
        check_updates(
            &old,
            &[
                ("/spec/capacity/storage", json!("2Gi"), ""),
                ("/spec/claimRef", json!({"name": "a"}), ""),
                (
                    "/spec/csi/volumeHandle",
                    json!("b"),
                    "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
                ),
                ("/spec/csi/controllerExpandSecretRef", json!({"name": "a", "namespace": "b"}), ""),
                ("/spec/volumeMode", json!("Block"), "volumeMode: Invalid value: \"Block\": field is immutable"),
                ("/spec/nodeAffinity", zone("topology.kubernetes.io/zone"), ""),
                ("/spec/nodeAffinity", zone("disk"), "nodeAffinity: Invalid value: {\"required\":"),
            ],
        );
    }
}

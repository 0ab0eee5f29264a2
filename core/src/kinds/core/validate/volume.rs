//! Validation of the volumes of pods.

use super::source::{OF_PODS, Owner, check};
use crate::kinds::rules::{At, Seen, need_name};
use crate::object::names;
use crate::refusal::Causes;
use std::collections::{BTreeMap, BTreeSet};

/// The source of each valid volume, by the volume's name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'static str>;

/// Validates volumes and returns the volumes that mounts can refer to. `pod` is the pod's name, empty if unknown.
pub(super) fn volumes<'a>(list: At<'a>, pod: &str, is_pod: bool, causes: &mut Causes) -> Volumes<'a> {
    let created: BTreeSet<String> = list
        .items()
        .filter(|volume| !pod.is_empty() && !volume.value["ephemeral"].is_null())
        .map(|volume| format!("{pod}-{}", volume.value["name"].as_str().unwrap_or_default()))
        .collect();
    let mut found = Volumes::new();
    let mut seen = Seen::default();
    for (volume, value) in list.items().zip(list.value.as_array().into_iter().flatten()) {
        let before = causes.len();
        let name = volume.get("name");
        let owner = Owner { volume, name: name.text(), pod, is_pod };
        let source = check(volume, OF_PODS, &owner, causes);
        need_name(name, names::label, causes);
        if !name.is_empty() && seen.again(name.value) {
            causes.push(name.duplicate());
        }
        if let (Some(source), true) = (source, causes.len() == before) {
            found.insert(value["name"].as_str().unwrap_or_default(), source.field);
        }
        let claim = volume.get("persistentVolumeClaim");
        let claimed = claim.get("claimName");
        if created.contains(claimed.text()) {
            causes.push(claimed.invalid("must not reference a PVC that gets created for an ephemeral volume"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::{Value, json};

    /// Each row has a source of the volume `v`, and the source's fault, if any.
    #[test]
    fn each_rule_of_volumes() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "a", "image": "a"}], "volumes": [{"name": "v"}],
                "serviceAccountName": "robot"},
        });
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let template = json!({"ephemeral": {"volumeClaimTemplate": {"spec": claim}}});
        let rows = [
            (json!({"emptyDir": {}, "secret": {"secretName": "a"}}), "secret: Forbidden: may not specify more than 1"),
            (json!({"emptyDir": {"sizeLimit": "-1"}}), "emptyDir.sizeLimit: Forbidden: SizeLimit field must be"),
            (json!({"hostPath": {"path": "/a/../b"}}), "hostPath.path: Invalid value: \"/a/../b\": must not contain"),
            (json!({"hostPath": {"path": "/a", "type": "X"}}), "hostPath.type: Unsupported value: \"X\": supported v"),
            (json!({"secret": {}}), "secret.secretName: Required value"),
            (json!({"secret": {"secretName": "a", "defaultMode": 512}}), "secret.defaultMode: Invalid value: 512: mus"),
            (
                json!({"secret": {"secretName": "a", "items": [{"key": "a", "path": "..b"}]}}),
                "secret.items[0].path: Invalid value: \"..b\": must not start with '..'",
            ),
            (json!({"configMap": {"items": []}}), "configMap.name: Required value"),
            (json!({"nfs": {"server": "a", "path": "b"}}), "nfs.path: Invalid value: \"b\": must be an absolute path"),
            (
                json!({"iscsi": {"targetPortal": "a", "iqn": "x", "lun": 0}}),
                "iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
            ),
            (json!({"iscsi": {"targetPortal": "a", "iqn": "iqn.2001-04.com.example:disk", "lun": 0}}), ""),
            (
                json!({"gcePersistentDisk": {"pdName": "a", "partition": 300}}),
                "persistentDisk.partition: Invalid value: 300: must be between 1 and 255, inclusive",
            ),
            (json!({"persistentVolumeClaim": {}}), "persistentVolumeClaim.claimName: Required value"),
            (json!({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}}), ""),
            (
                json!({"downwardAPI": {"items": [{"path": "a"}]}}),
                "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            ),
            (
                json!({"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}}),
                "downwardAPI.resourceFieldRef.containerName: Required value",
            ),
            (
                json!({"projected": {"sources": [
                    {"secret": {"name": "a", "items": [{"key": "a", "path": "p"}]}},
                    {"configMap": {"name": "b", "items": [{"key": "b", "path": "p"}]}}]}}),
                "projected: Invalid value: \"b\": conflicting duplicate paths",
            ),
            (
                json!({"projected": {"sources": [{"secret": {"name": "a"}, "configMap": {"name": "b"}}]}}),
                "projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
            ),
            (
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 60}}]}}),
                "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 60: may not specify a",
            ),
            (
                json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}}),
                "projected.sources[0].clusterTrustBundle: Required value: either name or signerName must be specif",
            ),
            (json!({"csi": {"driver": "A_B"}}), "csi.driver: Invalid value: \"A_B\": a lowercase RFC 1123 subdomain"),
            (json!({"flexVolume": {"driver": "a", "options": {"kubernetes.io/x": "y"}}}), "flexVolume.options[kubern"),
            (template.clone(), ""),
            (json!({"ephemeral": {}}), "ephemeral.volumeClaimTemplate: Required value"),
            (
                json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
                "ephemeral.volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is required",
            ),
            (json!({"image": {}}), "image.reference: Required value"),
            (json!({"rbd": {"image": "a"}}), "rbd.monitors: Required value"),
            (json!({"azureDisk": {"diskName": "a", "diskURI": "b"}}), "azureDisk.diskURI: Unsupported value: \"b\""),
        ];
        let rows: Vec<(&str, Value, String)> = rows
            .into_iter()
            .map(|(mut source, fault)| {
                source["name"] = json!("v");
                let path = if fault.is_empty() { String::new() } else { format!("spec.volumes[0].{fault}") };
                ("/spec/volumes/0", source, path)
            })
            .collect();
        let rows: Vec<(&str, Value, &str)> =
            rows.iter().map(|(at, v, fault)| (*at, v.clone(), fault.as_str())).collect();
        check_rows(&good, &rows);

        let mut own = template;
        own["name"] = json!("v");
        check_rows(
            &good,
            &[
                ("/spec/volumes/1", json!({"name": "v"}), "spec.volumes[1].name: Duplicate value: \"v\""),
                ("/spec/volumes/0/name", json!("V"), "spec.volumes[0].name: Invalid value: \"V\""),
                (
                    "/spec/volumes",
                    json!([own, {"name": "w", "persistentVolumeClaim": {"claimName": "a-v"}}]),
                    "spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: \"a-v\": must not reference a PVC",
                ),
            ],
        );
    }
}

//! Columns of persistent volumes and claims.

use crate::kinds::Column;
use crate::kinds::cells::{UNSET, age_column, annotation, at, column, field, items, name, of_field, plain, show, text};
use holdfast_value::Value;

pub fn columns() -> Vec<Column> {
    vec![
        name(),
        column("Capacity", "string", 0, field("spec.capacity"), |doc, _| storage(doc, "spec.capacity").into()),
        column("Access Modes", "string", 0, field("spec.accessModes"), |doc, _| {
            access_modes(items(doc, "spec.accessModes")).into()
        }),
        of_field("Reclaim Policy", "string", 0, "spec.persistentVolumeReclaimPolicy", show::text),
        column("Status", "string", 0, field("status.phase"), |doc, _| phase(doc).into()),
        column("Claim", "string", 0, field("spec.claimRef"), |doc, _| {
            let claim = at(doc, "spec.claimRef");
            claim
                .map_or_else(String::new, |claim| format!("{}/{}", text(claim, "namespace"), text(claim, "name")))
                .into()
        }),
        storage_class(),
        attributes_class(),
        of_field("Reason", "string", 0, "status.reason", show::text),
        age_column(),
        volume_mode(),
    ]
}

pub fn claim_columns() -> Vec<Column> {
    vec![
        name(),
        column("Status", "string", 0, field("status.phase"), |doc, _| phase(doc).into()),
        of_field("Volume", "string", 0, "spec.volumeName", show::text),
        column("Capacity", "string", 0, field("status.capacity"), |doc, _| {
            if is_bound(doc) { storage(doc, "status.capacity").into() } else { "".into() }
        }),
        column("Access Modes", "string", 0, field("status.accessModes"), |doc, _| {
            if is_bound(doc) { access_modes(items(doc, "status.accessModes")).into() } else { "".into() }
        }),
        storage_class(),
        attributes_class(),
        age_column(),
        volume_mode(),
    ]
}

fn storage_class() -> Column {
    column("StorageClass", "string", 0, "The class that the storage is of.", |doc, _| {
        // The old annotation for the class has precedence over the field.
        annotation(doc, "volume.beta.kubernetes.io/storage-class")
            .unwrap_or_else(|| text(doc, "spec.storageClassName"))
            .into()
    })
}

fn attributes_class() -> Column {
    column("VolumeAttributesClass", "string", 0, "The class of the volume's changeable attributes.", |doc, _| {
        at(doc, "spec.volumeAttributesClassName").cloned().unwrap_or_else(|| UNSET.into())
    })
}

fn volume_mode() -> Column {
    of_field("VolumeMode", "string", 1, "spec.volumeMode", show::text_or_unset)
}

fn phase(doc: &Value) -> &str {
    let is_going = at(doc, "metadata.deletionTimestamp").is_some();
    if is_going { "Terminating" } else { text(doc, "status.phase") }
}

fn is_bound(claim: &Value) -> bool {
    !text(claim, "spec.volumeName").is_empty()
}

fn storage(doc: &Value, path: &str) -> String {
    at(doc, path).and_then(|resources| resources.get("storage")).map_or_else(|| "0".into(), plain)
}

fn access_modes(modes: &[Value]) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let shown = SHORT.iter().filter(|(long, _)| modes.iter().any(|mode| mode == long)).map(|(_, short)| *short);
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn volumes() {
        let bound = json!({
            "metadata": {"name": "pv-1", "creationTimestamp": "2026-01-09T00:00:00Z"},
            "spec": {
                "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "default", "name": "data"},
                "storageClassName": "fast", "volumeMode": "Filesystem", "volumeAttributesClassName": "gold",
            },
            "status": {"phase": "Bound", "reason": "because"},
        });
        let expected =
            "pv-1 | 10Gi | RWO,RWX | Delete | Bound | default/data | fast | gold | because | 24h | Filesystem";
        assert_eq!(shown(&columns(), &bound), expected);

        let bare = json!({"metadata": {"name": "pv-2"}, "status": {"phase": "Available"}});
        assert_eq!(shown(&columns(), &bare), "pv-2 | 0 |  |  | Available |  |  | <unset> |  | <unknown> | <unset>");
    }

    #[test]
    fn claims() {
        let cases = [
            (
                json!({"metadata": {"name": "a"}, "status": {"phase": "Pending"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "slow", "volumeMode": "Block",
                }}),
                "a | Pending |  |  |  | slow | <unset> | <unknown> | Block",
            ),
            (
                json!({
                    "metadata": {"name": "b", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
                    "spec": {"volumeName": "pv-1", "storageClassName": "slow"},
                    "status": {"phase": "Bound", "accessModes": ["ReadWriteOncePod"], "capacity": {"storage": "2Gi"}},
                }),
                "b | Bound | pv-1 | 2Gi | RWOP | old | <unset> | <unknown> | <unset>",
            ),
            (
                json!({"metadata": {"name": "c", "deletionTimestamp": "2026-01-09T00:00:00Z"},
                    "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}),
                "c | Terminating | pv-1 | 0 |  |  | <unset> | <unknown> | <unset>",
            ),
        ];
        for (claim, expected) in cases {
            assert_eq!(shown(&claim_columns(), &claim), expected);
        }
    }
}

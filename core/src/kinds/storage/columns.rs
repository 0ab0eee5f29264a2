//! Columns of the storage kinds.

use crate::kinds::cells::{
    NONE, UNSET, age_column, annotation, at, column, count, field, items, joined, name, of_field, show, text, text_or,
};
use crate::kinds::{Cell, Column};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "StorageClass" => vec![
            Column { cell: Cell::Read(storage_class_name), ..name() },
            of_field("Provisioner", "string", 0, "provisioner", show::text),
            column("ReclaimPolicy", "string", 0, field("reclaimPolicy"), |doc, _| {
                text_or(doc, "reclaimPolicy", "Delete")
            }),
            column("VolumeBindingMode", "string", 0, field("volumeBindingMode"), |doc, _| {
                text_or(doc, "volumeBindingMode", "Immediate")
            }),
            of_field("AllowVolumeExpansion", "string", 0, "allowVolumeExpansion", show::truth),
            age_column(),
        ],
        "VolumeAttributesClass" => vec![
            Column { cell: Cell::Read(attributes_class_name), ..name() },
            of_field("DriverName", "string", 0, "driverName", show::text),
            age_column(),
        ],
        "VolumeAttachment" => vec![
            name(),
            Column { format: "name", ..of_field("Attacher", "string", 0, "spec.attacher", show::text) },
            of_field("PV", "string", 0, "spec.source.persistentVolumeName", show::text),
            of_field("Node", "string", 0, "spec.nodeName", show::text),
            of_field("Attached", "boolean", 0, "status.attached", show::truth),
            age_column(),
        ],
        "CSIDriver" => csi_driver(),
        "CSINode" => vec![
            name(),
            column("Drivers", "integer", 0, "Number of drivers on the node.", |doc, _| {
                count(doc, "spec.drivers").into()
            }),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn csi_driver() -> Vec<Column> {
    vec![
        name(),
        column("AttachRequired", "boolean", 0, field("spec.attachRequired"), |doc, _| {
            at(doc, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true).into()
        }),
        of_field("PodInfoOnMount", "boolean", 0, "spec.podInfoOnMount", show::truth),
        of_field("StorageCapacity", "boolean", 0, "spec.storageCapacity", show::truth),
        column("TokenRequests", "string", 0, field("spec.tokenRequests"), |doc, _| {
            at(doc, "spec.tokenRequests")
                .map_or_else(|| UNSET.into(), |_| joined(items(doc, "spec.tokenRequests"), "audience"))
                .into()
        }),
        of_field("RequiresRepublish", "boolean", 0, "spec.requiresRepublish", show::truth),
        column("Modes", "string", 0, field("spec.volumeLifecycleModes"), |doc, _| {
            let modes: Vec<_> = items(doc, "spec.volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
            if modes.is_empty() { NONE.into() } else { modes.join(",").into() }
        }),
        age_column(),
    ]
}

fn storage_class_name(doc: &Value, _now: i64) -> Value {
    const MARKS: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    marked_name(doc, &MARKS)
}

fn attributes_class_name(doc: &Value, _now: i64) -> Value {
    marked_name(doc, &["volumeattributesclass.alpha.kubernetes.io/is-default-class"])
}

/// The name; a mark follows it if an annotation makes this class the default.
fn marked_name(doc: &Value, marks: &[&str]) -> Value {
    let name = text(doc, "metadata.name");
    let is_default = marks.iter().any(|mark| annotation(doc, mark) == Some("true"));
    if is_default { format!("{name} (default)").into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn storage() {
        let default_class = |key: &str| json!({"metadata": {"name": "x", "annotations": {key: "true"}}});
        let cases = [
            (
                "StorageClass",
                default_class("storageclass.kubernetes.io/is-default-class"),
                "x (default) |  | Delete | Immediate | false | <unknown>",
            ),
            (
                "StorageClass",
                json!({"metadata": {"name": "x"}, "provisioner": "p", "reclaimPolicy": "Retain",
                    "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true}),
                "x | p | Retain | WaitForFirstConsumer | true | <unknown>",
            ),
            (
                "VolumeAttributesClass",
                default_class("volumeattributesclass.alpha.kubernetes.io/is-default-class"),
                "x (default) |  | <unknown>",
            ),
            (
                "VolumeAttachment",
                json!({"metadata": {"name": "x"}, "status": {"attached": true}, "spec": {
                    "attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}),
                "x | a | pv | n | true | <unknown>",
            ),
            (
                "CSIDriver",
                json!({"metadata": {"name": "x"}}),
                "x | true | false | false | <unset> | false | <none> | <unknown>",
            ),
            (
                "CSIDriver",
                json!({"metadata": {"name": "x"}, "spec": {
                    "attachRequired": false, "podInfoOnMount": true, "storageCapacity": true, "requiresRepublish": true,
                    "tokenRequests": [{"audience": "a"}, {"audience": "b"}],
                    "volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
                "x | false | true | true | a,b | true | Persistent,Ephemeral | <unknown>",
            ),
            ("CSINode", json!({"metadata": {"name": "x"}, "spec": {"drivers": [{}, {}]}}), "x | 2 | <unknown>"),
        ];
        for (kind, doc, expected) in cases {
            assert_eq!(shown(&of(kind), &doc), expected, "{kind}");
        }
    }
}

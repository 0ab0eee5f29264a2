//! Columns of the device allocation kinds.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, at, column, field, items, name, since, text};
use holdfast_value::Value;

/// The table columns of a kind of this group. If there are none, tables show Name and Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "DeviceClass" | "ResourceClaimTemplate" => vec![name(), age_column()],
        "ResourceClaim" => vec![
            name(),
            column("State", "string", 0, "Whether devices are allocated, and pods use them.", |doc, _| {
                claim_state(doc).into()
            }),
            age_column(),
        ],
        "ResourceSlice" => vec![
            name(),
            column("Node", "string", 0, field("spec.nodeName"), |doc, _| text(doc, "spec.nodeName").into()),
            column("Driver", "string", 0, field("spec.driver"), |doc, _| text(doc, "spec.driver").into()),
            column("Pool", "string", 0, field("spec.pool.name"), |doc, _| text(doc, "spec.pool.name").into()),
            age_column(),
        ],
        "DeviceTaintRule" => vec![
            name(),
            column("Key", "string", 0, field("spec.taint.key"), |doc, _| text(doc, "spec.taint.key").into()),
            column("Value", "string", 0, field("spec.taint.value"), |doc, _| text(doc, "spec.taint.value").into()),
            column("Effect", "string", 0, field("spec.taint.effect"), |doc, _| text(doc, "spec.taint.effect").into()),
            column("TimeAdded", "string", 0, field("spec.taint.timeAdded"), |doc, now| {
                match text(doc, "spec.taint.timeAdded") {
                    "" => "".into(),
                    time => since(time, now).into(),
                }
            }),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn claim_state(claim: &Value) -> String {
    let is_deleted = at(claim, "metadata.deletionTimestamp").is_some();
    let is_allocated = at(claim, "status.allocation").is_some();
    let is_reserved = is_allocated && !items(claim, "status.reservedFor").is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_deleted && !is_allocated, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn devices() {
        let cases = [
            ("DeviceClass", json!({"metadata": {"name": "x"}}), "x | <unknown>"),
            ("ResourceClaimTemplate", json!({"metadata": {"name": "x"}}), "x | <unknown>"),
            ("ResourceClaim", json!({"metadata": {"name": "x"}}), "x | pending | <unknown>"),
            (
                "ResourceClaim",
                json!({"metadata": {"name": "x"}, "status": {"allocation": {}, "reservedFor": [{"name": "pod"}]}}),
                "x | allocated,reserved | <unknown>",
            ),
            (
                "ResourceClaim",
                json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-09T00:00:00Z"},
                    "status": {"allocation": {}}}),
                "x | deleted,allocated | <unknown>",
            ),
            (
                "ResourceClaim",
                json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-09T00:00:00Z"}}),
                "x | deleted | <unknown>",
            ),
            (
                "ResourceSlice",
                json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}}),
                "x | n | d | p | <unknown>",
            ),
            (
                "DeviceTaintRule",
                json!({"metadata": {"name": "x"}, "spec": {"taint": {"key": "k", "value": "v", "effect": "NoExecute",
                    "timeAdded": "2026-01-09T23:55:00Z"}}}),
                "x | k | v | NoExecute | 5m | <unknown>",
            ),
        ];
        for (kind, doc, expected) in cases {
            assert_eq!(shown(&of(kind), &doc), expected, "{kind}");
        }
    }
}

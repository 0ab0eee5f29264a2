//! Columns of the device allocation kinds.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, at, column, field, items, name, of_field, show, since, text};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
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
            of_field("Node", "string", 0, "spec.nodeName", show::text),
            of_field("Driver", "string", 0, "spec.driver", show::text),
            of_field("Pool", "string", 0, "spec.pool.name", show::text),
            age_column(),
        ],
        "DeviceTaintRule" => vec![
            name(),
            of_field("Key", "string", 0, "spec.taint.key", show::text),
            of_field("Value", "string", 0, "spec.taint.value", show::text),
            of_field("Effect", "string", 0, "spec.taint.effect", show::text),
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

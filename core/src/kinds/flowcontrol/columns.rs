//! Columns of flow schemas and priority levels.

use crate::kinds::Column;
use crate::kinds::cells::{NONE, age_column, at, column, field, items, name, number, of_field, show, text};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "FlowSchema" => vec![
            name(),
            of_field("PriorityLevel", "string", 0, "spec.priorityLevelConfiguration.name", show::text),
            of_field("MatchingPrecedence", "string", 0, "spec.matchingPrecedence", show::number),
            column("DistinguisherMethod", "string", 0, field("spec.distinguisherMethod"), |doc, _| {
                at(doc, "spec.distinguisherMethod").map_or(NONE, |method| text(method, "type")).into()
            }),
            age_column(),
            column("MissingPL", "string", 0, "Whether the level does not exist.", |doc, _| is_dangling(doc).into()),
        ],
        "PriorityLevelConfiguration" => vec![
            name(),
            of_field("Type", "string", 0, "spec.type", show::text),
            column(
                "NominalConcurrencyShares",
                "string",
                0,
                field("spec.limited.nominalConcurrencyShares"),
                |doc, _| number_below(doc, "spec.limited", "nominalConcurrencyShares"),
            ),
            column("Queues", "string", 0, field("spec.limited.limitResponse.queuing.queues"), |doc, _| {
                queuing(doc, "queues")
            }),
            column("HandSize", "string", 0, field("spec.limited.limitResponse.queuing.handSize"), |doc, _| {
                queuing(doc, "handSize")
            }),
            column(
                "QueueLengthLimit",
                "string",
                0,
                field("spec.limited.limitResponse.queuing.queueLengthLimit"),
                |doc, _| queuing(doc, "queueLengthLimit"),
            ),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn is_dangling(doc: &Value) -> &str {
    let found = items(doc, "status.conditions").iter().find(|condition| text(condition, "type") == "Dangling");
    found.map_or("?", |condition| text(condition, "status"))
}

fn queuing(doc: &Value, field: &str) -> Value {
    number_below(doc, "spec.limited.limitResponse.queuing", field)
}

/// The cell for a number inside an object; `<none>` if the object is absent.
fn number_below(doc: &Value, part: &str, field: &str) -> Value {
    at(doc, part).map_or_else(|| NONE.into(), |part| number(part, field).into())
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn flow_control() {
        let cases = [
            (
                "FlowSchema",
                json!({
                    "spec": {"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 10000,
                        "distinguisherMethod": {"type": "ByUser"}},
                    "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
                }),
                "x | catch-all | 10000 | ByUser | <unknown> | False",
            ),
            ("FlowSchema", json!({}), "x |  | 0 | <none> | <unknown> | ?"),
            (
                "PriorityLevelConfiguration",
                json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 20, "limitResponse": {
                    "type": "Queue", "queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50}}}}}),
                "x | Limited | 20 | 128 | 6 | 50 | <unknown>",
            ),
            (
                "PriorityLevelConfiguration",
                json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
                "x | Limited | 0 | <none> | <none> | <none> | <unknown>",
            ),
            (
                "PriorityLevelConfiguration",
                json!({"spec": {"type": "Exempt"}}),
                "x | Exempt | <none> | <none> | <none> | <none> | <unknown>",
            ),
        ];
        for (kind, mut doc, expected) in cases {
            doc["metadata"] = json!({"name": "x"});
            assert_eq!(shown(&of(kind), &doc), expected);
        }
    }
}

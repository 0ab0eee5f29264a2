//! Columns of disruption budgets.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, at, column, name, number, plain};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "PodDisruptionBudget" => vec![
            name(),
            column("Min Available", "string", 0, "Fewest pods that must stay available.", |doc, _| {
                number_or_percent(doc, "spec.minAvailable")
            }),
            column("Max Unavailable", "string", 0, "Most pods that may be unavailable.", |doc, _| {
                number_or_percent(doc, "spec.maxUnavailable")
            }),
            column("Allowed Disruptions", "integer", 0, "Pods that may be disrupted now.", |doc, _| {
                number(doc, "status.disruptionsAllowed").into()
            }),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn number_or_percent(doc: &Value, path: &str) -> Value {
    at(doc, path).map_or_else(|| "N/A".into(), plain).into()
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn budgets() {
        let cases = [
            (json!({"minAvailable": 2}), "x | 2 | N/A | 1 | <unknown>"),
            (json!({"maxUnavailable": "30%"}), "x | N/A | 30% | 1 | <unknown>"),
        ];
        for (spec, expected) in cases {
            let doc = json!({"metadata": {"name": "x"}, "spec": spec, "status": {"disruptionsAllowed": 1}});
            assert_eq!(shown(&of("PodDisruptionBudget"), &doc), expected);
        }
    }
}

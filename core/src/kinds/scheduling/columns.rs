//! Columns of priority classes.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, column, field, name, number, text, truth};

/// The table columns of a kind of this group. If there are none, tables show Name and Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "PriorityClass" => vec![
            name(),
            column("Value", "integer", 0, field("value"), |doc, _| number(doc, "value").into()),
            column("Global-Default", "boolean", 0, field("globalDefault"), |doc, _| truth(doc, "globalDefault").into()),
            age_column(),
            column("PreemptionPolicy", "string", 0, field("preemptionPolicy"), |doc, _| {
                text(doc, "preemptionPolicy").into()
            }),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn priority_classes() {
        let class = json!({
            "metadata": {"name": "x"}, "value": 1000, "globalDefault": true, "preemptionPolicy": "Never",
        });
        assert_eq!(shown(&of("PriorityClass"), &class), "x | 1000 | true | <unknown> | Never");
    }
}

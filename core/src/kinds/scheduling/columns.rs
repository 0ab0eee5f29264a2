//! Columns of priority classes.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, name, of_field, show};

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "PriorityClass" => vec![
            name(),
            of_field("Value", "integer", 0, "value", show::number),
            of_field("Global-Default", "boolean", 0, "globalDefault", show::truth),
            age_column(),
            of_field("PreemptionPolicy", "string", 0, "preemptionPolicy", show::text),
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

//! Columns of runtime classes.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, name, of_field, show};

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "RuntimeClass" => vec![name(), of_field("Handler", "string", 0, "handler", show::text), age_column()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn runtime_classes() {
        let class = json!({"metadata": {"name": "x"}, "handler": "runsc"});
        assert_eq!(shown(&of("RuntimeClass"), &class), "x | runsc | <unknown>");
    }
}

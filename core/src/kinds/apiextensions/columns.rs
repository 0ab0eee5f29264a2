//! Printer columns of custom resources.

use crate::kinds::cells::{items, name, number, text};
use crate::kinds::{Cell, Column};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(_kind: &str) -> Vec<Column> {
    Vec::new()
}

/// The maximum number of columns that are shown for a custom resource, because every table repeats their definitions.
/// Further columns are stored but not shown.
const SHOWN_MAX: usize = 128;
/// The maximum number of bytes of the names, descriptions and paths of the shown columns, for the same reason.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// The columns of a defined resource: `version` is the item of the definition's `spec.versions`.
pub fn of_version(version: &Value) -> Vec<Column> {
    let declared = items(version, "additionalPrinterColumns");
    let mut columns = vec![name()];
    if declared.is_empty() {
        columns.push(Column {
            ty: "date",
            cell: Cell::Path(".metadata.creationTimestamp".into()),
            ..crate::kinds::cells::age_column()
        });
    }
    let mut bytes = SHOWN_BYTES_MAX;
    let shown = declared.iter().take(SHOWN_MAX).take_while(|column| {
        let texts = ["name", "description", "jsonPath"].map(|field| text(column, field).len());
        let left = bytes.checked_sub(texts.iter().sum());
        bytes = left.unwrap_or_default();
        left.is_some()
    });
    columns.extend(shown.map(|column| Column {
        name: text(column, "name").into(),
        ty: known(text(column, "type"), &["integer", "number", "string", "boolean", "date"]),
        format: known(text(column, "format"), &FORMATS),
        description: text(column, "description").into(),
        priority: i32::try_from(number(column, "priority")).unwrap_or_default(),
        cell: Cell::Path(text(column, "jsonPath").into()),
        reads: None,
    }));
    columns
}

/// The formats allowed for a column.
const FORMATS: [&str; 8] = ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];

fn known(text: &str, all: &[&'static str]) -> &'static str {
    all.iter().find(|known| **known == text).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::of_version;
    use crate::kinds::cells::tests::NOW;
    use crate::kinds::{Column, Description};
    use crate::wire::table::cells;
    use holdfast_value::json;

    #[test]
    fn declared_columns() {
        let columns = of_version(&json!({"name": "v1", "additionalPrinterColumns": [
            {"name": "Replicas", "type": "integer", "format": "int32", "jsonPath": ".spec.replicas", "priority": 1},
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "since when"},
        ]}));
        let words = |column: &Column| match &column.description {
            Description::Words(words) => words.clone(),
            Description::Field(path) => format!("as {path}"),
        };
        let headers: Vec<_> = columns.iter().map(|c| (c.name.as_str(), c.ty, c.format, c.priority, words(c))).collect();
        assert_eq!(
            headers[1..],
            [
                ("Replicas", "integer", "int32", 1, String::new()),
                ("Ready", "string", "", 0, String::new()),
                ("Age", "date", "", 0, "since when".into()),
            ]
        );
        let object = json!({
            "metadata": {"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"},
            "spec": {"replicas": 2},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(cells(&columns, &object, NOW), [json!("x"), json!(2), json!("True"), json!("5m")]);
        assert_eq!(cells(&columns, &json!({}), NOW), [json!(""), json!(null), json!(null), json!(null)]);
    }

    #[test]
    fn no_declared_columns() {
        let columns = of_version(&json!({"name": "v1"}));
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"}});
        assert_eq!(
            columns.iter().map(|c| (c.name.as_str(), c.ty)).collect::<Vec<_>>(),
            [("Name", "string"), ("Age", "date")]
        );
        assert_eq!(cells(&columns, &object, NOW), [json!("x"), json!("5m")]);
    }

    #[test]
    fn many_columns() {
        let columns = |count: usize, path: &str| {
            let column = json!({"name": "C", "type": "string", "jsonPath": path});
            of_version(&json!({"name": "v1", "additionalPrinterColumns": vec![column; count]})).len()
        };
        assert_eq!(columns(100, ".spec.a"), 101);
        assert_eq!(columns(5000, "..b"), 129);
        assert_eq!(columns(100, &format!(".{}", "a".repeat(2998))), 22);
    }
}

//! Columns of storage version migrations.

use crate::kinds::Column;
use crate::kinds::cells::{column, field, name, text};

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "StorageVersionMigration" => vec![
            Column { format: "", ..name() },
            column("Resource", "string", 0, field("spec.resource"), |doc, _| {
                // The name of the core group is empty; Kubernetes shows the dot nevertheless.
                format!("{}.{}", text(doc, "spec.resource.resource"), text(doc, "spec.resource.group")).into()
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
    fn migrations() {
        let spec = json!({"resource": {"group": "apps", "resource": "deployments"}});
        let doc = json!({"metadata": {"name": "x"}, "spec": spec});
        assert_eq!(shown(&of("StorageVersionMigration"), &doc), "x | deployments.apps");
    }
}

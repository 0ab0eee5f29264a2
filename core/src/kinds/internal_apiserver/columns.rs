//! Columns of storage versions.

use crate::kinds::Column;
use crate::kinds::cells::{UNSET, age_column, column, field, first_few, items, name, of_field, show, text};

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "StorageVersion" => vec![
            name(),
            of_field("CommonEncodingVersion", "string", 0, "status.commonEncodingVersion", show::text_or_unset),
            column("StorageVersions", "string", 0, field("status.storageVersions"), |doc, _| {
                let servers: Vec<_> = items(doc, "status.storageVersions")
                    .iter()
                    .map(|server| format!("{}={}", text(server, "apiServerID"), text(server, "encodingVersion")))
                    .collect();
                if servers.is_empty() { UNSET.into() } else { first_few(&servers, 3).into() }
            }),
            age_column(),
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
    fn storage_versions() {
        let server = |id: &str| json!({"apiServerID": id, "encodingVersion": "v1"});
        let cases = [
            (json!({}), "x | <unset> | <unset> | <unknown>"),
            (
                json!({"commonEncodingVersion": "v1",
                    "storageVersions": [server("a"), server("b"), server("c"), server("d")]}),
                "x | v1 | a=v1,b=v1,c=v1 + 1 more... | <unknown>",
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(shown(&of("StorageVersion"), &json!({"metadata": {"name": "x"}, "status": status})), expected);
        }
    }
}

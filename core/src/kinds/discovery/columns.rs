//! Columns of endpoint slices.

use crate::kinds::Column;
use crate::kinds::cells::{UNSET, age_column, at, column, field, first_few, items, name, of_field, plain, show};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "EndpointSlice" => vec![
            name(),
            of_field("AddressType", "string", 0, "addressType", show::text),
            column("Ports", "string", 0, field("ports"), |doc, _| {
                let ports: Vec<_> = items(doc, "ports").iter().map(port).collect();
                or_unset(first_few(&ports, 3))
            }),
            column("Endpoints", "string", 0, field("endpoints"), |doc, _| {
                let addresses: Vec<_> = items(doc, "endpoints")
                    .iter()
                    .flat_map(|endpoint| items(endpoint, "addresses"))
                    .map(plain)
                    .collect();
                or_unset(first_few(&addresses, 3))
            }),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn port(port: &Value) -> String {
    at(port, "port").or_else(|| at(port, "name")).map_or_else(|| "*".into(), plain)
}

fn or_unset(list: String) -> Value {
    if list.is_empty() { UNSET.into() } else { list.into() }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn slices() {
        let cases = [
            (json!({"addressType": "IPv4", "ports": [], "endpoints": []}), "x | IPv4 | <unset> | <unset> | <unknown>"),
            (
                json!({"addressType": "IPv4", "ports": [{"name": "web", "port": 80}, {"name": "any"}, {}],
                    "endpoints": [
                    {"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2", "10.0.0.3"]}, {"addresses": ["10.0.0.4"]},
                ]}),
                "x | IPv4 | 80,any,* | 10.0.0.1,10.0.0.2,10.0.0.3 + 1 more... | <unknown>",
            ),
        ];
        for (mut doc, expected) in cases {
            doc["metadata"] = json!({"name": "x"});
            assert_eq!(shown(&of("EndpointSlice"), &doc), expected);
        }
    }
}

//! Columns of API services.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, at, column, items, name, text};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "APIService" => vec![
            name(),
            column("Service", "string", 0, "The service behind the API, or Local for this server.", |doc, _| {
                at(doc, "spec.service").map_or_else(
                    || "Local".into(),
                    |service| format!("{}/{}", text(service, "namespace"), text(service, "name")).into(),
                )
            }),
            column("Available", "string", 0, "Whether the API can be used.", |doc, _| available(doc).into()),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn available(doc: &Value) -> String {
    let found = items(doc, "status.conditions").iter().find(|condition| text(condition, "type") == "Available");
    match found.map(|condition| (text(condition, "status"), text(condition, "reason"))) {
        None => "Unknown".into(),
        Some(("True", _)) => "True".into(),
        Some((status, reason)) => format!("{status} ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn api_services() {
        let condition = |status: &str, reason: &str| {
            let available = json!({"type": "Available", "status": status, "reason": reason});
            json!({"conditions": [available]})
        };
        let service = json!({"service": {"namespace": "kube-system", "name": "metrics"}});
        let cases = [
            (json!({}), condition("True", "Local"), "x | Local | True | <unknown>"),
            (
                service,
                condition("False", "MissingEndpoints"),
                "x | kube-system/metrics | False (MissingEndpoints) | <unknown>",
            ),
            (json!({}), json!({}), "x | Local | Unknown | <unknown>"),
        ];
        for (spec, status, expected) in cases {
            let doc = json!({"metadata": {"name": "x"}, "spec": spec, "status": status});
            assert_eq!(shown(&of("APIService"), &doc), expected);
        }
    }
}

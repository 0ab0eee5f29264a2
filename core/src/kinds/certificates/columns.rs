//! Columns of the certificate kinds.

use crate::kinds::Column;
use crate::kinds::cells::{NONE, age, age_column, at, column, field, items, name, of_field, show, text};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "CertificateSigningRequest" => vec![
            name(),
            age_column(),
            signer(),
            // In Kubernetes, this column has the description of the field `request`, although the column shows the
            // user.
            column("Requestor", "string", 0, field("spec.request"), |doc, _| text(doc, "spec.username").into()),
            column("RequestedDuration", "string", 0, field("spec.expirationSeconds"), |doc, _| {
                at(doc, "spec.expirationSeconds").and_then(Value::as_i64).map_or_else(|| NONE.into(), age).into()
            }),
            column("Condition", "string", 0, field("status.conditions"), |doc, _| request_state(doc).into()),
        ],
        "ClusterTrustBundle" => vec![name(), signer()],
        "PodCertificateRequest" => vec![
            name(),
            of_field("PodName", "string", 0, "spec.podName", show::text),
            of_field("ServiceAccountName", "string", 0, "spec.serviceAccountName", show::text),
            of_field("NodeName", "string", 0, "spec.nodeName", show::text),
            Column { cell: crate::kinds::Cell::Read(|doc, _| text(doc, "spec.signerName").into()), ..signer() },
            column("State", "string", 0, "Pending, Issued, Denied or Failed.", |doc, _| pod_request_state(doc).into()),
        ],
        _ => Vec::new(),
    }
}

fn signer() -> Column {
    of_field("SignerName", "string", 0, "spec.signerName", show::text_or_none)
}

fn has(doc: &Value, ty: &str) -> bool {
    items(doc, "status.conditions").iter().any(|condition| text(condition, "type") == ty)
}

fn request_state(doc: &Value) -> String {
    // The condition Denied has precedence over the condition Approved.
    let decision = ["Denied", "Approved"].into_iter().find(|ty| has(doc, ty)).unwrap_or("Pending");
    let failed = if has(doc, "Failed") { ",Failed" } else { "" };
    let issued = if text(doc, "status.certificate").is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}")
}

fn pod_request_state(doc: &Value) -> &'static str {
    ["Issued", "Denied", "Failed"].into_iter().find(|ty| has(doc, ty)).unwrap_or("Pending")
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::{Value, json};

    #[test]
    fn signing_requests() {
        let conditions =
            |types: &[&str]| -> Value { types.iter().map(|ty| json!({"type": ty, "status": "True"})).collect() };
        let cases = [
            (json!({}), "Pending"),
            (json!({"conditions": conditions(&["Approved"])}), "Approved"),
            (json!({"conditions": conditions(&["Approved"]), "certificate": "QQ=="}), "Approved,Issued"),
            (json!({"conditions": conditions(&["Approved", "Denied"])}), "Denied"),
            (json!({"conditions": conditions(&["Approved", "Failed"])}), "Approved,Failed"),
        ];
        for (status, expected) in cases {
            let spec = json!({"username": "ann", "signerName": "s/n", "expirationSeconds": 86400});
            let doc = json!({"metadata": {"name": "x"}, "spec": spec, "status": status});
            let expected = format!("x | <unknown> | s/n | ann | 24h | {expected}");
            assert_eq!(shown(&of("CertificateSigningRequest"), &doc), expected);
        }
        let bare = json!({"metadata": {"name": "x"}});
        assert_eq!(shown(&of("CertificateSigningRequest"), &bare), "x | <unknown> | <none> |  | <none> | Pending");
    }

    #[test]
    fn others() {
        assert_eq!(shown(&of("ClusterTrustBundle"), &json!({"metadata": {"name": "x"}})), "x | <none>");
        let request = json!({
            "metadata": {"name": "x"},
            "spec": {"podName": "p", "serviceAccountName": "s", "nodeName": "n", "signerName": "g/s"},
            "status": {"conditions": [{"type": "Issued", "status": "True"}]},
        });
        assert_eq!(shown(&of("PodCertificateRequest"), &request), "x | p | s | n | g/s | Issued");
    }
}

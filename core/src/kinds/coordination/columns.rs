//! Columns of leases and their candidates.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, column, field, name, text};

/// The table columns of a kind of this group. If there are none, tables show Name and Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Lease" => vec![
            name(),
            column("Holder", "string", 0, field("spec.holderIdentity"), |doc, _| {
                text(doc, "spec.holderIdentity").into()
            }),
            age_column(),
        ],
        "LeaseCandidate" => vec![
            name(),
            column("LeaseName", "string", 0, field("spec.leaseName"), |doc, _| text(doc, "spec.leaseName").into()),
            column("BinaryVersion", "string", 0, field("spec.binaryVersion"), |doc, _| {
                text(doc, "spec.binaryVersion").into()
            }),
            column("EmulationVersion", "string", 0, field("spec.emulationVersion"), |doc, _| {
                text(doc, "spec.emulationVersion").into()
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
    fn leases() {
        let lease = json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "n1"}});
        assert_eq!(shown(&of("Lease"), &lease), "x | n1 | <unknown>");
        let spec = json!({"leaseName": "l", "binaryVersion": "1.35.0", "emulationVersion": "1.34.0"});
        let candidate = json!({"metadata": {"name": "x"}, "spec": spec});
        assert_eq!(shown(&of("LeaseCandidate"), &candidate), "x | l | 1.35.0 | 1.34.0 | <unknown>");
    }
}

//! Columns of leases and their candidates.

use crate::kinds::Column;
use crate::kinds::cells::{age_column, name, of_field, show};

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Lease" => vec![name(), of_field("Holder", "string", 0, "spec.holderIdentity", show::text), age_column()],
        "LeaseCandidate" => vec![
            name(),
            of_field("LeaseName", "string", 0, "spec.leaseName", show::text),
            of_field("BinaryVersion", "string", 0, "spec.binaryVersion", show::text),
            of_field("EmulationVersion", "string", 0, "spec.emulationVersion", show::text),
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

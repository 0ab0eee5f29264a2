//! `coordination.k8s.io`: leases, and who would like to hold them.

pub mod columns;
pub mod defaults;

use super::Kind;

const GROUP: &str = "coordination.k8s.io";
const PACKAGE: &str = "io.k8s.api.coordination";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("Lease", "leases").versions(GROUP, PACKAGE, ["v1", "v1beta1"]).columns(columns::of("Lease")),
        Kind::namespaced("LeaseCandidate", "leasecandidates")
            .versions(GROUP, PACKAGE, ["v1beta1", "v1alpha2"])
            .columns(columns::of("LeaseCandidate")),
    ]
}

//! `coordination.k8s.io`: Leases and LeaseCandidates.

pub mod columns;
pub mod defaults;
mod validate;

use super::{ApiGroup, Gated, Kind};

pub const GROUP: &str = "coordination.k8s.io";
/// The feature gate of elections that the server coordinates.
pub const GATE: &str = "CoordinatedLeaderElection";
/// The only election strategy that the server implements. Other programs implement other strategies.
pub const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";
const PACKAGE: &str = "io.k8s.api.coordination";

/// The fields of a Lease that only coordinated elections use.
const GATED: &[Gated] = &[Gated::fields(GATE, &["spec.strategy", "spec.preferredHolder"])];

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_500, &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("Lease", "leases")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("Lease"))
            .gated(GATED)
            .validate(validate::lease)
            .any_finalizers()
            .create_on_update()
            .conditional_update(),
        Kind::namespaced("LeaseCandidate", "leasecandidates")
            .versions(GROUP, PACKAGE, ["v1beta1", "v1alpha2"])
            .columns(columns::of("LeaseCandidate"))
            .validate(validate::candidate)
            .any_finalizers()
            .create_on_update()
            .conditional_update()
            .select("spec.leaseName"),
    ]
}

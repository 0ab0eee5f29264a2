//! `policy`: disruption budgets. Eviction is only the body of a pod's subresource.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::{ApiGroup, Kind, MetadataOnUpdate};
use crate::object::names::NameRule;

pub const GROUP: &str = "policy";
const PACKAGE: &str = "io.k8s.api.policy";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup {
    bodies: &[
        ["v1", "Eviction", "io.k8s.api.policy.v1.Eviction"],
        ["v1beta1", "Eviction", "io.k8s.api.policy.v1beta1.Eviction"],
    ],
    ..ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_100, &[("v1", 15), ("v1beta1", 9)])
};

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("PodDisruptionBudget", "poddisruptionbudgets")
            .versions(GROUP, PACKAGE, ["v1"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::EMPTY_SELECTOR)
            .short(["pdb"])
            .columns(columns::of("PodDisruptionBudget"))
            .names(NameRule::PathSegment)
            .validate(validate::budget)
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::Nothing)
            .conditional_update()
            .status()
            .validate_part("status", validate::status)
            .generation(),
    ]
}

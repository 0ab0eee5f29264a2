//! `extensions`: the first home of kinds that moved to `apps` and `networking.k8s.io`, where they stand.

pub mod columns;
pub mod defaults;

use super::{ApiGroup, Kind};

/// This group, for the list of all.
pub const API_GROUP: ApiGroup = ApiGroup {
    bodies: &[["v1beta1", "Scale", "io.k8s.api.extensions.v1beta1.Scale"]],
    behind_custom: true,
    ..ApiGroup::new("extensions", kinds, defaults::rules).prioritized(1, &[("v1beta1", 1)])
};

/// None: each of these kinds is one with that of its later group.
pub fn kinds() -> Vec<Kind> {
    Vec::new()
}

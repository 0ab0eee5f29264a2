//! `extensions`: the older group of kinds that are now in `apps` and `networking.k8s.io`.

pub mod columns;
pub mod defaults;

use super::{ApiGroup, Kind};

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup {
    bodies: &[["v1beta1", "Scale", "io.k8s.api.extensions.v1beta1.Scale"]],
    behind_custom: true,
    ..ApiGroup::new("extensions", kinds, defaults::rules).prioritized(1, &[("v1beta1", 1)])
};

/// This group defines no kinds: newer groups define them.
pub fn kinds() -> Vec<Kind> {
    Vec::new()
}

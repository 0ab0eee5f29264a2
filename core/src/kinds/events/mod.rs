//! `events.k8s.io`: the differences of this group's Event from the core group, which defines the kind.

pub mod columns;
pub mod convert;
pub mod defaults;
pub(in crate::kinds) mod validate;

use super::{ApiGroup, Kind};

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new("events.k8s.io", kinds, defaults::rules).prioritized(17_750, &[("v1", 15), ("v1beta1", 5)]);

/// This group defines no kinds: the core group defines Event.
pub fn kinds() -> Vec<Kind> {
    Vec::new()
}

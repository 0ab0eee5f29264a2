//! `internal.apiserver.k8s.io`: the versions in which servers store resources.

pub mod columns;
pub mod defaults;
mod validate;

use super::{ApiGroup, Kind};
use crate::object::names::NameRule;

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new("internal.apiserver.k8s.io", kinds, defaults::rules).prioritized(16_000, &[("v1alpha1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("StorageVersion", "storageversions")
            .versions("internal.apiserver.k8s.io", "io.k8s.api.apiserverinternal", ["v1alpha1"])
            .columns(columns::of("StorageVersion"))
            .names(NameRule::PathSegment)
            .validate(validate::storage_version)
            .any_finalizers()
            .conditional_update()
            .status()
            .validate_part("status", validate::status),
    ]
}

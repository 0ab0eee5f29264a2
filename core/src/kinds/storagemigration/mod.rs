//! `storagemigration.k8s.io`: rewriting stored objects in a newer version.

pub mod columns;
pub mod defaults;
mod validate;

use super::{ApiGroup, Kind};

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new("storagemigration.k8s.io", kinds, defaults::rules).prioritized(15_800, &[("v1beta1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("StorageVersionMigration", "storageversionmigrations")
            .versions("storagemigration.k8s.io", "io.k8s.api.storagemigration", ["v1beta1"])
            .columns(columns::of("StorageVersionMigration"))
            .validate(validate::migration)
            .conditional_update()
            .status()
            .validate_part("status", validate::status),
    ]
}

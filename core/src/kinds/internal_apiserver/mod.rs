//! `internal.apiserver.k8s.io`: which server stores what in which version.

pub mod columns;
pub mod defaults;
mod validate;

use super::Kind;

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("StorageVersion", "storageversions")
            .versions("internal.apiserver.k8s.io", "io.k8s.api.apiserverinternal", ["v1alpha1"])
            .columns(columns::of("StorageVersion"))
            .validate(validate::storage_version)
            .conditional_update()
            .status()
            .validate_part("status", validate::status),
    ]
}

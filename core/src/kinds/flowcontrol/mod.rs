//! `flowcontrol.apiserver.k8s.io`: the kinds by which a busy server shares its capacity among users.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::build::STATUS_RESETS_METADATA;
use super::{ApiGroup, Kind, MetadataOnUpdate};

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const PACKAGE: &str = "io.k8s.api.flowcontrol";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup::new(GROUP, kinds, defaults::rules)
    .prioritized(16_100, &[("v1", 21), ("v1beta3", 18), ("v1beta2", 15), ("v1beta1", 12), ("v1alpha1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("FlowSchema", "flowschemas")
            .versions(GROUP, PACKAGE, ["v1", "v1beta3", "v1beta2", "v1beta1"])
            .columns(columns::of("FlowSchema"))
            .validate(validate::schema)
            .metadata_on_update(MetadataOnUpdate::New)
            .status()
            .status_resets(STATUS_RESETS_METADATA)
            .validate_part("status", validate::status)
            .generation(),
        Kind::cluster("PriorityLevelConfiguration", "prioritylevelconfigurations")
            .versions(GROUP, PACKAGE, ["v1"])
            .converted(GROUP, PACKAGE, "v1beta3", convert::ZERO_SHARES)
            .converted(GROUP, PACKAGE, "v1beta2", convert::ASSURED_SHARES)
            .converted(GROUP, PACKAGE, "v1beta1", convert::ASSURED_SHARES)
            .columns(columns::of("PriorityLevelConfiguration"))
            .validate(validate::level)
            .metadata_on_update(MetadataOnUpdate::New)
            .status()
            .status_resets(STATUS_RESETS_METADATA)
            .validate_part("status", validate::status)
            .generation(),
    ]
}

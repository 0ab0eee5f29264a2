//! `storage.k8s.io`: drivers of volumes, and what they offer.

pub mod columns;
pub mod defaults;
mod validate;

use super::build::STATUS_RESETS_METADATA;
use super::{ApiGroup, Gated, Kind, MetadataOnUpdate};
use crate::authz::nodes::{Object, Relation};
use crate::object::meta::Document;

pub const GROUP: &str = "storage.k8s.io";
const PACKAGE: &str = "io.k8s.api.storage";

/// This group, for the list of all.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("StorageClass", "storageclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .short(["sc"])
            .columns(columns::of("StorageClass"))
            .return_deleted_object()
            .validate(validate::storage_class),
        Kind::cluster("VolumeAttachment", "volumeattachments")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("VolumeAttachment"))
            .leads_to_nodes(Relation::Named(Object::Attachment))
            .return_deleted_object()
            .validate(validate::volume_attachment)
            .metadata_on_update(MetadataOnUpdate::New)
            .conditional_update()
            .status()
            .status_resets(STATUS_RESETS_METADATA)
            .validate_part("status", validate::attachment_status),
        Kind::cluster("CSIDriver", "csidrivers")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("CSIDriver"))
            .return_deleted_object()
            .gated(DRIVER_GATED)
            .validate(validate::driver)
            .warnings(driver_warnings)
            .conditional_update()
            .generation_of_changes(),
        Kind::cluster("CSINode", "csinodes")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("CSINode"))
            .return_deleted_object()
            .validate(validate::node)
            .metadata_on_update(MetadataOnUpdate::New)
            .conditional_update(),
        Kind::namespaced("CSIStorageCapacity", "csistoragecapacities")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("CSIStorageCapacity"))
            .validate(validate::capacity)
            .conditional_update(),
        Kind::cluster("VolumeAttributesClass", "volumeattributesclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .short(["vac"])
            .columns(columns::of("VolumeAttributesClass"))
            .return_deleted_object()
            .validate(validate::attributes_class),
    ]
}

const DRIVER_GATED: &[Gated] = &[
    Gated::fields("CSIServiceAccountTokenSecrets", &["spec.serviceAccountTokenInSecrets"]),
    Gated::fields("MutableCSINodeAllocatableCount", &["spec.nodeAllocatableUpdatePeriodSeconds"]),
    Gated::fields("SELinuxMountReadWriteOncePod", &["spec.seLinuxMount"]),
];

fn driver_warnings(_: &Kind, driver: &Document, _: Option<&Document>) -> Vec<String> {
    let Some(spec) = driver.get("spec") else { return Vec::new() };
    let requests = spec["tokenRequests"].as_array().is_some_and(|requests| !requests.is_empty());
    if !requests || !spec["serviceAccountTokenInSecrets"].is_null() {
        return Vec::new();
    }
    vec![
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible \
         logging of tokens in volume attributes"
            .to_owned(),
    ]
}

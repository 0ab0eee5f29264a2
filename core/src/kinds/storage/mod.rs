//! `storage.k8s.io`: storage classes, CSI drivers and attachments.

pub mod columns;
pub mod defaults;
mod validate;

use super::build::STATUS_RESETS_METADATA;
use super::core::warnings::{list, of_term, old_label};
use super::{ApiGroup, Gated, Kind, MetadataOnUpdate};
use crate::authz::nodes::{Object, Relation};
use crate::object::meta::Document;
use crate::refusal::Texts;
use holdfast_value::Value;

pub const GROUP: &str = "storage.k8s.io";
const PACKAGE: &str = "io.k8s.api.storage";

/// The definition of this group, for the list of all built-in groups.
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
            .validate(validate::storage_class)
            .warnings(class_warnings),
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
            .warnings(capacity_warnings)
            .conditional_update(),
        Kind::cluster("VolumeAttributesClass", "volumeattributesclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .stored_in("v1beta1", 35)
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

/// Warns of older node labels.
fn class_warnings(_: &Kind, class: &Document, _: Option<&Document>) -> Texts {
    let mut warnings = Texts::default();
    for (index, term) in list(class.get("allowedTopologies").unwrap_or(&Value::Null)).iter().enumerate() {
        for (nth, expression) in list(&term["matchLabelExpressions"]).iter().enumerate() {
            if let Some(why) = expression["key"].as_str().and_then(old_label) {
                warnings.push(format!("allowedTopologies[{index}].matchLabelExpressions[{nth}].key: {why}"));
            }
        }
    }
    warnings
}

/// Warns of older node labels in the topology of a capacity.
fn capacity_warnings(_: &Kind, capacity: &Document, _: Option<&Document>) -> Texts {
    let mut warnings = Texts::default();
    let Some(topology) = capacity.get("nodeTopology") else { return warnings };
    of_term(topology, "nodeTopology", false, &mut warnings);
    for label in topology["matchLabels"].as_object().into_iter().flat_map(|labels| labels.keys()) {
        warnings.extend(old_label(label).map(|why| format!("nodeTopology.matchLabels.{label}: {why}")));
    }
    warnings
}

/// Warns when token requests are added or changed while `serviceAccountTokenInSecrets` is unset.
fn driver_warnings(_: &Kind, driver: &Document, old: Option<&Document>) -> Texts {
    let Some(spec) = driver.get("spec") else { return Texts::default() };
    let requests = list(&spec["tokenRequests"]);
    let had = old.and_then(|old| old.get("spec")).map_or(&[][..], |spec| list(&spec["tokenRequests"]));
    if requests == had || requests.is_empty() || !spec["serviceAccountTokenInSecrets"].is_null() {
        return Texts::default();
    }
    let told = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                possible logging of tokens in volume attributes";
    told.to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn drivers_that_ask_for_other_tokens_are_told_where_those_go() {
        let kind = kinds().into_iter().find(|known| known.kind == "CSIDriver").expect("a kind");
        let driver = |audience: &str| json!({"spec": {"tokenRequests": [{"audience": audience}]}});
        let is_told = |new: &Value, old: Option<&Value>| {
            let old = old.map(|old| old.as_object().expect("an object"));
            !driver_warnings(&kind, new.as_object().expect("an object"), old).is_empty()
        };
        assert!(is_told(&driver("a"), None));
        assert!(is_told(&driver("a"), Some(&driver("b"))));
        assert!(is_told(&driver("a"), Some(&json!({"spec": {}}))));
        assert!(!is_told(&driver("a"), Some(&driver("a"))));
        assert!(!is_told(&json!({"spec": {}}), None));
    }

    #[test]
    fn old_labels_of_nodes_are_told_of() {
        let old = "failure-domain.beta.kubernetes.io/zone";
        let why = "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead";
        let told = |kind: &str, object: Value| {
            let kind = kinds().into_iter().find(|known| known.kind == kind).expect("a kind");
            kind.warnings_about(object.as_object().expect("an object"), None).into_vec()
        };
        let topologies = json!([{"matchLabelExpressions": [{"key": "a"}, {"key": old}]}]);
        assert_eq!(
            told("StorageClass", json!({"allowedTopologies": topologies})),
            [format!("allowedTopologies[0].matchLabelExpressions[1].key: {why}")]
        );
        let topology = json!({"matchExpressions": [{"key": old}], "matchLabels": {old: "x"}});
        assert_eq!(
            told("CSIStorageCapacity", json!({"nodeTopology": topology})),
            [
                format!("nodeTopology.matchExpressions[0].key: {old} is {why}"),
                format!("nodeTopology.matchLabels.{old}: {why}"),
            ]
        );
    }
}

//! `resource.k8s.io`: devices, and the claims of pods to devices.

pub mod columns;
mod convert;
pub mod defaults;
mod measure;
mod shapes;
mod slices;
mod status;
mod validate;

use super::build::STATUS_RESETS_METADATA;
use super::{ApiGroup, Asking, Gated, Kind};
use crate::authz::nodes::{Object, Relation};
use crate::object::meta::Document;
use crate::refusal::Texts;
use crate::schema::defaults::{objects, set_absent};
use holdfast_value::Value;

pub const GROUP: &str = "resource.k8s.io";
const PACKAGE: &str = "io.k8s.api.resource";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup::new(GROUP, kinds, defaults::rules)
    .prioritized(16_200, &[("v1", 20), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)]);

/// Warns of a driver name with upper-case letters, because driver names are DNS names.
fn driver_warnings(_: &Kind, slice: &Document, _: Option<&Document>) -> Texts {
    let driver = slice.get("spec").and_then(|spec| spec["driver"].as_str()).unwrap_or_default();
    if driver.to_lowercase() == driver {
        return Texts::default();
    }
    format!("spec.driver: driver names should be lowercase; \"{driver}\" contains uppercase characters").into()
}

/// Sets the time of the new taints of a ResourceSlice's devices.
fn date_taints(slice: &mut Value, _: Option<&Value>, asking: &Asking) {
    let Some(spec) = slice.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for device in objects(spec, "devices") {
        objects(device, "taints").for_each(|taint| set_absent(taint, "timeAdded", asking.now));
    }
}

/// Sets the time of a rule's taint.
fn date_taint(rule: &mut Value, _: Option<&Value>, asking: &Asking) {
    if let Some(taint) = rule.pointer_mut("/spec/taint").and_then(Value::as_object_mut) {
        set_absent(taint, "timeAdded", asking.now);
    }
}

const CLAIM_GATED: &[Gated] = &[
    Gated::together(
        "DRAAdminAccess",
        &["spec.devices.requests[].exactly.adminAccess", "status.allocation.devices.results[].adminAccess"],
    ),
    Gated::together(
        "DRAConsumableCapacity",
        &[
            "spec.devices.constraints[].distinctAttribute",
            "spec.devices.requests[].exactly.capacity",
            "spec.devices.requests[].firstAvailable[].capacity",
            "status.allocation.devices.results[].consumedCapacity",
            "status.allocation.devices.results[].shareID",
            "status.devices[].shareID",
        ],
    ),
    Gated::together(
        "DRADeviceBindingConditions",
        &[
            "status.allocation.allocationTimestamp",
            "status.allocation.devices.results[].bindingConditions",
            "status.allocation.devices.results[].bindingFailureConditions",
        ],
    ),
    Gated::together(
        "DRADeviceTaints",
        &[
            "spec.devices.requests[].exactly.tolerations",
            "spec.devices.requests[].firstAvailable[].tolerations",
            "status.allocation.devices.results[].tolerations",
        ],
    ),
    Gated::fields("DRAPrioritizedList", &["spec.devices.requests[].firstAvailable"]),
    Gated::fields("DRAResourceClaimDeviceStatus", &["status.devices"]),
];

const TEMPLATE_GATED: &[Gated] = &[
    Gated::fields("DRAAdminAccess", &["spec.spec.devices.requests[].exactly.adminAccess"]),
    Gated::together(
        "DRAConsumableCapacity",
        &[
            "spec.spec.devices.constraints[].distinctAttribute",
            "spec.spec.devices.requests[].exactly.capacity",
            "spec.spec.devices.requests[].firstAvailable[].capacity",
        ],
    ),
    Gated::together(
        "DRADeviceTaints",
        &[
            "spec.spec.devices.requests[].exactly.tolerations",
            "spec.spec.devices.requests[].firstAvailable[].tolerations",
        ],
    ),
    Gated::fields("DRAPrioritizedList", &["spec.spec.devices.requests[].firstAvailable"]),
];

const SLICE_GATED: &[Gated] = &[
    Gated::together(
        "DRAConsumableCapacity",
        &["spec.devices[].allowMultipleAllocations", "spec.devices[].capacity{}.requestPolicy"],
    ),
    Gated::together(
        "DRADeviceBindingConditions",
        &["spec.devices[].bindingConditions", "spec.devices[].bindingFailureConditions", "spec.devices[].bindsToNode"],
    ),
    Gated::fields("DRADeviceTaints", &["spec.devices[].taints"]),
    Gated::together(
        "DRAPartitionableDevices",
        &[
            "spec.sharedCounters",
            "spec.perDeviceNodeSelection",
            "spec.devices[].consumesCounters",
            "spec.devices[].nodeName",
            "spec.devices[].nodeSelector",
            "spec.devices[].allNodes",
        ],
    ),
];

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("DeviceClass", "deviceclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2", "v1beta1"])
            .columns(columns::of("DeviceClass"))
            .return_deleted_object()
            .gated(const { &[Gated::fields("DRAExtendedResource", &["spec.extendedResourceName"])] })
            .validate(validate::class)
            .generation(),
        Kind::namespaced("ResourceClaim", "resourceclaims")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::CLAIM)
            .columns(columns::of("ResourceClaim"))
            .measured(&measure::CLAIM)
            .return_deleted_object()
            .gated(CLAIM_GATED)
            .validate(validate::claim)
            .validate_in_namespace(validate::claim_in_namespace)
            .status()
            .status_resets(STATUS_RESETS_METADATA)
            .validate_part("status", status::claim),
        Kind::namespaced("ResourceClaimTemplate", "resourceclaimtemplates")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::CLAIM_TEMPLATE)
            .columns(columns::of("ResourceClaimTemplate"))
            .return_deleted_object()
            .gated(TEMPLATE_GATED)
            .validate(validate::claim_template)
            .validate_in_namespace(validate::claim_template_in_namespace),
        Kind::cluster("ResourceSlice", "resourceslices")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::SLICE)
            .columns(columns::of("ResourceSlice"))
            .leads_to_nodes(Relation::Named(Object::Slice))
            .return_deleted_object()
            .gated(SLICE_GATED)
            .validate(validate::slice)
            .warnings(driver_warnings)
            .note(date_taints)
            .generation()
            .select("spec.nodeName")
            .select("spec.driver"),
        Kind::cluster("DeviceTaintRule", "devicetaintrules")
            .versions(GROUP, PACKAGE, ["v1alpha3"])
            .columns(columns::of("DeviceTaintRule"))
            .return_deleted_object()
            .validate(validate::taint_rule)
            .note(date_taint)
            .status()
            .validate_part("status", validate::taint_rule_status)
            .generation(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn drivers_have_names_in_lower_case() {
        let kind = kinds().into_iter().find(|kind| kind.kind == "ResourceSlice").expect("a kind");
        let told = |driver: &str| {
            let slice = json!({"spec": {"driver": driver}});
            kind.warnings_about(slice.as_object().expect("an object"), None).into_vec()
        };
        let expected =
            "spec.driver: driver names should be lowercase; \"Gpu.example.com\" contains uppercase characters";
        assert_eq!(told("Gpu.example.com"), [expected]);
        assert!(told("gpu.example.com").is_empty());
    }
}

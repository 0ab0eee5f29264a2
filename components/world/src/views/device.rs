//! Views of ResourceClaims, ResourceClaimTemplates, ResourceSlices and DeviceTaintRules.

use crate::Time;
use crate::object::or_default;
use holdfast_value::Value;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    pub status: DeviceClaimStatus,
}

crate::resource!(ResourceClaim, "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaimStatus {
    pub allocation: Option<Allocation>,
    #[serde(deserialize_with = "or_default")]
    pub reserved_for: Vec<Consumer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    pub devices: AllocatedDevices,
    pub allocation_timestamp: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AllocatedDevices {
    #[serde(deserialize_with = "or_default")]
    pub results: Vec<AllocatedDevice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AllocatedDevice {
    pub driver: String,
    pub pool: String,
    pub device: String,
    #[serde(deserialize_with = "or_default")]
    pub tolerations: Vec<super::pod::Toleration>,
}

/// An object that uses a ResourceClaim, such as a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    pub api_group: String,
    pub resource: String,
    pub name: String,
    pub uid: String,
}

/// The template of ResourceClaims. Its content is not in the view, because it is read only when a claim is made from
/// it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    pub spec: Value,
}

crate::resource!(
    ResourceClaimTemplate,
    "resource.k8s.io",
    "v1",
    "resourceclaimtemplates",
    "ResourceClaimTemplate",
    namespaced
);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    pub spec: SliceSpec,
}

crate::resource!(ResourceSlice, "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", cluster);

/// A taint that an administrator puts on the devices that the selector matches.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceTaintRule {
    pub spec: TaintRuleSpec,
}

crate::resource!(DeviceTaintRule, "resource.k8s.io", "v1alpha3", "devicetaintrules", "DeviceTaintRule", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaintRuleSpec {
    pub device_selector: Option<DeviceSelector>,
    pub taint: super::node::Taint,
}

/// Selects the devices that match all fields which are present.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceSelector {
    pub driver: Option<String>,
    pub pool: Option<String>,
    pub device: Option<String>,
}

impl DeviceSelector {
    pub fn selects(&self, driver: &str, pool: &str, device: &str) -> bool {
        let is = |wanted: &Option<String>, own: &str| wanted.as_ref().is_none_or(|wanted| wanted == own);
        is(&self.driver, driver) && is(&self.pool, pool) && is(&self.device, device)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SliceSpec {
    pub driver: String,
    pub pool: Pool,
    #[serde(deserialize_with = "or_default")]
    pub devices: Vec<Device>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pool {
    pub name: String,
    pub generation: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Device {
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<super::node::Taint>,
}

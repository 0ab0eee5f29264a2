//! DeviceTaintRules: taints that administrators put on devices, in addition to the taints that drivers publish.

use super::terms::Taint;
use super::{StringPool, Text};
use holdfast_value::Value;

/// The driver, the pool and the device that a rule selects; `None` means any.
pub type DeviceSelector = (Option<Text>, Option<Text>, Option<Text>);

#[derive(Debug, Clone, PartialEq)]
pub struct TaintRule {
    /// The devices that the rule taints; `None` if it taints no device.
    pub selector: Option<DeviceSelector>,
    pub taint: Taint,
}

impl TaintRule {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        let spec = &object["spec"];
        let document = &spec["deviceSelector"];
        let mut field = |name: &str| pool.optional(&document[name]);
        let selector = document.is_object().then(|| (field("driver"), field("pool"), field("device")));
        TaintRule { selector, taint: Taint::decode(pool, &spec["taint"]) }
    }
}

//! DeviceTaintRules: taints that administrators put on devices, beside the taints that drivers publish.

use super::terms::Taint;
use super::{Pool, Text};
use holdfast_value::Value;

/// A driver, a pool and a device; `None` matches any.
pub type Selected = (Option<Text>, Option<Text>, Option<Text>);

#[derive(Debug, Clone, PartialEq)]
pub struct TaintRule {
    /// `None`: the rule selects no device.
    pub selected: Option<Selected>,
    pub taint: Taint,
}

impl TaintRule {
    pub fn decode(pool: &mut Pool, object: &Value) -> Self {
        let spec = &object["spec"];
        let selector = &spec["deviceSelector"];
        let mut field = |name: &str| pool.optional(&selector[name]);
        let selected = selector.is_object().then(|| (field("driver"), field("pool"), field("device")));
        TaintRule { selected, taint: Taint::decode(pool, &spec["taint"]) }
    }
}

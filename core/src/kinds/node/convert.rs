//! Conversion of RuntimeClasses. `v1alpha1` has a spec; later versions have its fields at the top.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, Renamed};
use holdfast_value::Value;

pub const SPEC: Convert = Convert { to_hub, from_hub };

const NAMES: [Renamed; 3] = [("runtimeHandler", "handler"), ("overhead", "overhead"), ("scheduling", "scheduling")];

fn to_hub(class: &mut Fields) {
    let Some(Value::Object(mut spec)) = class.remove("spec") else { return };
    for (older, hub) in NAMES {
        if let Some(value) = spec.remove(older) {
            class.insert(hub, value);
        }
    }
}

fn from_hub(class: &mut Fields) {
    let fields = NAMES.iter().filter_map(|(older, hub)| Some((*older, class.remove(*hub)?)));
    let spec: Fields = fields.collect();
    class.insert("spec", spec.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;
    use holdfast_value::json;

    #[test]
    fn the_spec_is_flattened() {
        check_both_ways(
            SPEC,
            &json!({ "metadata": {}, "spec": { "runtimeHandler": "gvisor", "scheduling": { "nodeSelector": {} } } }),
            &json!({ "metadata": {}, "handler": "gvisor", "scheduling": { "nodeSelector": {} } }),
        );
    }
}

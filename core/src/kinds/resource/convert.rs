//! Conversion of claims and slices. `v1beta1` differs in two nestings: the requests of a claim, and the devices of a
//! slice.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, items, within};
use holdfast_value::Value;

pub const CLAIM: Convert = Convert {
    to_hub: |claim| nest_requests(claim, &["spec", "devices"]),
    from_hub: |claim| flatten_requests(claim, &["spec", "devices"]),
};

pub const CLAIM_TEMPLATE: Convert = Convert {
    to_hub: |template| nest_requests(template, &["spec", "spec", "devices"]),
    from_hub: |template| flatten_requests(template, &["spec", "spec", "devices"]),
};

pub const SLICE: Convert = Convert { to_hub: flatten_devices, from_hub: nest_devices };

/// Fields of a request that are inside `exactly` since `v1beta2`.
const EXACTLY: [&str; 7] =
    ["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

fn nest_requests(document: &mut Fields, devices: &[&str]) {
    let Some(devices) = within(document, devices) else { return };
    for request in items(devices, "requests") {
        let exactly: Fields = EXACTLY.iter().filter_map(|name| Some((*name, request.remove(*name)?))).collect();
        if !exactly.is_empty() {
            request.insert("exactly", exactly.into());
        }
    }
}

fn flatten_requests(document: &mut Fields, devices: &[&str]) {
    let Some(devices) = within(document, devices) else { return };
    for request in items(devices, "requests") {
        if let Some(Value::Object(exactly)) = request.remove("exactly") {
            request.extend(exactly);
        }
    }
}

fn flatten_devices(slice: &mut Fields) {
    let Some(spec) = within(slice, &["spec"]) else { return };
    for device in items(spec, "devices") {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
        }
    }
}

fn nest_devices(slice: &mut Fields) {
    let Some(spec) = within(slice, &["spec"]) else { return };
    for device in items(spec, "devices") {
        let name = device.remove("name");
        let basic = std::mem::take(device);
        device.extend(name.map(|name| ("name", name)));
        device.insert("basic", basic.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;
    use holdfast_value::json;

    #[test]
    fn a_plain_request_is_exact_in_the_hub() {
        let older = json!({ "devices": { "requests": [
            { "name": "gpu", "deviceClassName": "gpu.example", "allocationMode": "ExactCount", "count": 1 },
            { "name": "any", "firstAvailable": [{ "name": "small", "deviceClassName": "small.example" }] },
        ] } });
        let hub = json!({ "devices": { "requests": [
            {
                "name": "gpu",
                "exactly": { "deviceClassName": "gpu.example", "allocationMode": "ExactCount", "count": 1 },
            },
            { "name": "any", "firstAvailable": [{ "name": "small", "deviceClassName": "small.example" }] },
        ] } });
        check_both_ways(CLAIM, &json!({ "spec": older }), &json!({ "spec": hub }));
        check_both_ways(CLAIM_TEMPLATE, &json!({ "spec": { "spec": older } }), &json!({ "spec": { "spec": hub } }));
    }

    #[test]
    fn a_device_is_flat_in_the_hub() {
        check_both_ways(
            SLICE,
            &json!({ "spec": { "driver": "d", "devices": [
                { "name": "gpu-0", "basic": { "attributes": { "model": { "string": "a" } }, "allNodes": true } },
                { "name": "gpu-1", "basic": {} },
            ] } }),
            &json!({ "spec": { "driver": "d", "devices": [
                { "name": "gpu-0", "attributes": { "model": { "string": "a" } }, "allNodes": true },
                { "name": "gpu-1" },
            ] } }),
        );
    }
}

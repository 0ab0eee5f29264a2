//! Defaults of device requests.

use crate::schema::defaults::{Rule, set_empty, text};
use holdfast_value::Map;

const VERSIONS: &[&str] = &["v1", "v1beta2"];

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("api.resource", VERSIONS, "ExactDeviceRequest").run(one_device),
        Rule::in_versions("api.resource", &["v1", "v1beta2", "v1beta1"], "DeviceSubRequest").run(one_device),
        Rule::of("api.resource.v1beta1.DeviceRequest").run(flat_request),
    ]
}

/// Makes a request without a count a request for one device.
fn one_device(request: &mut Map) {
    set_empty(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        set_empty(request, "count", 1);
    }
}

/// In `v1beta1` a request has either a class or alternatives. Only a request with a class gets these defaults.
fn flat_request(request: &mut Map) {
    if !text(request, "deviceClassName").is_empty() {
        one_device(request);
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_claim() {
        check(
            "api.resource.v1.ResourceClaim",
            json!({
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": "r", "exactly": {"deviceClassName": "c", "tolerations": [{"key": "k"}]}},
                            {"name": "a", "firstAvailable": [{"name": "s", "allocationMode": "All"}]},
                        ],
                    },
                },
            }),
            expect![[r#"
                spec.devices.requests[0].exactly.allocationMode = "ExactCount"
                spec.devices.requests[0].exactly.count = 1
                spec.devices.requests[0].exactly.tolerations[0].operator = "Equal"
                spec.devices.requests[1].firstAvailable[0].deviceClassName = ""
                status = {}"#]],
        );
    }

    #[test]
    fn an_old_claim() {
        check(
            "api.resource.v1beta1.ResourceClaim",
            json!({
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": "r", "deviceClassName": "c"},
                            {"name": "a", "firstAvailable": [{"name": "s"}]},
                        ],
                    },
                },
            }),
            expect![[r#"
                spec.devices.requests[0].allocationMode = "ExactCount"
                spec.devices.requests[0].count = 1
                spec.devices.requests[1].deviceClassName = ""
                spec.devices.requests[1].firstAvailable[0].allocationMode = "ExactCount"
                spec.devices.requests[1].firstAvailable[0].count = 1
                spec.devices.requests[1].firstAvailable[0].deviceClassName = ""
                status = {}"#]],
        );
    }
}

//! The amounts that quotas count for device claims.

use crate::quota::{Measure, NOTHING_BUT_ITS_NUMBER, Usage};
use crate::schema::amount::Amount;
use holdfast_value::Value;

/// The suffix after the name of a device class.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The maximum number of devices of one claim. A request of all devices counts as this many.
const MOST: i64 = 32;

pub(super) const CLAIM: Measure = Measure {
    answers: |name| name.ends_with(DEVICES),
    usage: Some(|claim, _| usage(claim)),
    grows_through: &[""],
    ..NOTHING_BUT_ITS_NUMBER
};

/// The number of devices that a claim uses. If a request has alternatives, the largest number for each class counts.
fn usage(claim: &Value) -> Usage {
    let mut usage = Usage::default();
    for request in claim["spec"]["devices"]["requests"].as_array().into_iter().flatten() {
        let mut worst = Usage::default();
        let alternatives = request["firstAvailable"].as_array().into_iter().flatten();
        for alternative in alternatives.chain(request.get("exactly")) {
            let class = alternative["deviceClassName"].as_str().unwrap_or_default();
            let count = match alternative["allocationMode"].as_str() {
                Some("All") => MOST,
                _ => alternative["count"].as_i64().unwrap_or(1),
            };
            let mut one = Usage::default();
            one.set(&format!("{class}{DEVICES}"), Amount::whole(count));
            worst.raise(&one);
        }
        usage.add(&worst);
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn devices_by_class() {
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"name": "b", "exactly": {"deviceClassName": "net", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4},
                {"deviceClassName": "net", "allocationMode": "ExactCount", "count": 1}]},
        ]}}});
        assert_eq!(
            usage(&claim).document(),
            json!({"gpu.deviceclass.resource.k8s.io/devices": "6", "net.deviceclass.resource.k8s.io/devices": "33"})
        );
    }
}

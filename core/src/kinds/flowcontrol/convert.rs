//! Conversion of the concurrency shares of a priority level: the field's older name, and the meaning of zero.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, Renamed, put_annotation, rename_from_hub, rename_to_hub, take_annotation, within};

/// `v1beta1` and `v1beta2` name the field `assuredConcurrencyShares`.
pub const ASSURED_SHARES: Convert = Convert { to_hub: assured_to_hub, from_hub: assured_from_hub };

/// In `v1beta3` zero shares mean the default; an annotation marks a priority level that really has zero shares.
pub const ZERO_SHARES: Convert = Convert { to_hub: zero_to_hub, from_hub: zero_from_hub };

const NAMES: [Renamed; 1] = [("assuredConcurrencyShares", "nominalConcurrencyShares")];
const ZERO_MEANT: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

fn assured_to_hub(level: &mut Fields) {
    if let Some(limited) = within(level, &["spec", "limited"]) {
        rename_to_hub(limited, &NAMES);
    }
}

fn assured_from_hub(level: &mut Fields) {
    if let Some(limited) = within(level, &["spec", "limited"]) {
        rename_from_hub(limited, &NAMES);
    }
}

fn zero_to_hub(level: &mut Fields) {
    take_annotation(level, ZERO_MEANT);
}

fn zero_from_hub(level: &mut Fields) {
    let shares =
        within(level, &["spec", "limited"]).and_then(|limited| limited.get("nominalConcurrencyShares")?.as_i64());
    if shares == Some(0) {
        put_annotation(level, ZERO_MEANT, String::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;
    use holdfast_value::json;

    #[test]
    fn shares_are_renamed_and_zero_is_marked() {
        check_both_ways(
            ASSURED_SHARES,
            &json!({ "spec": { "type": "Limited", "limited": { "assuredConcurrencyShares": 5, "lendablePercent": 0 } } }),
            &json!({ "spec": { "type": "Limited", "limited": { "nominalConcurrencyShares": 5, "lendablePercent": 0 } } }),
        );
        let level = |metadata: holdfast_value::Value| json!({ "metadata": metadata, "spec": { "limited": { "nominalConcurrencyShares": 0 } } });
        check_both_ways(ZERO_SHARES, &level(json!({ "annotations": { ZERO_MEANT: "" } })), &level(json!({})));
        let plain = json!({ "metadata": {}, "spec": { "limited": { "nominalConcurrencyShares": 1 } } });
        check_both_ways(ZERO_SHARES, &plain, &plain);
    }
}

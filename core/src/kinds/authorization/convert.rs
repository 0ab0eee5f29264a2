//! Conversion of reviews: `v1beta1` has a field `group`, which later versions call `groups`.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, Renamed, rename_from_hub, rename_to_hub, within};

pub const GROUPS: Convert = Convert { to_hub, from_hub };

const NAMES: [Renamed; 1] = [("group", "groups")];

fn to_hub(review: &mut Fields) {
    if let Some(spec) = within(review, &["spec"]) {
        rename_to_hub(spec, &NAMES);
    }
}

fn from_hub(review: &mut Fields) {
    if let Some(spec) = within(review, &["spec"]) {
        rename_from_hub(spec, &NAMES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;
    use holdfast_value::json;

    #[test]
    fn groups_are_renamed() {
        check_both_ways(
            GROUPS,
            &json!({ "spec": { "user": "a", "group": ["b"] } }),
            &json!({ "spec": { "user": "a", "groups": ["b"] } }),
        );
    }
}

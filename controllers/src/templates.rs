//! Whether templates ask for the same. An object that was written by an older server, or by other hands, may have an
//! amount in other words: `1024Mi` for `1Gi`.

use holdfast_core::schema::quantity;
use holdfast_value::Value;
use std::cmp::Ordering;

/// Maps of amounts.
const MAPS: [&str; 3] = ["limits", "overhead", "requests"];
/// Single amounts, each with the field that it is in.
const SINGLE: [(&str, &str); 2] = [("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")];

pub fn are_same(one: &Value, other: &Value) -> bool {
    one == other || are_same_below("", one, other)
}

fn are_same_below(field: &str, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let same = |name: &str, value: &Value| {
                let is_amount = MAPS.contains(&field) || SINGLE.contains(&(field, name));
                other.get(name).is_some_and(|other| match is_amount {
                    true => are_same_amounts(value, other),
                    false => are_same_below(name, value, other),
                })
            };
            one.len() == other.len() && one.iter().all(|(name, value)| same(name, value))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_same_below("", one, other))
        }
        _ => one == other,
    }
}

fn are_same_amounts(one: &Value, other: &Value) -> bool {
    let [one_text, other_text] = [one, other].map(|value| match value {
        Value::String(text) => text.to_string(),
        value => value.to_string(),
    });
    one == other || quantity::compare(&one_text, &other_text) == Some(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn amounts_in_other_words() {
        let of = |memory: Value, limit: &str, label: &str, divisor: &str| {
            json!({"metadata": {"labels": {"limits": label}}, "spec": {
                "nodeSelector": {"requests": label},
                "containers": [{"name": "c", "resources": {"requests": {"memory": memory, "cpu": "1"}},
                    "env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"divisor": divisor}}}]}],
                "overhead": {"cpu": "1"}, "volumes": [{"emptyDir": {"sizeLimit": limit}}]}})
        };
        let one = of(json!("1Gi"), "1000m", "1k", "1");
        for (other, expected) in [
            (one.clone(), true),
            (of(json!("1024Mi"), "1", "1k", "1000m"), true),
            (of(json!(1_073_741_824), "1", "1k", "1"), true),
            (of(json!("1G"), "1", "1k", "1"), false),
            (of(json!("1Gi"), "2", "1k", "1"), false),
            (of(json!("1Gi"), "1", "1k", "2"), false),
            (of(json!("1Gi"), "1", "1000", "1"), false),
            (of(json!("x"), "1", "1k", "1"), false),
        ] {
            assert_eq!(are_same(&one, &other), expected, "{other}");
            assert_eq!(are_same(&other, &one), expected, "{other}");
        }
        let mut more = one.clone();
        more["spec"]["containers"][0]["resources"]["requests"]["x"] = "0".into();
        assert!(!are_same(&one, &more) && !are_same(&more, &one));
    }
}

//! The rules of pod disruption budgets.

use crate::kinds::rules::{At, number_or_percent, percent, selector};
use crate::refusal::Cause;
use serde_json::Value;

pub fn budget(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    let bounds = [spec.get("minAvailable"), spec.get("maxUnavailable")];
    if bounds.iter().all(At::is_set) {
        causes.push(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
    }
    for bound in bounds {
        number_or_percent(bound, &mut causes);
        if percent(bound.value).is_some_and(|percent| percent > 100) {
            causes.push(bound.invalid("must not be greater than 100%"));
        }
    }
    selector(spec.get("selector"), &mut causes);
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::json;

    #[test]
    fn each_rule() {
        let good = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
        });
        check_rows(
            &good,
            &[
                ("/spec/maxUnavailable", json!(1), "spec: Invalid value: "),
                ("/spec/minAvailable", json!(-1), "spec.minAvailable: Invalid value: -1: must be greater than or"),
                ("/spec/minAvailable", json!("101%"), "spec.minAvailable: Invalid value: \"101%\": must not be grea"),
                ("/spec/minAvailable", json!("some"), "spec.minAvailable: Invalid value: \"some\": a valid percent"),
            ],
        );
    }
}

//! Validation of pod disruption budgets.

use crate::kinds::rules::{At, none_negative, number_or_percent, percent, selector};
use crate::kinds::shapes::{conditions, exactly_one_of};
use crate::refusal::Causes;
use holdfast_value::Value;

pub fn budget(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
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
    let unhealthy = spec.get("unhealthyPodEvictionPolicy");
    if unhealthy.is_set() {
        exactly_one_of(unhealthy, &["AlwaysAllow", "IfHealthyBudget"], &mut causes);
    }
    causes
}

pub fn status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    conditions(status.get("conditions"), &mut causes);
    let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    none_negative(status, &counts, &mut causes);
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::json;

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
                ("/spec/unhealthyPodEvictionPolicy", json!("AlwaysAllow"), ""),
                (
                    "/spec/unhealthyPodEvictionPolicy",
                    json!("Never"),
                    "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\"",
                ),
            ],
        );
        check_updates(&good, &[("/spec/minAvailable", json!(1), ""), ("/spec/selector", json!({}), "")]);
        check_part(
            &good,
            "status",
            &[
                ("/status/expectedPods", json!(-1), "status.expectedPods: Invalid value: -1: must be greater than"),
                (
                    "/status/conditions",
                    json!([{"type": "DisruptionAllowed", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}]),
                    "status.conditions[0].reason: Required value",
                ),
            ],
        );
    }
}

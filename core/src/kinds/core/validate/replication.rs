//! Validation of the status of a ReplicationController.

use crate::kinds::rules::{At, none_negative};
use crate::refusal::Causes;
use holdfast_value::Value;

/// Reports negative counts, and a count of some replicas that exceeds the count which includes these replicas.
pub fn controller_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    none_negative(status, &counts, &mut causes);
    for (part, whole, detail) in [
        ("fullyLabeledReplicas", "replicas", "cannot be greater than status.replicas"),
        ("readyReplicas", "replicas", "cannot be greater than status.replicas"),
        ("availableReplicas", "replicas", "cannot be greater than status.replicas"),
        ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
    ] {
        let part = status.get(part);
        if part.number_or_zero() > status.get(whole).number_or_zero() {
            causes.push(part.invalid(detail));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows};
    use holdfast_value::json;

    #[test]
    fn each_rule_of_a_replication_controller() {
        let good = json!({
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "a"},
            "spec": {
                "replicas": 2, "selector": {"a": "b"},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
            },
            "status": {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1},
        });
        check_rows(
            &good,
            &[
                ("/spec/replicas", json!(-1), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
                ("/spec/minReadySeconds", json!(-1), "spec.minReadySeconds: Invalid value: -1: must be greater than"),
                (
                    "/spec/selector",
                    json!({"a": "c"}),
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `se",
                ),
                (
                    "/spec/template/spec/restartPolicy",
                    json!("Never"),
                    "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                ),
                (
                    "/spec/template/spec/activeDeadlineSeconds",
                    json!(5),
                    "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationCon",
                ),
            ],
        );
        check_part(
            &good,
            "status",
            &[
                ("/status/replicas", json!(3), ""),
                (
                    "/status/readyReplicas",
                    json!(3),
                    "status.readyReplicas: Invalid value: 3: cannot be greater than sta",
                ),
                (
                    "/status/availableReplicas",
                    json!(2),
                    "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
                ),
                ("/status/replicas", json!(-1), "status.replicas: Invalid value: -1: must be greater than or equal to"),
            ],
        );
    }
}

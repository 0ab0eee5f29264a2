//! The rules of horizontal pod autoscalers.

use crate::kinds::rules::{At, need};
use crate::refusal::Cause;
use serde_json::Value;

pub fn autoscaler(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if least.number().is_some_and(|number| number < 0) {
        causes.push(least.invalid("must be greater than or equal to 1"));
    }
    let most_number = most.number().unwrap_or(0);
    if most_number < 1 {
        causes.push(Cause::invalid(most.path(), &Value::from(most_number), "must be greater than 0"));
    }
    if least.number().is_some_and(|least| most_number < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid(most.path(), &Value::from(most_number), detail));
    }
    let target = spec.get("scaleTargetRef");
    need(target.get("kind"), &mut causes);
    need(target.get("name"), &mut causes);
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::json;

    #[test]
    fn each_rule() {
        let good = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        });
        check_rows(
            &good,
            &[
                ("/spec/maxReplicas", json!(0), "spec.maxReplicas: Invalid value: 0: must be greater than 0"),
                ("/spec/minReplicas", json!(4), "spec.maxReplicas: Invalid value: 3: must be greater than or equal"),
                ("/spec/scaleTargetRef/name", json!(""), "spec.scaleTargetRef.name: Required value"),
            ],
        );
    }
}

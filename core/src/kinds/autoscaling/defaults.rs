//! Defaults of autoscalers: one replica at least, 80% of the requested CPU, and the speed of scaling.

use crate::schema::defaults::{Rule, object, set_absent, set_empty};
use holdfast_value::{Map, json};

const CPU_PERCENT: i64 = 80;
/// The annotation in which `autoscaling/v1` keeps the metrics for which it has no fields.
const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";

pub fn rules() -> Vec<Rule> {
    let target = json!({"type": "Utilization", "averageUtilization": CPU_PERCENT});
    vec![
        Rule::in_versions("api.autoscaling", &["v1", "v2", "v2beta1", "v2beta2"], "HorizontalPodAutoscalerSpec")
            .set("minReplicas", 1),
        Rule::of("api.autoscaling.v1.HorizontalPodAutoscaler").run(cpu_target),
        Rule::in_versions("api.autoscaling", &["v2", "v2beta2"], "HorizontalPodAutoscalerSpec")
            .set("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])),
        Rule::of("api.autoscaling.v2beta1.HorizontalPodAutoscalerSpec").set(
            "metrics",
            json!([{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": CPU_PERCENT}}]),
        ),
        Rule::in_versions("api.autoscaling", &["v2", "v2beta2"], "HorizontalPodAutoscalerBehavior").run(behavior),
    ]
}

fn cpu_target(autoscaler: &mut Map) {
    let annotations = autoscaler.get("metadata").and_then(|metadata| metadata.get("annotations"));
    if annotations.and_then(|annotations| annotations.get(METRICS_ANNOTATION)).is_none()
        && let Some(spec) = object(autoscaler, "spec")
    {
        set_absent(spec, "targetCPUUtilizationPercentage", CPU_PERCENT);
    }
}

/// Sets the default behavior: scale up at once, by four pods or 100%; scale down by any amount after the cluster's
/// stabilization window.
fn behavior(behavior: &mut Map) {
    let double = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let four = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    for (direction, policies) in [("scaleUp", json!([four, double.clone()])), ("scaleDown", json!([double]))] {
        set_absent(behavior, direction, Map::new());
        let Some(rules) = object(behavior, direction) else { continue };
        set_empty(rules, "selectPolicy", "Max");
        set_absent(rules, "policies", policies);
        if direction == "scaleUp" {
            set_absent(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn current() {
        check(
            "api.autoscaling.v2.HorizontalPodAutoscaler",
            json!({
                "spec": {
                    "maxReplicas": 3, "scaleTargetRef": {},
                    "behavior": {"scaleDown": {"policies": [], "selectPolicy": "Disabled"}},
                },
            }),
            expect![[r#"
                spec.behavior.scaleUp.policies = [{"periodSeconds":15,"type":"Pods","value":4},{"periodSeconds":15,"type":"Percent","value":100}]
                spec.behavior.scaleUp.selectPolicy = "Max"
                spec.behavior.scaleUp.stabilizationWindowSeconds = 0
                spec.metrics = [{"resource":{"name":"cpu","target":{"averageUtilization":80,"type":"Utilization"}},"type":"Resource"}]
                spec.minReplicas = 1
                spec.scaleTargetRef.kind = ""
                spec.scaleTargetRef.name = ""
                status.currentMetrics = null
                status.desiredReplicas = 0"#]],
        );
    }

    #[test]
    fn first() {
        check(
            "api.autoscaling.v1.HorizontalPodAutoscaler",
            json!({"spec": {"minReplicas": 0, "scaleTargetRef": {}}}),
            expect![[r#"
                spec.maxReplicas = 0
                spec.scaleTargetRef.kind = ""
                spec.scaleTargetRef.name = ""
                spec.targetCPUUtilizationPercentage = 80
                status.currentReplicas = 0
                status.desiredReplicas = 0"#]],
        );
    }

    #[test]
    fn first_with_other_metrics() {
        check(
            "api.autoscaling.v1.HorizontalPodAutoscaler",
            json!({
                "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[]"}},
                "spec": {"minReplicas": 0, "scaleTargetRef": {}},
            }),
            expect![[r#"
                spec.maxReplicas = 0
                spec.scaleTargetRef.kind = ""
                spec.scaleTargetRef.name = ""
                status.currentReplicas = 0
                status.desiredReplicas = 0"#]],
        );
    }

    #[test]
    fn beta() {
        check(
            "api.autoscaling.v2beta1.HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": {}}}),
            expect![[r#"
                spec.metrics = [{"resource":{"name":"cpu","targetAverageUtilization":80},"type":"Resource"}]
                spec.minReplicas = 1
                status = {}"#]],
        );
    }
}

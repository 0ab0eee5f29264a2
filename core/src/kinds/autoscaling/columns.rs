//! Columns of autoscalers, and of the `scale` subresource.

use crate::kinds::Column;
use crate::kinds::cells::{
    NONE, UNKNOWN, UNSET, age_column, at, column, field, items, name, of_field, plain, show, text,
};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "HorizontalPodAutoscaler" => vec![
            name(),
            column("Reference", "string", 0, field("spec.scaleTargetRef"), |doc, _| {
                let target = |field| text(doc, field);
                format!("{}/{}", target("spec.scaleTargetRef.kind"), target("spec.scaleTargetRef.name")).into()
            }),
            column("Targets", "string", 0, field("spec.metrics"), |doc, _| targets(doc).into()),
            column("MinPods", "string", 0, field("spec.minReplicas"), |doc, _| {
                at(doc, "spec.minReplicas").map_or_else(|| UNSET.into(), plain).into()
            }),
            of_field("MaxPods", "string", 0, "spec.maxReplicas", show::number),
            of_field("Replicas", "string", 0, "status.currentReplicas", show::number),
            age_column(),
        ],
        "Scale" => vec![
            Column { format: "", ..name() },
            of_field("Desired", "integer", 0, "spec.replicas", show::number),
            of_field("Available", "integer", 0, "status.replicas", show::number),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

/// The first two metrics as text, and the number of further metrics.
fn targets(doc: &Value) -> String {
    const MOST: usize = 2;
    let specs = items(doc, "spec.metrics");
    if specs.is_empty() {
        return NONE.into();
    }
    let statuses = items(doc, "status.currentMetrics");
    let shown: Vec<_> =
        specs.iter().take(MOST).enumerate().map(|(index, spec)| metric(spec, statuses.get(index))).collect();
    let shown = shown.join(", ");
    if specs.len() > MOST { format!("{shown} + {} more...", specs.len() - MOST) } else { shown }
}

/// `current/target` of one metric; the n-th status belongs to the n-th metric.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (source, is_per_container_or_pod) = match text(spec, "type") {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "External" => ("external", false),
        _ => return "<unknown type>".into(),
    };
    let wanted = |field: &str| at(spec, source)?.get("target")?.get(field).filter(|value| !value.is_null());
    let now = |field: &str| status?.get(source)?.get("current")?.get(field).filter(|value| !value.is_null());
    let quantity = |value: Option<&Value>, otherwise: &str| value.map_or_else(|| otherwise.into(), plain);
    let percent = |value: Option<&Value>, otherwise: &str| {
        value.map_or_else(|| otherwise.into(), |value| format!("{}%", plain(value)))
    };

    let pair = |field: &str| format!("{}/{}", quantity(now(field), UNKNOWN), quantity(wanted(field), "<nil>"));
    if is_per_container_or_pod {
        let shown = if wanted("averageValue").is_some() {
            pair("averageValue")
        } else {
            format!(
                "{}/{}",
                percent(now("averageUtilization"), UNKNOWN),
                percent(wanted("averageUtilization"), "<auto>")
            )
        };
        return format!("{}: {shown}", at(spec, source).map_or("", |source| text(source, "name")));
    }
    match source {
        "pods" => pair("averageValue"),
        _ if wanted("averageValue").is_some() => format!("{} (avg)", pair("averageValue")),
        _ => pair("value"),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::{Value, json};

    fn resource(name: &str, target: Value) -> Value {
        json!({"type": "Resource", "resource": {"name": name, "target": target}})
    }

    #[test]
    fn autoscalers() {
        let utilization = |percent: i64| json!({"type": "Utilization", "averageUtilization": percent});
        let cpu_now = |percent: i64| {
            json!({"type": "Resource", "resource": {"name": "cpu",
                "current": {"averageValue": "10m", "averageUtilization": percent}}})
        };
        let cases = [
            (json!([]), json!([]), "<none>"),
            (json!([resource("cpu", utilization(80))]), json!([cpu_now(10)]), "cpu: 10%/80%"),
            (json!([resource("cpu", utilization(80))]), json!([]), "cpu: <unknown>/80%"),
            (json!([resource("cpu", json!({}))]), json!([]), "cpu: <unknown>/<auto>"),
            (
                json!([resource("memory", json!({"type": "AverageValue", "averageValue": "200Mi"}))]),
                json!([{"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "150Mi"}}}]),
                "memory: 150Mi/200Mi",
            ),
            (
                json!([{"type": "ContainerResource", "containerResource": {
                    "name": "cpu", "container": "app", "target": utilization(50)}}]),
                json!([{"type": "ContainerResource", "containerResource": {"current": {"averageUtilization": 40}}}]),
                "cpu: 40%/50%",
            ),
            (
                json!([{"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"averageValue": "20m"}}}]),
                json!([{"type": "Pods", "pods": {"current": {"averageValue": "10m"}}}]),
                "10m/20m",
            ),
            (
                json!([
                    {"type": "External", "external": {"target": {"averageValue": "30"}}},
                    {"type": "Object", "object": {"target": {"value": "100"}}},
                ]),
                json!([{"external": {"current": {"averageValue": "25"}}}, {"object": {"current": {"value": "90"}}}]),
                "25/30 (avg), 90/100",
            ),
            (
                json!([resource("cpu", utilization(80)), resource("memory", utilization(70)), {"type": "Pods"},
                    {"type": "Pods"}]),
                json!([cpu_now(10)]),
                "cpu: 10%/80%, memory: <unknown>/70% + 2 more...",
            ),
            (json!([{"type": "Moon"}]), json!([]), "<unknown type>"),
        ];
        for (metrics, current, expected) in cases {
            let doc = json!({
                "metadata": {"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": metrics, "maxReplicas": 9},
                "status": {"currentReplicas": 2, "currentMetrics": current},
            });
            let expected = format!("x | Deployment/web | {expected} | <unset> | 9 | 2 | 5m");
            assert_eq!(shown(&of("HorizontalPodAutoscaler"), &doc), expected);
        }
    }

    #[test]
    fn numbers_stay_numbers() {
        let doc = json!({"spec": {"minReplicas": 1, "maxReplicas": 9}});
        let columns = of("HorizontalPodAutoscaler");
        assert_eq!(crate::wire::table::cells(&columns, &doc, 0)[3..6], [json!("1"), json!(9), json!(0)]);
    }
}

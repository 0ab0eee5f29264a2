//! Conversion of autoscalers. Before `v2` metrics were flat, and `v1` has only the CPU metric. Fields that a version
//! lacks are saved in annotations, so that an older client that writes an object back loses no field.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, declared, ensure, items, put_annotation, take_annotation, within};
use holdfast_value::{CompactString, Value, json};

pub const V1: Convert = Convert { to_hub: v1_to_hub, from_hub: v1_from_hub };
pub const V2BETA1: Convert = Convert { to_hub: v2beta1_to_hub, from_hub: v2beta1_from_hub };

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The types of the lists in the annotations.
const MESSAGES: [(&str, &str); 3] = [
    (METRICS, "io.k8s.api.autoscaling.v1.MetricSpec"),
    (CURRENT_METRICS, "io.k8s.api.autoscaling.v1.MetricStatus"),
    (CONDITIONS, "io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerCondition"),
];

/// The target of a `v1` autoscaler that has no target.
const CPU_PERCENT_DEFAULT: i64 = 80;

/// A field of a flat metric, and its path in the hub.
type Moved = (&'static str, &'static [&'static str]);

const TARGETS: [(&str, &[Moved]); 5] = [
    (
        "object",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("targetValue", &["target", "value"]),
            ("averageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
    ("resource", RESOURCE_TARGET),
    ("containerResource", RESOURCE_TARGET),
    (
        "external",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("targetValue", &["target", "value"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
];

const RESOURCE_TARGET: &[Moved] = &[
    ("targetAverageUtilization", &["target", "averageUtilization"]),
    ("targetAverageValue", &["target", "averageValue"]),
];

const READINGS: [(&str, &[Moved]); 5] = [
    (
        "object",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("currentValue", &["current", "value"]),
            ("averageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
    ("resource", RESOURCE_READING),
    ("containerResource", RESOURCE_READING),
    (
        "external",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("currentValue", &["current", "value"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
];

const RESOURCE_READING: &[Moved] = &[
    ("currentAverageUtilization", &["current", "averageUtilization"]),
    ("currentAverageValue", &["current", "averageValue"]),
];

fn v1_to_hub(scaler: &mut Fields) {
    restore(scaler, BEHAVIOR, "spec", "behavior");
    restore(scaler, CONDITIONS, "status", "conditions");
    restore(scaler, CURRENT_METRICS, "status", "currentMetrics");
    let others = take_annotation(scaler, METRICS).and_then(|text| serde_json::from_str(&text).ok());
    let mut metrics: Vec<Value> = others.unwrap_or_default();

    let spec = ensure(scaler, "spec");
    let percent = spec.remove("targetCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    let percent = percent.or_else(|| metrics.is_empty().then(|| CPU_PERCENT_DEFAULT.into()));
    if let Some(percent) = percent {
        let resource = json!({ "name": "cpu", "targetAverageUtilization": percent });
        metrics.push(json!({ "type": "Resource", "resource": resource }));
    }
    spec.insert("metrics", metrics.into());
    items(spec, "metrics").for_each(nest_target);

    let Some(status) = within(scaler, &["status"]) else { return };
    let percent = status.remove("currentCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    // The annotation has more detail than the percentage.
    if let (Some(percent), false) = (percent, status.contains_key("currentMetrics")) {
        let resource = json!({ "name": "cpu", "currentAverageUtilization": percent });
        status.insert("currentMetrics", json!([{ "type": "Resource", "resource": resource }]));
    }
    items(status, "currentMetrics").for_each(nest_reading);
}

fn v1_from_hub(scaler: &mut Fields) {
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        take_annotation(scaler, name);
    }
    if let Some(spec) = within(scaler, &["spec"]) {
        items(spec, "metrics").for_each(flatten_target);
        let mut metrics = match spec.remove("metrics") {
            Some(Value::Array(metrics)) => metrics,
            _ => Vec::new(),
        };
        let by_percent = |metric: &Value| is_cpu(metric) && metric["resource"]["targetAverageUtilization"].is_number();
        if let Some(found) = metrics.iter().position(by_percent) {
            let percent = metrics.remove(found)["resource"]["targetAverageUtilization"].take();
            spec.insert("targetCPUUtilizationPercentage", percent);
        }
        if !metrics.is_empty() {
            put_annotation(scaler, METRICS, declared(MESSAGES[0].1, Value::Array(metrics)));
        }
    }
    if let Some(status) = within(scaler, &["status"]) {
        items(status, "currentMetrics").for_each(flatten_reading);
        let metrics = status.get("currentMetrics").and_then(Value::as_array);
        let percent = metrics.and_then(|metrics| metrics.iter().rfind(|metric| is_cpu(metric)));
        let percent = percent.and_then(|metric| metric["resource"].get("currentAverageUtilization")).cloned();
        if let Some(percent) = percent {
            status.insert("currentCPUUtilizationPercentage", percent);
        }
    }
    save(scaler, CURRENT_METRICS, "status", "currentMetrics");
    save(scaler, CONDITIONS, "status", "conditions");
    save(scaler, BEHAVIOR, "spec", "behavior");
}

fn v2beta1_to_hub(scaler: &mut Fields) {
    restore(scaler, BEHAVIOR, "spec", "behavior");
    if let Some(spec) = within(scaler, &["spec"]) {
        items(spec, "metrics").for_each(nest_target);
    }
    if let Some(status) = within(scaler, &["status"]) {
        items(status, "currentMetrics").for_each(nest_reading);
    }
}

fn v2beta1_from_hub(scaler: &mut Fields) {
    take_annotation(scaler, BEHAVIOR);
    if let Some(spec) = within(scaler, &["spec"]) {
        items(spec, "metrics").for_each(flatten_target);
    }
    if let Some(status) = within(scaler, &["status"]) {
        items(status, "currentMetrics").for_each(flatten_reading);
    }
    save(scaler, BEHAVIOR, "spec", "behavior");
}

/// Moves a field into an annotation. An empty list is only removed.
fn save(scaler: &mut Fields, annotation: &str, part: &str, field: &str) {
    let value = within(scaler, &[part]).and_then(|part| part.remove(field));
    let worth = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    if let Some(value) = value.filter(worth) {
        let text = match MESSAGES.iter().find(|(name, _)| *name == annotation) {
            Some((_, message)) => declared(message, value),
            None => behavior_text(&value),
        };
        put_annotation(scaler, annotation, text);
    }
}

/// Undoes [`save`]. An invalid annotation is dropped.
fn restore(scaler: &mut Fields, annotation: &str, part: &str, field: &str) {
    let saved = take_annotation(scaler, annotation).and_then(|text| serde_json::from_str::<Value>(&text).ok());
    if let Some(mut value) = saved.filter(|value| value.is_object() || value.is_array()) {
        if annotation == BEHAVIOR {
            uncapitalize(&mut value);
        }
        ensure(scaler, part).insert(field, value);
    }
}

/// The behavior in Kubernetes' form, which has Go field names.
fn behavior_text(behavior: &Value) -> String {
    let policies = |policies: &Value| match policies.as_array() {
        None => "null".to_owned(),
        Some(policies) => {
            let policy = |policy: &Value| {
                let (ty, value, seconds) = (&policy["type"], &policy["value"], &policy["periodSeconds"]);
                format!(r#"{{"Type":{ty},"Value":{value},"PeriodSeconds":{seconds}}}"#)
            };
            format!("[{}]", policies.iter().map(policy).collect::<Vec<_>>().join(","))
        }
    };
    let rules = |rules: &Value| match rules {
        Value::Null => "null".to_owned(),
        rules => format!(
            r#"{{"StabilizationWindowSeconds":{},"SelectPolicy":{},"Policies":{},"Tolerance":{}}}"#,
            rules["stabilizationWindowSeconds"],
            rules["selectPolicy"],
            policies(&rules["policies"]),
            rules["tolerance"],
        ),
    };
    format!(r#"{{"ScaleUp":{},"ScaleDown":{}}}"#, rules(&behavior["scaleUp"]), rules(&behavior["scaleDown"]))
}

/// Undoes the field names of [`behavior_text`], and drops the nulls that it writes for absent fields.
fn uncapitalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, mut value)| {
                    uncapitalize(&mut value);
                    let first = name.chars().next().map(|first| first.to_ascii_lowercase());
                    (first.into_iter().chain(name.chars().skip(1)).collect::<CompactString>(), value)
                })
                .collect();
        }
        Value::Array(items) => items.iter_mut().for_each(uncapitalize),
        _ => {}
    }
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn nest_target(metric: &mut Fields) {
    for (source, moves) in TARGETS {
        let Some(fields) = within(metric, &[source]) else { continue };
        nest(fields, moves);
        let target = ensure(fields, "target");
        let kind = if target.contains_key("averageUtilization") {
            "Utilization"
        } else if target.contains_key("averageValue") {
            // The flat form requires a value even if only the average counts.
            if target.get("value").is_some_and(|value| value == "0") {
                target.remove("value");
            }
            "AverageValue"
        } else {
            "Value"
        };
        target.insert("type", kind.into());
    }
}

fn flatten_target(metric: &mut Fields) {
    for (source, moves) in TARGETS {
        let Some(fields) = within(metric, &[source]) else { continue };
        flatten(fields, moves);
        if source == "object" {
            fields.entry("targetValue").or_insert_with(|| "0".into());
        }
    }
}

fn nest_reading(metric: &mut Fields) {
    for (source, moves) in READINGS {
        let Some(fields) = within(metric, &[source]) else { continue };
        nest(fields, moves);
        let current = ensure(fields, "current");
        if source == "object" && current.contains_key("averageValue") && current.get("value").is_some_and(|v| v == "0")
        {
            current.remove("value");
        }
    }
}

fn flatten_reading(metric: &mut Fields) {
    for (source, moves) in READINGS {
        let Some(fields) = within(metric, &[source]) else { continue };
        flatten(fields, moves);
        if source == "object" {
            fields.entry("currentValue").or_insert_with(|| "0".into());
        }
    }
}

/// Moves flat fields to their paths in the hub. All fields are removed before any is inserted, because both forms of
/// `object` have a field `target`, with different meanings.
fn nest(fields: &mut Fields, moves: &[Moved]) {
    let taken: Vec<_> = moves.iter().filter_map(|(flat, path)| Some((*path, fields.remove(*flat)?))).collect();
    for (path, value) in taken {
        match path {
            [name] => fields.insert(*name, value),
            [outer, name] => ensure(fields, outer).insert(*name, value),
            _ => unreachable!("paths have one or two names"),
        };
    }
}

fn flatten(fields: &mut Fields, moves: &[Moved]) {
    let mut nested = std::mem::take(fields);
    let mut take = |path: &[&str]| match path {
        [name] => nested.remove(*name),
        [outer, name] => within(&mut nested, &[outer])?.remove(*name),
        _ => unreachable!("paths have one or two names"),
    };
    let taken: Fields = moves.iter().filter_map(|(flat, path)| Some((*flat, take(path)?))).collect();
    for emptied in ["metric", "target", "current"] {
        nested.remove(emptied);
    }
    fields.extend(nested);
    fields.extend(taken);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::{check_both_ways, check_to_hub};

    #[test]
    fn flat_metrics_of_every_source_are_nested() {
        let object = json!({ "kind": "Service", "name": "web" });
        let selector = json!({ "matchLabels": { "a": "b" } });
        for (source, flat, nested) in [
            (
                "object",
                json!({ "target": object, "metricName": "hits", "targetValue": "10" }),
                json!({
                    "describedObject": object,
                    "metric": { "name": "hits" },
                    "target": { "type": "Value", "value": "10" },
                }),
            ),
            (
                "object",
                json!({
                    "target": object, "metricName": "hits", "selector": selector, "targetValue": "0",
                    "averageValue": "3",
                }),
                json!({
                    "describedObject": object,
                    "metric": { "name": "hits", "selector": selector },
                    "target": { "type": "AverageValue", "averageValue": "3" },
                }),
            ),
            (
                "pods",
                json!({ "metricName": "hits", "targetAverageValue": "5" }),
                json!({ "metric": { "name": "hits" }, "target": { "type": "AverageValue", "averageValue": "5" } }),
            ),
            (
                "resource",
                json!({ "name": "memory", "targetAverageValue": "1Gi" }),
                json!({ "name": "memory", "target": { "type": "AverageValue", "averageValue": "1Gi" } }),
            ),
            (
                "containerResource",
                json!({ "name": "cpu", "container": "app", "targetAverageUtilization": 50 }),
                json!({
                    "name": "cpu", "container": "app",
                    "target": { "type": "Utilization", "averageUtilization": 50 },
                }),
            ),
            (
                "external",
                json!({ "metricName": "queue", "metricSelector": selector, "targetValue": "30" }),
                json!({
                    "metric": { "name": "queue", "selector": selector },
                    "target": { "type": "Value", "value": "30" },
                }),
            ),
        ] {
            check_both_ways(
                V2BETA1,
                &json!({ "spec": { "metrics": [{ "type": "X", source: flat }] } }),
                &json!({ "spec": { "metrics": [{ "type": "X", source: nested }] } }),
            );
        }
    }

    #[test]
    fn readings_are_nested_too() {
        check_both_ways(
            V2BETA1,
            &json!({ "status": { "currentMetrics": [
                { "type": "Resource", "resource": { "name": "cpu", "currentAverageUtilization": 7,
                    "currentAverageValue": "70m" } },
                { "type": "Object", "object": { "target": { "name": "a" }, "metricName": "m", "currentValue": "4" } },
            ] } }),
            &json!({ "status": { "currentMetrics": [
                { "type": "Resource", "resource": { "name": "cpu", "current": { "averageUtilization": 7,
                    "averageValue": "70m" } } },
                { "type": "Object", "object": { "describedObject": { "name": "a" }, "metric": { "name": "m" },
                    "current": { "value": "4" } } },
            ] } }),
        );
    }

    #[test]
    fn the_first_version_keeps_the_rest_in_annotations() {
        let hub = json!({
            "metadata": { "name": "web", "annotations": { "a": "b" } },
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    { "type": "Pods", "pods": { "metric": { "name": "hits" },
                        "target": { "type": "AverageValue", "averageValue": "5" } } },
                    { "type": "Resource", "resource": { "name": "cpu",
                        "target": { "type": "Utilization", "averageUtilization": 60 } } },
                ],
                "behavior": { "scaleDown": { "stabilizationWindowSeconds": 60 } },
            },
            "status": {
                "currentReplicas": 1,
                "desiredReplicas": 1,
                "currentMetrics": [{ "type": "Resource", "resource": { "name": "cpu",
                    "current": { "averageUtilization": 7, "averageValue": "70m" } } }],
                "conditions": [{ "type": "AbleToScale", "status": "True", "lastTransitionTime": null }],
            },
        });
        let mut older = hub.as_object().expect("an object").clone();
        v1_from_hub(&mut older);
        assert_eq!(older["spec"], json!({ "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 }));
        let status = json!({ "currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 7 });
        assert_eq!(older["status"], status);
        let metrics = older["metadata"]["annotations"][METRICS].as_str().expect("the annotation");
        let expected = json!([{ "type": "Pods", "pods": { "metricName": "hits", "targetAverageValue": "5" } }]);
        assert_eq!(serde_json::from_str::<Value>(metrics).expect("JSON"), expected);
        let annotation = |name: &str| older["metadata"]["annotations"][name].as_str().unwrap_or_default();
        assert_eq!(annotation(CONDITIONS), r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":null}]"#);
        assert_eq!(
            annotation(BEHAVIOR),
            "{\"ScaleUp\":null,\"ScaleDown\":{\"StabilizationWindowSeconds\":60,\"SelectPolicy\":null,\"Policies\":null,\
             \"Tolerance\":null}}"
        );
        check_to_hub(V1, &Value::Object(older), &hub);
    }

    #[test]
    fn the_first_version_aims_at_the_cpu() {
        for (spec, percent) in [(json!({}), 80), (json!({ "targetCPUUtilizationPercentage": 35 }), 35)] {
            let target = json!({ "type": "Utilization", "averageUtilization": percent });
            let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
            check_to_hub(V1, &json!({ "spec": spec }), &json!({ "spec": { "metrics": [metric] } }));
        }
    }
}

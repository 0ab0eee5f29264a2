//! Validation of horizontal pod autoscalers.

use crate::kinds::Judging;
use crate::kinds::rules::{At, is_less, need_name, none_negative};
use crate::kinds::shapes::{at_least, exactly_one_of, need_segment, no_more_than, positive};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

/// The metric types, each with the field that describes a metric of the type.
const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const METRIC_TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
const PERIOD_SECONDS_MAX: i64 = 1800;
const WINDOW_SECONDS_MAX: i64 = 3600;

/// The only scalable kind in the core group.
const SCALED_WITHOUT_GROUP: &str = "ReplicationController";

pub fn autoscaler(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    // Without the feature gate minReplicas must be positive, unless the old object has zero.
    let bound = if old.is_some_and(|old| old["spec"]["minReplicas"] == 0) { 0 } else { 1 };
    at_least(least, bound, &format!("must be greater than or equal to {bound}"), &mut causes);
    if most.number_or_zero() == 0 {
        causes.push(most.required("must be set and greater than 0"));
    } else {
        positive(most, "must be greater than 0", &mut causes);
    }
    let most_number = most.number().unwrap_or(0);
    if least.number().is_some_and(|least| most_number < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid(most.path(), &Value::from(most_number), detail));
    }
    let target = spec.get("scaleTargetRef");
    reference(target, &mut causes);
    // An unchanged invalid reference may stay, so that the rest can be changed.
    let is_old = |field: &str| old.is_some_and(|old| target.value[field] == old["spec"]["scaleTargetRef"][field]);
    if !(is_old("apiVersion") && is_old("kind")) {
        api_version(target, target.get("kind").text() == SCALED_WITHOUT_GROUP, &mut causes);
    }
    metrics(spec, old.is_some_and(has_odd_version), &mut causes);
    let behavior = spec.get("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        let rules = behavior.get(direction);
        if rules.is_set() {
            scaling(rules, &mut causes);
        }
    }
    causes
}

/// While the gate `HPAScaleToZero` is on, minReplicas may be zero.
pub fn to_zero(judging: &Judging<'_>, causes: &mut Causes) {
    let spec = &judging.new["spec"];
    if !judging.is_on("HPAScaleToZero") || spec["minReplicas"].as_i64().is_none_or(|least| least > 0) {
        return;
    }
    causes.retain(|cause| cause.field != "spec.minReplicas");
    let root = At::root(judging.new);
    at_least(root.get("spec").get("minReplicas"), 0, "must be greater than or equal to 0", causes);
}

pub fn status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    none_negative(At::root(new).get("status"), &["currentReplicas", "desiredReplicas"], &mut causes);
    causes
}

fn reference(target: At, causes: &mut Causes) {
    need_segment(target.get("kind"), causes);
    need_segment(target.get("name"), causes);
}

/// Validates the apiVersion of a reference. Only some objects may be in the core group.
fn api_version(reference: At, may_lack_group: bool, causes: &mut Causes) {
    let at = reference.get("apiVersion");
    // An absent value is shown as an empty text.
    let shown = Value::from(at.text());
    match at.text().split_once('/') {
        Some((_, version)) if version.contains('/') => {
            let why = format!("unexpected GroupVersion string: {}", at.text());
            causes.push(Cause::invalid(at.path(), &shown, &why));
        }
        Some((group, _)) if !group.is_empty() => {}
        _ if may_lack_group => {}
        _ => causes.push(Cause::invalid(at.path(), &shown, "apiVersion must specify API group")),
    }
}

/// Whether any metric refers to an object with an unreadable apiVersion.
fn has_odd_version(autoscaler: &Value) -> bool {
    let metrics = autoscaler["spec"]["metrics"].as_array().into_iter().flatten();
    let versions = metrics.filter_map(|metric| metric["object"]["describedObject"]["apiVersion"].as_str());
    versions.into_iter().any(|version| version.matches('/').count() > 1)
}

fn metrics(spec: At, has_odd_versions: bool, causes: &mut Causes) {
    let list = spec.get("metrics");
    let mut from_outside = false;
    for metric in list.items() {
        from_outside |= matches!(metric.get("type").text(), "Object" | "External");
        source(metric, has_odd_versions, causes);
    }
    if spec.get("minReplicas").number() == Some(0) && !from_outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(list.forbidden(detail));
    }
}

fn source(metric: At, has_odd_versions: bool, causes: &mut Causes) {
    let ty = metric.get("type");
    if ty.is_empty() {
        causes.push(ty.required("must specify a metric source type"));
    }
    // Kubernetes checks the type twice, and reports a fault twice.
    exactly_one_of(ty, METRIC_TYPES, causes);
    exactly_one_of(ty, METRIC_TYPES, causes);
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.get(field).is_set()).collect();
    if let Some(first) = present.first() {
        described(metric.get(first), first, has_odd_versions, causes);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == ty.text()).map(|(_, field)| *field);
    if let Some(field) = expected.filter(|field| !metric.get(field).is_set()) {
        causes.push(metric.get(field).required("must populate information for the given metric source"));
    }
    if present.len() > 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            causes.push(metric.get(field).forbidden("must populate the given metric source only"));
        }
    }
}

fn described(source: At, what: &str, has_odd_versions: bool, causes: &mut Causes) {
    let goal = source.get("target");
    let (value, average, percent) = (goal.get("value"), goal.get("averageValue"), goal.get("averageUtilization"));
    let metric = source.get("metric");
    let name = if matches!(what, "resource" | "containerResource") { source.get("name") } else { metric.get("name") };
    let missing = match what {
        "resource" | "containerResource" => "must specify a resource name",
        _ => "must specify a metric name",
    };
    if what == "object" {
        let object = source.get("describedObject");
        reference(object, causes);
        if !has_odd_versions {
            api_version(object, true, causes);
        }
    }
    if name.is_empty() {
        causes.push(name.required(missing));
    } else if !matches!(what, "resource" | "containerResource") {
        need_segment(name, causes);
    }
    if what == "containerResource" {
        let container = source.get("container");
        if container.is_empty() {
            causes.push(container.required("must specify a container"));
        } else {
            need_name(container, names::label, causes);
        }
    }
    target(goal, causes);
    match what {
        "object" if !value.is_set() && !average.is_set() => {
            causes.push(average.required("must set either a target value or averageValue"));
        }
        "external" if !value.is_set() && !average.is_set() => {
            causes.push(average.required("must set either a target value for metric or a per-pod target"));
        }
        "external" if value.is_set() && average.is_set() => {
            causes.push(value.forbidden("may not set both a target value for metric and a per-pod target"));
        }
        "pods" if !average.is_set() => causes.push(average.required("must specify a positive target averageValue")),
        "resource" | "containerResource" => match (percent.is_set(), average.is_set()) {
            (false, false) => {
                causes.push(percent.required("must set either a target raw value or a target utilization"));
            }
            (true, true) => {
                causes.push(average.forbidden("may not set both a target raw value and a target utilization"));
            }
            _ => {}
        },
        _ => {}
    }
}

fn target(goal: At, causes: &mut Causes) {
    let ty = goal.get("type");
    if ty.is_empty() {
        causes.push(ty.required("must specify a metric target type"));
    }
    if !matches!(ty.text(), "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        causes.push(Cause::invalid(ty.path(), &Value::from(ty.text()), detail));
    }
    for field in ["value", "averageValue"] {
        let amount = goal.get(field);
        if amount.is_set() && !is_less(&Value::from("0"), amount.value) {
            causes.push(amount.invalid("must be positive"));
        }
    }
    at_least(goal.get("averageUtilization"), 1, "must be greater than 0", causes);
}

fn scaling(rules: At, causes: &mut Causes) {
    let window = rules.get("stabilizationWindowSeconds");
    at_least(window, 0, "must be greater than or equal to zero", causes);
    no_more_than(window, WINDOW_SECONDS_MAX, &format!("must be less than or equal to {WINDOW_SECONDS_MAX}"), causes);
    let select = rules.get("selectPolicy");
    if select.is_set() {
        exactly_one_of(select, &["Disabled", "Max", "Min"], causes);
    }
    let tolerance = rules.get("tolerance");
    if is_less(tolerance.value, &Value::from("0")) {
        causes.push(tolerance.invalid("must be greater than or equal to 0"));
    }
    let policies = rules.get("policies");
    if policies.is_empty() {
        causes.push(policies.required("must specify at least one Policy"));
    }
    for policy in policies.items() {
        exactly_one_of(policy.get("type"), &["Percent", "Pods"], causes);
        positive(policy.get("value"), "must be greater than zero", causes);
        let period = policy.get("periodSeconds");
        positive(period, "must be greater than zero", causes);
        no_more_than(
            period,
            PERIOD_SECONDS_MAX,
            &format!("must be less than or equal to {PERIOD_SECONDS_MAX}"),
            causes,
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::{Value, json};

    fn good() -> Value {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "metrics": [{
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
                }],
                "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
            },
        })
    }

    #[test]
    fn each_rule() {
        let metric = "spec.metrics[0]";
        let policy = "spec.behavior.scaleUp.policies[0]";
        let of = |start: &str, rest: &str| format!("{start}{rest}");
        check_rows(
            &good(),
            &[
                ("/spec/maxReplicas", json!(0), "spec.maxReplicas: Required value: must be set and greater"),
                ("/spec/minReplicas", json!(4), "spec.maxReplicas: Invalid value: 3: must be greater than or equal"),
                (
                    "/spec/minReplicas",
                    json!(0),
                    "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                ),
                ("/spec/minReplicas", json!(0), "spec.metrics: Forbidden: must specify at least one Object or Extern"),
                ("/spec/scaleTargetRef/name", json!(""), "spec.scaleTargetRef.name: Required value"),
                (
                    "/spec/scaleTargetRef/kind",
                    json!("a/b"),
                    "spec.scaleTargetRef.kind: Invalid value: \"a/b\": may not",
                ),
                ("/spec/metrics/0/type", json!(""), &of(metric, ".type: Required value: must specify a metric source")),
                (
                    "/spec/metrics/0/type",
                    json!("Load"),
                    &of(metric, ".type: Unsupported value: \"Load\": supported val"),
                ),
                ("/spec/metrics/0/type", json!("Pods"), &of(metric, ".pods: Required value: must populate informatio")),
                (
                    "/spec/metrics/0/pods",
                    json!({"metric": {"name": "a"}, "target": {"type": "AverageValue", "averageValue": "1"}}),
                    &of(metric, ".pods: Forbidden: must populate the given metric source only"),
                ),
                (
                    "/spec/metrics/0/resource/name",
                    json!(""),
                    &of(metric, ".resource.name: Required value: must specif"),
                ),
                (
                    "/spec/metrics/0/resource/target/averageUtilization",
                    json!(0),
                    &of(metric, ".resource.target.averageUtilization: Invalid value: 0: must be greater than 0"),
                ),
                (
                    "/spec/metrics/0/resource/target/averageUtilization",
                    Value::Null,
                    &of(metric, ".resource.target.averageUtilization: Required value: must set either a target raw"),
                ),
                (
                    "/spec/metrics/0/resource/target/averageValue",
                    json!("1"),
                    &of(metric, ".resource.target.averageValue: Forbidden: may not set both a target raw value and a"),
                ),
                (
                    "/spec/metrics/0/resource/target/type",
                    json!("Most"),
                    &of(metric, ".resource.target.type: Invalid value: \"Most\": must be either Utilization, Value"),
                ),
                (
                    "/spec/metrics/0",
                    json!({"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value",
                        "value": "0"}}}),
                    &of(metric, ".external.target.value: Invalid value: \"0\": must be positive"),
                ),
                (
                    "/spec/metrics/0",
                    json!({"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"},
                        "metric": {"name": "q"}, "target": {"type": "Value"}}}),
                    &of(metric, ".object.target.averageValue: Required value: must set either a target value or aver"),
                ),
                (
                    "/spec/metrics/0",
                    json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 1}}}),
                    &of(metric, ".containerResource.container: Required value: must specify a container"),
                ),
                (
                    "/spec/behavior/scaleUp/policies",
                    json!([]),
                    "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
                ),
                ("/spec/behavior/scaleUp/policies", Value::Null, ""),
                (
                    "/spec/behavior/scaleUp/policies/0/periodSeconds",
                    json!(1801),
                    &of(policy, ".periodSeconds: Invalid value: 1801: must be less than or equal to 1800"),
                ),
                (
                    "/spec/behavior/scaleUp/policies/0/value",
                    json!(0),
                    &of(policy, ".value: Invalid value: 0: must be greater than zero"),
                ),
                (
                    "/spec/behavior/scaleUp/policies/0/type",
                    json!("Half"),
                    &of(policy, ".type: Unsupported value: \"Half\": supported values: \"Percent\", \"Pods\""),
                ),
                (
                    "/spec/behavior/scaleDown",
                    json!({"stabilizationWindowSeconds": 3601}),
                    "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equa",
                ),
                (
                    "/spec/behavior/scaleDown",
                    json!({"selectPolicy": "Some"}),
                    "spec.behavior.scaleDown.selectPolicy: Unsupported value: \"Some\": supported values: \"Disabled\"",
                ),
            ],
        );
    }

    #[test]
    fn whose_group_may_be_missing() {
        let lacks = |version: &str| {
            format!("spec.scaleTargetRef.apiVersion: Invalid value: \"{version}\": apiVersion must specify API group")
        };
        let odd = "apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c";
        let target = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "a"});
        let of_object = |version: &str| {
            let object = json!({"apiVersion": version, "kind": "Service", "name": "s"});
            json!([{"type": "Object", "object": {"describedObject": object, "metric": {"name": "q"},
                "target": {"type": "Value", "value": "1"}}}])
        };
        check_rows(
            &good(),
            &[
                ("/spec/scaleTargetRef", target("v1", "ReplicationController"), ""),
                ("/spec/scaleTargetRef", target("", "ReplicationController"), ""),
                (
                    "/spec/scaleTargetRef",
                    target("a/b/c", "ReplicationController"),
                    &format!("spec.scaleTargetRef.{odd}"),
                ),
                ("/spec/scaleTargetRef", target("v1", "Deployment"), &lacks("v1")),
                ("/spec/scaleTargetRef", target("", "Deployment"), &lacks("")),
                ("/spec/scaleTargetRef", target("/v1", "Deployment"), &lacks("/v1")),
                ("/spec/metrics", of_object("v1"), ""),
                ("/spec/metrics", of_object("a/b/c"), &format!("spec.metrics[0].object.describedObject.{odd}")),
            ],
        );
        let mut old = good();
        old["spec"]["scaleTargetRef"] = target("v1", "Widget");
        old["spec"]["metrics"] = of_object("a/b/c");
        check_updates(
            &old,
            &[
                ("/spec/maxReplicas", json!(5), ""),
                ("/spec/scaleTargetRef/name", json!("b"), ""),
                ("/spec/scaleTargetRef/kind", json!("ReplicationController"), ""),
                ("/spec/scaleTargetRef/kind", json!("Deployment"), &lacks("v1")),
                ("/spec/scaleTargetRef/apiVersion", json!("v2"), &lacks("v2")),
            ],
        );
    }

    #[test]
    fn who_scales_to_zero_already_goes_on() {
        let mut zero = good();
        zero["spec"]["minReplicas"] = json!(0);
        let external = json!({"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}});
        zero["spec"]["metrics"] = json!([{"type": "External", "external": external}]);
        check_updates(
            &zero,
            &[
                ("/spec/maxReplicas", json!(5), ""),
                (
                    "/spec/minReplicas",
                    json!(-1),
                    "spec.minReplicas: Invalid value: -1: must be greater than or equal to",
                ),
            ],
        );
        let status = "status.desiredReplicas: Invalid value: -1: must be greater than or equal to 0";
        check_part(&good(), "status", &[("/status/desiredReplicas", json!(-1), status)]);
    }
}

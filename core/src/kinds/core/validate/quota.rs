//! Validation of ResourceQuotas and LimitRanges.

use super::resources::{
    NameRule, amount, canonical, container_resource, is_quota_resource, may_overcommit, quota_resource, resource_name,
    text,
};
use crate::kinds::rules::{At, Seen, is_less};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use crate::schema::quantity;
use holdfast_value::{Value, json};
use std::collections::BTreeSet;

const COMPUTE: &[&str] = &["cpu", "limits.cpu", "limits.memory", "memory", "pods", "requests.cpu", "requests.memory"];
const SCOPES: &[(&str, &[&str])] = &[
    ("BestEffort", &["pods"]),
    ("CrossNamespacePodAffinity", COMPUTE),
    ("NotBestEffort", COMPUTE),
    ("NotTerminating", COMPUTE),
    ("PriorityClass", COMPUTE),
    ("Terminating", COMPUTE),
    ("VolumeAttributesClass", &["persistentvolumeclaims", "requests.storage"]),
];
const OPPOSITES: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                           ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                           ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
const UNSUITED: &str = "unsupported scope applied to resource";
const LIMIT_TYPES: &[&str] = &["Container", "PersistentVolumeClaim", "Pod"];

pub fn resource_quota(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (hard, scopes) = (spec.get("hard"), spec.get("scopes"));
    amounts(hard, &mut causes);
    let named: BTreeSet<&str> = scopes.items().map(|scope| scope.text()).collect();
    let mut told = Told::of(scopes);
    for scope in scopes.items().map(|scope| scope.text()).filter(|scope| !told.again(scope)) {
        if fitting(scope).is_none() {
            causes.push(scopes.invalid("unsupported scope"));
        }
        for _ in 0..unsuited(scope, hard) {
            causes.push(scopes.invalid(UNSUITED));
        }
    }
    no_opposites(&named, scopes, scopes.value, &mut causes);
    selector(spec, &mut causes);
    if let Some(old) = old {
        let set = |list: &Value| -> BTreeSet<String> {
            list.as_array().into_iter().flatten().map(Value::to_string).collect()
        };
        if set(scopes.value) != set(&old["spec"]["scopes"]) {
            causes.push(scopes.invalid("field is immutable"));
        }
    }
    causes
}

pub fn resource_quota_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    amounts(status.get("hard"), &mut causes);
    amounts(status.get("used"), &mut causes);
    causes
}

fn amounts(map: At, causes: &mut Causes) {
    for (name, at) in map.entries() {
        quota_resource(name, at, causes);
        amount(name, at, causes);
    }
}

/// The resources to which a scope can apply; `None` if the scope is unknown.
fn fitting(scope: &str) -> Option<&'static [&'static str]> {
    SCOPES.iter().find(|(known, _)| *known == scope).map(|(_, resources)| *resources)
}

/// The scopes of a list that have been reported. Every fault shows the whole list, so the size of the answer grows with
/// the square of the list's length. For a short list each fault is reported. For a long list, each known scope is
/// reported once, and only one unknown scope is reported.
struct Told {
    is_short: bool,
    /// The scopes, as positions in `SCOPES`. `None` stands for all unknown scopes.
    scopes: BTreeSet<Option<usize>>,
}

impl Told {
    const SHORT: usize = 32;

    fn of(list: At) -> Told {
        Told { is_short: list.items().count() <= Self::SHORT, scopes: BTreeSet::new() }
    }

    fn again(&mut self, scope: &str) -> bool {
        !self.is_short && !self.scopes.insert(SCOPES.iter().position(|(name, _)| *name == scope))
    }
}

/// The number of the quota's resources to which the scope, if it is known, cannot apply.
fn unsuited(scope: &str, hard: At) -> usize {
    let Some(resources) = fitting(scope) else { return 0 };
    hard.entries().filter(|(name, _)| is_quota_resource(name) && !resources.contains(name)).count()
}

fn no_opposites(scopes: &BTreeSet<&str>, at: At, shown: &Value, causes: &mut Causes) {
    let conflicts = OPPOSITES.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope)));
    causes.extend(conflicts.map(|_| Cause::invalid(at.path(), shown, "conflicting scopes")));
}

/// Validates the scope selector. Kubernetes reports expressions without their index.
fn selector(spec: At, causes: &mut Causes) {
    let selector = spec.get("scopeSelector");
    let list = selector.get("matchExpressions");
    let named: BTreeSet<&str> =
        list.items().map(|expression| expression.value["scopeName"].as_str().unwrap_or_default()).collect();
    let mut told = Told::of(list);
    for expression in list.items() {
        let (scope, operator, values) =
            (expression.get("scopeName"), expression.get("operator"), expression.get("values"));
        if fitting(scope.text()).is_none() {
            causes.push(Cause::invalid(list.get("scopeName").path(), scope.value, "unsupported scope"));
        }
        let unsuited = if told.again(scope.text()) { 0 } else { unsuited(scope.text(), spec.get("hard")) };
        for _ in 0..unsuited {
            causes.push(Cause::invalid(list.path(), selector.value, UNSUITED));
        }
        let told = list.get("operator");
        let told = told.holding(operator.value);
        let of_values = matches!(scope.text(), "PriorityClass" | "VolumeAttributesClass");
        if !of_values && fitting(scope.text()).is_some() && operator.text() != "Exists" {
            causes.push(told.invalid(ONLY_EXISTS));
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                causes.push(list.get("values").required(detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                causes.push(Cause::invalid(list.get("values").path(), values.value, detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => causes.push(told.invalid_as(told.text(), "not a valid selector operator")),
        }
    }
    no_opposites(&named, list, &spec.value["scopes"], causes);
}

pub fn limit_range(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let mut seen = Seen::default();
    for limit in spec.get("limits").items() {
        let ty = limit.get("type");
        limit_type(ty, &mut causes);
        if seen.again(&ty.text().into()) {
            causes.push(ty.duplicate());
        }
        bounds(limit, &mut causes);
    }
    causes
}

fn limit_type(at: At, causes: &mut Causes) {
    let messages = names::qualified_name(at.text());
    if messages.is_empty() && !at.text().contains('/') && !LIMIT_TYPES.contains(&at.text()) {
        causes.push(at.invalid("must be a standard limit type or fully qualified"));
    }
    causes.extend(messages.iter().map(|message| at.invalid_as(at.text(), message)));
}

/// Validates the bounds for one type of object, which must be consistent.
fn bounds(limit: At, causes: &mut Causes) {
    let ty = limit.get("type").text();
    let name: NameRule = if matches!(ty, "Container" | "Pod") { container_resource } else { resource_name };
    let mut resources = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let map = limit.get(field);
        if ty == "Pod" && matches!(field, "default" | "defaultRequest") {
            if !map.is_empty() {
                causes.push(map.forbidden("may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (resource, at) in map.entries() {
            name(resource, at, causes);
            resources.insert(resource.to_owned());
        }
    }
    let stores = ["min", "max"].iter().any(|field| !limit.value[*field]["storage"].is_null());
    if ty == "PersistentVolumeClaim" && !stores {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        causes.push(limit.get("limits").required(detail));
    }
    for resource in &resources {
        relations(limit, ty, resource, causes);
    }
}

/// Pairs of bounds; the first bound may not exceed the second. Each row has the names of both bounds in Kubernetes'
/// message, the field at which the fault is reported, and the bound whose value is shown.
const ORDERED: &[(&str, &str, &str, &str)] = &[
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
];

fn relations(limit: At, ty: &str, resource: &str, causes: &mut Causes) {
    let value = |field: &str| {
        let is_passed_over = ty == "Pod" && matches!(field, "default" | "defaultRequest");
        Some(&limit.value[field][resource]).filter(|value| !is_passed_over && !value.is_null())
    };
    for (low, high, told, shown) in ORDERED {
        let (Some(lower), Some(upper), Some(shown)) = (value(low), value(high), value(shown)) else { continue };
        if !is_less(upper, lower) {
            continue;
        }
        let called = |field: &str| match field {
            "defaultRequest" => "default request",
            "default" if *told == "defaultRequest" => "default limit",
            "default" => "default",
            "min" => "min",
            _ => "max",
        };
        let detail = format!(
            "{} value {} is greater than {} value {}",
            called(low),
            canonical(lower),
            called(high),
            canonical(upper)
        );
        causes.push(limit.get(told).key(resource).invalid_as(canonical(shown), &detail));
    }
    let told = limit.get("maxLimitRequestRatio");
    if let Some(ratio) = value("maxLimitRequestRatio") {
        let shown = canonical(ratio);
        if is_less(ratio, &json!("1")) {
            causes.push(told.key(resource).invalid_as(shown.as_str(), &format!("ratio {shown} is less than 1")));
        }
        if let (Some(min), Some(max)) = (value("min"), value("max")) {
            let number = |value: &Value| quantity::nanos(&text(value)).map(|nanos| nanos as f64);
            if let (Some(ratio), Some(min), Some(max)) = (number(ratio), number(min), number(max))
                && ratio / 1e9 > max / min
            {
                let detail = format!("ratio {shown} is greater than max/min = {:.6}", max / min);
                causes.push(told.key(resource).invalid_as(shown.as_str(), &detail));
            }
        }
    }
    if let (Some(default), Some(request)) = (value("default"), value("defaultRequest"))
        && !may_overcommit(resource)
        && (is_less(default, request) || is_less(request, default))
    {
        let (default, request) = (canonical(default), canonical(request));
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {resource}");
        causes.push(limit.get("defaultRequest").key(resource).invalid_as(request, &detail));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn each_scope_is_told_of() {
        let quota = json!({"spec": {
            "hard": {"cpu": "1", "services": "1"},
            "scopes": ["X", "Y", "BestEffort", "BestEffort"],
            "scopeSelector": {"matchExpressions": [
                {"scopeName": "BestEffort", "operator": "Exists"}, {"scopeName": "BestEffort", "operator": "Exists"},
            ]},
        }});
        let causes = super::resource_quota(&quota, None);
        let count = |field: &str, detail: &str| {
            causes.iter().filter(|cause| cause.field == field && cause.message.ends_with(detail)).count()
        };
        assert_eq!(count("spec.scopes", "unsupported scope"), 2);
        assert_eq!(count("spec.scopes", "unsupported scope applied to resource"), 4);
        assert_eq!(count("spec.scopeSelector.matchExpressions", "unsupported scope applied to resource"), 4);
        // Each fault shows the whole list, so a long list of scopes must not have many faults.
        let count = |field: &str, value: Value| {
            let mut long = quota.clone();
            long["spec"][field] = value;
            let at = format!("spec.{field}");
            super::resource_quota(&long, None).iter().filter(|cause| cause.field.starts_with(&at)).count()
        };
        let name = |number: usize| {
            Value::from(if number.is_multiple_of(2) { "BestEffort".into() } else { format!("X{number}") })
        };
        assert_eq!(count("scopes", (0..30_000).map(name).collect()), 3);
        let expressions = vec![json!({"scopeName": "BestEffort", "operator": "Exists"}); 30_000];
        assert_eq!(count("scopeSelector", json!({"matchExpressions": expressions})), 2);
    }

    #[test]
    fn each_rule_of_a_quota() {
        let good = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"},
            "spec": {"hard": {"pods": "10", "requests.cpu": "4"}, "scopes": ["NotBestEffort"]},
            "status": {"used": {"pods": "1"}},
        });
        let expressions = "/spec/scopeSelector/matchExpressions";
        check_rows(
            &good,
            &[
                (
                    "/spec/hard/pods",
                    json!("-1"),
                    "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal",
                ),
                ("/spec/hard/pods", json!("1.5"), "spec.hard[pods]: Invalid value: \"1500m\": must be an integer"),
                (
                    "/spec/hard/dogs",
                    json!("1"),
                    "spec.hard[dogs]: Invalid value: \"dogs\": must be a standard resource t",
                ),
                ("/spec/hard/count~1jobs.batch", json!("1"), ""),
                (
                    "/spec/hard/services",
                    json!("1"),
                    "spec.scopes: Invalid value: [\"NotBestEffort\"]: unsupported scope applied to resource",
                ),
                ("/spec/scopes", json!(["Mine"]), "spec.scopes: Invalid value: [\"Mine\"]: unsupported scope"),
                (
                    "/spec",
                    json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
                    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
                ),
                (expressions, json!([{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]), ""),
                (
                    expressions,
                    json!([{"scopeName": "Terminating", "operator": "In", "values": ["a"]}]),
                    "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists' when scope",
                ),
                (
                    expressions,
                    json!([{"scopeName": "PriorityClass", "operator": "In"}]),
                    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when",
                ),
                (
                    expressions,
                    json!([{"scopeName": "Mine", "operator": "Exists"}]),
                    "spec.scopeSelector.matchExpressions.scopeName: Invalid value: \"Mine\": unsupported scope",
                ),
            ],
        );
        check_updates(
            &good,
            &[
                ("/spec/hard/pods", json!("20"), ""),
                ("/spec/scopes", json!([]), "spec.scopes: Invalid value: null: field is immutable"),
            ],
        );
        check_part(
            &good,
            "status",
            &[("/status/used/pods", json!("-1"), "status.used[pods]: Invalid value: \"-1\": must be greater than")],
        );
    }

    #[test]
    fn each_rule_of_a_limit_range() {
        let good = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "a"},
            "spec": {"limits": [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"},
                "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m"}}]},
        });
        let at = |field: &str| format!("/spec/limits/0/{field}");
        check_rows(
            &good,
            &[
                (
                    &at("type"),
                    json!("Dog"),
                    "spec.limits[0].type: Invalid value: \"Dog\": must be a standard limit type",
                ),
                (&at("type"), json!("example.com/Image"), ""),
                ("/spec/limits/1", json!({"type": "Container"}), "spec.limits[1].type: Duplicate value: \"Container\""),
                (
                    &at("type"),
                    json!("Pod"),
                    "spec.limits[0].default: Forbidden: may not be specified when `type` is 'P",
                ),
                (
                    "/spec/limits/0",
                    json!({"type": "PersistentVolumeClaim"}),
                    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required",
                ),
                (
                    &at("max/dogs"),
                    json!("1"),
                    "spec.limits[0].max[dogs]: Invalid value: \"dogs\": must be a standard r",
                ),
                (
                    &at("min/cpu"),
                    json!("3"),
                    "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2",
                ),
                (
                    &at("min/cpu"),
                    json!("300m"),
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"200m\": min value 300m is greater than \
                     default request value 200m",
                ),
                (
                    &at("defaultRequest/cpu"),
                    json!("600m"),
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"600m\": default request value 600m is \
                     greater than default limit value 500m",
                ),
                (
                    &at("default/cpu"),
                    json!("3"),
                    "spec.limits[0].default[cpu]: Invalid value: \"2\": default value 3 is greater than max value 2",
                ),
                (
                    &at("maxLimitRequestRatio/cpu"),
                    json!("500m"),
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
                ),
                (
                    &at("maxLimitRequestRatio/cpu"),
                    json!("30"),
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"30\": ratio 30 is greater than max/min \
                     = 20.000000",
                ),
            ],
        );
    }
}

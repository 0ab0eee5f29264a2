//! Validation of device claims and classes.

use super::shapes::{LIST_MAX, cel_selectors, configuration, device_class, device_name, pool_name, toleration};
use crate::kinds::rules::{At, distinct, immutable, labels, named};
use crate::kinds::shapes::{at_least, at_most, conditions, count, distinct_items, driver_name, without_value};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

const ALTERNATIVES_MAX: usize = 8;
const CONDITIONS_MAX: usize = 8;
const TOLERATIONS_MAX: usize = 16;
const NOT_A_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest \
                             separated by '/'";

/// The requests of a claim, each with the names of its alternatives.
pub(super) type Requests = BTreeMap<String, BTreeSet<String>>;

pub fn claim(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    match old {
        // The spec is immutable, so it is validated only once.
        Some(old) => immutable(spec, &old["spec"], &mut causes),
        None => claim_spec(spec, &mut causes),
    }
    causes
}

pub fn claim_template(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    if let Some(old) = old {
        immutable(spec, &old["spec"], &mut causes);
        return causes;
    }
    let metadata = spec.get("metadata");
    labels(metadata.get("labels"), &mut causes);
    claim_spec(spec.get("spec"), &mut causes);
    causes
}

fn claim_spec(spec: At, causes: &mut Causes) {
    let devices = spec.get("devices");
    let known = requests(devices.value);
    let list = devices.get("requests");
    for request in list.items() {
        device_request(request, causes);
    }
    at_most(list, LIST_MAX, causes);
    distinct(list, "name", causes);
    let constraints = devices.get("constraints");
    for constraint in constraints.items() {
        references(constraint.get("requests"), &known, causes);
        let (same, apart) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
        // As in Kubernetes, `distinctAttribute` is validated only if `matchAttribute` is absent.
        match [same, apart].into_iter().find(At::is_set) {
            Some(attribute) => full_name(attribute, causes),
            None => causes.push(constraint.required(
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            )),
        }
    }
    at_most(constraints, LIST_MAX, causes);
    let configs = devices.get("config");
    for config in configs.items() {
        references(config.get("requests"), &known, causes);
        configuration(config, causes);
    }
    at_most(configs, LIST_MAX, causes);
}

pub(super) fn requests(devices: &Value) -> Requests {
    let name = |request: &Value| request["name"].as_str().unwrap_or("").to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let all = list(&devices["requests"]);
    all.iter().map(|one| (name(one), list(&one["firstAvailable"]).iter().map(name).collect())).collect()
}

/// Refuses admin access to devices in use, except in a labelled namespace, which only administrators can provide.
pub fn claim_in_namespace(new: &Value, labels: &Value) -> Causes {
    admin_access(&new["spec"]["devices"], labels)
}

pub fn claim_template_in_namespace(new: &Value, labels: &Value) -> Causes {
    admin_access(&new["spec"]["spec"]["devices"], labels)
}

fn admin_access(devices: &Value, labels: &Value) -> Causes {
    const LABEL: &str = "resource.kubernetes.io/admin-access";
    let requests = devices["requests"].as_array().map_or(&[][..], Vec::as_slice);
    let asking = requests.iter().enumerate().filter(|(_, request)| request["exactly"]["adminAccess"] == true);
    let detail = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    // Kubernetes reports the path of the `v1beta1` field.
    let cause =
        |(index, _): (usize, &Value)| Cause::forbidden(format!("spec.devices.requests[{index}].adminAccess"), &detail);
    if labels[LABEL] == "true" { Causes::default() } else { asking.map(cause).collect() }
}

fn device_request(request: At, causes: &mut Causes) {
    let text = Value::from(request.get("name").text());
    named(request.get("name").holding(&text), names::label, causes);
    let (exactly, first) = (request.get("exactly"), request.get("firstAvailable"));
    if !first.is_empty() && !exactly.is_set() {
        for sub in first.items() {
            let text = Value::from(sub.get("name").text());
            named(sub.get("name").holding(&text), names::label, causes);
            exact(sub, causes);
        }
        at_most(first, ALTERNATIVES_MAX, causes);
        distinct(first, "name", causes);
    }
    if exactly.is_set() && first.is_empty() {
        exact(exactly, causes);
    }
    match (exactly.is_set(), !first.is_empty()) {
        (false, false) => {
            causes.push(request.required("exactly one of `exactly` or `firstAvailable` is required"));
        }
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            causes.push(request.invalid_null(detail));
        }
        _ => {}
    }
}

fn exact(request: At, causes: &mut Causes) {
    device_class(request.get("deviceClassName"), causes);
    cel_selectors(request.get("selectors"), causes);
    let (mode, number) = (request.get("allocationMode"), request.get("count"));
    match mode.text() {
        "All" if number.number().is_some_and(|number| number != 0) => {
            causes.push(number.invalid("must not be specified when allocationMode is 'All'"));
        }
        "All" => {}
        "ExactCount" => {
            let found = number.number().unwrap_or(0);
            if found <= 0 {
                causes.push(Cause::invalid(number.path(), &found.into(), "must be greater than zero"));
            }
        }
        _ => causes.push(mode.not_supported(&["All", "ExactCount"])),
    }
    let tolerations = request.get("tolerations");
    at_most(tolerations, TOLERATIONS_MAX, causes);
    for entry in tolerations.items() {
        toleration(entry, causes);
    }
}

pub(super) fn references(list: At, known: &Requests, causes: &mut Causes) {
    for name in list.items() {
        reference(name, known, causes);
    }
    at_most(list, LIST_MAX, causes);
    distinct_items(list, causes);
}

pub(super) fn reference(name: At, known: &Requests, causes: &mut Causes) {
    let parts: Vec<&str> = name.text().split('/').collect();
    let found = match parts[..] {
        [request] => known.contains_key(request),
        [request, sub] => known.get(request).is_some_and(|subs| subs.contains(sub)),
        _ => {
            causes.push(name.invalid(NOT_A_REQUEST));
            return;
        }
    };
    for part in parts {
        let messages = names::label(part);
        causes.extend(messages.iter().map(|message| Cause::invalid(name.path(), &part.into(), message)));
    }
    if !found {
        causes.push(name.invalid(NOT_A_REQUEST));
    }
}

fn full_name(at: At, causes: &mut Causes) {
    if at.is_empty() {
        super::shapes::word(at, causes);
    } else {
        super::shapes::attribute_name(at, causes);
    }
    if !at.text().contains('/') {
        causes.push(at.invalid("a fully qualified name must be a domain and a name separated by a slash"));
    }
}

pub fn class(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    cel_selectors(spec.get("selectors"), &mut causes);
    let configs = spec.get("config");
    for config in configs.items() {
        configuration(config, &mut causes);
    }
    at_most(configs, LIST_MAX, &mut causes);
    let extended = spec.get("extendedResourceName");
    if extended.is_set() {
        let is_misnamed = !names::qualified_name(extended.text()).is_empty();
        let native = !extended.text().contains('/') || extended.text().contains("kubernetes.io/");
        if is_misnamed || native || extended.text().starts_with("requests.") {
            causes.push(extended.invalid("must be a valid extended resource name"));
        }
    }
    causes
}

pub fn taint_rule(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let selector = spec.get("deviceSelector");
    if selector.get("driver").is_set() {
        driver_name(selector.get("driver"), &mut causes);
    }
    if selector.get("pool").is_set() {
        pool_name(selector.get("pool"), &mut causes);
    }
    if selector.get("device").is_set() {
        device_name(selector.get("device"), &mut causes);
    }
    super::shapes::taint(spec.get("taint"), &mut causes);
    causes
}

pub fn taint_rule_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    conditions(status.get("conditions"), &mut causes);
    at_most(status.get("conditions"), CONDITIONS_MAX, &mut causes);
    causes
}

pub fn slice(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (pool, driver) = (spec.get("pool"), spec.get("driver"));
    driver_name(driver, &mut causes);
    pool_name(pool.get("name"), &mut causes);
    if pool.get("resourceSliceCount").number().unwrap_or(0) <= 0 {
        let number = pool.get("resourceSliceCount").number().unwrap_or(0);
        causes.push(Cause::invalid(pool.get("resourceSliceCount").path(), &number.into(), "must be greater than zero"));
    }
    at_least(pool.get("generation"), 0, "must be greater than or equal to zero", &mut causes);
    if let Some(old) = old {
        immutable(pool.get("name"), &old["spec"]["pool"]["name"], &mut causes);
        immutable(driver, &old["spec"]["driver"], &mut causes);
        immutable(spec.get("nodeName"), &old["spec"]["nodeName"], &mut causes);
    }
    super::slices::nodes(spec, &mut causes);
    super::slices::devices(spec, &mut causes);
    if count(spec.get("devices")) > 0 && count(spec.get("sharedCounters")) > 0 {
        causes.push(without_value(spec, "only one of `sharedCounters` or `devices` is allowed"));
    }
    causes
}

#[cfg(test)]
pub(super) mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    /// A claim with every form of request.
    pub fn claim() -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"},
            "spec": {"devices": {
                "requests": [
                    {"name": "r", "exactly": {"deviceClassName": "c"}},
                    {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "c"}]},
                ],
                "constraints": [{"requests": ["r", "s/t"], "matchAttribute": "example.com/a"}],
                "config": [{"requests": ["r"], "opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
            }},
        })
    }

    #[test]
    fn claims() {
        let request = "spec.devices.requests[0]";
        let of = |rest: &str| format!("{request}{rest}");
        check_rows(
            &claim(),
            &[
                ("/spec/devices/requests/0/name", json!("A"), &of(".name: Invalid value: \"A\": a lowercase RFC 1123")),
                ("/spec/devices/requests/1/name", json!("r"), "spec.devices.requests[1].name: Duplicate value: \"r\""),
                ("/spec/devices/requests/0/exactly", Value::Null, &of(": Required value: exactly one of `exactly` or")),
                (
                    "/spec/devices/requests/0/firstAvailable",
                    json!([{"name": "t", "deviceClassName": "c"}]),
                    &of(
                        ": Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple",
                    ),
                ),
                (
                    "/spec/devices/requests/0/exactly/deviceClassName",
                    json!(""),
                    &of(".exactly.deviceClassName: Required"),
                ),
                (
                    "/spec/devices/requests/0/exactly/count",
                    json!(-1),
                    &of(".exactly.count: Invalid value: -1: must be g"),
                ),
                (
                    "/spec/devices/requests/0/exactly/allocationMode",
                    json!("Any"),
                    &of(".exactly.allocationMode: Unsuppo"),
                ),
                (
                    "/spec/devices/requests/0/exactly",
                    json!({"deviceClassName": "c", "allocationMode": "All", "count": 2}),
                    &of(".exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"),
                ),
                ("/spec/devices/requests/0/exactly/selectors", json!([{}]), &of(".exactly.selectors[0].cel: Required")),
                (
                    "/spec/devices/requests/0/exactly/selectors",
                    json!([{"cel": {"expression": "a".repeat(10_241)}}]),
                    &of(".exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"),
                ),
                (
                    "/spec/devices/requests/0/exactly/tolerations",
                    json!([{"key": "k", "operator": "Exists", "value": "v"}]),
                    &of(".exactly.tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`"),
                ),
                (
                    "/spec/devices/constraints/0/requests/0",
                    json!("x"),
                    "spec.devices.constraints[0].requests[0]: Invalid",
                ),
                (
                    "/spec/devices/constraints/0/requests/1",
                    json!("r"),
                    "spec.devices.constraints[0].requests[1]: Duplica",
                ),
                (
                    "/spec/devices/constraints/0/matchAttribute",
                    Value::Null,
                    "spec.devices.constraints[0]: Required value: exactly one of",
                ),
                (
                    "/spec/devices/constraints/0/matchAttribute",
                    json!("a"),
                    "spec.devices.constraints[0].matchAttribute: Invalid value: \"a\": a fully qualified name must",
                ),
                ("/spec/devices/config/0/opaque", Value::Null, "spec.devices.config[0].opaque: Required value"),
                (
                    "/spec/devices/config/0/opaque/driver",
                    json!(""),
                    "spec.devices.config[0].opaque.driver: Required val",
                ),
                (
                    "/spec/devices/config/0/opaque/parameters",
                    json!({"a": "b".repeat(11_000)}),
                    "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
                ),
            ],
        );
        let changed = "spec: Invalid value: {";
        check_updates(&claim(), &[("/spec/devices/requests/0/exactly/count", json!(2), changed)]);
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "a"},
            "spec": {"metadata": {"labels": {"a": "b"}}, "spec": claim()["spec"]},
        });
        check_rows(
            &template,
            &[
                ("/spec/metadata/labels/a", json!("b c"), "spec.metadata.labels: Invalid value: \"b c\""),
                ("/spec/spec/devices/requests/0/name", json!("A"), "spec.spec.devices.requests[0].name: Invalid value"),
            ],
        );
        check_updates(&template, &[("/spec/metadata/labels/a", json!("c"), changed)]);
    }

    #[test]
    fn classes_and_taints() {
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "a"},
            "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"},
        });
        check_rows(
            &class,
            &[
                ("/spec/selectors/0/cel", Value::Null, "spec.selectors[0].cel: Required value"),
                ("/spec/config", json!([{}]), "spec.config[0].opaque: Required value"),
                (
                    "/spec/extendedResourceName",
                    json!("cpu"),
                    "spec.extendedResourceName: Invalid value: \"cpu\": must be",
                ),
            ],
        );
        let rule = json!({
            "apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": "a"},
            "spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoExecute"}},
        });
        check_rows(
            &rule,
            &[
                ("/spec/taint/effect", json!(""), "spec.taint.effect: Required value"),
                (
                    "/spec/taint/effect",
                    json!("Slow"),
                    "spec.taint.effect: Unsupported value: \"Slow\": supported values",
                ),
                ("/spec/taint/key", json!(""), "spec.taint.key: Invalid value: \"\": name part must be non-empty"),
                (
                    "/spec/deviceSelector/pool",
                    json!("A"),
                    "spec.deviceSelector.pool: Invalid value: \"A\": a lowercase",
                ),
            ],
        );
    }
}

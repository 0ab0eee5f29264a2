//! LimitRanger: containers without requests or limits get the defaults of the namespace's LimitRanges. Pods, containers
//! and claims must be within the bounds of the LimitRanges.

use super::pods::list;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{LIMIT_RANGE, PERSISTENT_VOLUME_CLAIM, POD};
use crate::object::meta::{fields_mut, metadata_mut, object_mut};
use crate::pipeline::effect::Stop;
use crate::quota::Usage;
use crate::schema::amount::Amount;
use holdfast_value::{CompactString, Map, Value};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !is_limited(attributes) || !attributes.is_on(POD) {
        return Ok(());
    }
    for range in attributes.all(LIMIT_RANGE, attributes.namespace()) {
        give_defaults(&mut attributes.object, &range);
    }
    Ok(())
}

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !is_limited(attributes) {
        return Ok(());
    }
    for range in attributes.all(LIMIT_RANGE, attributes.namespace()) {
        let faults = match attributes.is_on(POD) {
            true => pod_faults(&attributes.object, &range),
            false => claim_faults(&attributes.object, &range),
        };
        if !faults.is_empty() {
            return Err(attributes.forbidden(aggregate(faults)));
        }
    }
    Ok(())
}

fn is_limited(attributes: &Attributes) -> bool {
    let is_deleted = attributes.old["metadata"]["deletionTimestamp"].is_string();
    let concerned = match (attributes.operation, attributes.subresource()) {
        (Operation::Create, "") => attributes.is_on(POD) || attributes.is_on(PERSISTENT_VOLUME_CLAIM),
        (Operation::Update, "") => attributes.is_on(PERSISTENT_VOLUME_CLAIM),
        (Operation::Update, "resize") => attributes.is_on(POD),
        _ => false,
    };
    concerned && !is_deleted
}

/// The limits of one type in a LimitRange.
fn limits<'a>(range: &'a Value, sort: &'a str) -> impl Iterator<Item = &'a Value> {
    list(&range["spec"]["limits"]).filter(move |limit| limit["type"] == sort)
}

fn give_defaults(pod: &mut Value, range: &Value) {
    let defaults = |field: &str| {
        let limits = limits(range, "Container").filter_map(|limit| limit[field].as_object());
        limits.flatten().map(|(name, amount)| (name.clone(), amount.clone())).collect::<Map>()
    };
    let (requests, limits) = (defaults("defaultRequest"), defaults("default"));
    let mut set = Vec::new();
    let spec = object_mut(fields_mut(pod), "spec");
    for (field, called) in [("containers", "container"), ("initContainers", "init container")] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or("").to_owned();
            for (part, defaults, word) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let given = fill_in(container, part, defaults);
                if !given.is_empty() {
                    set.push(format!("{} {word} for {called} {name}", given.join(", ")));
                }
            }
        }
    }
    if !set.is_empty() {
        let annotations = object_mut(metadata_mut(fields_mut(pod)), "annotations");
        annotations.insert(ANNOTATION, format!("LimitRanger plugin set: {}", set.join("; ")).into());
    }
}

/// Sets the defaults for resources that the container does not set; returns the names of these resources.
fn fill_in(container: &mut Value, part: &str, defaults: &Map) -> Vec<CompactString> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let own = object_mut(object_mut(fields_mut(container), "resources"), part);
    let missing: Vec<CompactString> = defaults.keys().filter(|name| !own.contains_key(*name)).cloned().collect();
    for name in &missing {
        own.insert(name.clone(), defaults[name].clone());
    }
    missing
}

fn pod_faults(pod: &Value, range: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in list(&range["spec"]["limits"]) {
        match limit["type"].as_str() {
            Some(sort @ "Container") => {
                for container in ["containers", "initContainers"].iter().flat_map(|field| list(&pod["spec"][*field])) {
                    let resources = &container["resources"];
                    let (requests, limits) = (Usage::of(&resources["requests"]), Usage::of(&resources["limits"]));
                    check(limit, sort, &requests, &limits, &mut faults);
                }
            }
            Some(sort @ "Pod") => check(limit, sort, &sum(pod, "requests"), &sum(pod, "limits"), &mut faults),
            _ => {}
        }
    }
    faults
}

fn claim_faults(claim: &Value, range: &Value) -> Vec<String> {
    let sort = PERSISTENT_VOLUME_CLAIM.kind;
    let requests = Usage::of(&claim["spec"]["resources"]["requests"]);
    let mut faults = Vec::new();
    for limit in limits(range, sort) {
        for (name, bound) in Usage::of(&limit["min"]).0 {
            faults.extend(too_little(sort, &name, bound, requests.get(&name), None));
        }
        for (name, bound) in Usage::of(&limit["max"]).0 {
            faults.extend(match requests.get(&name) {
                None => Some(unsaid("maximum", &name, sort, bound, "request")),
                Some(request) => (request > bound).then(|| beyond("maximum", &name, sort, bound, "request", request)),
            });
        }
    }
    faults
}

fn check(limit: &Value, sort: &str, requests: &Usage, limits: &Usage, faults: &mut Vec<String>) {
    for (name, bound) in Usage::of(&limit["min"]).0 {
        faults.extend(too_little(sort, &name, bound, requests.get(&name), limits.get(&name)));
    }
    for (name, bound) in Usage::of(&limit["max"]).0 {
        faults.extend(too_much(sort, &name, bound, requests.get(&name), limits.get(&name)));
    }
    for (name, bound) in Usage::of(&limit["maxLimitRequestRatio"]).0 {
        faults.extend(too_far_apart(sort, &name, bound, requests.get(&name), limits.get(&name)));
    }
}

fn too_little(sort: &str, name: &str, bound: Amount, request: Option<Amount>, limit: Option<Amount>) -> Option<String> {
    match (request, limit) {
        (None, _) => Some(unsaid("minimum", name, sort, bound, "request")),
        (Some(request), _) if request < bound => Some(beyond("minimum", name, sort, bound, "request", request)),
        (_, Some(limit)) if limit < bound => Some(beyond("minimum", name, sort, bound, "limit", limit)),
        _ => None,
    }
}

fn too_much(sort: &str, name: &str, bound: Amount, request: Option<Amount>, limit: Option<Amount>) -> Option<String> {
    match (limit, request) {
        (None, _) => Some(unsaid("maximum", name, sort, bound, "limit")),
        (Some(limit), _) if limit > bound => Some(beyond("maximum", name, sort, bound, "limit", limit)),
        (_, Some(request)) if request > bound => Some(beyond("maximum", name, sort, bound, "request", request)),
        _ => None,
    }
}

fn too_far_apart(
    sort: &str,
    name: &str,
    bound: Amount,
    request: Option<Amount>,
    limit: Option<Amount>,
) -> Option<String> {
    let head = format!("{name} max limit to request ratio per {sort} is {bound}, but");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!("{head} no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{head} no limit is specified or limit is 0"));
    };
    let ratio = limit.ratio(request);
    (ratio > bound.ratio(Amount::whole(1))).then(|| format!("{head} provided ratio is {ratio:.6}"))
}

fn unsaid(bound: &str, name: &str, sort: &str, amount: Amount, what: &str) -> String {
    format!("{bound} {name} usage per {sort} is {amount}.  No {what} is specified")
}

fn beyond(bound: &str, name: &str, sort: &str, amount: Amount, what: &str, found: Amount) -> String {
    format!("{bound} {name} usage per {sort} is {amount}, but {what} is {found}")
}

/// The pod's total `requests` or `limits`, as selected by `part`. Init containers run one after another, each together
/// with the sidecars that started before it.
fn sum(pod: &Value, part: &str) -> Usage {
    let spec = &pod["spec"];
    let own = |container: &Value| Usage::of(&container["resources"][part]);
    let (mut all, mut staying, mut preparing) = (Usage::default(), Usage::default(), Usage::default());
    list(&spec["containers"]).for_each(|container| all.add(&own(container)));
    for container in list(&spec["initContainers"]) {
        let mut beside = staying.clone();
        beside.add(&own(container));
        preparing.raise(&beside);
        if container["restartPolicy"] == "Always" {
            all.add(&own(container));
            staying = beside;
        }
    }
    all.raise(&preparing);
    for (name, amount) in Usage::of(&spec["resources"][part]).0 {
        all.set(&name, amount);
    }
    all
}

/// Joins faults into one text, without duplicates. Several faults are put into brackets.
fn aggregate(faults: Vec<String>) -> String {
    let mut told: Vec<String> = Vec::new();
    for fault in faults {
        if !told.contains(&fault) {
            told.push(fault);
        }
    }
    match told.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

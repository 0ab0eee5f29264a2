//! Validation of resources: their names, their amounts, and the requests of containers.

use crate::kinds::rules::{At, compare, is_less, named_if_any};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use crate::schema::quantity;
use holdfast_value::{Value, json};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Kubernetes' native resources and their uses. `c` means that containers may request the resource, `q` that quotas may
/// limit it, and `i` that its amounts are integers.
const KNOWN: &[(&str, &str)] = &[
    ("configmaps", "qi"),
    ("cpu", "cq"),
    ("ephemeral-storage", "cq"),
    ("limits.cpu", "q"),
    ("limits.ephemeral-storage", "q"),
    ("limits.memory", "q"),
    ("memory", "cq"),
    ("persistentvolumeclaims", "qi"),
    ("pods", "qi"),
    ("replicationcontrollers", "qi"),
    ("requests.cpu", "q"),
    ("requests.ephemeral-storage", "q"),
    ("requests.memory", "q"),
    ("requests.storage", "q"),
    ("resourcequotas", "qi"),
    ("secrets", "qi"),
    ("services", "qi"),
    ("services.loadbalancers", "qi"),
    ("services.nodeports", "qi"),
    ("storage", ""),
];
const HUGE_PAGES: &str = "hugepages-";
/// The maximum number of claim names that a fault lists.
const NAMES_SHOWN_MAX: usize = 100;
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Validates a resource's name. Faults are reported at the path of the resource's amount.
pub(super) type NameRule = fn(&str, At, &mut Causes);

/// Validates `requests`, `limits` and `claims` of a container or of a whole pod.
pub(super) fn requirements(at: At, name: NameRule, claims: &BTreeSet<String>, causes: &mut Causes) {
    let (requests, limits) = (at.get("requests"), at.get("limits"));
    for (resource, limit) in limits.entries() {
        named_amount(resource, limit, name, causes);
    }
    for (resource, request) in requests.entries() {
        named_amount(resource, request, name, causes);
        let limit = &limits.value[resource];
        if limit.is_null() {
            if !may_overcommit(resource) {
                causes.push(limits.required("Limit must be set for non overcommitable resources"));
            }
            continue;
        }
        let shown = canonical(limit);
        let detail = match compare(request.value, limit) {
            Some(Ordering::Less | Ordering::Greater) if !may_overcommit(resource) => {
                format!("must be equal to {resource} limit of {shown}")
            }
            Some(Ordering::Greater) => format!("must be less than or equal to {resource} limit of {shown}"),
            _ => continue,
        };
        causes.push(requests.invalid_as(canonical(request.value), &detail));
    }
    let asks = |wanted: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| wanted(name));
    if asks(is_huge) && !asks(|name| matches!(name, "cpu" | "memory")) {
        causes.push(at.forbidden("HugePages require cpu or memory"));
    }
    claim_names(at.get("claims"), claims, causes);
}

fn named_amount(resource: &str, at: At, name: NameRule, causes: &mut Causes) {
    name(resource, at, causes);
    amount(resource, at, causes);
    let Some(size) = resource.strip_prefix(HUGE_PAGES) else { return };
    let divides = match (quantity::nanos(size), quantity::whole(&text(at.value))) {
        (Some(size), Some(amount)) => size > 0 && size % 1_000_000_000 == 0 && amount % (size / 1_000_000_000) == 0,
        _ => false,
    };
    if !divides {
        let shown = canonical(at.value);
        let detail = format!("{shown} is not positive integer multiple of {resource}");
        causes.push(at.invalid_as(shown, &detail));
    }
}

/// Validates an amount for the resource.
pub(super) fn amount(resource: &str, at: At, causes: &mut Causes) {
    if is_less(at.value, &json!("0")) {
        causes.push(at.invalid_as(canonical(at.value), NOT_NEGATIVE));
    }
    let counted = known(resource).is_some_and(|uses| uses.contains('i')) || is_extended(resource);
    if counted && quantity::nanos(&text(at.value)).is_some_and(|nanos| nanos % 1_000_000_000 != 0) {
        causes.push(at.invalid_as(canonical(at.value), "must be an integer"));
    }
}

/// Validates that an amount is positive.
pub(super) fn positive(at: At, causes: &mut Causes) {
    if !is_less(&json!("0"), at.value) {
        causes.push(at.invalid_as(canonical(at.value), "must be greater than zero"));
    }
}

/// Validates that the name is a native resource, or a name with a domain.
pub(super) fn resource_name(name: &str, at: At, causes: &mut Causes) {
    let messages = names::qualified_name(name);
    if messages.is_empty() && !name.contains('/') && known(name).is_none() {
        causes.push(at.invalid_as(name, "must be a standard resource type or fully qualified"));
    }
    causes.extend(messages.iter().map(|message| at.invalid_as(name, message)));
}

pub(super) fn container_resource(name: &str, at: At, causes: &mut Causes) {
    resource_name(name, at, causes);
    if !name.contains('/') {
        if !is_huge(name) && !known(name).is_some_and(|uses| uses.contains('c')) {
            causes.push(at.invalid_as(name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        causes.push(at.invalid_as(name, "doesn't follow extended resource name standard"));
    }
}

/// Validates the amounts of resources that a container can have.
pub(in crate::kinds) fn container_amounts(map: At, causes: &mut Causes) {
    for (name, at) in map.entries() {
        container_resource(name, at, causes);
        amount(name, at, causes);
    }
}

pub(super) fn pod_resource(name: &str, at: At, causes: &mut Causes) {
    let before = causes.len();
    resource_name(name, at, causes);
    if causes.len() == before && !is_huge(name) && !matches!(name, "cpu" | "memory") {
        let shown = Value::from(name);
        causes.push(at.holding(&shown).not_supported(&["cpu", "hugepages-", "memory"]));
    }
}

pub(super) fn quota_resource(name: &str, at: At, causes: &mut Causes) {
    resource_name(name, at, causes);
    if !name.contains('/') && !is_quota_resource(name) {
        causes.push(at.invalid_as(name, "must be a standard resource for quota"));
    }
}

pub(super) fn is_quota_resource(name: &str) -> bool {
    known(name).is_some_and(|uses| uses.contains('q'))
}

/// Whether a container's limit of the resource may exceed the container's request.
pub(super) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

fn known(name: &str) -> Option<&'static str> {
    if is_huge(name) || name.starts_with("requests.hugepages-") {
        return Some("q");
    }
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, uses)| *uses)
}

fn is_huge(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the name is the name of an extended resource, which a quota can limit as `requests.<name>`.
pub(in crate::kinds::core) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Validates the claims of a container, which refer to claims of the pod. A container may refer once to a whole claim,
/// or once to each of the claim's requests.
fn claim_names(list: At, claims: &BTreeSet<String>, causes: &mut Causes) {
    // The known names as a fault shows them. Of a long list, only the number of names is shown. The text is made only
    // if there is a fault.
    let known = || match claims.len() {
        0 => " which is empty".to_owned(),
        1..=NAMES_SHOWN_MAX => format!(": {}", claims.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
        more => format!(": {more} names"),
    };
    // For each claim: whether it was named as a whole, and which of its requests were named.
    let mut seen: BTreeMap<&str, (bool, BTreeSet<&str>)> = BTreeMap::new();
    for claim in list.items() {
        let name = claim.value["name"].as_str().unwrap_or("");
        if name.is_empty() {
            causes.push(claim.required(""));
            continue;
        }
        let shown = Value::from(name);
        let (whole, requests) = seen.entry(name).or_default();
        let request = claim.value["request"].as_str().unwrap_or("");
        if *whole || (request.is_empty() && !requests.is_empty()) {
            causes.push(Cause::duplicate(claim.path(), &shown));
        } else if !request.is_empty() {
            named_if_any(claim.get("request"), names::label, causes);
            if !requests.insert(request) {
                causes.push(Cause::duplicate(claim.path(), &Value::from(format!("{name}/{request}"))));
            }
        }
        *whole |= request.is_empty();
        if !claims.contains(name) {
            causes.push_with(|| {
                let mut cause = Cause::not_found(claim.path(), &shown);
                cause.message += &format!(": must be one of the names in pod.spec.resourceClaims{}", known());
                cause
            });
        }
    }
}

/// Validates pod-level resources, which must cover the containers' resources.
pub(super) fn pod_requirements(spec: At, claims: &BTreeSet<String>, causes: &mut Causes) {
    let at = spec.get("resources");
    if !at.is_set() {
        return;
    }
    let listed = at.get("claims");
    if listed.is_set() {
        causes.push(listed.forbidden("claims cannot be set for Resources at pod-level"));
    }
    requirements(at, pod_resource, claims, causes);
    let requests = at.get("requests");
    for (resource, sum) in container_requests(spec.value) {
        let own = &requests.value[&resource];
        // An unset request defaults to the containers' requests.
        if own.is_null() {
            continue;
        }
        let own_nanos = quantity::nanos(&text(own));
        if own_nanos.is_some_and(|own| sum.nanos > own) {
            let shown = canonical(own);
            let detail = format!("must be greater than or equal to aggregate container requests of {}", sum.shown());
            causes.push(requests.key(&resource).invalid_as(shown, &detail));
        }
    }
    for (index, container) in spec.get("containers").items().enumerate() {
        let limits = &container.value["resources"]["limits"];
        for (resource, limit) in limits.as_object().into_iter().flatten() {
            let whole = &at.value["limits"][resource];
            if is_less(whole, limit) {
                let path = format!("{}.containers[{index}][{resource}].limits", at.path());
                let detail = format!("must be less than or equal to pod limits of {}", canonical(whole));
                causes.push(Cause::invalid(path, &canonical(limit).into(), &detail));
            }
        }
    }
}

#[derive(Default, Clone, Copy)]
struct Sum {
    nanos: i128,
    /// Whether an amount was written with a binary suffix (`Mi`).
    binary: bool,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), binary: self.binary || other.binary }
    }

    fn or_more(self, other: Self) -> Self {
        if other.nanos > self.nanos { other } else { self }
    }

    fn shown(self) -> String {
        const KIBI_NANOS: i128 = 1024 * 1_000_000_000;
        let text = if self.binary && self.nanos % KIBI_NANOS == 0 {
            format!("{}Ki", self.nanos / KIBI_NANOS)
        } else {
            format!("{}n", self.nanos)
        };
        quantity::canonical(&text).unwrap_or(text)
    }
}

/// The maximum that a pod's containers request at one time: all main containers and sidecars together, or an init
/// container with the sidecars that started before it.
fn container_requests(spec: &Value) -> BTreeMap<String, Sum> {
    let amounts = |container: &Value| -> Vec<(String, Sum)> {
        let requests = container["resources"]["requests"].as_object().into_iter().flatten();
        requests
            .map(|(name, value)| {
                let text = text(value);
                (name.to_string(), Sum { nanos: quantity::nanos(&text).unwrap_or(0), binary: text.ends_with('i') })
            })
            .collect()
    };
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (name, amount) in spec["containers"].as_array().into_iter().flatten().flat_map(amounts) {
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(amount);
    }
    let (mut sidecars, mut peaks): (BTreeMap<String, Sum>, BTreeMap<String, Sum>) = Default::default();
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        for (name, amount) in amounts(container) {
            let beside = sidecars.entry(name.clone()).or_default();
            let peak = beside.plus(amount);
            if container["restartPolicy"] == "Always" {
                *beside = peak;
                let sum = sums.entry(name.clone()).or_default();
                *sum = sum.plus(amount);
            }
            let highest = peaks.entry(name).or_default();
            *highest = highest.or_more(peak);
        }
    }
    for (name, peak) in peaks {
        let sum = sums.entry(name).or_default();
        *sum = sum.or_more(peak);
    }
    sums
}

/// The text of a quantity in Kubernetes' canonical form.
pub(super) fn canonical(amount: &Value) -> String {
    let text = text(amount);
    quantity::canonical(&text).unwrap_or(text)
}

/// The text of a quantity, which in the document is a string or a number.
pub(super) fn text(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn what_containers_may_ask_for() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a",
                    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "0.1"}}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}],
            },
        });
        let at = |field: &str| format!("/spec/containers/0/resources/{field}");
        let (requests, limits, claims) = (at("requests"), at("limits"), at("claims"));
        check_rows(
            &good,
            &[
                (
                    &requests,
                    json!({"cpu": "200m"}),
                    "spec.containers[0].resources.requests: Invalid value: \"200m\": must be less than or equal to cpu \
                     limit of 100m",
                ),
                (
                    &requests,
                    json!({"cpu": "-1"}),
                    "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal",
                ),
                (
                    &requests,
                    json!({"pods": "1"}),
                    "spec.containers[0].resources.requests[pods]: Invalid value: \"pods\": must be a standard resource \
                     for containers",
                ),
                (
                    &limits,
                    json!({"disk": "1"}),
                    "spec.containers[0].resources.limits[disk]: Invalid value: \"disk\": must be a standard resource t",
                ),
                (
                    &limits,
                    json!({"example.com/gpu": "500m"}),
                    "spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"500m\": must be an integer",
                ),
                (
                    &limits,
                    json!({"requests.example.com/gpu": "1"}),
                    "spec.containers[0].resources.limits[requests.example.com/gpu]: Invalid value: \
                     \"requests.example.com/gpu\": doesn't follow extended",
                ),
                (&at(""), json!({"requests": {"cpu": "1", "example.com/gpu": "1"}}), ""),
                (
                    "/spec/containers/0/resources",
                    json!({"requests": {"example.com/gpu": "1"}}),
                    "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable",
                ),
                (
                    "/spec/containers/0/resources",
                    json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
                    "spec.containers[0].resources.requests: Invalid value: \"1\": must be equal to example.com/gpu limi",
                ),
                (
                    "/spec/containers/0/resources",
                    json!({"limits": {"hugepages-2Mi": "4Mi"}}),
                    "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
                ),
                (
                    "/spec/containers/0/resources",
                    json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
                    "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive \
                     integer multiple of hugepages-2Mi",
                ),
                ("/spec/containers/0/resources", json!({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}), ""),
                (&claims, json!([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}]), ""),
                (
                    &claims,
                    json!([{"name": "gpu", "request": "a"}, {"name": "gpu"}]),
                    "spec.containers[0].resources.claims[1]: Duplicate value: \"gpu\"",
                ),
                (
                    &claims,
                    json!([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "a"}]),
                    "spec.containers[0].resources.claims[1]: Duplicate value: \"gpu/a\"",
                ),
                (
                    &claims,
                    json!([{"name": "tpu"}]),
                    "spec.containers[0].resources.claims[0]: Not found: \"tpu\": must be one of the names in \
                     pod.spec.resourceClaims: gpu",
                ),
            ],
        );
    }

    #[test]
    fn containers_fit_in_their_pod() {
        let container =
            |memory: &str| json!({"name": "a", "image": "a", "resources": {"requests": {"memory": memory}}});
        let mut sidecar = container("512Mi");
        sidecar["name"] = json!("s");
        sidecar["restartPolicy"] = json!("Always");
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [container("1Gi")], "initContainers": [sidecar],
                "resources": {"requests": {"memory": "1536Mi"}},
            },
        });
        check_rows(
            &good,
            &[
                (
                    "/spec/resources/requests/memory",
                    json!("1Gi"),
                    "spec.resources.requests[memory]: Invalid value: \"1Gi\": must be greater than or equal to \
                     aggregate container requests of 1536Mi",
                ),
                (
                    "/spec/resources/requests/ephemeral-storage",
                    json!("1Gi"),
                    "spec.resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\"",
                ),
                ("/spec/resources/claims", json!([{"name": "a"}]), "spec.resources.claims: Forbidden: claims cannot"),
                ("/spec/containers/0/resources/limits", json!({"memory": "4Gi"}), ""),
                ("/spec/resources/limits", json!({"memory": "2Gi"}), ""),
            ],
        );
    }
}

//! Validation of writes to a pod's subresources: ephemeral containers, resize, status.

use super::annotations::{self, MIRROR};
use super::pod::pod_itself;
use crate::kinds::core::pod::qos_class;
use crate::kinds::rules::{At, Seen, between, ip, is_dual_stack, named_if_any, need_name, same};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const RESIZABLE: &str = "only cpu and memory resources are mutable";

/// Validates a write of ephemeral containers, which can be added but not changed or removed.
pub fn ephemeral_containers(new: &Value, old: Option<&Value>) -> Causes {
    let Some(old) = old else { return Causes::default() };
    if old["metadata"]["annotations"][MIRROR].is_string() {
        return Cause::forbidden("[]", "static pods do not support ephemeral containers").into();
    }
    let mut causes = pod_itself(new);
    let root = At::root(new);
    let spec = root.get("spec");
    let list = spec.get("ephemeralContainers");
    let kept: BTreeMap<&str, &Value> = new["spec"]["ephemeralContainers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| (container["name"].as_str().unwrap_or_default(), container))
        .collect();
    for container in old["spec"]["ephemeralContainers"].as_array().into_iter().flatten() {
        let shown = &container["name"];
        match kept.get(shown.as_str().unwrap_or_default()) {
            None => {
                causes.push(list.forbidden(&format!("existing ephemeral containers {shown} may not be removed\n")));
            }
            Some(now) if !same(now, container) => {
                causes.push(list.forbidden(&format!("existing ephemeral containers {shown} may not be changed\n")));
            }
            Some(_) => {}
        }
    }
    causes
}

/// Validates a resize, which changes the CPU and memory of running containers.
pub fn resize(new: &Value, old: Option<&Value>) -> Causes {
    let Some(old) = old else { return Causes::default() };
    let whole = |pod: &Value| {
        let resources = &pod["spec"]["resources"];
        ["requests", "limits"].iter().any(|field| resources[*field].as_object().is_some_and(|map| !map.is_empty()))
    };
    let refused = if whole(old) || whole(new) {
        "pods with pod-level resources cannot be resized"
    } else if old["metadata"]["annotations"][MIRROR].is_string() {
        "static pods cannot be resized"
    } else if old["spec"]["os"]["name"] == "windows" {
        "windows pods cannot be resized"
    } else {
        ""
    };
    if !refused.is_empty() {
        return Cause::forbidden("[]", refused).into();
    }
    let mut causes = pod_itself(new);
    let root = At::root(new);
    let spec = root.get("spec");
    let class = old["status"]["qosClass"].as_str().unwrap_or_else(|| qos_class(&old["spec"]));
    if class != qos_class(&new["spec"]) {
        causes.push(spec.invalid_as(class, "Pod QOS Class may not change as a result of resizing"));
    }
    if !can_resize(old) {
        causes.push(spec.forbidden("Pod running on node without support for resize"));
    }
    for list in ["initContainers", "containers"] {
        let containers = spec.get(list);
        let before = old["spec"][list].as_array().map_or(&[][..], Vec::as_slice);
        if containers.len() != before.len() {
            causes.push(spec.forbidden(RESIZABLE));
            continue;
        }
        for (container, old) in containers.items().zip(before) {
            let stays = list == "initContainers" && old["restartPolicy"] != "Always";
            let detail = match list {
                "containers" => RESIZABLE,
                _ if stays => "resources for non-sidecar init containers are immutable",
                _ => "only cpu and memory resources for sidecar containers are mutable",
            };
            if !stays {
                nothing_removed(container.get("resources"), &old["resources"], &mut causes);
            }
            let compared = if stays { container.value.clone() } else { with_old_amounts(container.value, old) };
            if !same(&compared, old) {
                causes.push(spec.forbidden(detail));
            }
        }
    }
    causes
}

/// Whether the node supports resizing. If it does, the statuses of running containers contain resources.
fn can_resize(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let mut running = statuses.filter(|status| !status["state"]["running"].is_null());
    running.next().is_none_or(|status| !status["resources"].is_null())
}

fn nothing_removed(resources: At, old: &Value, causes: &mut Causes) {
    for (field, what) in [("requests", "requests"), ("limits", "limits")] {
        let at = resources.get(field);
        let mut before = old[field].as_object().into_iter().flatten();
        if before.any(|(name, _)| at.value[name].is_null()) {
            causes.push(at.forbidden(&format!("resource {what} cannot be removed")));
        }
    }
}

/// The new container with its old CPU and memory, for a comparison of all other fields.
fn with_old_amounts(new: &Value, old: &Value) -> Value {
    let mut container = new.clone();
    for field in ["requests", "limits"] {
        let Some(before) = old["resources"][field].as_object() else {
            container["resources"][field] = Value::Null;
            continue;
        };
        let mut amounts: Map = new["resources"][field].as_object().cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            amounts.remove(name);
            amounts.extend(before.get(name).map(|amount| (name.to_owned(), amount.clone())));
        }
        container["resources"][field] = amounts.into();
    }
    container
}

/// Validates a status write, which usually comes from a kubelet.
pub fn status(new: &Value, old: Option<&Value>) -> Causes {
    let Some(old) = old else { return Causes::default() };
    let mut causes = Causes::default();
    let root = At::root(new);
    let (metadata, spec, status) = (root.get("metadata"), root.get("spec"), root.get("status"));
    annotations::update(metadata.get("annotations"), &old["metadata"]["annotations"], &mut causes);
    annotations::check(metadata.get("annotations"), spec, &mut causes);
    let conditions = status.get("conditions");
    let generation = status.get("observedGeneration");
    if generation.number_or_zero() < 0 {
        causes.push(generation.invalid("must be a non-negative integer"));
    }
    for condition in conditions.items() {
        let ty = condition.value["type"].as_str().unwrap_or_default();
        let messages = names::qualified_name(ty);
        causes.extend(messages.iter().map(|message| condition.get("Type").invalid_as(ty, message)));
        let generation = condition.get("observedGeneration");
        if generation.number_or_zero() < 0 {
            causes.push(generation.invalid("must be a non-negative integer"));
        }
    }
    let old_status = &old["status"];
    let nominated = status.get("nominatedNodeName");
    if *nominated.value != old_status["nominatedNodeName"] {
        named_if_any(nominated, names::subdomain, &mut causes);
    }
    let class = status.get("qosClass");
    if !class.is_empty() && *class.value != old_status["qosClass"] && !old_status["qosClass"].is_null() {
        causes.push(class.invalid("field is immutable"));
    }
    for (list, containers) in CONTAINERS {
        ended_for_good(status.get(list), &old_status[list], &old["spec"], containers, &mut causes);
    }
    claim_statuses(status.get("resourceClaimStatuses"), &new["spec"]["resourceClaims"], &mut causes);
    extended_claim_status(status.get("extendedResourceClaimStatus"), &new["spec"], &mut causes);
    addresses(status.get("podIPs"), &mut causes);
    let hosts = status.get("hostIPs");
    let host = status.get("hostIP").text();
    if let Some(first) = hosts.items().next()
        && first.get("ip").text() != host
    {
        causes.push(first.get("ip").invalid_as(first.get("ip").text(), "must be equal to `hostIP`"));
    }
    addresses(hosts, &mut causes);
    container_statuses(status, &new["spec"], &mut causes);
    causes
}

/// The lists of container statuses, each with the list of containers in the spec that it describes.
const CONTAINERS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Validates that a container that has ended and will not be restarted keeps its state.
fn ended_for_good(list: At, old: &Value, spec: &Value, containers: &str, causes: &mut Causes) {
    let is_debugging = containers == "ephemeralContainers";
    if !is_debugging && restarts_all(spec) {
        return;
    }
    let going: BTreeSet<&str> = list
        .items()
        .filter(|status| status.value["state"]["terminated"].is_null())
        .map(|status| status.value["name"].as_str().unwrap_or_default())
        .collect();
    let known = by_name(&spec[containers]);
    for (at, status) in old.as_array().into_iter().flatten().enumerate() {
        let ended = &status["state"]["terminated"];
        if ended.is_null() || !going.contains(status["name"].as_str().unwrap_or_default()) {
            continue;
        }
        let container = known.get(status["name"].as_str().unwrap_or_default());
        let code = ended["exitCode"].as_i64().unwrap_or(0);
        if is_debugging || !container.is_some_and(|container| restarts(container, spec, code)) {
            let path = format!("{}[{at}].state", list.path());
            causes.push(Cause::forbidden(path, "may not be transitioned to non-terminated state"));
        }
    }
}

/// The containers by name. The result is a map, because a request may contain very many containers.
fn by_name(containers: &Value) -> BTreeMap<&str, &Value> {
    let list = containers.as_array().into_iter().flatten();
    list.filter_map(|container| Some((container["name"].as_str()?, container))).collect()
}

/// Whether a container's rules may restart all containers of the pod.
fn restarts_all(spec: &Value) -> bool {
    let containers = ["containers", "initContainers"].iter().filter_map(|list| spec[*list].as_array()).flatten();
    let mut rules = containers.filter_map(|container| container["restartPolicyRules"].as_array()).flatten();
    rules.any(|rule| rule["action"] == "RestartAllContainers")
}

/// Whether a container is restarted after this exit code. The container's rules have precedence over the container's
/// policy, which has precedence over the pod's policy.
fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    let own = &container["restartPolicy"];
    let matching = container["restartPolicyRules"].as_array().into_iter().flatten().find(|rule| {
        let codes = &rule["exitCodes"];
        let listed = codes["values"].as_array().into_iter().flatten().any(|listed| listed.as_i64() == Some(code));
        match codes["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    });
    if !own.is_null() && matching.is_some_and(|rule| rule["action"] == "Restart") {
        return true;
    }
    match own.as_str().or(spec["restartPolicy"].as_str()) {
        Some("OnFailure") => code != 0,
        Some("Never") => false,
        _ => true,
    }
}

/// Validates the user of each container, and the health of its devices.
fn container_statuses(status: At, spec: &Value, causes: &mut Causes) {
    for (list, _) in CONTAINERS {
        for container in status.get(list).items() {
            let user = container.get("user");
            run_as(user.get("linux"), spec["os"]["name"].as_str().unwrap_or("linux"), causes);
        }
    }
    for (list, containers) in CONTAINERS {
        let known = by_name(&spec[containers]);
        for container in status.get(list).items() {
            let allocated = container.get("allocatedResourcesStatus");
            if containers != "ephemeralContainers" {
                let asked = known.get(container.get("name").text());
                health(allocated, asked.map(|container| &container["resources"]), causes);
            } else if !allocated.is_empty() {
                causes.push(allocated.forbidden("must not be specified in container status"));
            }
        }
    }
}

fn run_as(user: At, os: &str, causes: &mut Causes) {
    if !user.is_set() {
        return;
    }
    if os == "windows" {
        causes.push(user.forbidden("cannot be set for a windows pod"));
    }
    if os != "linux" {
        return;
    }
    let groups = user.get("supplementalGroups");
    for at in [user.get("uid"), user.get("gid")].into_iter().chain(groups.items()) {
        between(at, 0, i64::from(i32::MAX), causes);
    }
}

/// Validates the health of the devices that a container requested or claimed.
fn health(allocated: At, asked: Option<&Value>, causes: &mut Causes) {
    if allocated.is_empty() {
        return;
    }
    let claims: BTreeSet<String> = asked.map(claimed).unwrap_or_default();
    for entry in allocated.items() {
        let name = entry.get("name");
        if let Some(asked) = asked {
            let (found, detail) = match name.text().strip_prefix("claim:") {
                Some(claim) => (
                    claims.contains(claim),
                    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                     'claim:<claimName>' if request is empty",
                ),
                None => {
                    (!asked["requests"][name.text()].is_null(), "must match one of the container's resource requests")
                }
            };
            if !found {
                causes.push(name.invalid(detail));
            }
        }
        let mut seen = Seen::default();
        for device in entry.get("resources").items() {
            let (health, id) = (device.get("health"), device.get("resourceID"));
            if !matches!(health.text(), "Healthy" | "Unhealthy" | "Unknown") {
                causes.push(health.not_supported(&["Healthy", "Unhealthy", "Unknown"]));
            }
            if seen.again(id.value) {
                causes.push(id.duplicate());
            }
        }
    }
}

/// The claims of a container's resources, as `CLAIM` or `CLAIM/REQUEST`.
fn claimed(resources: &Value) -> BTreeSet<String> {
    let full = |claim: &Value| {
        let of = |field: &str| claim[field].as_str().filter(|text| !text.is_empty());
        [of("name").unwrap_or_default()].into_iter().chain(of("request")).collect::<Vec<_>>().join("/")
    };
    resources["claims"].as_array().into_iter().flatten().map(full).collect()
}

fn claim_statuses(list: At, claims: &Value, causes: &mut Causes) {
    let known: BTreeSet<&str> =
        claims.as_array().into_iter().flatten().filter_map(|claim| claim["name"].as_str()).collect();
    let mut seen = Seen::default();
    for status in list.items() {
        let (name, claim) = (status.get("name"), status.get("resourceClaimName"));
        if !known.contains(name.text()) {
            causes.push(name.invalid("must match the name of an entry in `spec.resourceClaims`"));
        }
        if seen.again(name.value) {
            causes.push(name.duplicate());
        }
        let messages = if claim.is_set() { names::subdomain(claim.text()) } else { Vec::new() };
        causes.extend(messages.iter().map(|message| name.invalid_as(claim.text(), message)));
    }
}

/// Validates the status of the claim that was created for the pod's extended resources.
fn extended_claim_status(status: At, spec: &Value, causes: &mut Causes) {
    if !status.is_set() {
        return;
    }
    let mut containers: BTreeMap<&str, &Value> = BTreeMap::new();
    for one in ["initContainers", "containers"].iter().filter_map(|list| spec[*list].as_array()).flatten() {
        containers.entry(one["name"].as_str().unwrap_or_default()).or_insert(one);
    }
    let mappings = status.get("requestMappings");
    if mappings.items().next().is_none() {
        causes.push(mappings.required("at least one request mapping is required"));
    }
    let mut seen = Seen::default();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|field| mapping.get(field));
        match containers.get(container.text()) {
            None => causes.push(
                container
                    .invalid("must match the name of an entry in spec.initContainers.name or spec.containers.name"),
            ),
            Some(one) if one["resources"]["requests"][resource.text()].is_null() => causes.push(resource.invalid(
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or \
                 spec.containers.resources.requests",
            )),
            Some(_) => {}
        }
        // Kubernetes omits the index of the mapping.
        let place = status.get("requestName");
        let shown = request.text();
        causes.extend(names::label(shown).iter().map(|message| place.invalid_as(shown, message)));
        let whole = Value::from(format!("{} {} {}", container.text(), resource.text(), request.text()));
        if seen.again(&whole) {
            causes.extend([container, resource, request].map(|field| field.duplicate()));
        }
    }
    need_name(status.get("resourceClaimName"), names::subdomain, causes);
}

/// Validates the addresses of a pod or host: at most one for each family.
fn addresses(list: At, causes: &mut Causes) {
    for entry in list.items() {
        // Kubernetes reports a fault at the path of the entry and not of its field `ip`.
        let text = Value::from(entry.value["ip"].as_str().unwrap_or_default());
        ip(entry.holding(&text), causes);
    }
    let texts = || list.items().map(|entry| entry.value["ip"].as_str().unwrap_or_default());
    let texts: Vec<&str> = texts().collect();
    if texts.len() > 1 && (texts.len() > 2 || !is_dual_stack(texts.into_iter())) {
        causes.push(list.invalid("may specify no more than one IP for each IP family"));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::kinds::rules::testing::check_part;
    use holdfast_value::{Value, json};

    /// A valid pod, as the old object of an update.
    pub fn good() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a:1", "env": [{"name": "A", "value": "b"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}],
                "tolerations": [{"key": "a", "operator": "Exists"}],
            },
        })
    }

    #[test]
    fn debugging_containers_are_only_added() {
        let mut old = good();
        old["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "e:1"}]);
        check_part(
            &old,
            "ephemeralcontainers",
            &[
                ("/spec/ephemeralContainers/1", json!({"name": "f", "image": "f:1"}), ""),
                (
                    "/spec/ephemeralContainers",
                    json!([]),
                    "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed",
                ),
                (
                    "/spec/ephemeralContainers/0/image",
                    json!("e:2"),
                    "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed",
                ),
                (
                    "/spec/ephemeralContainers/1",
                    json!({"name": "a", "image": "f:1"}),
                    "spec.ephemeralContainers[1].name: Duplicate value: \"a\"",
                ),
            ],
        );
    }

    #[test]
    fn a_resize_changes_cpu_and_memory() {
        let mut old = good();
        let fixed = json!({"cpu": "1", "memory": "1Gi"});
        old["spec"]["initContainers"] =
            json!([{"name": "i", "image": "i:1", "resources": {"requests": fixed, "limits": fixed}}]);
        old["status"] = json!({"qosClass": "Burstable"});
        let at = |field: &str| format!("/spec/containers/0/{field}");
        check_part(
            &old,
            "resize",
            &[
                (&at("resources/requests/cpu"), json!("200m"), ""),
                (&at("resources/limits/memory"), json!("1536Mi"), ""),
                (&at("image"), json!("a:2"), "spec: Forbidden: only cpu and memory resources are mutable"),
                (
                    &at("resources/requests"),
                    json!({"memory": "1Gi"}),
                    "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
                ),
                (
                    &at("resources"),
                    json!({"requests": fixed, "limits": fixed}),
                    "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
                ),
                (
                    &at("resources/requests/ephemeral-storage"),
                    json!("1Gi"),
                    "spec: Forbidden: only cpu and memory resources are mutable",
                ),
                (
                    "/spec/initContainers/0/resources",
                    json!({"requests": fixed, "limits": {"cpu": "2", "memory": "1Gi"}}),
                    "spec: Forbidden: resources for non-sidecar init containers are immutable",
                ),
                ("/spec/containers", json!([]), "spec: Forbidden: only cpu and memory resources are mutable"),
            ],
        );
    }

    #[test]
    fn each_rule_of_a_pods_status() {
        let mut old = good();
        old["spec"]["restartPolicy"] = json!("Never");
        old["status"] = json!({"qosClass": "Burstable", "podIPs": [{"ip": "10.0.0.1"}], "podIP": "10.0.0.1",
            "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 1}}}]});
        check_part(
            &old,
            "status",
            &[
                (
                    "/status/qosClass",
                    json!("Guaranteed"),
                    "status.qosClass: Invalid value: \"Guaranteed\": field is imm",
                ),
                ("/status/podIPs", json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]), ""),
                (
                    "/status/podIPs",
                    json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]),
                    "status.podIPs: Invalid value: [{\"ip\":\"10.0.0.1\"},{\"ip\":\"10.0.0.2\"}]: may specify no more",
                ),
                ("/status/podIPs", json!([{"ip": "x"}]), "status.podIPs[0]: Invalid value: \"x\": must be a valid IP"),
                (
                    "/status/hostIPs",
                    json!([{"ip": "10.0.0.9"}]),
                    "status.hostIPs[0].ip: Invalid value: \"10.0.0.9\": must be equal to `hostIP`",
                ),
                ("/status/conditions", json!([{"type": "Ready", "status": "True"}]), ""),
                (
                    "/status/conditions",
                    json!([{"type": "a b", "status": "True"}]),
                    "status.conditions[0].Type: Invalid value: \"a b\": name part must consist of",
                ),
                (
                    "/status/conditions",
                    json!([{"type": "a", "status": "True", "observedGeneration": -1}]),
                    "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
                ),
                (
                    "/status/containerStatuses/0/user",
                    json!({"linux": {"uid": 1, "gid": 2, "supplementalGroups": [3]}}),
                    "",
                ),
                (
                    "/status/containerStatuses/0/user",
                    json!({"linux": {"uid": -1, "gid": 2}}),
                    "status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647",
                ),
                (
                    "/status/ephemeralContainerStatuses",
                    json!([{"name": "e", "user": {"linux": {"uid": 1, "gid": 2, "supplementalGroups": [-3]}}}]),
                    "status.ephemeralContainerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: -3: must be",
                ),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus",
                    json!([{"name": "memory", "resources": [{"resourceID": "a", "health": "Healthy"}]}]),
                    "",
                ),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus",
                    json!([{"name": "gpu"}]),
                    "status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"gpu\": must match one",
                ),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus",
                    json!([{"name": "claim:a"}]),
                    "status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"claim:a\": must matc",
                ),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus",
                    json!([{"name": "cpu", "resources": [{"resourceID": "a", "health": "Ill"}]}]),
                    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: \"Il",
                ),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus",
                    json!([{"name": "cpu", "resources": [
                        {"resourceID": "a", "health": "Healthy"}, {"resourceID": "a", "health": "Unknown"}]}]),
                    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: \"a",
                ),
                (
                    "/status/ephemeralContainerStatuses",
                    json!([{"name": "e", "allocatedResourcesStatus": [{"name": "cpu"}]}]),
                    "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in",
                ),
                (
                    "/status/containerStatuses/0/state",
                    json!({"running": {}}),
                    "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
                ),
                (
                    "/status/extendedResourceClaimStatus",
                    json!({"resourceClaimName": "", "requestMappings": [
                        {"containerName": "x", "resourceName": "example.com/gpu", "requestName": "r"}]}),
                    "status.extendedResourceClaimStatus.resourceClaimName: Required value",
                ),
                (
                    "/status/extendedResourceClaimStatus",
                    json!({"resourceClaimName": "c", "requestMappings": [
                        {"containerName": "x", "resourceName": "cpu", "requestName": "r"}]}),
                    "status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: \"x\": must match",
                ),
                (
                    "/status/extendedResourceClaimStatus",
                    json!({"resourceClaimName": "c", "requestMappings": [
                        {"containerName": "a", "resourceName": "example.com/gpu", "requestName": "r"}]}),
                    "status.extendedResourceClaimStatus.requestMappings[0].resourceName: Invalid value",
                ),
                (
                    "/status/extendedResourceClaimStatus",
                    json!({"resourceClaimName": "c", "requestMappings": [
                        {"containerName": "a", "resourceName": "cpu", "requestName": "r"}]}),
                    "",
                ),
                (
                    "/status/extendedResourceClaimStatus",
                    json!({"resourceClaimName": "c", "requestMappings": [
                        {"containerName": "a", "resourceName": "cpu", "requestName": "R"}]}),
                    "status.extendedResourceClaimStatus.requestName: Invalid value: \"R\": a lowercase RFC 1123 label",
                ),
                (
                    "/status/resourceClaimStatuses",
                    json!([{"name": "x"}]),
                    "status.resourceClaimStatuses[0].name: Invalid value: \"x\": must match the name of an entry in",
                ),
            ],
        );
    }

    #[test]
    fn containers_that_have_ended_come_back_by_their_own_rules() {
        let pod = |policy: &str, container: Value| {
            let mut pod = good();
            pod["spec"]["restartPolicy"] = json!(policy);
            for (field, value) in container.as_object().into_iter().flatten() {
                pod["spec"]["containers"][0][field] = value.clone();
            }
            pod["status"] = json!({"containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 3}}},
            ]});
            pod
        };
        let refused = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        let rule = |operator: &str, code: i64| {
            json!({"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": operator, "values": [code]}}]})
        };
        for (policy, container, expected) in [
            ("Always", json!({}), ""),
            ("OnFailure", json!({}), ""),
            ("Never", json!({}), refused),
            ("Always", json!({"restartPolicy": "Never"}), refused),
            ("Never", json!({"restartPolicy": "OnFailure"}), ""),
            ("Always", rule("In", 3), ""),
            ("Always", rule("In", 4), refused),
            ("Always", rule("NotIn", 4), ""),
            ("Always", json!({"name": "b"}), refused),
        ] {
            let row = ("/status/containerStatuses/0/state", json!({"running": {}}), expected);
            check_part(&pod(policy, container), "status", &[row]);
        }
    }
}

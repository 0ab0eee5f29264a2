//! What may change in a pod that exists through its subresources: debugging containers, resources, and its status.

use super::annotations::{self, MIRROR};
use super::pod::pod_itself;
use crate::kinds::core::pod::qos_class;
use crate::kinds::rules::{At, Seen, ip, is_dual_stack, named_if_any, need_name, same};
use crate::object::names;
use crate::refusal::Cause;
use holdfast_value::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const RESIZABLE: &str = "only cpu and memory resources are mutable";

/// Debugging containers are added and then stay as they are.
pub fn ephemeral_containers(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(old) = old else { return Vec::new() };
    if old["metadata"]["annotations"][MIRROR].is_string() {
        return vec![Cause::forbidden("[]", "static pods do not support ephemeral containers")];
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

/// CPU and memory of containers that run.
pub fn resize(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(old) = old else { return Vec::new() };
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
        return vec![Cause::forbidden("[]", refused)];
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

/// A node shows that it can resize by telling what its containers have.
fn can_resize(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let mut running = statuses.filter(|status| !status["state"]["running"].is_null());
    running.next().is_none_or(|status| !status["resources"].is_null())
}

fn nothing_removed(resources: At, old: &Value, causes: &mut Vec<Cause>) {
    for (field, what) in [("requests", "requests"), ("limits", "limits")] {
        let at = resources.get(field);
        let mut before = old[field].as_object().into_iter().flatten();
        if before.any(|(name, _)| at.value[name].is_null()) {
            causes.push(at.forbidden(&format!("resource {what} cannot be removed")));
        }
    }
}

/// The container with the CPU and memory that it had.
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

/// What a kubelet tells of a pod.
pub fn status(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(old) = old else { return Vec::new() };
    let mut causes = Vec::new();
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
    let policy = old["spec"]["restartPolicy"].as_str().unwrap_or_default();
    for (list, policy) in
        [("containerStatuses", policy), ("initContainerStatuses", policy), ("ephemeralContainerStatuses", "Never")]
    {
        ended_for_good(status.get(list), &old_status[list], &old["spec"], policy, &mut causes);
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
    causes
}

/// A container that has ended and is not to be started again stays as it is.
fn ended_for_good(list: At, old: &Value, spec: &Value, policy: &str, causes: &mut Vec<Cause>) {
    if policy == "Always" {
        return;
    }
    // Containers with restart rules of their own may come back whatever the pod's policy is.
    let restarts: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec[*list].as_array())
        .flatten()
        .filter(|container| !container["restartPolicy"].is_null())
        .filter_map(|container| container["name"].as_str())
        .collect();
    let going: BTreeSet<&str> = list
        .items()
        .filter(|status| status.value["state"]["terminated"].is_null())
        .map(|status| status.value["name"].as_str().unwrap_or_default())
        .collect();
    for (at, status) in old.as_array().into_iter().flatten().enumerate() {
        let ended = &status["state"]["terminated"];
        let failed = ended["exitCode"].as_i64().unwrap_or(0) != 0;
        let name = status["name"].as_str().unwrap_or_default();
        if ended.is_null() || (failed && policy == "OnFailure") || restarts.contains(name) {
            continue;
        }
        if going.contains(name) {
            let path = format!("{}[{at}].state", list.path());
            causes.push(Cause::forbidden(path, "may not be transitioned to non-terminated state"));
        }
    }
}

fn claim_statuses(list: At, claims: &Value, causes: &mut Vec<Cause>) {
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

/// What containers have of the claim that was made for their extended resources.
fn extended_claim_status(status: At, spec: &Value, causes: &mut Vec<Cause>) {
    if !status.is_set() {
        return;
    }
    let containers = || ["initContainers", "containers"].iter().filter_map(|list| spec[*list].as_array()).flatten();
    let mappings = status.get("requestMappings");
    if mappings.items().next().is_none() {
        causes.push(mappings.required("at least one request mapping is required"));
    }
    let mut seen = Seen::default();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|field| mapping.get(field));
        match containers().find(|one| one["name"] == *container.value) {
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
        causes.extend(names::label(request.text()).iter().map(|message| request.invalid(message)));
        let whole = Value::from(format!("{} {} {}", container.text(), resource.text(), request.text()));
        if seen.again(&whole) {
            causes.extend([container, resource, request].map(|field| field.duplicate()));
        }
    }
    need_name(status.get("resourceClaimName"), names::subdomain, causes);
}

/// Addresses of a pod or host: one of each family.
fn addresses(list: At, causes: &mut Vec<Cause>) {
    let mut seen = Seen::default();
    for entry in list.items() {
        // Kubernetes tells of the entry, not of its field.
        let text = Value::from(entry.value["ip"].as_str().unwrap_or_default());
        ip(entry.holding(&text), causes);
        if seen.again(&text) {
            causes.push(entry.duplicate());
        }
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

    /// A pod as it stands before somebody changes it.
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
                    "/status/resourceClaimStatuses",
                    json!([{"name": "x"}]),
                    "status.resourceClaimStatuses[0].name: Invalid value: \"x\": must match the name of an entry in",
                ),
            ],
        );
    }
}

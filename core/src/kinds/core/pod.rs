//! The kind Pod, with its many subresources. The server sets the status of a new pod.

use super::service::{refuse_sctp, uses_sctp};
use super::{PACKAGE, columns, connect, measure, validate, warnings};
use crate::authz::nodes::Relation;
use crate::kinds::build::{drop_from_spec, text, text_or};
use crate::kinds::{Gated, GatedRule, Judging, Kind};
use crate::object::meta::Document;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Map, Value, json};

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub fn kind() -> Kind {
    const STREAM: [&str; 2] = ["create", "get"];
    Kind::namespaced("Pod", "pods")
        .versions("", PACKAGE, ["v1"])
        .short(["po"])
        .category("all")
        .columns(columns::of("Pod"))
        .pods_at("/spec")
        .measured(&measure::POD)
        .return_deleted_object()
        // In a terminating namespace, pods are deleted before objects of other kinds, so that resources in use stay
        // until the pods have stopped.
        .deleted_first()
        .completed(completed)
        .validate(validate::pod)
        .part("attach", Some(["", "v1", "PodAttachOptions"]), &STREAM)
        .part("binding", Some(["", "v1", "Binding"]), &["create"])
        .view("ephemeralcontainers")
        .part("eviction", Some(["policy", "v1", "Eviction"]), &["create"])
        .part("exec", Some(["", "v1", "PodExecOptions"]), &STREAM)
        .part("log", None, &["get"])
        .part("portforward", Some(["", "v1", "PodPortForwardOptions"]), &STREAM)
        .proxy("PodProxyOptions")
        .view("resize")
        .status()
        .status_resets(&[&["spec"], &["metadata", "ownerReferences"]])
        .validate_part("ephemeralcontainers", validate::ephemeral_containers)
        .validate_part("resize", validate::resize)
        .validate_part("status", validate::pod_status)
        .generation()
        .leads_to_nodes(Relation::Pod)
        .select("spec.nodeName")
        .select_at("spec.host", "spec.nodeName")
        .select("spec.restartPolicy")
        .select("spec.schedulerName")
        .select("spec.serviceAccountName")
        .select_or("spec.hostNetwork", "spec.hostNetwork", "false")
        .select("status.phase")
        .select_with(None, "status.podIP", &["status.podIP", "status.podIPs"], |pod| {
            text_or(pod, "/status/podIPs/0/ip", &text(pod, "/status/podIP"))
        })
        // As in Kubernetes, this field can be selected, but its value is always empty.
        .select_with(None, "status.podIPs", &[], |_| String::new())
        .gated(STATUS_GATED)
        .select("status.nominatedNodeName")
        .agree(pair_addresses)
        .prepare_create(prepare_create)
        .grace_period(grace_period)
        .warnings(warnings::pod)
        .leads(connect::leads)
        .connect_options(connect::options)
        .export(|pod| drop_from_spec(pod, &["nodeName"]))
}

fn completed(pod: &Value) -> Option<(&'static str, &'static str)> {
    match text(pod, "/status/phase").as_str() {
        "Succeeded" => Some(("Succeeded", "The pod has completed successfully.")),
        "Failed" => Some(("Failed", "The pod failed.")),
        _ => None,
    }
}

/// The grace period of a delete. Only a scheduled, unfinished pod gets one; other pods are deleted at once.
fn grace_period(pod: &Document, asked: Option<i64>) -> i64 {
    const SECONDS: i64 = 30;
    // As in Kubernetes, a negative period means one second.
    let not_negative = |seconds: i64| if seconds < 0 { 1 } else { seconds };
    let field = |parent: &str, name: &str| pod.get(parent).and_then(|value| value.get(name));
    let scheduled = field("spec", "nodeName").is_some_and(|node| node.as_str().is_some_and(|node| !node.is_empty()));
    let finished = matches!(field("status", "phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if !scheduled || finished {
        return 0;
    }
    let own = || field("spec", "terminationGracePeriodSeconds").and_then(Value::as_i64);
    asked.or_else(own).map_or(SECONDS, not_negative)
}

/// Makes `podIP` the first of `podIPs`. If they differ, the older field has precedence, because older clients write
/// only that field.
fn pair_addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else { return };
    let first = status.get("podIPs").and_then(|all| all.get(0)?.get("ip")).cloned();
    let single = status.get("podIP").filter(|ip| ip.as_str().is_some_and(|ip| !ip.is_empty())).cloned();
    match (single, first) {
        (Some(single), first) if first.as_ref() != Some(&single) => {
            status.insert("podIPs", json!([{ "ip": single }]));
        }
        (None, Some(first)) => _ = status.insert("podIP", first),
        _ => {}
    }
}

fn prepare_create(pod: &mut Value) {
    let Some(fields) = pod.as_object_mut() else { return };
    let spec = fields.get("spec").unwrap_or(&Value::Null);
    let mut status = json!({ "phase": "Pending", "qosClass": qos_class(spec) });
    if spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastTransitionTime": fields.get("metadata").map(|metadata| &metadata["creationTimestamp"]),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    fields.insert("status", status);
    narrow_terms(fields);
    profiles_of_annotations(fields);
    // As in Kubernetes, a negative period means one second.
    let grace = fields.get_mut("spec").and_then(|spec| spec.get_mut("terminationGracePeriodSeconds"));
    if let Some(grace) = grace.filter(|grace| grace.as_i64().is_some_and(|seconds| seconds < 0)) {
        *grace = 1.into();
    }
}

/// Copies AppArmor profiles from the older annotations to the fields of their containers, unless a container has its
/// own profile or the whole pod has the same profile.
fn profiles_of_annotations(pod: &mut Document) {
    let annotations = pod.get("metadata").map(|metadata| metadata["annotations"].clone()).unwrap_or_default();
    let Some(spec) = pod.get_mut("spec").filter(|spec| annotations.is_object() && spec["os"]["name"] != "windows")
    else {
        return;
    };
    let whole = spec["securityContext"]["appArmorProfile"].clone();
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers {
            let key = format!("{APP_ARMOR}{}", container["name"].as_str().unwrap_or_default());
            let profile = match annotations[key].as_str() {
                Some("runtime/default") => json!({"type": "RuntimeDefault"}),
                Some("unconfined") => json!({"type": "Unconfined"}),
                Some(other) => match other.strip_prefix("localhost/").filter(|name| !name.is_empty()) {
                    Some(name) => json!({"type": "Localhost", "localhostProfile": name}),
                    None => continue,
                },
                None => continue,
            };
            // Indexing mutably would create the missing parts, so the fields are read with `get`.
            let own = container.get("securityContext").and_then(|context| context.get("appArmorProfile"));
            if own.is_none_or(Value::is_null) && profile != whole {
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}

/// Adds the values of `matchLabelKeys` and `mismatchLabelKeys` from the pod's own labels to the selectors of its
/// affinity terms and spread constraints.
fn narrow_terms(pod: &mut Document) {
    let labels = pod.get("metadata").map(|metadata| metadata["labels"].clone()).unwrap_or_default();
    let Some(spec) = pod.get_mut("spec") else { return };
    let spread = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut).into_iter().flatten();
    spread.for_each(|constraint| narrow(constraint, &labels));
    let Some(affinity) = spec.get_mut("affinity") else { return };
    for side in ["podAffinity", "podAntiAffinity"] {
        let Some(side) = affinity.get_mut(side).and_then(Value::as_object_mut) else { continue };
        for (list, within) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
        ] {
            let terms = side.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            terms.filter_map(|term| term.pointer_mut(within)).for_each(|term| narrow(term, &labels));
        }
    }
}

fn narrow(term: &mut Value, labels: &Value) {
    let mut added = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[keys].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({ "key": key, "operator": operator, "values": [value] }));
            }
        }
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if !added.is_empty()
        && let Some(expressions) = selector.entry("matchExpressions").or_insert_with(|| json!([])).as_array_mut()
    {
        expressions.extend(added);
    }
}

/// Gated fields of a pod's spec, in pods and in templates.
pub const POD_GATED: &[Gated] = &[
    Gated::fields("CSIInlineVolume", &["volumes[].csi"]),
    Gated::fields("ClusterTrustBundleProjection", &["volumes[].projected.sources[].clusterTrustBundle"]),
    Gated::fields("ConfigurableFSGroupPolicy", &["securityContext.fsGroupChangePolicy"]),
    Gated::fields("ContainerRestartRules", &["containers[].restartPolicy", "containers[].restartPolicyRules"]),
    Gated::wholly(
        "ContainerStopSignals",
        &[
            "containers[].lifecycle.stopSignal",
            "ephemeralContainers[].lifecycle.stopSignal",
            "initContainers[].lifecycle.stopSignal",
        ],
    ),
    Gated::fields(
        "EnvFiles",
        &["containers[].env[].valueFrom.fileKeyRef", "initContainers[].env[].valueFrom.fileKeyRef"],
    ),
    Gated::fields("EvenPodsSpread", &["topologySpreadConstraints"]),
    Gated::fields("GenericWorkload", &["workloadRef"]),
    Gated::fields("HostnameOverride", &["hostnameOverride"]),
    Gated::fields("ImageVolume", &["volumes[].image"]),
    Gated::fields("LocalStorageCapacityIsolation", &["volumes[].emptyDir.sizeLimit"]),
    Gated::fields("MatchLabelKeysInPodTopologySpread", &["topologySpreadConstraints[].matchLabelKeys"]),
    Gated::fields("PodCertificateRequest", &["volumes[].projected.sources[].podCertificate"]),
    Gated::fields("PodLevelResources", &["resources"]),
    Gated::fields("PodOverhead", &["overhead"]),
    Gated::fields(
        "ProcMountType",
        &["containers[].securityContext.procMount", "initContainers[].securityContext.procMount"],
    ),
    Gated::fields(
        "RunAsGroup",
        &[
            "securityContext.runAsGroup",
            "containers[].securityContext.runAsGroup",
            "initContainers[].securityContext.runAsGroup",
        ],
    ),
    Gated::fields("RuntimeClass", &["runtimeClassName"]),
    Gated::fields("SELinuxChangePolicy", &["securityContext.seLinuxChangePolicy"]),
    Gated::fields("StartupProbe", &["containers[].startupProbe", "initContainers[].startupProbe"]),
    Gated::fields("Sysctls", &["securityContext.sysctls"]),
    Gated::fields("UserNamespacesSupport", &["hostUsers"]),
];

/// Gated rules for a pod's spec, in pods and in templates.
pub const POD_RULES: &[GatedRule] = &[
    GatedRule { gates: &["RestartAllContainersOnContainerExits"], judge: restart_one },
    GatedRule { gates: &["SCTPSupport"], judge: no_sctp },
    GatedRule { gates: &["UserNamespacesHostNetworkSupport"], judge: share_network },
];

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

fn containers<'a>(spec: &'a Value, list: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    spec[list].as_array().into_iter().flatten().enumerate()
}

/// While the gate `RestartAllContainersOnContainerExits` is off, restart rules of containers cannot restart all
/// containers of the pod.
fn restart_one(judging: &Judging<'_>, causes: &mut Causes) {
    const ALL: &str = "RestartAllContainers";
    let rules = |container: &Value| container["restartPolicyRules"].as_array().cloned().unwrap_or_default();
    let is_used = |spec: &Value| {
        let all = CONTAINERS.into_iter().flat_map(|list| containers(spec, list));
        all.flat_map(|(_, container)| rules(container)).any(|rule| rule["action"] == ALL)
    };
    if judging.is_on("RestartAllContainersOnContainerExits") || judging.old.is_some_and(is_used) {
        return;
    }
    for list in CONTAINERS {
        for (index, container) in containers(judging.new, list) {
            for (at, rule) in rules(container).iter().enumerate().filter(|(_, rule)| rule["action"] != "Restart") {
                let path = judging.at(&format!("{list}[{index}].restartPolicyRules[{at}].action"));
                causes.retain(|cause| cause.field != path);
                let action = if rule["action"].is_null() { &json!("") } else { &rule["action"] };
                causes.push(Cause::not_supported(path, action, &["Restart"]));
            }
        }
    }
}

fn no_sctp(judging: &Judging<'_>, causes: &mut Causes) {
    let had = |spec: &Value| {
        CONTAINERS.into_iter().flat_map(|list| containers(spec, list)).any(|(_, one)| uses_sctp(&one["ports"]))
    };
    if judging.is_on("SCTPSupport") || judging.old.is_some_and(had) {
        return;
    }
    for list in CONTAINERS {
        for (index, container) in containers(judging.new, list) {
            refuse_sctp(&container["ports"], &judging.at(&format!("{list}[{index}].ports")), causes);
        }
    }
}

/// With the gate `UserNamespacesHostNetworkSupport`, a pod with its own user namespace may use the host's network.
fn share_network(judging: &Judging<'_>, causes: &mut Causes) {
    let had = |spec: &Value| spec["hostUsers"] == false && spec["hostNetwork"] == true;
    if judging.is_on("UserNamespacesHostNetworkSupport") || judging.old.is_some_and(had) {
        let path = judging.at("hostNetwork");
        causes.retain(|cause| cause.field != path || cause.message != "Forbidden: when `hostUsers` is false");
    }
}

/// Gated fields of a pod's status.
const STATUS_GATED: &[Gated] = &[
    Gated::fields("DRAExtendedResource", &["status.extendedResourceClaimStatus"]),
    Gated::fields("InPlacePodLevelResourcesVerticalScaling", &["status.resources", "status.allocatedResources"]),
    Gated::together(
        "ResourceHealthStatus",
        &[
            "status.containerStatuses[].allocatedResourcesStatus",
            "status.initContainerStatuses[].allocatedResourcesStatus",
            "status.ephemeralContainerStatuses[].allocatedResourcesStatus",
        ],
    ),
];

/// `Guaranteed` if every container has limits for CPU and memory and its requests equal them; `BestEffort` if nothing
/// is requested or limited; otherwise `Burstable`. Pod-level resources, if set, count instead of the resources of
/// containers.
pub fn qos_class(spec: &Value) -> &'static str {
    let whole = &spec["resources"];
    let resources: Vec<&Value> = if counted(&whole["requests"]).is_some() || counted(&whole["limits"]).is_some() {
        vec![whole]
    } else {
        let containers = ["containers", "initContainers"].iter().filter_map(|list| spec[list].as_array());
        containers.flatten().map(|container| &container["resources"]).collect()
    };
    let asks =
        |resources: &&Value| counted(&resources["requests"]).is_some() || counted(&resources["limits"]).is_some();
    if !resources.iter().any(asks) {
        return "BestEffort";
    }
    if resources.iter().all(|resources| is_fixed(resources)) { "Guaranteed" } else { "Burstable" }
}

/// Whether CPU and memory both have limits, and each request is absent or equals its limit.
fn is_fixed(resources: &Value) -> bool {
    ["cpu", "memory"].iter().all(|name| {
        let limit = &resources["limits"][*name];
        let request = &resources["requests"][*name];
        !is_zero(limit) && (request.is_null() || request == limit)
    })
}

/// The map if it has a nonzero amount of CPU or memory.
fn counted(amounts: &Value) -> Option<&Map> {
    amounts.as_object().filter(|map| ["cpu", "memory"].iter().any(|name| map.get(*name).is_some_and(|v| !is_zero(v))))
}

/// Whether a quantity is unset or zero: `"0"`, `0`, `"0.0Mi"`.
fn is_zero(quantity: &Value) -> bool {
    match quantity {
        Value::String(text) => !text.bytes().take_while(|b| !b.is_ascii_alphabetic()).any(|b| matches!(b, b'1'..=b'9')),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let half = json!({ "cpu": "500m", "memory": "64Mi" });
        for (expected, spec) in [
            ("BestEffort", json!({ "containers": [{ "name": "a" }] })),
            ("BestEffort", json!({ "containers": [{ "resources": { "limits": { "cpu": "0" } } }] })),
            ("Burstable", json!({ "containers": [{ "resources": { "requests": half } }] })),
            ("Burstable", json!({ "containers": [{ "resources": { "limits": { "cpu": "1" } } }] })),
            ("Guaranteed", json!({ "containers": [{ "resources": { "limits": half, "requests": half } }] })),
            ("Guaranteed", json!({ "containers": [{ "resources": { "limits": half } }] })),
            ("Burstable", json!({ "containers": [{ "resources": { "limits": half } }, { "name": "b" }] })),
            (
                "Burstable",
                json!({ "containers": [{ "resources": { "limits": half } }], "initContainers": [{ "name": "i" }] }),
            ),
            ("Guaranteed", json!({ "resources": { "limits": half }, "containers": [{ "name": "a" }] })),
        ] {
            assert_eq!(qos_class(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn keys_of_spread_become_requirements() {
        let spread = json!([{ "labelSelector": { "matchLabels": { "b": "2" } }, "matchLabelKeys": ["a", "none"] },
            { "matchLabelKeys": ["a"] }]);
        let mut pod =
            json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "topologySpreadConstraints": spread } });
        prepare_create(&mut pod);
        let spread = &pod["spec"]["topologySpreadConstraints"];
        let expected = json!([{ "key": "a", "operator": "In", "values": ["1"] }]);
        assert_eq!(spread[0]["labelSelector"]["matchExpressions"], expected);
        assert_eq!(spread[1], json!({ "matchLabelKeys": ["a"] }), "nothing is selected where there is no selector");
    }

    #[test]
    fn keys_of_affinity_become_requirements_once() {
        let term = json!({ "labelSelector": {}, "topologyKey": "z", "matchLabelKeys": ["a", "none"],
            "mismatchLabelKeys": ["b"] });
        let mut pod = json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "affinity": {
            "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "podAffinityTerm": term }] } } } });
        prepare_create(&mut pod);
        let preferred = "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0";
        let expected = json!([{ "key": "a", "operator": "In", "values": ["1"] },
            { "key": "b", "operator": "NotIn", "values": ["2"] }]);
        assert_eq!(pod.pointer(preferred).unwrap()["podAffinityTerm"]["labelSelector"]["matchExpressions"], expected);
    }

    #[test]
    fn a_gated_pod_says_why_it_waits() {
        let mut pod = json!({ "spec": { "schedulingGates": [{ "name": "wait" }] }, "status": { "phase": "Running" } });
        prepare_create(&mut pod);
        assert_eq!(pod["status"]["phase"], "Pending");
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    }
}

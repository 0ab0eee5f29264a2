//! Pods, and the templates that they are made from.

use super::container::{Names, containers};
use super::placement;
use super::volume::volumes;
use crate::kinds::rules::{At, between, labels, named, one_of, same};
use crate::object::{names, validate};
use crate::refusal::Cause;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What an update of a pod may change, in the words of Kubernetes.
const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                     to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                     previously negative)";
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const USER_MAX: i64 = i32::MAX as i64;

pub fn pod(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    match old {
        Some(old) => update(spec, &old["spec"], &mut causes),
        None => pod_spec(spec, &mut causes),
    }
    causes
}

pub fn pod_template(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    template(At::root(new).get("template"), &mut causes);
    causes
}

/// `{metadata, spec}` of the pods that a workload makes.
pub(in crate::kinds) fn template(at: At, causes: &mut Vec<Cause>) {
    let metadata = at.get("metadata");
    // Kubernetes leaves `metadata` out of these paths.
    labels(at.get("labels").holding(&metadata.value["labels"]), causes);
    if let Value::Object(map) = &metadata.value["annotations"] {
        validate::annotations(map, &at.get("annotations").path(), causes);
    }
    let spec = at.get("spec");
    pod_spec(spec, causes);
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        causes.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

fn pod_spec(spec: At, causes: &mut Vec<Cause>) {
    let mut volume_names = BTreeSet::new();
    volumes(spec.get("volumes"), &mut volume_names, causes);
    let mut names = Names { volumes: volume_names, containers: BTreeSet::new() };
    containers(spec, &mut names, causes);
    one_of(spec.get("restartPolicy"), RESTART_POLICIES, causes);
    dns(spec, causes);
    security_context(spec.get("securityContext"), causes);
    let deadline = spec.get("activeDeadlineSeconds");
    between(deadline, 1, i64::from(i32::MAX), causes);
    labels(spec.get("nodeSelector"), causes);
    for (field, check) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
        ("priorityClassName", names::subdomain),
        ("runtimeClassName", names::subdomain),
    ] {
        let name = spec.get(field);
        if !name.is_empty() {
            named(name, check, causes);
        }
    }
    placement::tolerations(spec.get("tolerations"), causes);
    placement::affinity(spec.get("affinity"), causes);
    placement::spread(spec.get("topologySpreadConstraints"), causes);
}

fn dns(spec: At, causes: &mut Vec<Cause>) {
    one_of(spec.get("dnsPolicy"), DNS_POLICIES, causes);
    if spec.get("dnsPolicy").text() != "None" {
        return;
    }
    let config = spec.get("dnsConfig");
    let servers = config.get("nameservers");
    if !config.is_set() {
        causes.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
    } else if servers.is_empty() {
        causes.push(servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"));
    }
}

fn security_context(context: At, causes: &mut Vec<Cause>) {
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        between(context.get(field), 0, USER_MAX, causes);
    }
    for group in context.get("supplementalGroups").items() {
        between(group, 0, USER_MAX, causes);
    }
    one_of(context.get("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], causes);
}

/// A pod that runs keeps its spec but for images, a shorter deadline and more tolerations.
fn update(spec: At, old: &Value, causes: &mut Vec<Cause>) {
    for list in ["initContainers", "containers"] {
        let containers = spec.get(list);
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        if count(containers.value) != count(&old[list]) {
            causes.push(containers.forbidden("pod updates may not add or remove containers"));
            return;
        }
        for container in containers.items() {
            let image = container.get("image");
            if image.is_empty() && list == "containers" {
                causes.push(image.required(""));
            }
        }
    }
    deadline(spec.get("activeDeadlineSeconds"), &old["activeDeadlineSeconds"], causes);
    let tolerations = spec.get("tolerations");
    let added_only = old["tolerations"]
        .as_array()
        .is_none_or(|old| old.iter().all(|kept| tolerations.items().any(|new| tolerates(new.value, kept))));
    if !added_only {
        causes.push(tolerations.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
    placement::tolerations(tolerations, causes);
    if !same(&settled(spec.value, old), old) {
        causes.push(spec.forbidden(FIXED));
    }
}

fn deadline(deadline: At, old: &Value, causes: &mut Vec<Cause>) {
    between(deadline, 1, i64::from(i32::MAX), causes);
    match (deadline.number(), old.as_i64()) {
        (Some(new), Some(old)) if new > old => {
            causes.push(deadline.invalid("must be less than or equal to previous value"));
        }
        (None, Some(_)) => causes.push(deadline.invalid("must not update from a positive integer to nil value")),
        _ => {}
    }
}

fn tolerates(new: &Value, old: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|field| same(&new[field], &old[field]))
}

/// The new spec with everything that may change put back.
fn settled(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for list in ["initContainers", "containers"] {
        for (at, container) in spec[list].as_array_mut().into_iter().flatten().enumerate() {
            container["image"] = old[list][at]["image"].clone();
        }
    }
    let mut back = vec!["activeDeadlineSeconds", "tolerations"];
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|old| old < 0)
        && new["terminationGracePeriodSeconds"] == json!(1)
    {
        back.push("terminationGracePeriodSeconds");
    }
    // A pod that has not been let loose yet may lose gates, and be told more narrowly where to run.
    let gates = |spec: &Value| spec["schedulingGates"].as_array().cloned().unwrap_or_default();
    let old_gates = gates(old);
    if !old_gates.is_empty() && gates(new).iter().all(|gate| old_gates.contains(gate)) {
        back.extend(["schedulingGates", "nodeSelector", "affinity"]);
    }
    for field in back {
        spec[field] = old[field].clone();
    }
    // The two names of one field.
    if spec["serviceAccount"].is_null() {
        spec["serviceAccount"] = old["serviceAccount"].clone();
    }
    spec
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use serde_json::{Value, json};

    fn good() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a:1", "ports": [{"containerPort": 80}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "0.1"}},
                    "readinessProbe": {"httpGet": {"port": "http"}},
                    "env": [{"name": "A", "value": "b"}]}],
                "volumes": [{"name": "v"}],
                "tolerations": [{"key": "a", "operator": "Exists"}],
            },
        })
    }

    #[test]
    fn each_rule_of_a_pod() {
        check_rows(
            &good(),
            &[
                ("/spec/containers", json!([]), "spec.containers: Required value"),
                ("/spec/containers/0/name", json!("A"), "spec.containers[0].name: Invalid value: \"A\""),
                ("/spec/containers/0/image", Value::Null, "spec.containers[0].image: Required value"),
                (
                    "/spec/containers/1",
                    json!({"name": "a", "image": "b"}),
                    "spec.containers[1].name: Duplicate value: \"a\"",
                ),
                (
                    "/spec/initContainers/0",
                    json!({"name": "a", "image": "b"}),
                    "spec.initContainers[0].name: Duplicate value: \"a\"",
                ),
                (
                    "/spec/initContainers/0",
                    json!({"name": "i", "image": "b", "readinessProbe": {"exec": {"command": ["a"]}}}),
                    "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without",
                ),
                (
                    "/spec/initContainers/0",
                    json!({"name": "i", "image": "b", "restartPolicy": "Always",
                        "readinessProbe": {"exec": {"command": ["a"]}}}),
                    "",
                ),
                ("/spec/restartPolicy", json!("Sometimes"), "spec.restartPolicy: Unsupported value: \"Sometimes\""),
                ("/spec/dnsPolicy", json!("Mine"), "spec.dnsPolicy: Unsupported value"),
                ("/spec/dnsPolicy", json!("None"), "spec.dnsConfig: Required value"),
                ("/spec/activeDeadlineSeconds", json!(0), "spec.activeDeadlineSeconds: Invalid value: 0: must be bet"),
                ("/spec/terminationGracePeriodSeconds", json!(-1), ""),
                (
                    "/spec/containers/0/ports/0/containerPort",
                    json!(70000),
                    "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535",
                ),
                (
                    "/spec/containers/0/ports/0/protocol",
                    json!("ICMP"),
                    "spec.containers[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", ",
                ),
                (
                    "/spec/containers/0/volumeMounts/0/name",
                    json!("missing"),
                    "spec.containers[0].volumeMounts[0].name: Not found: \"missing\"",
                ),
                (
                    "/spec/containers/0/volumeMounts/1",
                    json!({"name": "v", "mountPath": "/v"}),
                    "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique",
                ),
                (
                    "/spec/containers/0/resources/requests/cpu",
                    json!("200m"),
                    "spec.containers[0].resources.requests: Invalid value: \"200m\": must be less than or equal to \
                     cpu limit of 100m",
                ),
                (
                    "/spec/containers/0/resources/requests/cpu",
                    json!("-1"),
                    "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal",
                ),
                (
                    "/spec/containers/0/env/0/valueFrom",
                    json!({"fieldRef": {"fieldPath": "metadata.name"}}),
                    "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is",
                ),
                ("/spec/containers/0/env/0/name", json!("a=b"), "spec.containers[0].env[0].name: Invalid value"),
                ("/spec/containers/0/env/0/name", json!("a.b c"), ""),
                (
                    "/spec/containers/0/readinessProbe",
                    json!({"periodSeconds": 1}),
                    "spec.containers[0].readinessProbe: Required value: must specify a handler type",
                ),
                (
                    "/spec/containers/0/readinessProbe/tcpSocket",
                    json!({"port": 1}),
                    "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                ),
                (
                    "/spec/containers/0/livenessProbe",
                    json!({"tcpSocket": {"port": 1}, "successThreshold": 2}),
                    "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
                ),
                ("/spec/volumes/1", json!({"name": "v"}), "spec.volumes[1].name: Duplicate value: \"v\""),
                (
                    "/spec/volumes/0",
                    json!({"name": "v", "emptyDir": {}, "secret": {"secretName": "a"}}),
                    "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
                ),
                ("/spec/volumes/0/secret", json!({}), "spec.volumes[0].secret.secretName: Required value"),
                ("/spec/tolerations/0/value", json!("x"), "spec.tolerations[0].operator: Invalid value"),
                ("/spec/tolerations/0/effect", json!("Now"), "spec.tolerations[0].effect: Unsupported value: \"Now\""),
                (
                    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
                    json!({"nodeSelectorTerms": []}),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: \
                     Required value",
                ),
                ("/spec/securityContext/runAsUser", json!(-1), "spec.securityContext.runAsUser: Invalid value: -1"),
            ],
        );
    }

    #[test]
    fn a_pod_keeps_its_spec() {
        check_updates(
            &good(),
            &[
                ("/spec/containers/0/image", json!("a:2"), ""),
                ("/metadata/labels", json!({"a": "b"}), ""),
                ("/spec/activeDeadlineSeconds", json!(5), ""),
                ("/spec/tolerations/1", json!({"key": "b", "operator": "Exists"}), ""),
                (
                    "/spec/tolerations",
                    json!([]),
                    "spec.tolerations: Forbidden: existing toleration can not be modified",
                ),
                ("/spec/nodeName", json!("n"), "spec: Forbidden: pod updates may not change fields other than `spec"),
                ("/spec/containers/0/env/0/value", json!("c"), "spec: Forbidden: pod updates may not change fields"),
                (
                    "/spec/containers/1",
                    json!({"name": "b", "image": "b"}),
                    "spec.containers: Forbidden: pod updates may not add or remove containers",
                ),
            ],
        );
    }
}

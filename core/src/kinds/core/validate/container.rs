//! Validation of main containers, init containers and ephemeral containers.

use super::environment;
use super::mount::mounts_and_devices;
use super::probe::probes_and_hooks;
use super::resources::{container_resource, requirements};
use super::security::container_context;
use super::volume::Volumes;
use crate::kinds::rules::{At, PROTOCOLS, Seen, named, need, need_name, need_one_of, port_name, port_number};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::collections::BTreeSet;

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const NOT_IN_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_IN_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";
const RESTART_ACTIONS: &[&str] = &["Restart", "RestartAllContainers"];
/// Fields that ephemeral containers cannot have.
const LASTING: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// The parts of a pod that its containers refer to.
pub(super) struct Surroundings<'a> {
    pub volumes: &'a Volumes<'a>,
    pub claims: &'a BTreeSet<String>,
    /// Whether the containers are in a pod and not in a template, because pods have stricter rules.
    pub is_pod: bool,
}

/// Validates all containers of a pod's spec.
pub(super) fn containers(spec: At, around: &Surroundings, causes: &mut Causes) {
    let grace = spec.get("terminationGracePeriodSeconds").number();
    let list = spec.get("containers");
    let mut names = Seen::default();
    if list.is_empty() {
        causes.push(list.required(""));
    }
    for container in list.items() {
        common(spec, container, around, causes);
        unique_name(container, &mut names, causes);
        probes_and_hooks(container, grace, causes);
        restart_policy(container, causes);
    }
    let mut host_ports = Seen::default();
    for container in list.items() {
        unique_host_ports(container.get("ports"), &mut host_ports, causes);
    }
    init_containers(spec, grace, around, &mut names, causes);
    ephemeral_containers(spec, around, &mut names, causes);
    host_network_ports(spec, around.is_pod, causes);
}

fn init_containers(spec: At, grace: Option<i64>, around: &Surroundings, names: &mut Seen, causes: &mut Causes) {
    let list = spec.get("initContainers");
    let Some(first) = list.items().next() else { return };
    for container in list.items() {
        common(spec, container, around, causes);
        restart_policy(container, causes);
        unique_name(container, names, causes);
        // Init containers run one after another, so two may use the same host port. As in Kubernetes each container is
        // checked alone, and its faults are reported under `initContainers[0]`.
        unique_host_ports(first.holding(container.value).get("ports"), &mut Seen::default(), causes);
        if container.get("restartPolicy").text() == "Always" {
            probes_and_hooks(container, grace, causes);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            let at = container.get(field);
            if at.is_set() {
                causes.push(at.forbidden(NOT_IN_INIT));
            }
        }
    }
}

fn ephemeral_containers(spec: At, around: &Surroundings, names: &mut Seen, causes: &mut Causes) {
    let others: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.value[*list].as_array())
        .flatten()
        .filter_map(|container| container["name"].as_str())
        .collect();
    for container in spec.get("ephemeralContainers").items() {
        common(spec, container, around, causes);
        if !around.is_pod {
            bare_image(container.get("image"), causes);
        }
        unique_name(container, names, causes);
        let target = container.get("targetContainerName");
        if !target.is_empty() && !others.contains(target.text()) {
            causes.push(target.not_found());
        }
        for field in LASTING {
            let at = container.get(field);
            // An empty list counts as set, but empty resources do not.
            if at.is_set() && (!at.is_empty() || field != &"resources") {
                causes.push(at.forbidden(NOT_IN_EPHEMERAL));
            }
        }
        for mount in container.get("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                let at = mount.get(field);
                if !at.is_empty() {
                    causes.push(at.forbidden(NOT_IN_EPHEMERAL));
                }
            }
        }
    }
}

/// Applies the rules that are the same for main, init and ephemeral containers.
fn common(spec: At, container: At, around: &Surroundings, causes: &mut Causes) {
    need_name(container.get("name"), names::label, causes);
    need(container.get("image"), causes);
    if around.is_pod {
        bare_image(container.get("image"), causes);
    }
    need_one_of(container.get("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"], causes);
    ports(container.get("ports"), causes);
    environment::variables(container.get("env"), around.volumes, causes);
    environment::sources(container.get("envFrom"), causes);
    mounts_and_devices(container, around.volumes, causes);
    need_one_of(container.get("imagePullPolicy"), PULL_POLICIES, causes);
    requirements(container.get("resources"), container_resource, around.claims, causes);
    resize_policies(container.get("resizePolicy"), spec.get("restartPolicy").text(), causes);
    container_context(container.get("securityContext"), !spec.get("hostUsers").is_false(), causes);
}

fn unique_name(container: At, names: &mut Seen, causes: &mut Causes) {
    let name = container.get("name");
    if !name.is_empty() && names.again(name.value) {
        causes.push(name.duplicate());
    }
}

pub(super) fn bare_image(image: At, causes: &mut Causes) {
    if image.text().trim() != image.text() {
        causes.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

fn ports(list: At, causes: &mut Causes) {
    let mut names = Seen::default();
    for entry in list.items() {
        let name = entry.get("name");
        if !name.is_empty() {
            if !port_name(name.text()).is_empty() {
                named(name, port_name, causes);
            } else if names.again(name.value) {
                causes.push(name.duplicate());
            }
        }
        let number = entry.get("containerPort");
        match number.number_or_zero() {
            0 => causes.push(number.required("")),
            _ => port_number(number, causes),
        }
        let host = entry.get("hostPort");
        if host.number_or_zero() != 0 {
            port_number(host, causes);
        }
        need_one_of(entry.get("protocol"), PROTOCOLS, causes);
    }
}

fn unique_host_ports(list: At, seen: &mut Seen, causes: &mut Causes) {
    for entry in list.items() {
        let host = entry.get("hostPort");
        let number = host.number_or_zero();
        if number == 0 {
            continue;
        }
        let (protocol, address) = (entry.get("protocol"), entry.get("hostIP"));
        let claim = Value::from(format!("{}/{}/{number}", protocol.text(), address.text()));
        if seen.again(&claim) {
            causes.push(Cause::duplicate(host.path(), &claim));
        }
    }
}

/// Validates the ports of containers on the host's network: a container port must equal its host port. In a template
/// the host port may be unset.
fn host_network_ports(spec: At, is_pod: bool, causes: &mut Causes) {
    if !spec.get("hostNetwork").is_true() {
        return;
    }
    for container in spec.get("containers").items() {
        for entry in container.get("ports").items() {
            let host = entry.get("hostPort");
            let number = host.number_or_zero();
            if (is_pod || number != 0) && number != entry.get("containerPort").number_or_zero() {
                causes.push(host.invalid_as(number, "must match `containerPort` when `hostNetwork` is true"));
            }
        }
    }
}

/// Validates `restartPolicy` and `restartPolicyRules`.
fn restart_policy(container: At, causes: &mut Causes) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.is_set() && !rules.is_empty() {
        causes.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    if policy.is_set() && !matches!(policy.text(), "Always" | "Never" | "OnFailure") {
        causes.push(policy.not_supported(&["Always", "Never", "OnFailure"]));
    }
    if rules.len() > RESTART_RULES_MAX {
        causes.push(Cause::too_many(rules.path(), rules.len(), RESTART_RULES_MAX));
    }
    for rule in rules.items() {
        let (action, codes) = (rule.get("action"), rule.get("exitCodes"));
        if !RESTART_ACTIONS.contains(&action.text()) {
            causes.push(action.not_supported(RESTART_ACTIONS));
        }
        if !codes.is_set() {
            causes.push(codes.required("must be specified"));
            continue;
        }
        let (operator, values) = (codes.get("operator"), codes.get("values"));
        if !matches!(operator.text(), "In" | "NotIn") {
            causes.push(operator.not_supported(&["In", "NotIn"]));
        }
        if values.len() > EXIT_CODES_MAX {
            causes.push(Cause::too_many(values.path(), values.len(), EXIT_CODES_MAX));
        }
    }
}

/// Validates `resizePolicy`: how a change of resources affects the container. Kubernetes reports some faults at the
/// path of the list.
fn resize_policies(list: At, pod_restarts: &str, causes: &mut Causes) {
    let mut seen = Seen::default();
    for policy in list.items() {
        let (resource, restart) = (policy.get("resourceName"), policy.get("restartPolicy"));
        if seen.again(resource.value) {
            causes.push(Cause::duplicate(policy.path(), resource.value));
        }
        need_one_of(list.holding(resource.value), &["cpu", "memory"], causes);
        need_one_of(list.holding(restart.value), &["NotRequired", "RestartContainer"], causes);
        if pod_restarts == "Never" && restart.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            causes.push(list.invalid_as(restart.text(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_containers() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a", "ports": [{"name": "http", "containerPort": 80}]}],
                "initContainers": [{"name": "i", "image": "i"}],
                "volumes": [{"name": "v"}],
            },
        });
        let (ports, init) = ("/spec/containers/0/ports", "/spec/initContainers/0");
        check_rows(
            &good,
            &[
                ("/spec/containers", json!([]), "spec.containers: Required value"),
                ("/spec/containers/0/name", json!("A"), "spec.containers[0].name: Invalid value: \"A\""),
                ("/spec/containers/0/image", json!(null), "spec.containers[0].image: Required value"),
                (
                    "/spec/containers/0/image",
                    json!(" a"),
                    "spec.containers[0].image: Invalid value: \" a\": must not h",
                ),
                (
                    "/spec/containers/1",
                    json!({"name": "a", "image": "b"}),
                    "spec.containers[1].name: Duplicate value: \"a\"",
                ),
                (
                    "/spec/containers/0/imagePullPolicy",
                    json!("Maybe"),
                    "spec.containers[0].imagePullPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", ",
                ),
                (
                    "/spec/containers/0/terminationMessagePolicy",
                    json!("Shout"),
                    "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Shout\": supported values: \"Fi",
                ),
                (
                    ports,
                    json!([{"containerPort": 70000}]),
                    "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535",
                ),
                (
                    ports,
                    json!([{"containerPort": 1, "protocol": "ICMP"}]),
                    "spec.containers[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", ",
                ),
                (
                    ports,
                    json!([{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
                    "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
                ),
                (
                    ports,
                    json!([{"name": "a", "containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
                    "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//5\"",
                ),
                (
                    "/spec",
                    json!({"hostNetwork": true,
                        "containers": [{"name": "a", "image": "a", "ports": [{"containerPort": 1, "hostPort": 2}]}]}),
                    "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when",
                ),
                (init, json!({"name": "a", "image": "b"}), "spec.initContainers[0].name: Duplicate value: \"a\""),
                (
                    init,
                    json!({"name": "i", "image": "b", "readinessProbe": {"exec": {"command": ["a"]}}}),
                    "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without",
                ),
                (
                    init,
                    json!({"name": "i", "image": "b", "restartPolicy": "Always",
                        "readinessProbe": {"exec": {"command": ["a"]}}}),
                    "",
                ),
                (
                    "/spec/containers/0/restartPolicy",
                    json!("Perhaps"),
                    "spec.containers[0].restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\"",
                ),
                (
                    "/spec/containers/0/restartPolicyRules",
                    json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]),
                    "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules",
                ),
                (
                    "/spec/containers/0/resizePolicy",
                    json!([{"resourceName": "disk", "restartPolicy": "NotRequired"}]),
                    "spec.containers[0].resizePolicy: Unsupported value: \"disk\": supported values: \"cpu\", \"mem",
                ),
                (
                    "/spec/ephemeralContainers",
                    json!([{"name": "e", "image": "e"}]),
                    "spec.ephemeralContainers: Forbidden: cannot be set on create",
                ),
                (
                    "/spec/ephemeralContainers",
                    json!([{"name": "e", "image": "e", "ports": [{"containerPort": 1}]}]),
                    "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
                ),
                (
                    "/spec/ephemeralContainers",
                    json!([{"name": "e", "image": "e", "targetContainerName": "x"}]),
                    "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"",
                ),
                (
                    "/spec/ephemeralContainers",
                    json!([{"name": "e", "image": "e",
                        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}]}]),
                    "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral",
                ),
            ],
        );
    }
}

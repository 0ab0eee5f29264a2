//! Validation of pods and pod templates.

use super::container::{Surroundings, containers};
use super::resources::{container_resource, pod_requirements, requirements};
use super::volume::volumes;
use super::{annotations, placement, security};
use crate::kinds::rules::{At, Seen, between, ip, labels, named, named_if_any, need_one_of};
use crate::object::{names, validate};
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};
use std::collections::BTreeSet;

const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;
const HOSTNAME_BYTES_MAX: usize = 64;

pub fn pod(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = pod_itself(new);
    let root = At::root(new);
    let spec = root.get("spec");
    if let Some(old) = old {
        super::pod_update::update(root, old, &mut causes);
        return causes;
    }
    let debugging = spec.get("ephemeralContainers");
    if !debugging.is_empty() {
        causes.push(debugging.forbidden("cannot be set on create"));
    }
    let node = spec.get("nodeName");
    if !node.is_empty() && !spec.get("schedulingGates").is_empty() {
        causes.push(node.forbidden("cannot be set until all schedulingGates have been cleared"));
    }
    annotations::agree(&new["metadata"]["annotations"], spec, &mut causes);
    causes
}

/// Applies the rules for a pod that do not depend on its old state.
pub(super) fn pod_itself(pod: &Value) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(pod);
    let (metadata, spec) = (root.get("metadata"), root.get("spec"));
    annotations::check(metadata.get("annotations"), spec, &mut causes);
    pod_spec(spec, metadata.get("name").text(), true, &mut causes);
    if spec.get("serviceAccountName").is_empty() {
        for volume in spec.get("volumes").items() {
            let projected = volume.get("projected");
            for source in projected.get("sources").items() {
                let token = source.get("serviceAccountToken");
                if token.is_set() {
                    causes.push(token.forbidden("must not be specified when serviceAccountName is not set"));
                }
            }
        }
    }
    causes
}

pub fn pod_template(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    template(At::root(new).get("template"), &mut causes);
    causes
}

/// Validates a workload's pod template.
pub(in crate::kinds) fn template(at: At, causes: &mut Causes) {
    let metadata = at.get("metadata");
    // Kubernetes omits `metadata` from these paths.
    labels(at.get("labels").holding(&metadata.value["labels"]), causes);
    let noted = at.get("annotations").holding(&metadata.value["annotations"]);
    if let Value::Object(map) = noted.value {
        validate::annotations(map, &noted.path(), causes);
    }
    let spec = at.get("spec");
    annotations::check(noted, spec, causes);
    pod_spec(spec, "", false, causes);
    annotations::agree(noted.value, spec, causes);
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        causes.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// Validates the spec of a pod (with the pod's name) or of a template.
fn pod_spec(spec: At, pod: &str, is_pod: bool, causes: &mut Causes) {
    let grace = spec.get("terminationGracePeriodSeconds");
    if !grace.is_set() {
        causes.push(grace.required(""));
    }
    let volumes_at = spec.get("volumes");
    let volumes = volumes(volumes_at, pod, is_pod, causes);
    let claims = resource_claims(spec.get("resourceClaims"), causes);
    containers(spec, &Surroundings { volumes: &volumes, claims: &claims, is_pod }, causes);
    pod_requirements(spec, &claims, causes);
    need_one_of(spec.get("restartPolicy"), RESTART_POLICIES, causes);
    need_one_of(spec.get("dnsPolicy"), DNS_POLICIES, causes);
    labels(spec.get("nodeSelector"), causes);
    security::pod_context(spec, causes);
    placement::affinity(spec.get("affinity"), causes);
    dns(spec, causes);
    for gate in spec.get("readinessGates").items() {
        let condition = gate.get("conditionType");
        let messages = names::qualified_name(condition.text());
        causes.extend(messages.iter().map(|message| condition.invalid_as(condition.text(), message)));
    }
    scheduling_gates(spec.get("schedulingGates"), causes);
    placement::spread(spec.get("topologySpreadConstraints"), causes);
    security::host_processes(spec, causes);
    security::host_users(spec, causes);
    names_of(spec, causes);
    between(spec.get("activeDeadlineSeconds"), 1, i64::from(i32::MAX), causes);
    placement::tolerations(spec.get("tolerations"), causes);
    for alias in spec.get("hostAliases").items() {
        ip(alias.get("ip"), causes);
        alias.get("hostnames").items().for_each(|name| named(name, names::subdomain, causes));
    }
    let preemption = spec.get("preemptionPolicy");
    if preemption.is_set() {
        need_one_of(preemption, &["PreemptLowerPriority", "Never"], causes);
    }
    let overhead = spec.get("overhead");
    if overhead.is_set() {
        // Kubernetes reports the overhead as if it were a container's limits.
        let limits = json!({ "limits": overhead.value });
        requirements(overhead.holding(&limits), container_resource, &BTreeSet::new(), causes);
    }
    security::operating_system(spec, causes);
}

fn names_of(spec: At, causes: &mut Causes) {
    for (field, check) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
        ("priorityClassName", names::subdomain),
    ] {
        named_if_any(spec.get(field), check, causes);
    }
    let class = spec.get("runtimeClassName");
    if class.is_set() {
        named(class, names::subdomain, causes);
    }
    let whole = spec.get("hostnameOverride");
    if !whole.is_set() {
        return;
    }
    named(whole, names::subdomain, causes);
    if whole.text().len() > HOSTNAME_BYTES_MAX {
        causes.push(Cause::too_long(whole.path(), HOSTNAME_BYTES_MAX));
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.get(field).is_true() {
            causes.push(whole.forbidden(&format!("may not be specified when {field} is true")));
        }
    }
}

/// Validates the pod's ResourceClaims, each of which exists or is made from a template. Returns the names that
/// containers can refer to.
fn resource_claims(list: At, causes: &mut Causes) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for claim in list.items() {
        let name = claim.get("name");
        if name.is_empty() {
            causes.push(name.required(""));
        } else if !found.insert(name.text().to_owned()) {
            causes.push(name.duplicate());
        } else {
            named(name, names::label, causes);
        }
        let (made, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        match (made.is_set(), template.is_set()) {
            (true, true) => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                causes.push(claim.invalid(detail));
            }
            (false, false) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                causes.push(claim.invalid(detail));
            }
            _ => {}
        }
        for reference in [made, template] {
            if reference.is_set() {
                named(reference, names::subdomain, causes);
            }
        }
    }
    found
}

fn dns(spec: At, causes: &mut Causes) {
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").text() == "None" {
        if !config.is_set() {
            causes.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        } else if servers.is_empty() {
            causes.push(servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"));
            return;
        }
    }
    if servers.len() > NAMESERVERS_MAX {
        causes.push(servers.invalid(&format!("must not have more than {NAMESERVERS_MAX} nameservers")));
    }
    for server in servers.items() {
        ip(server, causes);
    }
    if searches.len() > SEARCHES_MAX {
        causes.push(searches.invalid(&format!("must not have more than {SEARCHES_MAX} search paths")));
    }
    let bytes: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if bytes > SEARCH_BYTES_MAX + 1 {
        let detail =
            format!("must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search list");
        causes.push(searches.invalid(&detail));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        causes.extend(search_path(name).iter().map(|message| search.invalid_as(name, message)));
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            causes.push(option.required("must not be empty"));
        }
    }
}

/// The faults of a DNS search path: a DNS subdomain whose labels may also contain underscores, and begin with one.
fn search_path(name: &str) -> Vec<String> {
    const PATTERN: &str = r"[a-z0-9_]([-_a-z0-9]*[a-z0-9])?(\.[a-z0-9_]([-_a-z0-9]*[a-z0-9])?)*";
    let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-', '_', or '.', \
                and must start and end with an alphanumeric character";
    let mut messages = Vec::new();
    if name.len() > 253 {
        messages.push(names::too_long(253));
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = name.split('.').all(|label| match label.as_bytes() {
        [] => false,
        [only] => plain(*only) || *only == b'_',
        [first, inner @ .., last] => {
            (plain(*first) || *first == b'_')
                && plain(*last)
                && inner.iter().all(|byte| plain(*byte) || matches!(byte, b'-' | b'_'))
        }
    });
    if !good {
        messages.push(names::pattern(rule, &["example.com"], PATTERN));
    }
    messages
}

/// Validates scheduling gates. Kubernetes reports a fault at the path of the gate, not of its name.
fn scheduling_gates(list: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    for gate in list.items() {
        let name = gate.value["name"].as_str().unwrap_or_default();
        causes.extend(names::qualified_name(name).iter().map(|message| gate.invalid_as(name, message)));
        if seen.again(&name.into()) {
            causes.push(Cause::duplicate(gate.path(), &name.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule_of_a_pod() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "a", "image": "a:1"}]},
        });
        check_rows(
            &good,
            &[
                ("/spec/restartPolicy", json!("Sometimes"), "spec.restartPolicy: Unsupported value: \"Sometimes\""),
                ("/spec/activeDeadlineSeconds", json!(0), "spec.activeDeadlineSeconds: Invalid value: 0: must be bet"),
                ("/spec/terminationGracePeriodSeconds", json!(-1), ""),
                ("/spec/dnsPolicy", json!("Mine"), "spec.dnsPolicy: Unsupported value"),
                ("/spec/dnsPolicy", json!("None"), "spec.dnsConfig: Required value"),
                (
                    "/spec/dnsConfig",
                    json!({"nameservers": ["1.1.1.1", "1.1.1.1", "1.1.1.1", "1.1.1.1"]}),
                    "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",",
                ),
                (
                    "/spec/dnsConfig/nameservers",
                    json!(["x"]),
                    "spec.dnsConfig.nameservers[0]: Invalid value: \"x\": mu",
                ),
                ("/spec/dnsConfig/searches", json!(["_sip._tcp.a.", "."]), ""),
                (
                    "/spec/dnsConfig/searches",
                    json!(["A"]),
                    "spec.dnsConfig.searches[0]: Invalid value: \"A\": a lowerc",
                ),
                (
                    "/spec/dnsConfig/options",
                    json!([{}]),
                    "spec.dnsConfig.options[0]: Required value: must not be empty",
                ),
                (
                    "/spec/hostAliases",
                    json!([{"ip": "x"}]),
                    "spec.hostAliases[0].ip: Invalid value: \"x\": must be a v",
                ),
                (
                    "/spec/hostAliases",
                    json!([{"ip": "1.2.3.4", "hostnames": ["A"]}]),
                    "spec.hostAliases[0].hostnames[0]: Invalid value: \"A\"",
                ),
                (
                    "/spec/readinessGates",
                    json!([{"conditionType": ""}]),
                    "spec.readinessGates[0].conditionType: Invalid",
                ),
                ("/spec/schedulingGates", json!([{"name": "a b"}]), "spec.schedulingGates[0]: Invalid value: \"a b\""),
                (
                    "/spec/schedulingGates",
                    json!([{"name": "a"}, {"name": "a"}]),
                    "spec.schedulingGates[1]: Duplicate value: \"a\"",
                ),
                (
                    "/spec",
                    json!({"containers": [{"name": "a", "image": "a"}], "nodeName": "n",
                        "schedulingGates": [{"name": "a"}]}),
                    "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
                ),
                ("/spec/hostname", json!("a.b"), "spec.hostname: Invalid value: \"a.b\": must not contain dots"),
                ("/spec/subdomain", json!("A"), "spec.subdomain: Invalid value: \"A\""),
                ("/spec/serviceAccountName", json!("A"), "spec.serviceAccountName: Invalid value: \"A\""),
                ("/spec/priorityClassName", json!("A"), "spec.priorityClassName: Invalid value: \"A\""),
                ("/spec/runtimeClassName", json!(""), "spec.runtimeClassName: Invalid value: \"\""),
                (
                    "/spec/preemptionPolicy",
                    json!("X"),
                    "spec.preemptionPolicy: Unsupported value: \"X\": supported val",
                ),
                (
                    "/spec/overhead",
                    json!({"cpu": "-1"}),
                    "spec.overhead.limits[cpu]: Invalid value: \"-1\": must be gre",
                ),
                ("/spec/overhead", json!({"cpu": "1"}), ""),
                (
                    "/spec/resourceClaims",
                    json!([{"name": "a"}]),
                    "spec.resourceClaims[0]: Invalid value: {\"name\":\"a",
                ),
                (
                    "/spec/resourceClaims",
                    json!([{"name": "a", "resourceClaimName": "A"}]),
                    "spec.resourceClaims[0].resourceClaimName: Invalid value: \"A\"",
                ),
                (
                    "/spec/volumes",
                    json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
                    "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when",
                ),
                ("/spec/nodeSelector", json!({"a b": ""}), "spec.nodeSelector: Invalid value: \"a b\": name part must"),
            ],
        );
    }

    #[test]
    fn each_rule_of_a_template() {
        let good = json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a", "namespace": "default"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": " a"}]}},
        });
        check_rows(
            &good,
            &[
                ("/template/spec/containers", Value::Null, "template.spec.containers: Required value"),
                ("/template/metadata/labels", json!({"a b": ""}), "template.labels: Invalid value: \"a b\""),
                ("/template/metadata/annotations", json!({"a b": ""}), "template.annotations: Invalid value: \"a b\""),
                (
                    "/template/spec/ephemeralContainers",
                    json!([{"name": "e", "image": "e"}]),
                    "template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template",
                ),
                ("/template/spec/volumes", json!([{"name": "i", "image": {}}]), ""),
            ],
        );
    }
}

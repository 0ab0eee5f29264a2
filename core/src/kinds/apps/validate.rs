//! The rules of workloads: what they select is what their template makes.

use crate::kinds::core::validate::template;
use crate::kinds::rules::{At, immutable, is_zero, none_negative, number_or_percent, one_of, same, selector, selects};
use crate::refusal::Cause;
use serde_json::Value;

const MISMATCH: &str = "`selector` does not match template `labels`";
const FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                     'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                     'minReadySeconds' are forbidden";
const STATEFUL_SET_FREE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub fn deployment(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(
        spec,
        &["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        &mut causes,
    );
    selected(spec, old, "deployment", &mut causes);
    made(spec, "ReplicaSet", &mut causes);
    template(spec.get("template"), &mut causes);
    let strategy = spec.get("strategy");
    one_of(strategy.get("type"), &["Recreate", "RollingUpdate"], &mut causes);
    let rolling = strategy.get("rollingUpdate");
    if strategy.get("type").text() == "Recreate" && rolling.is_set() {
        causes.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
    }
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    number_or_percent(unavailable, &mut causes);
    number_or_percent(surge, &mut causes);
    if is_zero(unavailable.value) && is_zero(surge.value) {
        causes.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
    }
    let deadline = spec.get("progressDeadlineSeconds");
    let ready = spec.get("minReadySeconds").number().unwrap_or(0);
    if deadline.number().is_some_and(|seconds| seconds >= 0 && seconds <= ready) {
        causes.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    causes
}

pub fn replica_set(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["replicas", "minReadySeconds"], &mut causes);
    selected(spec, old, "deployment", &mut causes);
    made(spec, "ReplicaSet", &mut causes);
    template(spec.get("template"), &mut causes);
    causes
}

pub fn daemon_set(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["minReadySeconds", "revisionHistoryLimit"], &mut causes);
    selected(spec, old, "daemonset", &mut causes);
    made(spec, "DaemonSet", &mut causes);
    template(spec.get("template"), &mut causes);
    let strategy = spec.get("updateStrategy");
    one_of(strategy.get("type"), &["RollingUpdate", "OnDelete"], &mut causes);
    let rolling = strategy.get("rollingUpdate");
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    number_or_percent(unavailable, &mut causes);
    number_or_percent(surge, &mut causes);
    if unavailable.is_set() && surge.is_set() {
        match (is_zero(unavailable.value), is_zero(surge.value)) {
            (true, true) => causes.push(unavailable.required("cannot be 0 when maxSurge is 0")),
            (false, false) => causes.push(surge.invalid("may not be set when maxUnavailable is non-zero")),
            _ => {}
        }
    }
    causes
}

/// The template's spec is left to the pods: it may mount claims that only the set knows of.
pub fn stateful_set(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["replicas", "minReadySeconds", "revisionHistoryLimit"], &mut causes);
    selected(spec, None, "statefulset", &mut causes);
    made(spec, "StatefulSet", &mut causes);
    let management = spec.get("podManagementPolicy");
    if !matches!(management.text(), "" | "OrderedReady" | "Parallel") {
        causes.push(management.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    let strategy = spec.get("updateStrategy");
    let ty = strategy.get("type");
    if !matches!(ty.text(), "" | "RollingUpdate" | "OnDelete") {
        causes.push(ty.invalid("must be 'RollingUpdate' or 'OnDelete'"));
    }
    if let Some(old) = old {
        let mut kept = spec.value.clone();
        for field in STATEFUL_SET_FREE {
            kept[*field] = old["spec"][*field].clone();
        }
        if !same(&kept, &old["spec"]) {
            causes.push(spec.forbidden(FIXED));
        }
    }
    causes
}

/// A replica set with the plain selector of older times.
pub fn replication_controller(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["replicas", "minReadySeconds"], &mut causes);
    let selector = spec.get("selector");
    if selector.is_empty() {
        causes.push(selector.required(""));
    }
    let template_at = spec.get("template");
    let metadata = template_at.get("metadata");
    let labels = metadata.get("labels");
    if selector.entries().any(|(key, wanted)| labels.value.get(key) != Some(wanted.value)) {
        causes.push(labels.invalid(MISMATCH));
    }
    made(spec, "ReplicationController", &mut causes);
    template(template_at, &mut causes);
    causes
}

/// The selector is there, selects the template, and never changes.
fn selected(spec: At, old: Option<&Value>, what: &str, causes: &mut Vec<Cause>) {
    let at = spec.get("selector");
    if !at.is_set() {
        causes.push(at.required(""));
    } else {
        selector(at, causes);
        if at.value["matchLabels"].as_object().is_none_or(|labels| labels.is_empty())
            && at.value["matchExpressions"].as_array().is_none_or(Vec::is_empty)
        {
            causes.push(at.invalid(&format!("empty selector is invalid for {what}")));
        }
    }
    let template = spec.get("template");
    let metadata = template.get("metadata");
    let labels = metadata.get("labels");
    if !selects(at.value, labels.value) {
        causes.push(labels.invalid(MISMATCH));
    }
    if let Some(old) = old {
        immutable(at, &old["spec"]["selector"], causes);
    }
}

/// What goes on for ever makes pods that do.
fn made(spec: At, what: &str, causes: &mut Vec<Cause>) {
    let template = spec.get("template");
    let pod = template.get("spec");
    one_of(pod.get("restartPolicy"), &["Always"], causes);
    let deadline = pod.get("activeDeadlineSeconds");
    if deadline.is_set() {
        causes.push(deadline.forbidden(&format!("activeDeadlineSeconds in {what} is not Supported")));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use serde_json::{Value, json};

    fn workload(kind: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "a", "image": "a:1"}]},
                },
            },
        })
    }

    #[test]
    fn rules_of_all_workloads() {
        for kind in ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"] {
            let good = workload(kind);
            check_rows(
                &good,
                &[
                    ("/spec/selector", Value::Null, "spec.selector: Required value"),
                    ("/spec/selector", json!({}), "spec.selector: Invalid value: {}: empty selector is invalid for "),
                    (
                        "/spec/selector/matchLabels/app",
                        json!("other"),
                        "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match te",
                    ),
                    (
                        "/spec/template/spec/restartPolicy",
                        json!("Never"),
                        "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                    ),
                    ("/spec/minReadySeconds", json!(-1), "spec.minReadySeconds: Invalid value: -1: must be greater"),
                ],
            );
            let template = ("/spec/template/spec/containers/0/image", json!("a:2"), "");
            check_updates(&good, &[template]);
        }
    }

    #[test]
    fn rules_of_each_workload() {
        check_rows(
            &workload("Deployment"),
            &[
                ("/spec/replicas", json!(-1), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
                ("/spec/template/spec/containers", json!([]), "spec.template.spec.containers: Required value"),
                (
                    "/spec/strategy",
                    json!({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}}),
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge`",
                ),
                ("/spec/strategy/type", json!("Swap"), "spec.strategy.type: Unsupported value: \"Swap\""),
            ],
        );
        check_rows(
            &workload("StatefulSet"),
            &[
                ("/spec/podManagementPolicy", json!("Any"), "spec.podManagementPolicy: Invalid value: \"Any\""),
                ("/spec/template/spec/containers/0/volumeMounts", json!([{"name": "claim", "mountPath": "/d"}]), ""),
            ],
        );
        check_updates(
            &workload("StatefulSet"),
            &[
                ("/spec/replicas", json!(3), ""),
                ("/spec/serviceName", json!("other"), "spec: Forbidden: updates to statefulset spec for fields other"),
            ],
        );
        let mut wider = workload("Deployment");
        wider["spec"]["template"]["metadata"]["labels"]["tier"] = json!("front");
        let changed = json!({"matchLabels": {"tier": "front"}});
        check_updates(&wider, &[("/spec/selector", changed, "spec.selector: Invalid value: {\"matchLabels\":")]);
    }
}

//! Validation of workloads. Among other rules, the selector must match the template.

use crate::kinds::core::validate::{claim_spec, template};
use crate::kinds::rules::{
    At, immutable, need, none_negative, not_negative, number_or_percent, percent, same, selector, selects,
};
use crate::object::names;
use crate::refusal::Causes;
use crate::select::LabelSelector;
use holdfast_value::{Value, json};
use std::collections::BTreeSet;

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

pub fn deployment(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let counts = ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
    none_negative(spec, &counts, &mut causes);
    selected(spec, "deployment", "invalid label selector", &mut causes);
    kept_selector(spec, old, &mut causes);
    made(spec, "ReplicaSet", &mut causes);
    template(spec.get("template"), &mut causes);
    let strategy = spec.get("strategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" if rolling.is_set() => {
            causes.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            number_or_percent(unavailable, &mut causes);
            number_or_percent(surge, &mut causes);
            if is_none(unavailable.value) && is_none(surge.value) {
                causes.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            not_all_and_more(unavailable, &mut causes);
        }
        _ => causes.push(strategy.not_supported(&["Recreate", "RollingUpdate"])),
    }
    let deadline = spec.get("progressDeadlineSeconds");
    let ready = spec.get("minReadySeconds").number().unwrap_or(0);
    if deadline.number().is_some_and(|seconds| seconds <= ready) {
        causes.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    causes
}

pub fn replica_set(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["replicas", "minReadySeconds"], &mut causes);
    selected(spec, "deployment", "invalid label selector", &mut causes);
    made(spec, "ReplicaSet", &mut causes);
    template(spec.get("template"), &mut causes);
    kept_selector(spec, old, &mut causes);
    causes
}

pub fn daemon_set(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["minReadySeconds", "revisionHistoryLimit"], &mut causes);
    // A missing selector is reported like a selector that does not match the template.
    let at = spec.get("selector");
    selector(at, &mut causes);
    if at.is_set() {
        not_empty(at, "daemonset", &mut causes);
    }
    matches_template(spec, &mut causes);
    made(spec, "DaemonSet", &mut causes);
    template(spec.get("template"), &mut causes);
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => causes.push(rolling.required("")),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            for bound in [unavailable, surge] {
                number_or_percent(bound, &mut causes);
                not_all_and_more(bound, &mut causes);
            }
            match (is_none(unavailable.value), is_none(surge.value)) {
                (true, true) => causes.push(unavailable.required("cannot be 0 when maxSurge is 0")),
                (false, false) => causes.push(surge.invalid("may not be set when maxUnavailable is non-zero")),
                _ => {}
            }
        }
        _ => causes.push(strategy.not_supported(&["RollingUpdate", "OnDelete"])),
    }
    kept_selector(spec, old, &mut causes);
    causes
}

pub fn stateful_set(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    need_choice(spec.get("podManagementPolicy"), ["OrderedReady", "Parallel"], &mut causes);
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "" => causes.push(strategy.required("")),
        "OnDelete" if rolling.is_set() => {
            causes.push(rolling.invalid("only allowed for updateStrategy 'RollingUpdate'"));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let unavailable = rolling.get("maxUnavailable");
            not_negative(rolling.get("partition"), &mut causes);
            number_or_percent(unavailable, &mut causes);
            if unavailable.is_set() && is_none(unavailable.value) {
                causes.push(unavailable.invalid("cannot be 0"));
            }
            not_all_and_more(unavailable, &mut causes);
        }
        _ => causes.push(strategy.invalid("must be 'RollingUpdate' or 'OnDelete'")),
    }
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for moment in ["whenDeleted", "whenScaled"] {
        let policy = retention.get(moment);
        if retention.is_set() && !matches!(policy.text(), "Retain" | "Delete") {
            causes.push(policy.not_supported(&["Retain", "Delete"]));
        }
    }
    none_negative(spec, &["replicas", "minReadySeconds"], &mut causes);
    let ordinals = spec.get("ordinals");
    not_negative(ordinals.get("start"), &mut causes);
    selected(spec, "statefulset", "", &mut causes);
    made(spec, "StatefulSet", &mut causes);
    let service = spec.get("serviceName");
    // An invalid name of an existing set may stay, so that the set can still be changed.
    if old.is_none() && !service.is_empty() {
        causes.extend(names::label(service.text()).iter().map(|message| service.invalid(message)));
    }
    stateful_template(spec, &mut causes);
    if old.is_none() {
        for claim in spec.get("volumeClaimTemplates").items() {
            claim_spec(claim.get("spec"), &mut causes);
        }
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

/// Validates the template of a StatefulSet. The template may mount the set's claims in addition to its own volumes.
fn stateful_template(spec: At, causes: &mut Causes) {
    let at = spec.get("template");
    let claims = spec.get("volumeClaimTemplates");
    let claimed = claims.items().map(|claim| claim.value["metadata"]["name"].as_str().unwrap_or_default());
    let claimed: BTreeSet<&str> = claimed.collect();
    if claimed.is_empty() {
        template(at, causes);
        return;
    }
    let mut whole = at.value.clone();
    let volumes = whole["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let own = volumes.into_iter().filter(|volume| !claimed.contains(volume["name"].as_str().unwrap_or("")));
    let made =
        claimed.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim_name(name) } }));
    whole["spec"]["volumes"] = own.chain(made).collect();
    template(at.holding(&whole), causes);
}

/// The name of the first pod's claim, made from the name of its template; empty if the template has no name.
fn claim_name(template: &str) -> String {
    if template.is_empty() { String::new() } else { format!("{template}-0") }
}

pub fn controller_revision(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let data = root.get("data");
    not_negative(root.get("revision"), &mut causes);
    match old {
        Some(old) => immutable(data, &old["data"], &mut causes),
        None if !data.is_set() => causes.push(data.required("data is mandatory")),
        None if !data.value.is_object() => causes.push(data.required("data must be a valid JSON object")),
        None => {}
    }
    causes
}

/// Validates a ReplicationController, whose selector is a plain map.
pub fn replication_controller(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    none_negative(spec, &["replicas", "minReadySeconds"], &mut causes);
    let selector = spec.get("selector");
    if selector.is_empty() {
        causes.push(selector.required(""));
    }
    let template_at = spec.get("template");
    if !template_at.is_set() {
        causes.push(template_at.required(""));
        return causes;
    }
    let metadata = template_at.get("metadata");
    let labels = metadata.get("labels");
    if selector.entries().any(|(key, wanted)| labels.value.get(key) != Some(wanted.value)) {
        causes.push(labels.invalid(MISMATCH));
    }
    made(spec, "ReplicationController", &mut causes);
    template(template_at, &mut causes);
    causes
}

/// Checks that the selector is set, is not empty, and matches the template.
fn selected(spec: At, what: &str, unreadable: &str, causes: &mut Causes) {
    let at = spec.get("selector");
    if at.is_set() {
        selector(at, causes);
        not_empty(at, what, causes);
        if LabelSelector::from_object(at.value).is_err() {
            causes.push(at.invalid(unreadable));
        }
    } else {
        causes.push(at.required(""));
    }
    matches_template(spec, causes);
}

fn not_empty(at: At, what: &str, causes: &mut Causes) {
    if at.get("matchLabels").is_empty() && at.get("matchExpressions").is_empty() {
        causes.push(at.invalid(&format!("empty selector is invalid for {what}")));
    }
}

fn matches_template(spec: At, causes: &mut Causes) {
    let template = spec.get("template");
    let metadata = template.get("metadata");
    let labels = metadata.get("labels");
    if !selects(spec.get("selector").value, labels.value) {
        causes.push(labels.invalid(MISMATCH));
    }
}

fn kept_selector(spec: At, old: Option<&Value>, causes: &mut Causes) {
    if let Some(old) = old {
        immutable(spec.get("selector"), &old["spec"]["selector"], causes);
    }
}

fn need_choice(at: At, [one, other]: [&str; 2], causes: &mut Causes) {
    need(at, causes);
    if !at.is_empty() && at.text() != one && at.text() != other {
        causes.push(at.invalid(&format!("must be '{one}' or '{other}'")));
    }
}

/// Whether a bound is zero: `0`, `0%`, `"0"` or an unreadable value.
fn is_none(bound: &Value) -> bool {
    let read = || bound.as_str().and_then(|text| text.parse().ok());
    bound.as_i64().or_else(|| percent(bound)).or_else(read).unwrap_or(0) == 0
}

fn not_all_and_more(at: At, causes: &mut Causes) {
    if percent(at.value).is_some_and(|percent| percent > 100) {
        causes.push(at.invalid("must not be greater than 100%"));
    }
}

/// Validates the pod template of a workload that runs forever: its restart policy must be `Always`, and it must not
/// have a deadline.
fn made(spec: At, what: &str, causes: &mut Causes) {
    let template = spec.get("template");
    let pod = template.get("spec");
    let restart = pod.get("restartPolicy");
    if restart.text() != "Always" {
        causes.push(restart.not_supported(&["Always"]));
    }
    let deadline = pod.get("activeDeadlineSeconds");
    if deadline.is_set() {
        causes.push(deadline.forbidden(&format!("activeDeadlineSeconds in {what} is not Supported")));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

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
            let missing = match kind {
                "DaemonSet" => {
                    "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not ma"
                }
                _ => "spec.selector: Required value",
            };
            check_rows(
                &good,
                &[
                    ("/spec/selector", Value::Null, missing),
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
                    (
                        "/spec/template/spec/activeDeadlineSeconds",
                        json!(5),
                        "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ",
                    ),
                    ("/spec/template/spec/containers", json!([]), "spec.template.spec.containers: Required value"),
                    ("/spec/minReadySeconds", json!(-1), "spec.minReadySeconds: Invalid value: -1: must be greater"),
                ],
            );
            let template = ("/spec/template/spec/containers/0/image", json!("a:2"), "");
            check_updates(&good, &[template]);
        }
    }

    #[test]
    fn selectors_stay() {
        for kind in ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"] {
            let mut wider = workload(kind);
            wider["spec"]["template"]["metadata"]["labels"]["tier"] = json!("front");
            let expected = match kind {
                "StatefulSet" => {
                    "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinal"
                }
                _ => "spec.selector: Invalid value: {\"matchLabels\":{\"tier\":\"front\"}}: field is immutable",
            };
            check_updates(&wider, &[("/spec/selector", json!({"matchLabels": {"tier": "front"}}), expected)]);
        }
    }

    #[test]
    fn strategies() {
        let unavailable = "spec.strategy.rollingUpdate.maxUnavailable: Invalid value";
        check_rows(
            &workload("Deployment"),
            &[
                ("/spec/replicas", json!(-1), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
                (
                    "/spec/strategy",
                    json!({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}}),
                    &format!("{unavailable}: \"0%\": may not be 0 when `maxSurge`"),
                ),
                (
                    "/spec/strategy/rollingUpdate/maxUnavailable",
                    json!("101%"),
                    &format!("{unavailable}: \"101%\": must not be greater than 100%"),
                ),
                ("/spec/strategy/rollingUpdate/maxSurge", json!("150%"), ""),
                (
                    "/spec/strategy",
                    json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "x"}}),
                    &format!("{unavailable}: \"x\": may not be 0 when `maxSurge`"),
                ),
                (
                    "/spec/strategy/rollingUpdate/maxUnavailable",
                    json!("x"),
                    &format!("{unavailable}: \"x\": a valid perc"),
                ),
                (
                    "/spec/strategy/type",
                    json!("Swap"),
                    "spec.strategy: Unsupported value: {\"type\":\"Swap\"}: support",
                ),
                (
                    "/spec/strategy",
                    json!({"type": "Recreate", "rollingUpdate": {}}),
                    "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
                ),
                (
                    "/spec/progressDeadlineSeconds",
                    json!(0),
                    "spec.progressDeadlineSeconds: Invalid value: 0: must be greater than minReadySeconds",
                ),
            ],
        );
        let surge = "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable";
        check_rows(
            &workload("DaemonSet"),
            &[
                ("/spec/updateStrategy/type", json!("OnDelete"), ""),
                (
                    "/spec/updateStrategy/type",
                    json!("Now"),
                    "spec.updateStrategy: Unsupported value: {\"type\":\"Now\"}",
                ),
                ("/spec/updateStrategy/rollingUpdate/maxSurge", json!(1), surge),
                (
                    "/spec/updateStrategy/rollingUpdate/maxUnavailable",
                    json!(0),
                    "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
                ),
                ("/spec/updateStrategy/rollingUpdate", json!({"maxUnavailable": 0, "maxSurge": "30%"}), ""),
                ("/spec/updateStrategy/rollingUpdate", json!({"maxUnavailable": "2", "maxSurge": 1}), surge),
            ],
        );
    }

    #[test]
    fn rules_of_stateful_sets() {
        let mut claiming = workload("StatefulSet");
        claiming["spec"]["volumeClaimTemplates"] = json!([{
            "metadata": {"name": "claim"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }]);
        let mount = |name: &str| json!([{"name": name, "mountPath": "/d"}]);
        check_rows(
            &claiming,
            &[
                (
                    "/spec/podManagementPolicy",
                    json!("Any"),
                    "spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'",
                ),
                (
                    "/spec/updateStrategy/type",
                    json!("Now"),
                    "spec.updateStrategy: Invalid value: {\"type\":\"Now\"}: must be 'RollingUpdate' or 'OnDelete'",
                ),
                (
                    "/spec/updateStrategy",
                    json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
                    "spec.updateStrategy.rollingUpdate: Invalid value: ",
                ),
                (
                    "/spec/updateStrategy",
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}),
                    "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
                ),
                (
                    "/spec/updateStrategy",
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "x"}}),
                    "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"x\": cannot be 0",
                ),
                (
                    "/spec/updateStrategy/rollingUpdate/partition",
                    json!(-1),
                    "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1",
                ),
                (
                    "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
                    json!("Keep"),
                    "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: \"Keep\": supported values",
                ),
                ("/spec/ordinals/start", json!(-1), "spec.ordinals.start: Invalid value: -1: must be greater than or"),
                // The limit is not validated, because old objects may have an invalid limit.
                ("/spec/revisionHistoryLimit", json!(-1), ""),
                (
                    "/spec/serviceName",
                    json!("A_b"),
                    "spec.serviceName: Invalid value: \"A_b\": a lowercase RFC 1123 la",
                ),
                ("/spec/template/spec/containers/0/volumeMounts", mount("claim"), ""),
                (
                    "/spec/template/spec/containers/0/volumeMounts",
                    mount("other"),
                    "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"other\"",
                ),
            ],
        );
        check_updates(
            &claiming,
            &[
                ("/spec/replicas", json!(3), ""),
                ("/spec/ordinals/start", json!(3), ""),
                ("/spec/revisionHistoryLimit", json!(3), ""),
                ("/spec/minReadySeconds", json!(3), ""),
                ("/spec/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete"), ""),
                ("/spec/serviceName", json!("other"), "spec: Forbidden: updates to statefulset spec for fields other"),
                (
                    "/spec/volumeClaimTemplates/0/spec/resources/requests/storage",
                    json!("2Gi"),
                    "spec: Forbidden: updates to statefulset spec for fields other",
                ),
            ],
        );
    }

    #[test]
    fn rules_of_revisions() {
        let good = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "a"},
            "data": {"spec": {}}, "revision": 1,
        });
        check_rows(
            &good,
            &[
                ("/data", Value::Null, "data: Required value: data is mandatory"),
                ("/data", json!([1]), "data: Required value: data must be a valid JSON object"),
                ("/revision", json!(-1), "revision: Invalid value: -1: must be greater than or equal to 0"),
            ],
        );
        check_updates(
            &good,
            &[
                ("/revision", json!(2), ""),
                ("/data/spec", json!({"a": 1}), "data: Invalid value: {\"spec\":{\"a\":1}}: field is immutable"),
            ],
        );
    }
}

//! Validation of updates of a pod, which may change few fields.

use super::annotations;
use super::container::bare_image;
use super::placement;
use crate::kinds::rules::{At, between, need, same};
use crate::refusal::{Cause, Causes};
use holdfast_value::{CompactString, Value, json};
use std::collections::BTreeSet;

/// Kubernetes' message for a change of any other field.
const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                     to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                     previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Validates an update. Only few fields of the spec of a pod may change, such as the images of containers:
/// [`with_changeable_restored`] lists them.
pub(super) fn update(root: At, old: &Value, causes: &mut Causes) {
    let metadata = root.get("metadata");
    annotations::update(metadata.get("annotations"), &old["metadata"]["annotations"], causes);
    let (spec, old) = (root.get("spec"), &old["spec"]);
    for list in ["containers", "initContainers"] {
        let containers = spec.get(list);
        if containers.len() != old[list].as_array().map_or(0, Vec::len) {
            causes.push(containers.forbidden("pod updates may not add or remove containers"));
            return;
        }
        for container in containers.items() {
            need(container.get("image"), causes);
            bare_image(container.get("image"), causes);
        }
    }
    if !deadline(spec.get("activeDeadlineSeconds"), &old["activeDeadlineSeconds"], causes) {
        return;
    }
    let tolerations = spec.get("tolerations");
    if !keeps_tolerations(tolerations.value, &old["tolerations"]) {
        causes.push(tolerations.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    } else {
        // The rules of a new pod have already run; as in Kubernetes, an update reports invalid tolerations once more.
        placement::tolerations(tolerations, causes);
    }
    only_fewer_gates(spec.get("schedulingGates"), &old["schedulingGates"], causes);
    let kept = with_changeable_restored(spec, old, causes);
    if !same(&kept, old) {
        causes.push(Cause::changed(spec.path(), FIXED, old, &kept));
    }
}

/// Validates a change of the deadline. Returns false if the remaining rules of the update should be skipped.
fn deadline(deadline: At, old: &Value, causes: &mut Causes) -> bool {
    match (deadline.number(), old.as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            between(deadline, 0, i64::from(i32::MAX), causes);
            return false;
        }
        (Some(new), Some(old)) if new > old => {
            causes.push(deadline.invalid("must be less than or equal to previous value"));
            return false;
        }
        (None, Some(_)) => causes.push(deadline.invalid("must not update from a positive integer to nil value")),
        _ => {}
    }
    true
}

/// Whether every old toleration is still present, possibly with another duration.
fn keeps_tolerations(new: &Value, old: &Value) -> bool {
    let identity = |toleration: &Value| {
        let fields = ["key", "operator", "value", "effect"];
        fields.map(|field| toleration[field].as_str().unwrap_or_default().to_owned())
    };
    let kept: BTreeSet<_> = new.as_array().into_iter().flatten().map(identity).collect();
    old.as_array().into_iter().flatten().all(|toleration| kept.contains(&identity(toleration)))
}

fn only_fewer_gates(gates: At, old: &Value, causes: &mut Causes) {
    let before: BTreeSet<&str> =
        old.as_array().into_iter().flatten().filter_map(|gate| gate["name"].as_str()).collect();
    for gate in gates.items() {
        let name = gate.get("name");
        if !before.contains(name.text()) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            causes.push(name.forbidden(&detail));
        }
    }
}

/// The new spec with all changeable fields set back to their old values.
fn with_changeable_restored(at: At, old: &Value, causes: &mut Causes) -> Value {
    let new = at.value;
    let mut spec = new.clone();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array_mut().into_iter().flatten().enumerate() {
            container["image"] = old[list][index]["image"].clone();
        }
    }
    let mut back = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    let lasted_for_ever = old["terminationGracePeriodSeconds"].as_i64().is_some_and(|old| old < 0);
    if lasted_for_ever && new["terminationGracePeriodSeconds"] == json!(1) {
        back.push("terminationGracePeriodSeconds");
    }
    // The node selector and affinity of a gated pod may become narrower.
    if old["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        back.push("nodeSelector");
        let selector = at.get("nodeSelector");
        let narrower = |(key, value): (&CompactString, &Value)| selector.value.get(key) == Some(value);
        if !old["nodeSelector"].as_object().into_iter().flatten().all(narrower) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            causes.push(selector.invalid(detail));
        }
        let affinity = at.get("affinity");
        narrower_affinity(affinity.get("nodeAffinity"), &old["affinity"]["nodeAffinity"], causes);
        if !same(&spec["affinity"]["nodeAffinity"], &old["affinity"]["nodeAffinity"]) {
            spec["affinity"]["nodeAffinity"] = old["affinity"]["nodeAffinity"].clone();
        }
    }
    for field in back {
        spec[field] = old[field].clone();
    }
    // `serviceAccount` is the old name of `serviceAccountName`.
    if spec["serviceAccount"].is_null() {
        spec["serviceAccount"] = old["serviceAccount"].clone();
    }
    spec
}

/// Reports changes that do not narrow the affinity: every required term must stay, and may only get further
/// requirements.
fn narrower_affinity(affinity: At, old: &Value, causes: &mut Causes) {
    let Some(old_terms) = old[REQUIRED]["nodeSelectorTerms"].as_array().filter(|terms| !terms.is_empty()) else {
        return;
    };
    let required = affinity.get(REQUIRED);
    let terms = required.get("nodeSelectorTerms");
    if terms.len() != old_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        causes.push(terms.invalid(detail));
        return;
    }
    let list = |term: &Value, field: &str| term[field].as_array().cloned().unwrap_or_default();
    for (term, old) in terms.items().zip(old_terms) {
        let [new_labels, new_fields] = ["matchExpressions", "matchFields"].map(|field| list(term.value, field));
        let [labels, fields] = ["matchExpressions", "matchFields"].map(|field| list(old, field));
        let grown = |new: &[Value], old: &[Value]| {
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
        };
        // An empty term matches no node, so it must stay empty.
        let was_empty = labels.is_empty() && fields.is_empty();
        let is_empty = new_labels.is_empty() && new_fields.is_empty();
        if (was_empty && !is_empty) || !grown(&new_labels, &labels) || !grown(&new_fields, &fields) {
            causes.push(term.invalid("only additions are allowed (no mutations or deletions)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod_parts::tests::good;
    use crate::kinds::rules::testing::check_updates;
    use holdfast_value::{Value, json};

    #[test]
    fn a_pod_keeps_its_spec() {
        let mut old = good();
        old["spec"]["activeDeadlineSeconds"] = json!(10);
        old["spec"]["terminationGracePeriodSeconds"] = json!(-1);
        let fixed = "spec: Forbidden: pod updates may not change fields other than `spec";
        check_updates(
            &old,
            &[
                ("/spec/containers/0/image", json!("a:2"), ""),
                (
                    "/spec/containers/0/image",
                    json!("a:2 "),
                    "spec.containers[0].image: Invalid value: \"a:2 \": must n",
                ),
                ("/metadata/labels", json!({"a": "b"}), ""),
                ("/spec/activeDeadlineSeconds", json!(5), ""),
                (
                    "/spec/activeDeadlineSeconds",
                    json!(11),
                    "spec.activeDeadlineSeconds: Invalid value: 11: must be less",
                ),
                (
                    "/spec/activeDeadlineSeconds",
                    Value::Null,
                    "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil",
                ),
                ("/spec/terminationGracePeriodSeconds", json!(1), ""),
                ("/spec/terminationGracePeriodSeconds", json!(2), fixed),
                ("/spec/tolerations/1", json!({"key": "b", "operator": "Exists"}), ""),
                (
                    "/spec/tolerations",
                    json!([]),
                    "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSecon",
                ),
                (
                    "/spec/schedulingGates",
                    json!([{"name": "a"}]),
                    "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate",
                ),
                ("/spec/nodeName", json!("n"), fixed),
                ("/spec/containers/0/env/0/value", json!("c"), fixed),
                ("/spec/nodeSelector", json!({"a": "b"}), fixed),
                (
                    "/spec/containers/1",
                    json!({"name": "b", "image": "b"}),
                    "spec.containers: Forbidden: pod updates may not add or remove containers",
                ),
            ],
        );
    }

    #[test]
    fn some_faults_of_an_update_are_told_twice() {
        let old = good();
        for (pointer, value, field) in [
            ("/spec/containers/0/image", json!(""), "spec.containers[0].image"),
            ("/spec/tolerations/1", json!({"key": "b", "operator": "Is"}), "spec.tolerations[1].operator"),
        ] {
            let mut new = old.clone();
            match new.pointer_mut(pointer) {
                Some(at) => *at = value,
                None => new["spec"]["tolerations"].as_array_mut().expect("a list").push(value),
            }
            let causes = super::super::pod::pod(&new, Some(&old));
            let count = causes.iter().filter(|cause| cause.field == field).count();
            assert_eq!(count, 2, "{causes:?}");
        }
    }

    #[test]
    fn a_gated_pod_is_told_more_narrowly_where_to_run() {
        let nodes = |terms: Value| json!({"nodeAffinity": {(super::REQUIRED): {"nodeSelectorTerms": terms}}});
        let is = |key: &str| json!({"key": key, "operator": "Exists"});
        let mut old = good();
        old["spec"]["schedulingGates"] = json!([{"name": "a"}, {"name": "b"}]);
        old["spec"]["nodeSelector"] = json!({"a": "b"});
        old["spec"]["affinity"] = nodes(json!([{"matchExpressions": [is("a")]}]));
        check_updates(
            &old,
            &[
                ("/spec/schedulingGates", json!([{"name": "b"}]), ""),
                ("/spec/schedulingGates", json!([]), ""),
                ("/spec/nodeSelector/c", json!("d"), ""),
                ("/spec/nodeSelector/a", json!("d"), "spec.nodeSelector: Invalid value: {\"a\":\"d\"}: only additions"),
                ("/spec/affinity", nodes(json!([{"matchExpressions": [is("a"), is("b")]}])), ""),
                (
                    "/spec/affinity",
                    nodes(json!([{"matchExpressions": [is("b")]}])),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: \
                     Invalid value: {\"matchExpressions\":",
                ),
                (
                    "/spec/affinity",
                    nodes(json!([{"matchExpressions": [is("a")]}, {"matchExpressions": [is("b")]}])),
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: \
                     Invalid value: [",
                ),
                (
                    "/spec/affinity/podAffinity",
                    json!({(super::REQUIRED): [{"topologyKey": "a"}]}),
                    "spec: Forbidden: pod updates may not change fields other than",
                ),
            ],
        );
    }
}

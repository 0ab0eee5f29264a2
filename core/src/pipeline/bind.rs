//! Binding: assigns a pod to a node. The assignment is permanent.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, admit, body, decode};
use crate::kinds::known::{BINDING, NODE};
use crate::object::meta::{self, Document, metadata, metadata_mut, object_mut};
use crate::refusal::{BadRequest, Cause, Causes, Conflict, Mismatch, Refusal, Subject, Unreasoned};
use holdfast_value::{Value, json};

/// The kind of the target that a Binding must have.
const NODE_KIND: &str = NODE.kind;

pub(super) fn bind(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let layout = decode::layout_of("io.k8s.api.core.v1.Binding")?;
    let mut binding = context.decode_as(BINDING.group, BINDING.version, BINDING.kind, layout)?;
    body::match_namespace(context, metadata_mut(meta::fields_mut(&mut binding)))?;
    let binding = admit::completed_part(context, BINDING, binding, |binding| Ok(check(context, binding)?))?;
    let node = binding["target"]["name"].as_str().unwrap_or("").to_owned();
    let binding = meta::fields(&binding);
    let old = context.existing()?;
    check_unassigned(context, &old, binding)?;
    let mut new = old.document.clone();
    assign(context, meta::fields_mut(&mut new), binding, &node);
    // A binding does not change managed fields, and admission has already run on the Binding.
    Ok(Candidate { tracked: true, admitted: true, ..Candidate::replacing(context, old, new) }.into())
}

/// Checks that a Binding is for the pod that the path names, and that its target is a node.
fn check(context: &Context, binding: &Value) -> Result<(), Refusal> {
    if binding["metadata"]["name"] != context.request.name() {
        return Err(Refusal::BadRequest(BadRequest::OtherNameInBinding));
    }
    let causes = wrong_target(&binding["target"]);
    if causes.is_empty() { Ok(()) } else { Err(Refusal::Unreasoned(Unreasoned::Causes(causes))) }
}

/// The causes of the refusal if the target of a Binding is not a node.
fn wrong_target(target: &Value) -> Causes {
    let mut causes = Causes::default();
    let kind = &target["kind"];
    if !matches!(kind.as_str(), None | Some("" | NODE_KIND)) {
        causes.push(Cause::not_supported("target.kind", kind, &[NODE_KIND, "<empty>"]));
    }
    if target["name"].as_str().is_none_or(str::is_empty) {
        causes.push(Cause::required("target.name", ""));
    }
    causes
}

/// Checks that the pod is the pod that the Binding names, and has no node yet.
fn check_unassigned(context: &Context, old: &Old, binding: &Document) -> Result<(), Refusal> {
    let name = context.request.name();
    let conflict = |why: Conflict| Err(Refusal::Conflict { subject: Subject::new("", "pods/binding", name), why });
    if let Some(why) = other_pod(binding, meta::uid(old.fields()), &old.entry.offset.to_string()) {
        return Err(body::unmet(context, why));
    }
    if meta::is_deleting(old.fields()) {
        return conflict(Conflict::PodDeleting);
    }
    match old.document["spec"]["nodeName"].as_str() {
        None | Some("") if is_gated(&old.document) => conflict(Conflict::PodGated),
        None | Some("") => Ok(()),
        Some(node) => conflict(Conflict::PodAssigned { node: node.into() }),
    }
}

/// The conflict, if the Binding names another UID or resourceVersion than the pod has; otherwise `None`.
fn other_pod(binding: &Document, uid: &str, version: &str) -> Option<Conflict> {
    let wanted = |field: &str| metadata(binding).get(field).and_then(Value::as_str).filter(|wanted| !wanted.is_empty());
    if let Some(wanted) = wanted("uid").filter(|wanted| *wanted != uid) {
        return Some(Conflict::UidPrecondition(Mismatch::new(wanted, uid)));
    }
    let wanted = wanted("resourceVersion").filter(|wanted| *wanted != version)?;
    Some(Conflict::VersionPrecondition(Mismatch::new(wanted, version)))
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// Sets the pod's node and the condition PodScheduled, and copies the labels and annotations of the Binding into the
/// pod.
fn assign(context: &Context, pod: &mut Document, binding: &Document, node: &str) {
    object_mut(pod, "spec").insert("nodeName", node.into());
    // The Binding's labels (the node's topology) never replace labels that the pod has.
    for (key, value) in metadata(binding).get("labels").and_then(Value::as_object).into_iter().flatten() {
        object_mut(metadata_mut(pod), "labels").entry(key.as_str()).or_insert_with(|| value.clone());
    }
    let annotations = metadata(binding).get("annotations").and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        object_mut(metadata_mut(pod), "annotations").insert(key.clone(), value.clone());
    }
    let time = context.stamp.rfc3339();
    // All fields of the condition are set here, because no later stage sets defaults for a binding.
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time});
    let status = object_mut(pod, "status");
    if !context.settings.gates_off.contains("ClearingNominatedNodeNameAfterBinding") {
        // The pod now has a node, so it no longer needs a nominated node.
        status.remove("nominatedNodeName");
    }
    set_condition(status, condition);
}

/// Replaces the pod's condition of the same type, or adds the condition. If the status is unchanged, the old condition
/// stays, with the old transition time.
fn set_condition(status: &mut Document, condition: Value) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(found) if found["status"] == condition["status"] => {}
        Some(found) => *found = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_means_one_state_of_one_pod() {
        let told = |metadata: Value| {
            let binding = json!({ "metadata": metadata });
            let why = other_pod(meta::fields(&binding), "u", "5")?;
            Some(Conflict::Stored { key: "/registry/pods/a/b".into(), why: Box::new(why) }.words("b"))
        };
        let unmet = |what: &str, wanted: &str, found: &str| {
            Some(format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/a/b, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            ))
        };
        assert_eq!(told(json!({})), None);
        assert_eq!(told(json!({"uid": "u", "resourceVersion": "5"})), None);
        assert_eq!(told(json!({"uid": "v", "resourceVersion": "4"})), unmet("UID", "v", "u"));
        assert_eq!(told(json!({"resourceVersion": "4"})), unmet("ResourceVersion", "4", "5"));
    }
}

//! Maintains the objects of `flowcontrol.apiserver.k8s.io`: creates and updates the built-in objects, and sets on each
//! FlowSchema whether its priority level exists.
//!
//! Mandatory objects are always restored, except for the field `spec.exempt` of the level `exempt`. Other built-in
//! objects are updated if their annotation is `true`, or if they have no annotation and no user has changed them.
//! Built-in objects of an older release that this release no longer has are deleted.

use super::schemas::{CATCH_ALL, EXEMPT};
use crate::authz::bootstrap_objects::{AUTO_UPDATE, flow_control_objects};
use crate::authz::{PRIVILEGED_GROUP, User};
use crate::kinds::rules::same;
use crate::kinds::{KindId, Known, known};
use crate::namespace::Step;
use crate::object::encode;
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::stamp::Stamp;
use crate::state::State;
use holdfast_value::{Value, json};
use std::sync::Arc;

/// The name of the user as whom the server writes the objects.
const USER: &str = "system:apiserver";
/// The field manager with which the server writes the objects.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
/// The field manager with which the server writes the status of the objects.
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
const KINDS: [Known; 2] = [known::PRIORITY_LEVEL_CONFIGURATION, known::FLOW_SCHEMA];

/// Plans the steps that are due now. A plan after these steps have been carried out is empty.
pub fn plan(state: &State, stamp: Stamp) -> Vec<Step> {
    let wanted = flow_control_objects();
    let mut steps: Vec<Step> = wanted.iter().filter_map(|object| keep(state, object)).collect();
    steps.extend(KINDS.iter().flat_map(|known| outdated(state, *known, &wanted)));
    steps.extend(status(state, stamp));
    steps
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Creates a built-in object or restores it.
fn keep(state: &State, wanted: &Value) -> Option<Step> {
    let known = KINDS.into_iter().find(|known| known.is_kind_of(wanted))?;
    let (kind, version) = state.registry.known(known)?;
    let name = name(wanted);
    let target = |name| Target { kind, version, namespace: None, name, subresource: None };
    let Some(entry) = state.get(kind, name) else {
        return Some(write(Verb::Create, target(None), wanted, PRODUCER));
    };
    let mut changed = entry.document();
    let is_mandatory = [EXEMPT, CATCH_ALL].contains(&name);
    let auto = is_mandatory || is_auto(&changed);
    let annotation = if auto { "true" } else { "false" };
    let is_annotated = changed["metadata"]["annotations"][AUTO_UPDATE] == annotation;
    let mut spec = wanted["spec"].clone();
    if known == known::PRIORITY_LEVEL_CONFIGURATION && name == EXEMPT {
        // This field belongs to the administrator, who chooses how much the level lends.
        spec["exempt"] = changed["spec"]["exempt"].clone();
    }
    if is_annotated && (!auto || same(&changed["spec"], &spec)) {
        return None;
    }
    changed["metadata"]["annotations"][AUTO_UPDATE] = annotation.into();
    if auto {
        changed["spec"] = spec;
    }
    Some(write(Verb::Update, target(Some(name.to_owned())), &changed, PRODUCER))
}

/// Whether the server updates an object: the value of its annotation. Without an annotation, whether no user has
/// changed the object.
fn is_auto(object: &Value) -> bool {
    match object["metadata"]["annotations"][AUTO_UPDATE].as_str() {
        Some(text) => text == "true",
        None => object["metadata"]["generation"] == 1,
    }
}

/// Deletes objects that the server updates and that this release no longer has.
fn outdated<'a>(state: &'a State, known: Known, wanted: &'a [Value]) -> impl Iterator<Item = Step> + use<'a> {
    let found = state.registry.known(known).into_iter();
    found.flat_map(move |(kind, version)| {
        let is_wanted = move |key: &str| wanted.iter().any(|object| known.is_kind_of(object) && name(object) == key);
        let unknown = state.scan(kind, "", None).filter(move |(key, _)| !is_wanted(key));
        unknown.filter_map(move |(key, entry)| {
            let object = entry.document();
            let auto = object["metadata"]["annotations"][AUTO_UPDATE] == "true";
            let target = Target { kind, version, namespace: None, name: Some(key.to_string()), subresource: None };
            auto.then(|| {
                let mut step = write(Verb::Delete, target, &Value::Null, PRODUCER);
                step.request.options.delete.precondition_resource_version = Some(entry.offset.to_string());
                step
            })
        })
    })
}

/// Sets the condition `Dangling` of each FlowSchema: whether its priority level is missing.
fn status(state: &State, stamp: Stamp) -> Vec<Step> {
    let (Some(schemas), Some((levels, _))) =
        (state.registry.known(known::FLOW_SCHEMA), state.registry.known(known::PRIORITY_LEVEL_CONFIGURATION))
    else {
        return Vec::new();
    };
    let objects = state.scan(schemas.0, "", None);
    objects.filter_map(|(_, entry)| dangling(state, schemas, levels, &entry.document(), stamp)).collect()
}

fn dangling(
    state: &State,
    (kind, version): (KindId, usize),
    levels: KindId,
    schema: &Value,
    stamp: Stamp,
) -> Option<Step> {
    let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str()?;
    let (status, reason, end) = match state.get(levels, level) {
        Some(_) => ("False", "Found", "and it exists"),
        None => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
    let conditions = schema["status"]["conditions"].as_array();
    let now = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Dangling"));
    let is_told = |condition: &&Value| {
        condition["status"] == status && condition["reason"] == reason && condition["message"] == message.as_str()
    };
    if now.is_some_and(|condition| is_told(&condition)) {
        return None;
    }
    let since = now.filter(|condition| condition["status"] == status).map(|now| now["lastTransitionTime"].clone());
    let applied = json!({
        "apiVersion": known::FLOW_SCHEMA.api_version(),
        "kind": known::FLOW_SCHEMA.kind,
        "metadata": {"name": name(schema), "uid": schema["metadata"]["uid"]},
        "status": {"conditions": [{
            "type": "Dangling", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| stamp.rfc3339().into()),
        }]},
    });
    let target =
        Target { kind, version, namespace: None, name: Some(name(schema).into()), subresource: Some("status".into()) };
    let mut step = write(Verb::Patch, target, &applied, CONSUMER);
    step.request.options.force = Some(true);
    step.request.body.format = Format::ApplyPatch;
    Some(step)
}

fn write(verb: Verb, target: Target, document: &Value, manager: &str) -> Step {
    let bytes = document.as_object().map(encode::document).unwrap_or_default();
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let options = Options { field_manager: Some(manager.into()), ..Options::default() };
    let body = Body { content: bytes.into(), format: Format::Json };
    Step { request: Request { user, verb, target, options, body, id: "flow-control".into() } }
}

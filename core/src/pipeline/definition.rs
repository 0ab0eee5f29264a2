//! Definitions of custom kinds: which of the names that they want are theirs, and how they go away.
//!
//! A name is a claim, so that no two definitions ever come to hold it. Whoever comes second is told in its conditions,
//! and gets the name when the first one is gone.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds::KindId;
use crate::kinds::apiextensions::approval::{self, approval};
use crate::kinds::apiextensions::structure_causes;
use crate::kinds::custom;
use crate::namespace::Step;
use crate::object::meta::{self, Document, metadata, object_mut, split_key};
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::state::State;
use memchr::memmem;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What holds a definition until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// In whose name definitions are cleaned up behind.
const USER: &str = "system:apiserver";
/// How many deletions are planned at a time.
const STEPS_MAX: usize = 512;

/// Two kinds of names, each with a space of its own in a group: with the claim's prefix, the fields and the reason of
/// a conflict.
const NAMES: [(&str, &str, &str); 5] = [
    ("resource", "plural", "PluralConflict"),
    ("resource", "singular", "SingularConflict"),
    ("resource", "shortNames", "ShortNamesConflict"),
    ("kind", "kind", "KindConflict"),
    ("kind", "listKind", "ListKindConflict"),
];

fn claim(space: &str, group: &str, name: &str) -> String {
    format!("custom-{space}/{group}/{name}")
}

fn texts(names: &Value, field: &str) -> Vec<String> {
    match &names[field] {
        Value::String(text) if !text.is_empty() => vec![text.clone()],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// The names that a definition holds: those that were accepted.
pub fn claims(definition: &Value) -> Vec<String> {
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let names = &definition["status"]["acceptedNames"];
    let all = NAMES
        .iter()
        .flat_map(|(space, field, _)| texts(names, field).into_iter().map(move |name| claim(space, group, &name)));
    let distinct: BTreeSet<String> = all.collect();
    distinct.into_iter().collect()
}

/// Brings the conditions of a definition up to date, with the names that it has.
pub(super) fn set_conditions(context: &Context, endpoint: &Endpoint, object: &mut Candidate) {
    if endpoint.part == Part::Deletion || context.state.registry.definitions() != Some(context.request.target.kind) {
        return;
    }
    let definition = &object.new;
    let group = definition["spec"]["group"].as_str().unwrap_or_default().to_owned();
    let (accepted, conflict) = names(context, definition, &group);
    let now = context.stamp.rfc3339();
    let established = custom::holds(definition, "Established");
    let violations = violations(definition);
    let approved = approval(&group, &definition["metadata"]["annotations"]);
    let status = object_mut(object.new_mut(), "status");
    status.insert("acceptedNames".into(), accepted.into());
    match &conflict {
        None => {
            set(status, &now, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            if !established {
                let why = "the initial names have been accepted";
                set(status, &now, "Established", true, "InitialNamesAccepted", why);
            }
        }
        Some((reason, message)) => {
            set(status, &now, "NamesAccepted", false, reason, message);
            if !established {
                set(status, &now, "Established", false, "NotAccepted", "not all names are accepted");
            }
        }
    }
    if violations.is_empty() {
        unset(status, "NonStructuralSchema");
    } else {
        set(status, &now, "NonStructuralSchema", true, "Violations", &violations);
    }
    match approved {
        None => unset(status, "KubernetesAPIApprovalPolicyConformant"),
        Some((state, reason, message)) => {
            let holds = state == approval::State::Approved;
            set(status, &now, "KubernetesAPIApprovalPolicyConformant", holds, reason, &message);
        }
    }
}

/// The names that a definition gets, and the last of the conflicts over those that it does not.
fn names(context: &Context, definition: &Value, group: &str) -> (Document, Option<(&'static str, String)>) {
    let owner = context.state.owner(context.request.target.kind, meta::name(meta::fields(definition)));
    let wanted = &definition["spec"]["names"];
    let mut accepted = definition["status"]["acceptedNames"].as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    for (space, field, reason) in NAMES {
        let names = texts(wanted, field);
        let taken: Vec<String> = names
            .iter()
            .filter(|name| {
                let holder = context.state.claimant(&claim(space, group, name));
                holder.is_some_and(|holder| *holder != owner)
            })
            .map(|name| format!("\"{name}\" is already in use"))
            .collect();
        if taken.is_empty() {
            put(&mut accepted, field, wanted.get(field));
        } else {
            conflict = Some((reason, taken.join(", ")));
        }
    }
    put(&mut accepted, "categories", wanted.get("categories"));
    // Required by the schema, so that they are there even when all names are another's.
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| "".into());
    }
    (accepted, conflict)
}

/// Why a definition of the old kind is not as definitions should be; empty for all others, which were refused.
fn violations(definition: &Value) -> String {
    if definition["spec"]["preserveUnknownFields"] != true {
        return String::new();
    }
    let mut causes = vec!["spec.preserveUnknownFields: Invalid value: true: must be false".to_owned()];
    causes.extend(structure_causes(&definition["spec"]).iter().map(ToString::to_string));
    match causes.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn put(names: &mut Document, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => _ = names.insert(field.into(), value.clone()),
        None => _ = names.remove(field),
    }
}

/// A definition waits for its objects to go.
pub(super) fn terminate(context: &Context, definition: &mut Document) {
    if context.state.registry.definitions() != Some(context.request.target.kind) {
        return;
    }
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
        meta::set_finalizers(definition, finalizers);
    }
    let why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let status = object_mut(definition, "status");
    set(status, &context.stamp.rfc3339(), "Terminating", true, "InstanceDeletionPending", why);
}

/// Sets a condition. Its time is that of the last change of its status.
fn set(status: &mut Document, now: &str, kind: &str, holds: bool, reason: &str, message: &str) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let holds = if holds { "True" } else { "False" };
    let known = list.iter().position(|condition| condition["type"] == kind);
    let since = known.map(|at| &list[at]).filter(|known| known["status"] == holds);
    let since = since.and_then(|known| known["lastTransitionTime"].as_str()).unwrap_or(now).to_owned();
    let condition =
        json!({"type": kind, "status": holds, "lastTransitionTime": since, "reason": reason, "message": message});
    match known {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

fn unset(status: &mut Document, kind: &str) {
    if let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        list.retain(|condition| condition["type"] != kind);
    }
}

/// What is to be done for definitions that go away, and for those whose names may have become free.
pub fn plan(state: &State) -> Vec<Step> {
    let Some(definitions) = state.registry.definitions() else { return Vec::new() };
    let mut steps = Vec::new();
    for name in &state.definitions.unsettled {
        let Some(entry) = state.get(definitions, name) else { continue };
        let Value::Object(definition) = entry.document() else { continue };
        if meta::is_deleting(&definition) {
            if meta::finalizers(&definition).contains(&FINALIZER) {
                clean_up(state, definitions, name, definition, &mut steps);
            }
        } else if would_get_names(state, definitions, name, &Value::Object(definition.clone())) {
            // Any write settles the names anew.
            steps.push(write(definitions, name, "status", definition));
        }
        if steps.len() >= STEPS_MAX {
            break;
        }
    }
    steps
}

/// Its objects first, then the finalizer.
fn clean_up(state: &State, definitions: KindId, name: &str, definition: Document, steps: &mut Vec<Step>) {
    let objects = custom::storage_of(name).and_then(|storage| state.registry.by_storage(&storage));
    let objects = objects.filter(|id| state.kind(*id).custom.is_some());
    let (mut left, planned) = (0, steps.len());
    for (key, entry) in objects.into_iter().flat_map(|id| state.scan(id, "", None)) {
        left += 1;
        // Most are not being deleted, and need not be read to know it.
        if memmem::find(&entry.json, b"\"deletionTimestamp\"").is_some()
            && entry.document()["metadata"].get("deletionTimestamp").is_some()
        {
            continue;
        }
        let (namespace, object) = split_key(key);
        let namespace = namespace.map(str::to_owned);
        let target = Target {
            kind: objects.unwrap_or(definitions),
            version: 0,
            namespace,
            name: Some(object.to_owned()),
            subresource: None,
        };
        steps.push(Step { request: request(Verb::Delete, target, Body::default()) });
        if steps.len() >= STEPS_MAX {
            return;
        }
    }
    if left > 0 && steps.len() == planned {
        tell_progress(definitions, name, definition, steps);
    } else if left == 0 {
        let mut released = definition;
        let finalizers = meta::finalizers(&released).into_iter().filter(|finalizer| *finalizer != FINALIZER);
        let finalizers = finalizers.map(str::to_owned).collect();
        meta::set_finalizers(&mut released, finalizers);
        steps.push(write(definitions, name, "", released));
    }
}

/// All that is left waits for others' finalizers: who looks at the definition is told so, once.
fn tell_progress(definitions: KindId, name: &str, definition: Document, steps: &mut Vec<Step>) {
    let mut told = definition;
    let conditions = object_mut(&mut told, "status").get_mut("conditions").and_then(Value::as_array_mut);
    let terminating = conditions.and_then(|all| all.iter_mut().find(|condition| condition["type"] == "Terminating"));
    let Some(condition) = terminating.filter(|condition| condition["reason"] == "InstanceDeletionPending") else {
        return;
    };
    condition["reason"] = "InstanceDeletionInProgress".into();
    condition["message"] = "CustomResource deletion is in progress".into();
    steps.push(write(definitions, name, "status", told));
}

fn would_get_names(state: &State, definitions: KindId, name: &str, definition: &Value) -> bool {
    let owner = state.owner(definitions, name);
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    NAMES.iter().all(|(space, field, _)| {
        texts(&definition["spec"]["names"], field)
            .iter()
            .all(|name| state.claimant(&claim(space, group, name)).is_none_or(|holder| *holder == owner))
    })
}

fn write(kind: KindId, name: &str, subresource: &str, document: Document) -> Step {
    debug_assert_eq!(meta::text(metadata(&document), "name"), name);
    let bytes = crate::object::encode::document(&document).into();
    let subresource = Some(subresource.to_owned()).filter(|subresource| !subresource.is_empty());
    let target = Target { kind, version: 0, namespace: None, name: Some(name.to_owned()), subresource };
    Step { request: request(Verb::Update, target, Body { bytes, format: Format::Json }) }
}

fn request(verb: Verb, target: Target, body: Body) -> Request {
    let user = crate::authz::User {
        name: USER.into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..Default::default()
    };
    let options = Options { field_manager: Some("kube-apiserver".into()), ..Options::default() };
    Request { user: Arc::new(user), verb, target, options, body, id: "definitions".into() }
}

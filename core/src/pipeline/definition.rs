//! What is left to do for definitions of custom kinds: their objects go before them, and names that become free are
//! given to those who wait for them.

use crate::kinds::KindId;
use crate::kinds::apiextensions::names::{FINALIZER, would_get_names};
use crate::kinds::custom;
use crate::namespace::Step;
use crate::object::meta::{self, Document, metadata, object_mut, split_key};
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::state::State;
use memchr::memmem;
use serde_json::Value;
use std::sync::Arc;

/// In whose name definitions are cleaned up behind.
const USER: &str = "system:apiserver";
/// How many deletions are planned at a time.
const STEPS_MAX: usize = 512;

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
        } else if would_get_names(state, &state.owner(definitions, name), &Value::Object(definition.clone())) {
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

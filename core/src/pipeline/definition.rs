//! Background work for CustomResourceDefinitions: deletes the objects of a terminating definition before the
//! definition, and gives names that become free to definitions that wait for them.

use crate::event::Offset;
use crate::kinds::KindId;
use crate::kinds::apiextensions::names::{FINALIZER, would_get_names};
use crate::kinds::custom;
use crate::namespace::{Plan, Step, deleting, rest};
use crate::object::meta::{self, Document, metadata, object_mut, split_key};
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::stamp::Stamp;
use crate::state::State;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user of the writes that this module plans.
const USER: &str = "system:apiserver";
/// The maximum number of writes and deletions in one plan.
const STEPS_MAX: usize = 512;

/// The maximum number of objects that are read in one round.
const LOOKS_MAX: usize = 8192;

/// The progress of this work, stored between rounds. The definitions are read again when one has changed. The objects
/// of a terminating definition are walked once; if finalizers keep objects, the walk is repeated after a pause.
#[derive(Debug, Default)]
pub struct Clearing {
    /// For each terminating definition, the walk through its objects.
    walks: BTreeMap<Arc<str>, Walk>,
    /// All definitions were read up to this event, and no definition waits for a name that is free.
    settled: Offset,
    /// The number of objects that were read in all rounds.
    pub looked_at: usize,
}

/// A walk through all objects of one definition, which may take several rounds.
#[derive(Debug, Default)]
struct Walk {
    /// The key of the last object that was read; `None` before the first one.
    after: Option<Arc<str>>,
    seen: usize,
    deletions: usize,
    /// Whether the walk before this one requested deletions.
    repeated: bool,
    /// The time at which the next walk begins; set when this walk has ended.
    rests_until_ms: Option<i64>,
}

impl Clearing {
    /// Plans the next steps for terminating definitions, and for definitions whose names may have become free.
    pub fn plan(&mut self, state: &State, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(definitions) = state.registry.definitions() else { return plan };
        if self.settled != state.definitions.offset {
            self.look(state, definitions, &mut plan.steps);
        }
        let mut looks = LOOKS_MAX;
        for (name, walk) in &mut self.walks {
            let before = looks;
            let again_ms = walk.go_on(state, definitions, name, stamp, &mut looks, &mut plan.steps);
            self.looked_at += before - looks;
            plan.again_ms = [plan.again_ms, again_ms].into_iter().flatten().min();
            if plan.steps.len() >= STEPS_MAX || looks == 0 {
                plan.again_ms = Some(0);
                break;
            }
        }
        plan
    }

    /// Finds the definitions that need work, and plans the steps that need no walk.
    fn look(&mut self, state: &State, definitions: KindId, steps: &mut Vec<Step>) {
        let mut before = std::mem::take(&mut self.walks);
        for name in &state.definitions.unsettled {
            let Some(definition) = document(state, definitions, name) else { continue };
            if meta::is_deleting(&definition) {
                if meta::finalizers(&definition).contains(&FINALIZER) {
                    self.walks.insert(name.clone(), before.remove(name).unwrap_or_default());
                }
            } else if steps.len() < STEPS_MAX
                && would_get_names(state, &state.owner(definitions, name), &Value::Object(definition.clone()))
            {
                // Any write of the definition makes the server choose its names again.
                steps.push(write(definitions, name, "status", definition));
            }
        }
        if steps.is_empty() {
            self.settled = state.definitions.offset;
        }
    }
}

impl Walk {
    /// Continues the walk: deletes objects, and removes the definition's finalizer after all objects are gone. Returns
    /// the time of the next round; a write causes a round before that time.
    fn go_on(
        &mut self,
        state: &State,
        definitions: KindId,
        name: &str,
        stamp: Stamp,
        looks: &mut usize,
        steps: &mut Vec<Step>,
    ) -> Option<i64> {
        let now_ms = stamp.time.as_millisecond();
        let objects = custom::storage_of(name).and_then(|storage| state.registry.by_storage(&storage));
        let objects = objects.filter(|id| state.kind(*id).custom.is_some() && state.count(*id) > 0);
        let Some(kind) = objects else {
            steps.extend(document(state, definitions, name).map(|definition| release(definitions, name, definition)));
            return None;
        };
        if let Some(until_ms) = self.rests_until_ms {
            if now_ms < until_ms {
                return Some(until_ms);
            }
            *self = Walk { repeated: self.repeated, ..Walk::default() };
        }
        let after = self.after.clone();
        for (key, entry) in state.scan(kind, "", after.as_deref()) {
            if *looks == 0 || steps.len() >= STEPS_MAX {
                return Some(0);
            }
            *looks -= 1;
            self.seen += 1;
            self.after = Some(key.clone());
            if deleting(&entry.json()).is_none() {
                self.deletions += 1;
                steps.push(Step { request: deletion(kind, key) });
            }
        }
        if self.deletions > 0 && !self.repeated {
            *self = Walk { repeated: true, ..Walk::default() };
            return Some(0);
        }
        if self.deletions == 0 {
            self.repeated = false;
            let definition = document(state, definitions, name);
            steps.extend(definition.and_then(|definition| progress(definitions, name, definition)));
        }
        // Objects whose deletion was requested twice, or whose finalizers keep them, are skipped for a while.
        let until_ms = rest(now_ms, self.seen);
        self.rests_until_ms = Some(until_ms);
        Some(until_ms)
    }
}

fn document(state: &State, definitions: KindId, name: &str) -> Option<Document> {
    match state.get(definitions, name)?.document() {
        Value::Object(definition) => Some(definition),
        _ => None,
    }
}

fn deletion(kind: KindId, key: &str) -> Request {
    let (namespace, name) = split_key(key);
    let namespace = namespace.map(str::to_owned);
    let target = Target { kind, version: 0, namespace, name: Some(name.to_owned()), subresource: None };
    request(Verb::Delete, target, Body::default())
}

/// Removes the finalizer from a definition without objects, so that the definition itself is deleted.
fn release(definitions: KindId, name: &str, mut definition: Document) -> Step {
    let finalizers = meta::finalizers(&definition).into_iter().filter(|finalizer| *finalizer != FINALIZER);
    let finalizers = finalizers.map(str::to_owned).collect();
    meta::set_finalizers(&mut definition, finalizers);
    write(definitions, name, "", definition)
}

/// Writes into the condition Terminating, once, that all remaining objects wait for finalizers.
fn progress(definitions: KindId, name: &str, definition: Document) -> Option<Step> {
    let mut told = definition;
    let conditions = object_mut(&mut told, "status").get_mut("conditions").and_then(Value::as_array_mut)?;
    let condition = conditions.iter_mut().find(|condition| condition["type"] == "Terminating")?;
    if condition["reason"] != "InstanceDeletionPending" {
        return None;
    }
    condition["reason"] = "InstanceDeletionInProgress".into();
    condition["message"] = "CustomResource deletion is in progress".into();
    Some(write(definitions, name, "status", told))
}

fn write(kind: KindId, name: &str, subresource: &str, document: Document) -> Step {
    debug_assert_eq!(meta::text(metadata(&document), "name"), name);
    let bytes = crate::object::encode::document(&document);
    let subresource = Some(subresource.to_owned()).filter(|subresource| !subresource.is_empty());
    let target = Target { kind, version: 0, namespace: None, name: Some(name.to_owned()), subresource };
    Step { request: request(Verb::Update, target, Body { content: bytes.into(), format: Format::Json }) }
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

//! The Stages that there are, understood, and whose turn it is.

use crate::stage::{About, Deed, Form, Stage, choose};
use crate::template::Surroundings;
use holdfast_core::kinds::registry;
use holdfast_value::{Value, json};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Meta, Note, Object, Plan, Refused, Resource, Stamp, Text, Time, Verb, World,
};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// A stage is played for an object no more often than this, however little it waits.
const PERIOD_MIN_MS: i64 = 1000;

/// Stages in the world.
#[derive(Debug, Default, Deserialize)]
pub struct StageView {}

holdfast_world::resource!(StageView, "kwok.x-k8s.io", "v1alpha1", "stages", "Stage", cluster);

pub fn resource() -> Resource {
    <StageView as holdfast_world::View>::resource().clone()
}

/// A stage that changes nothing is played again after this at the latest.
const PERIOD_MAX_MS: i64 = 1_000_000;

/// The stages of one kind, and where each object is among them.
pub struct Script {
    about: About,
    stages: BTreeMap<Text, Arc<Stage>>,
    parts: HashMap<Key, Part>,
}

/// One object's part.
struct Part {
    uid: Text,
    /// The stage that is next, and when.
    next: Option<(Text, Time)>,
    /// The last that was played, when, and on which version of the object.
    played: Option<(Text, Time, String)>,
    /// How often in turn the same stage has left the object as it was, and whether people were told why.
    idle: u32,
    told: bool,
}

impl Part {
    /// When the stage that was played last may be played again.
    fn rests_until(&self) -> Option<Time> {
        let (_, time, _) = self.played.as_ref()?;
        let pause =
            PERIOD_MIN_MS.checked_shl(self.idle.min(20)).map_or(PERIOD_MAX_MS, |pause| pause.min(PERIOD_MAX_MS));
        Some(time.plus_millis(pause))
    }
}

/// What the stages say of an object now.
pub enum Turn {
    /// Nothing: it lives as it does without stages.
    Nobodys,
    /// A stage has it in hand, and nothing is to be done but this.
    Stages(Plan),
}

impl Script {
    pub fn new(about: About) -> Script {
        Script { about, stages: BTreeMap::new(), parts: HashMap::new() }
    }

    /// Takes a change of a Stage in. True where objects are to be looked at again.
    pub fn learn(&mut self, change: &Change) -> bool {
        if change.resource != resource() {
            return false;
        }
        let before = self.stages.remove(&change.key.name);
        let stage = change.after.as_ref().and_then(|object| Stage::parse(&object.document()).ok());
        let stage = stage.filter(|stage| stage.about == self.about);
        let concerned = before.is_some() || stage.is_some();
        if let Some(stage) = stage {
            self.stages.insert(change.key.name.clone(), Arc::new(stage));
        }
        concerned
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    pub fn forget(&mut self, key: &Key) {
        self.parts.remove(key);
    }

    /// Whose turn it is with an object. `begun` says that its life has begun already.
    pub fn turn(&mut self, seen: &Subject, begun: bool, stamp: Stamp, around: &dyn Surroundings) -> Turn {
        let uid = seen.object.meta.uid.as_str();
        if self.stages.is_empty() {
            self.parts.remove(&seen.key);
            return Turn::Nobodys;
        }
        if self.parts.get(&seen.key).is_some_and(|part| *part.uid != *uid) {
            self.parts.remove(&seen.key);
        }
        let part = self.parts.get(&seen.key);
        let kept = part
            .and_then(|part| part.next.clone())
            .filter(|(name, _)| self.stages.get(name).is_some_and(|stage| stage.matches(seen.document)));
        let chosen = kept.or_else(|| {
            let stage = choose(self.stages.values().map(AsRef::as_ref), seen.document, stamp.seed)?;
            let due = stage.due(seen.document, stamp.time, stamp.seed.rotate_left(32));
            let last = part.filter(|part| part.played.as_ref().is_some_and(|(name, ..)| **name == *stage.name));
            let due = last.and_then(Part::rests_until).map_or(due, |rested| due.max(rested));
            Some((stage.name.as_str().into(), due))
        });
        let Some((name, due)) = chosen else { return self.nobody(seen, begun) };
        let part = self.parts.entry(seen.key.clone()).or_insert_with(|| Part {
            uid: uid.into(),
            next: None,
            played: None,
            idle: 0,
            told: false,
        });
        // What it did is not seen yet.
        if part
            .played
            .as_ref()
            .is_some_and(|(played, _, version)| *played == name && *version == seen.object.meta.resource_version)
        {
            let again = part.rests_until();
            if again.is_some_and(|again| again > stamp.time) {
                return Turn::Stages(Plan { again, ..Plan::default() });
            }
        }
        if due > stamp.time {
            part.next = Some((name, due));
            return Turn::Stages(Plan { again: Some(due), ..Plan::default() });
        }
        part.next = None;
        let version = &seen.object.meta.resource_version;
        let is_idle = part.played.as_ref().is_some_and(|(played, _, known)| *played == name && known == version);
        if !is_idle {
            (part.idle, part.told) = (0, false);
        }
        part.played = Some((name.clone(), stamp.time, seen.object.meta.resource_version.clone()));
        let Some(stage) = self.stages.get(&name).cloned() else { return Turn::Nobodys };
        let mut plan = match stage.play(seen.document, around) {
            Ok(deeds) => carried_out(deeds, seen, stamp),
            Err(why) => failed(&stage, seen, why),
        };
        if is_idle {
            part.idle = part.idle.saturating_add(1);
            if !std::mem::replace(&mut part.told, true) && !plan.steps.is_empty() {
                let message = format!("Stage {name} was played, and the object is as it was");
                plan.notes.push(seen.note(true, "StageFailed", message));
            }
        }
        // Where it changes nothing, it is looked at again after a while all the same.
        plan.again = part.rests_until();
        Turn::Stages(plan)
    }

    /// The server refuses what a stage does to an object: people are told.
    pub fn refused(&mut self, key: &Key, resource: &Resource, meta: &Meta, refused: &[Refused]) -> Plan {
        let mut plan = Plan::default();
        let Some(part) = self.parts.get_mut(key).filter(|part| *part.uid == *meta.uid) else { return plan };
        let Some((name, ..)) = &part.played else { return plan };
        part.told = true;
        plan.again = part.rests_until();
        let told = |refused: &Refused| format!("Stage {name} cannot be played: {}", refused.refusal.message);
        plan.notes = refused.iter().map(|refused| note(resource, meta, "StageFailed", told(refused))).collect();
        plan
    }

    /// No stage matches: an object that stages have led stays where they left it.
    fn nobody(&mut self, seen: &Subject, begun: bool) -> Turn {
        let led = match self.parts.get_mut(&seen.key) {
            Some(part) => {
                part.next = None;
                part.played.is_some()
            }
            // Who led it is not known any more; stages may have, if one can be about it at all.
            None => begun && self.stages.values().any(|stage| stage.may_match(seen.document)),
        };
        if led { Turn::Stages(Plan::default()) } else { Turn::Nobodys }
    }
}

/// The object that stages are played for.
pub struct Subject<'a> {
    pub resource: &'a Resource,
    pub key: Key,
    pub object: &'a Object,
    pub document: &'a Value,
}

impl Subject<'_> {
    pub fn note(&self, warning: bool, reason: &'static str, message: String) -> Note {
        Note { warning, ..note(self.resource, &self.object.meta, reason, message) }
    }
}

/// A warning about an object.
pub fn note(resource: &Resource, meta: &Meta, reason: &'static str, message: String) -> Note {
    Note {
        resource: resource.clone(),
        key: Key::new(&meta.namespace, &meta.name),
        uid: meta.uid.as_str().into(),
        version: meta.resource_version.as_str().into(),
        warning: true,
        reason,
        message,
        part: String::new(),
        host: String::new(),
    }
}

fn failed(stage: &Stage, seen: &Subject, why: String) -> Plan {
    let message = format!("Stage {} cannot be played: {why}", stage.name);
    Plan { notes: vec![seen.note(true, "StageFailed", message)], ..Plan::default() }
}

fn carried_out(deeds: Vec<Deed>, seen: &Subject, stamp: Stamp) -> Plan {
    let mut plan = Plan::default();
    let meta = &seen.object.meta;
    let act = |verb: Verb| Action::new(seen.resource, seen.object.key(), verb);
    for (place, deed) in deeds.into_iter().enumerate() {
        plan.then(match deed {
            Deed::Event { warning, reason, message } => event(seen, "", warning, &reason, &message, stamp, place),
            Deed::Finalizers(finalizers) => {
                act(Verb::MergePatch(json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version,
                    "finalizers": finalizers}})))
            }
            Deed::Delete => act(Verb::Delete {
                uid: Some(meta.uid.as_str().into()),
                version: None,
                propagation: None,
                grace_seconds: Some(0),
            }),
            Deed::Patch { subresource, form, mut patch } => {
                if form != Form::Json && patch.is_object() {
                    patch["metadata"]["uid"] = meta.uid.as_str().into();
                }
                let verb = match form {
                    Form::Strategic => Verb::StrategicPatch(patch),
                    Form::Merge => Verb::MergePatch(patch),
                    Form::Json => Verb::JsonPatch(patch),
                };
                act(verb).subresource(subresource)
            }
            Deed::Apply(object) => match applied(object) {
                Ok(action) => action,
                Err(why) => {
                    plan.notes.push(seen.note(true, "StageFailed", why));
                    continue;
                }
            },
        });
    }
    plan
}

/// Applies an object of a kind that the server itself knows.
fn applied(object: Value) -> Result<Action, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let about = About::new(text("/apiVersion"), text("/kind"));
    let (group, version) = about.group_version();
    let Some((id, _)) = registry().find_kind(group, version, &about.kind) else {
        return Err(format!("apply: {} {} is no kind that can be applied", about.api_version, about.kind));
    };
    let known = registry().get(id);
    let resource = Resource::new(group, version, &known.resource, &known.kind, known.is_namespaced());
    let namespace = if known.is_namespaced() { text("/metadata/namespace") } else { "" };
    let namespace = if known.is_namespaced() && namespace.is_empty() { "default" } else { namespace };
    Ok(Action::new(&resource, Key::new(namespace, text("/metadata/name")), Verb::Apply(object)))
}

static EVENTS: LazyLock<Resource> = LazyLock::new(|| Resource::new("", "v1", "events", "Event", true));

/// An Event in any words, of a node if one is named.
pub fn event(
    seen: &Subject,
    host: &str,
    warning: bool,
    reason: &str,
    message: &str,
    stamp: Stamp,
    place: usize,
) -> Action {
    let meta = &seen.object.meta;
    let namespace = if meta.namespace.is_empty() { "default" } else { &meta.namespace };
    let short: String = meta.name.chars().take(200).collect();
    let name = format!("{short}.{:016x}", stamp.seed.wrapping_add(place as u64));
    let mut body = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"apiVersion": seen.resource.api_version(), "kind": seen.resource.kind(), "name": meta.name,
            "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": meta.resource_version},
        "type": if warning { "Warning" } else { "Normal" }, "reason": reason, "message": message,
        "source": {"component": "kubelet"}, "reportingComponent": "kubelet", "reportingInstance": host,
        "firstTimestamp": stamp.time, "lastTimestamp": stamp.time, "count": 1,
    });
    if !host.is_empty() {
        body["source"]["host"] = host.into();
    }
    Action::new(&EVENTS, Key::new(namespace, &name), Verb::Create(body))
}

/// Tells people of Stages that are not understood: by a condition on the Stage.
#[derive(Default)]
pub struct Reports;

const CONDITION: &str = "Understood";

impl Controller for Reports {
    acts_as_kubelet!("simulated-stages");

    fn resources(&self) -> Vec<Resource> {
        vec![resource()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.resource == resource() && change.after.is_some() {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let resource = resource();
        let Some(object) = world.object(&resource, key) else { return Plan::default() };
        let document = object.document();
        let conditions = document["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let known = conditions.iter().find(|condition| condition["type"] == CONDITION);
        let why = Stage::parse(&document).err();
        let (status, reason) = if why.is_some() { ("False", "NotUnderstood") } else { ("True", "Played") };
        let message = why.clone().unwrap_or_default();
        let says =
            |field: &str, text: &str| known.is_some_and(|known| known[field].as_str().unwrap_or_default() == text);
        if says("status", status) && says("message", &message) {
            return Plan::default();
        }
        let others = conditions.iter().filter(|condition| condition["type"] != CONDITION).cloned();
        let own = json!({"type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": stamp.time});
        let conditions: Vec<Value> = others.chain([own]).collect();
        let patch = json!({"metadata": {"resourceVersion": object.meta.resource_version}, "status": {"conditions": conditions}});
        let mut plan = Plan::default();
        plan.then(Action::new(&resource, key.clone(), Verb::MergePatch(patch)).subresource("status"));
        if let Some(why) = why {
            let seen = Subject { resource: &resource, key: key.clone(), object, document: &document };
            plan.notes.push(seen.note(true, "NotUnderstood", why));
        }
        plan
    }
}

//! The parsed Stages of one kind. Determines which Stage is due for each object.

use crate::budget::Budget;
use crate::jq::Query;
use crate::stage::{About, Deed, PatchType, Stage, choose};
use crate::template::{RenderFailure, Surroundings};
use holdfast_core::kinds::registry;
use holdfast_value::{Value, json};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Meta, Object, Plan, PlannedEvent, Refused, Resource, Stamp, Text, Time,
    Verb, World,
};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

/// The shortest time between two plays of Stages for an object, in milliseconds.
const PERIOD_MIN_MS: i64 = 1000;

/// The view of a Stage. It has no fields, because a Stage is parsed from the whole stored document.
#[derive(Debug, Default, Deserialize)]
pub struct StageView {}

holdfast_world::resource!(StageView, "kwok.x-k8s.io", "v1alpha1", "stages", "Stage", cluster);

pub fn resource() -> Resource {
    <StageView as holdfast_world::View>::resource().clone()
}

/// The longest time, in milliseconds, after which a Stage that changes nothing is played again.
const PERIOD_MAX_MS: i64 = 1_000_000;

/// The first pause of a Stage in a namespace in which it exceeded its budget, in milliseconds.
const REST_MIN_MS: i64 = 1000;
/// The longest pause of a Stage in a namespace, in milliseconds.
const REST_MAX_MS: i64 = 64_000;
/// If there are this many pauses, the pauses that ended long ago are dropped.
const RESTS_KEPT: usize = 4096;

/// The Stages of one kind, and the state of each object for which they are played.
pub struct Script {
    about: About,
    stages: BTreeMap<Text, Arc<Stage>>,
    parts: HashMap<Key, ObjectState>,
    /// The pauses of Stages that exceeded their budget, by Stage and namespace.
    rests: HashMap<(Text, Text), Pause>,
    /// Events about Stages that are still to be written.
    notes: Vec<PlannedEvent>,
}

/// The pause of a Stage in one namespace. Because of the pause, large objects of one tenant do not delay the objects of
/// other tenants.
struct Pause {
    until: Time,
    pause_ms: i64,
    /// The object for which the Stage exceeded its budget. That object continues without the Stage; other objects of
    /// the namespace wait until the pause ends.
    name: Text,
}

/// Which Stages were played for one object, and which is next.
struct ObjectState {
    uid: Text,
    /// The name of the next Stage, and the time at which it is due.
    next: Option<(Text, Time)>,
    /// The name of the Stage that was played last, the time at which it was played, and the resource version of the
    /// object at this time.
    played: Option<(Text, Time, String)>,
    /// How many times in a row the Stage has left the object unchanged. `told` says whether an Event has reported that.
    idle: u32,
    told: bool,
}

impl ObjectState {
    /// The time before which the last Stage is not played again; `None` if it need not wait.
    fn rests_until(&self) -> Option<Time> {
        let (_, time, _) = self.played.as_ref()?;
        let pause =
            PERIOD_MIN_MS.checked_shl(self.idle.min(20)).map_or(PERIOD_MAX_MS, |pause| pause.min(PERIOD_MAX_MS));
        Some(time.plus_millis(pause))
    }
}

/// What the Stages decide about an object.
pub enum StageDecision {
    /// No Stage applies to the object, so the object behaves as if there were no Stages.
    Nobodys,
    /// Stages control the object. The plan is everything that happens to the object now.
    Stages(Plan),
}

impl Script {
    pub fn new(about: About) -> Script {
        let (stages, parts, rests) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        Script { about, stages, parts, rests, notes: Vec::new() }
    }

    /// Applies a change of a Stage. Returns whether objects must be planned again.
    pub fn apply_change(&mut self, change: &Change) -> bool {
        if change.resource != resource() {
            return false;
        }
        let before = self.stages.remove(&change.key.name);
        self.rests.retain(|(name, _), _| *name != change.key.name);
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

    /// Plans an object by its Stages. `begun` says whether the object already has a status, whether Stages have set it
    /// or not.
    pub fn decide(
        &mut self,
        seen: &StagedObject,
        begun: bool,
        stamp: Stamp,
        around: &dyn Surroundings,
    ) -> StageDecision {
        let uid = seen.object.meta.uid.as_str();
        if self.stages.is_empty() {
            self.parts.remove(&seen.key);
            return StageDecision::Nobodys;
        }
        if self.parts.get(&seen.key).is_some_and(|part| *part.uid != *uid) {
            self.parts.remove(&seen.key);
        }
        if let Some(again) = self.awaits(seen, stamp.time) {
            return StageDecision::Stages(Plan { requeue_at: Some(again), ..Plan::default() });
        }
        let work = Evaluation { document: seen.document, spent: RefCell::default() };
        let chosen = self.next(seen, stamp, &work);
        let unknown = begun && chosen.is_none() && !self.parts.contains_key(&seen.key);
        let begun = unknown && self.may_match(seen, stamp.time, &work);
        for name in work.spent.into_inner() {
            if let Some(stage) = self.stages.get(&*name).cloned() {
                self.pause(&stage, seen, stamp.time);
            }
        }
        let Some((name, due)) = chosen else { return self.nobody(seen, begun) };
        let part = self.parts.entry(seen.key.clone()).or_insert_with(|| ObjectState {
            uid: uid.into(),
            next: None,
            played: None,
            idle: 0,
            told: false,
        });
        // The object still has the version at which the Stage was played last. So either the world does not contain the
        // effect yet, or the Stage has changed nothing.
        if part
            .played
            .as_ref()
            .is_some_and(|(played, _, version)| *played == name && *version == seen.object.meta.resource_version)
        {
            let again = part.rests_until();
            if again.is_some_and(|again| again > stamp.time) {
                return StageDecision::Stages(Plan { requeue_at: again, ..Plan::default() });
            }
        }
        if due > stamp.time {
            part.next = Some((name, due));
            return StageDecision::Stages(Plan { requeue_at: Some(due), ..Plan::default() });
        }
        part.next = None;
        let version = &seen.object.meta.resource_version;
        let is_idle = part.played.as_ref().is_some_and(|(played, _, known)| *played == name && known == version);
        if !is_idle {
            (part.idle, part.told) = (0, false);
        }
        part.played = Some((name.clone(), stamp.time, seen.object.meta.resource_version.clone()));
        let Some(stage) = self.stages.get(&name).cloned() else { return StageDecision::Nobodys };
        let mut plan = match stage.play(seen.document, around) {
            Ok(deeds) => carried_out(deeds, seen, stamp),
            Err(why) => {
                if why == RenderFailure::Spent {
                    self.pause(&stage, seen, stamp.time);
                }
                failed(&stage, seen, why)
            }
        };
        let Some(part) = self.parts.get_mut(&seen.key) else { return StageDecision::Stages(plan) };
        if is_idle {
            part.idle = part.idle.saturating_add(1);
            if !std::mem::replace(&mut part.told, true) && !plan.steps.is_empty() {
                let message = format!("Stage {name} was played, and the object is as it was");
                plan.events.push(seen.note(true, "StageFailed", message));
            }
        }
        // If the Stage has changed nothing, it is checked again after a while.
        plan.requeue_at = part.rests_until();
        StageDecision::Stages(plan)
    }

    /// Handles the server's refusal of an effect of a Stage, and reports the refusal.
    pub fn refused(&mut self, key: &Key, resource: &Resource, meta: &Meta, refused: &[Refused]) -> Plan {
        let mut plan = Plan::default();
        let Some(part) = self.parts.get_mut(key).filter(|part| *part.uid == *meta.uid) else { return plan };
        let Some((name, ..)) = &part.played else { return plan };
        part.told = true;
        plan.requeue_at = part.rests_until();
        let told = |refused: &Refused| format!("Stage {name} cannot be played: {}", refused.refusal.message);
        plan.events = refused.iter().map(|refused| note(resource, meta, "StageFailed", told(refused))).collect();
        plan
    }

    /// The name of the next Stage for an object, and the time at which it is due.
    fn next(&self, seen: &StagedObject, stamp: Stamp, work: &Evaluation) -> Option<(Text, Time)> {
        let stages = || self.stages.values().filter(|stage| !self.is_resting(stage, seen, stamp.time));
        let part = self.parts.get(&seen.key);
        let kept = part.and_then(|part| part.next.clone());
        let is_kept = |stage: &&Arc<Stage>| kept.as_ref().is_some_and(|(name, _)| **name == *stage.name);
        if stages().filter(is_kept).any(|stage| work.matches(stage)) {
            return kept;
        }
        let matching: Vec<&Stage> = stages().filter(|stage| work.matches(stage)).map(AsRef::as_ref).collect();
        let weighed = |stage: &Stage| work.of(stage, |budget| stage.weight(seen.document, budget));
        let stage = choose(&matching, weighed, stamp.seed)?;
        let due = |budget: &Budget| stage.due(seen.document, stamp.time, stamp.seed.rotate_left(32), budget);
        let due = work.of(stage, due);
        let last = part.filter(|part| part.played.as_ref().is_some_and(|(name, ..)| **name == *stage.name));
        let due = last.and_then(ObjectState::rests_until).map_or(due, |rested| due.max(rested));
        Some((stage.name.as_str().into(), due))
    }

    /// Whether any Stage that is not paused can match the object, now or later.
    fn may_match(&self, seen: &StagedObject, now: Time, work: &Evaluation) -> bool {
        let mut stages = self.stages.values().filter(|stage| !self.is_resting(stage, seen, now));
        stages.any(|stage| work.of(stage, |budget| stage.may_match(seen.document, budget).unwrap_or(false)))
    }

    fn resting(&self, stage: &Stage, seen: &StagedObject, now: Time) -> Option<&Pause> {
        if self.rests.is_empty() {
            return None;
        }
        let rest = self.rests.get(&(stage.name.as_str().into(), seen.key.namespace.clone()))?;
        (rest.until > now).then_some(rest)
    }

    fn is_resting(&self, stage: &Stage, seen: &StagedObject, now: Time) -> bool {
        self.resting(stage, seen, now).is_some()
    }

    /// The earliest end of a pause of a Stage that may match this object.
    fn awaits(&self, seen: &StagedObject, now: Time) -> Option<Time> {
        let of_others = self.stages.values().filter_map(|stage| {
            let rest = self.resting(stage, seen, now).filter(|rest| rest.name != seen.key.name)?;
            stage.names(seen.document).then_some(rest.until)
        });
        of_others.min()
    }

    /// Pauses a Stage in the object's namespace because it exceeded its budget, and reports the pause in an Event.
    fn pause(&mut self, stage: &Stage, seen: &StagedObject, now: Time) {
        if self.rests.len() >= RESTS_KEPT {
            self.rests.retain(|_, rest| rest.until.plus_millis(REST_MAX_MS) > now);
        }
        let place = (Text::from(stage.name.as_str()), seen.key.namespace.clone());
        let before = self.rests.get(&place).filter(|rest| rest.until.plus_millis(REST_MAX_MS) > now);
        let pause_ms = before.map_or(REST_MIN_MS, |rest| (rest.pause_ms * 2).min(REST_MAX_MS));
        let rest = Pause { until: now.plus_millis(pause_ms), pause_ms, name: seen.key.name.clone() };
        self.rests.insert(place, rest);
        let object = match &*seen.key.namespace {
            "" => seen.key.name.to_string(),
            namespace => format!("{namespace}/{}", seen.key.name),
        };
        let message = format!(
            "its queries or templates are more work for {} {object} than they may be, so that they were not evaluated to \
             the end",
            seen.resource.kind()
        );
        self.notes.push(PlannedEvent {
            resource: resource(),
            key: Key::cluster(&stage.name),
            uid: stage.uid.clone(),
            version: stage.version.clone(),
            warning: true,
            reason: "TooMuchWork",
            message,
            part: String::new(),
            host: String::new(),
        });
    }

    /// The Events about Stages since the last call of this function.
    pub fn take_events(&mut self) -> Vec<PlannedEvent> {
        std::mem::take(&mut self.notes)
    }

    /// The decision for an object that no Stage matches. If Stages have controlled the object before, it stays as it
    /// is.
    fn nobody(&mut self, seen: &StagedObject, begun: bool) -> StageDecision {
        let led = match self.parts.get_mut(&seen.key) {
            Some(part) => {
                part.next = None;
                part.played.is_some()
            }
            // After a restart, the process does not know whether Stages controlled the object before. If a Stage can
            // match the object, Stages may have controlled it.
            None => begun,
        };
        if led { StageDecision::Stages(Plan::default()) } else { StageDecision::Nobodys }
    }
}

/// Evaluates the queries of Stages for one object.
struct Evaluation<'a> {
    document: &'a Value,
    /// The names of the Stages that exceeded their budget.
    spent: RefCell<BTreeSet<String>>,
}

impl Evaluation<'_> {
    fn matches(&self, stage: &Stage) -> bool {
        self.of(stage, |budget| stage.matches(self.document, budget).unwrap_or(false))
    }

    /// Runs `ask` for a Stage with a new budget.
    fn of<T>(&self, stage: &Stage, ask: impl FnOnce(&Budget) -> T) -> T {
        let budget = Query::budget();
        let said = ask(&budget);
        if budget.is_spent() {
            self.spent.borrow_mut().insert(stage.name.clone());
        }
        said
    }
}

/// An object for which Stages are played.
pub struct StagedObject<'a> {
    pub resource: &'a Resource,
    pub key: Key,
    pub object: &'a Object,
    pub document: &'a Value,
}

impl StagedObject<'_> {
    pub fn note(&self, warning: bool, reason: &'static str, message: String) -> PlannedEvent {
        PlannedEvent { warning, ..note(self.resource, &self.object.meta, reason, message) }
    }
}

/// An Event of type Warning about an object.
pub fn note(resource: &Resource, meta: &Meta, reason: &'static str, message: String) -> PlannedEvent {
    PlannedEvent {
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

fn failed(stage: &Stage, seen: &StagedObject, why: RenderFailure) -> Plan {
    let message = format!("Stage {} cannot be played: {why}", stage.name);
    Plan { events: vec![seen.note(true, "StageFailed", message)], ..Plan::default() }
}

fn carried_out(deeds: Vec<Deed>, seen: &StagedObject, stamp: Stamp) -> Plan {
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
                if form != PatchType::Json && patch.is_object() {
                    // The UID is a precondition, so that a later object of this name is not patched.
                    patch["metadata"]["uid"] = meta.uid.as_str().into();
                }
                let verb = match form {
                    PatchType::Strategic => Verb::StrategicPatch(patch),
                    PatchType::Merge => Verb::MergePatch(patch),
                    PatchType::Json => Verb::JsonPatch(patch),
                };
                act(verb).subresource(subresource)
            }
            Deed::Apply(object) => match applied(object) {
                Ok(action) => action,
                Err(why) => {
                    plan.events.push(seen.note(true, "StageFailed", why));
                    continue;
                }
            },
        });
    }
    plan
}

/// The action that applies an object of a built-in kind.
fn applied(object: Value) -> Result<Action, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let about = About::new(text("/apiVersion"), text("/kind"));
    let (group, version) = about.group_version();
    let Some((id, _)) = registry().find_kind(group, version, &about.kind) else {
        return Err(format!("apply: {} {} is not a kind that can be applied", about.api_version, about.kind));
    };
    let known = registry().get(id);
    let resource = Resource::new(group, version, &known.resource, &known.kind, known.is_namespaced());
    let namespace = if known.is_namespaced() { text("/metadata/namespace") } else { "" };
    let namespace = if known.is_namespaced() && namespace.is_empty() { "default" } else { namespace };
    Ok(Action::new(&resource, Key::new(namespace, text("/metadata/name")), Verb::Apply(object)))
}

static EVENTS: LazyLock<Resource> = LazyLock::new(|| Resource::new("", "v1", "events", "Event", true));

/// An Event of a Stage about an object, with any text. If `host` is not empty, the node of this name reports the Event.
pub fn event(
    seen: &StagedObject,
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

/// The controller that reports Stages that cannot be parsed, by a condition in the Stage's status.
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
            let seen = StagedObject { resource: &resource, key: key.clone(), object, document: &document };
            plan.events.push(seen.note(true, "NotUnderstood", why));
        }
        plan
    }
}

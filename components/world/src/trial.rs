//! A cluster in memory for tests of controllers. The core's own rules decide what is stored, the test sets the clock,
//! and the controllers run until none of them has anything to do.
//!
//! Every controller has a world of its own, which contains only the resources in its [`Controller::resources`]. So if a
//! controller does not name a resource that it needs, its test fails. When no controller has anything to do, every key
//! that was ever planned is planned once more, and this plan must have no steps, because a plan that was carried out
//! must leave nothing to do.

use crate::cloud::{CloudAnswer, CloudCall, Fault};
use crate::request::{self, Actor};
use crate::{
    Action, Controller, Driver, ExtraKinds, Key, Plan, PlannedEvent, Refusal, Refused, Resource, Stamp, Task,
    TaskOutcome, Text, Time, Verb, World,
};
use holdfast_core::apply::apply;
use holdfast_core::authz::User;
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::{KindId, registry};
use holdfast_core::list;
use holdfast_core::object::meta;
use holdfast_core::pipeline::{self, Answers, Basis, Clearing, Judgement, Settings};
use holdfast_core::request::Request;
use holdfast_core::state::{self, Entry, State};
use holdfast_value::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The time at which a trial begins: 2026-11-21 10:00 UTC.
const START_SECOND: i64 = 1_795_255_200;
/// The maximum number of plans. If controllers are not finished after this number, the test fails.
const PLANS_MAX: usize = 4_000;

/// The function that answers calls to a cloud.
pub type Cloud = Box<dyn FnMut(&CloudCall, Time) -> Result<CloudAnswer, Fault>>;

/// A cluster in memory, and the controllers that run on it.
pub struct Trial {
    pub state: State,
    pub settings: Settings,
    now: Time,
    requests: u64,
    members: Vec<TrialController>,
    /// The Events that controllers have written, oldest first.
    events: Vec<TrialEvent>,
    /// The actions of controllers that were refused, oldest first.
    refused: Vec<Refused>,
    user: Actor,
    /// The answers of servers other than the API server, by path.
    pub answers: BTreeMap<String, Value>,
    /// Decides whether the request in a `SubjectAccessReview` is allowed.
    pub allows: fn(&Value) -> bool,
    /// The cloud to which controllers make calls. If it is `None`, the calls fail.
    pub cloud: Option<Cloud>,
    /// Whether a controller that is finished must plan nothing when its keys are planned once more. If a controller
    /// depends on changes, and not only on the present state, it may plan something then.
    pub is_level: bool,
    /// The changes that were committed, oldest first; `None` until a test first requests them.
    changes: Option<Vec<state::Change>>,
}

/// An Event that a controller has written, with the name of the component that is its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialEvent {
    pub component: &'static str,
    pub event: PlannedEvent,
}

/// One controller with a world of its own.
struct TrialController {
    driver: Driver,
    actor: Actor,
    resources: Vec<Resource>,
    known: BTreeSet<Key>,
    /// The revision of the registry at which the served kinds were last reported to the controller; `None` if they were
    /// never reported.
    revision: Option<u64>,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial::new()
    }
}

impl Trial {
    /// A cluster with the namespaces `default` and `kube-system`.
    pub fn new() -> Trial {
        let mut trial = Trial {
            state: State::new(Arc::new(registry().clone())),
            settings: Settings::default(),
            now: Time::from_second(START_SECOND),
            requests: 0,
            members: Vec::new(),
            events: Vec::new(),
            refused: Vec::new(),
            user: Actor { user: Arc::new(User::new("jane", &["system:masters"])), field_manager: "jane" },
            answers: BTreeMap::new(),
            allows: |_| false,
            cloud: None,
            is_level: true,
            changes: None,
        };
        for name in ["default", "kube-system"] {
            trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        trial
    }

    /// Adds a controller to the cluster. Its world contains the existing objects.
    pub fn with(mut self, controller: impl Controller + 'static) -> Trial {
        self.add(Box::new(controller));
        self
    }

    pub fn add(&mut self, controller: Box<dyn Controller>) {
        let mut member = TrialController::new(controller);
        for (id, _) in self.state.registry.iter() {
            for (key, entry) in self.state.scan(id, "", None) {
                member.notify(&self.state, id, key, Some(entry), self.now);
            }
        }
        member.driver.complete();
        self.members.push(member);
    }

    /// Replaces the controller that has the name of `controller` by `controller`, which knows nothing that the old
    /// controller remembered.
    pub fn restart(&mut self, controller: impl Controller + 'static) {
        self.members.retain(|member| member.driver.controller(0).name() != controller.name());
        self.add(Box::new(controller));
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// The world of the controller of this name, for tests that make plans themselves.
    #[track_caller]
    pub fn world(&self, controller: &str) -> &World {
        let found = self.members.iter().find(|member| member.driver.controller(0).name() == controller);
        found.unwrap_or_else(|| panic!("there is no {controller}")).driver.world()
    }

    /// The changes that were committed since the last call, oldest first. Changes before the first call are not
    /// recorded.
    pub fn take_changes(&mut self) -> Vec<state::Change> {
        self.changes.replace(Vec::new()).unwrap_or_default()
    }

    /// Advances the clock, without running controllers.
    pub fn pass_millis(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    /// Advances the clock by `seconds` seconds, and runs controllers at each time that a controller waits for.
    pub fn run_for(&mut self, seconds: i64) {
        let end = self.now.plus_seconds(seconds);
        self.run();
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.run();
        }
        self.now = end;
        self.run();
    }

    /// The earliest time at which a controller must plan a key even if nothing changes.
    pub fn next_time(&self) -> Option<Time> {
        self.members.iter().filter_map(|member| member.driver.next_time()).min()
    }

    /// Runs all controllers until none of them has anything to do at the present time.
    #[track_caller]
    pub fn run(&mut self) {
        let mut plans = 0;
        while self.step() {
            plans += 1;
            assert!(plans < PLANS_MAX, "controllers are never quiet; the last writes were refused: {:?}", self.refused);
        }
        for member in self.members.iter_mut().filter(|_| self.is_level) {
            for key in &member.known {
                if member.driver.queue(0).is_failing(key) {
                    continue;
                }
                let plan = member.driver.preview(0, key, Stamp { time: self.now, seed: 0 });
                let name = member.driver.controller(0).name();
                assert!(plan.steps.iter().all(Vec::is_empty), "{name} is not done with {key}: {:#?}", plan.steps);
            }
        }
    }

    /// Plans one key of the first controller that has a key, and carries the plan out. Returns `false` if no controller
    /// has a key.
    pub fn step(&mut self) -> bool {
        self.define();
        let stamp = self.stamp();
        let next = |(index, member): (usize, &mut TrialController)| Some((index, member.driver.next_task(|| stamp)?));
        let Some((index, task)) = self.members.iter_mut().enumerate().find_map(next) else { return false };
        let Task { key, plan, .. } = task;
        self.members[index].known.insert(key.clone());
        if !plan.reviews.is_empty() {
            self.review(index, &key, &plan.reviews);
            return true;
        }
        if !plan.gets.is_empty() {
            self.answer(index, &key, plan.gets);
            return true;
        }
        if !plan.calls.is_empty() {
            self.call(index, &key, plan);
            return true;
        }
        let (mut again, unready) = (plan.requeue_at, plan.unready);
        let refused = self.carry_out(index, plan);
        if !refused.is_empty() {
            let stamp = self.stamp();
            let after = self.members[index].driver.refused(0, &key, &refused, stamp);
            again = again.into_iter().chain(after.requeue_at).min();
            self.carry_out(index, after);
        }
        let outcome =
            TaskOutcome { failed: unready || !refused.is_empty(), requeue_at: again, ..TaskOutcome::default() };
        self.members[index].driver.finish(0, key, outcome, self.now);
        true
    }

    fn stamp(&mut self) -> Stamp {
        self.requests += 1;
        Stamp { time: self.now, seed: self.requests }
    }

    /// Answers the access reviews that a plan requests, so that its key is planned again.
    fn review(&mut self, index: usize, key: &Key, reviews: &[Value]) {
        for review in reviews {
            let mut answer = review.clone();
            answer["status"] = json!({"allowed": (self.allows)(review)});
            self.members[index].driver.reviewed(0, key, review, Ok(answer));
        }
        let outcome = TaskOutcome { awaits_answers: true, requeue_at: Some(self.now), ..TaskOutcome::default() };
        self.members[index].driver.finish(0, key.clone(), outcome, self.now);
    }

    /// Answers the GET requests of a plan, so that its key is planned again.
    fn answer(&mut self, index: usize, key: &Key, asks: Vec<String>) {
        for path in asks {
            let answer = self.answers.get(&path).cloned().map_or_else(|| self.read(&path), Ok);
            self.members[index].driver.answered(0, key, &path, answer);
        }
        let outcome = TaskOutcome { awaits_answers: true, requeue_at: Some(self.now), ..TaskOutcome::default() };
        self.members[index].driver.finish(0, key.clone(), outcome, self.now);
    }

    /// Makes a plan's calls to the cloud, and passes the answers to the controller.
    fn call(&mut self, index: usize, key: &Key, mut plan: Plan) {
        let now = self.now;
        for call in std::mem::take(&mut plan.calls) {
            let none = || Err(Fault::unavailable("there is no cloud"));
            let answer = self
                .cloud
                .as_mut()
                .map_or_else(none, |cloud| cloud(&call, now))
                .and_then(|answer| call.check_answer(answer));
            self.members[index].driver.called(0, key, &call, answer, now);
        }
        self.carry_out(index, plan);
        self.members[index].driver.finish(
            0,
            key.clone(),
            TaskOutcome { awaits_answers: true, requeue_at: Some(now), ..TaskOutcome::default() },
            now,
        );
    }

    /// Carries out the steps of a plan. The step with a refused action is the last one. Returns the refused actions.
    fn carry_out(&mut self, index: usize, plan: Plan) -> Vec<Refused> {
        let member = &self.members[index];
        let (component, actor) = (member.driver.controller(0).component(), member.actor.clone());
        self.events.extend(plan.events.into_iter().map(|event| TrialEvent { component, event }));
        for step in plan.steps {
            let mut refused = Vec::new();
            for action in step {
                match self.act(&action, &actor) {
                    Ok(object) => {
                        let name = object["metadata"]["name"].as_str().unwrap_or(&action.key.name).to_owned();
                        let told =
                            action.event.map(|event| TrialEvent { component, event: event.with_object_name(&name) });
                        self.events.extend(told);
                    }
                    Err(refusal) => refused.push(Refused { action, refusal }),
                }
            }
            if !refused.is_empty() {
                self.refused.extend(refused.iter().cloned());
                return refused;
            }
        }
        Vec::new()
    }

    /// Establishes the definitions of custom kinds and completes their deletion, as the API server itself does.
    fn define(&mut self) {
        for _ in 0..100 {
            let stamp = self.core_stamp();
            let steps = Clearing::default().plan(&self.state, stamp).steps;
            let before = self.state.offset;
            for step in steps {
                let _ = self.submit(&step.request);
            }
            if self.state.offset == before {
                return;
            }
        }
    }
}

/// The actions of people and of other components on the cluster. Kinds are named as for kubectl: `pods`,
/// `deployments.apps`. Objects are named `namespace/name`, or only by their name if they are cluster-scoped or in
/// `default`.
impl Trial {
    /// Creates an object. If a namespaced object has no namespace, it is created in `default`.
    #[track_caller]
    pub fn create(&mut self, object: Value) -> Value {
        self.try_create(object).unwrap_or_else(|refusal| panic!("{refusal:?}"))
    }

    pub fn try_create(&mut self, object: Value) -> Result<Value, Refusal> {
        let (api_version, kind) =
            (object["apiVersion"].as_str().unwrap_or("v1"), object["kind"].as_str().unwrap_or(""));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (id, _) = self
            .state
            .registry
            .find_kind(group, version, kind)
            .unwrap_or_else(|| panic!("no kind {kind} of {api_version}"));
        let found = self.state.kind(id);
        let resource = Resource::new(group, version, &found.resource, kind, found.is_namespaced());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let key = Key::new(if resource.namespaced() { &namespace } else { "" }, "");
        self.user_acts(Action::new(&resource, key, Verb::Create(object)))
    }

    /// Changes an object by a JSON merge patch.
    #[track_caller]
    pub fn patch(&mut self, kind: &str, name: &str, patch: Value) -> Value {
        self.patch_part(kind, name, "", patch)
    }

    #[track_caller]
    pub fn patch_status(&mut self, kind: &str, name: &str, status: Value) -> Value {
        self.patch_part(kind, name, "status", json!({"status": status}))
    }

    #[track_caller]
    pub fn patch_part(&mut self, kind: &str, name: &str, subresource: &'static str, patch: Value) -> Value {
        let (resource, key) = self.locate(kind, name);
        let action = Action::new(&resource, key, Verb::MergePatch(patch)).subresource(subresource);
        self.user_acts(action).unwrap_or_else(|refusal| panic!("{refusal:?}"))
    }

    #[track_caller]
    pub fn delete(&mut self, kind: &str, name: &str) {
        self.delete_as(kind, name, None, None);
    }

    /// Deletes an object. A trial has no kubelets, so a pod that is on a node and has not finished is removed at once
    /// only if the grace period is 0 seconds.
    #[track_caller]
    pub fn delete_as(
        &mut self,
        kind: &str,
        name: &str,
        propagation: Option<crate::Propagation>,
        grace_seconds: Option<i64>,
    ) {
        let (resource, key) = self.locate(kind, name);
        let verb = Verb::Delete { uid: None, version: None, propagation, grace_seconds };
        self.user_acts(Action::new(&resource, key, verb)).unwrap_or_else(|refusal| panic!("{refusal:?}"));
    }

    /// Carries out a request of a user who may do everything.
    pub fn user_acts(&mut self, action: Action) -> Result<Value, Refusal> {
        let user = self.user.clone();
        self.act(&action, &user)
    }

    /// The object with this name; null if it does not exist.
    #[track_caller]
    pub fn get(&self, kind: &str, name: &str) -> Value {
        let (resource, key) = self.locate(kind, name);
        let (id, version) = self.find(&resource);
        let found = request::find(&self.state, &resource, &key);
        found.map(|(_, entry)| entry.document_in(self.state.kind(id), version)).unwrap_or_default()
    }

    /// All objects of a kind, sorted by namespace and name.
    #[track_caller]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let resource = self.resource(kind);
        let (id, version) = self.find(&resource);
        let document = |(_, entry): (_, &Arc<Entry>)| entry.document_in(self.state.kind(id), version);
        self.state.scan(id, "", None).map(document).collect()
    }

    /// The names of all objects of a kind.
    #[track_caller]
    pub fn names(&self, kind: &str) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.list(kind).iter().map(name).collect()
    }

    /// The Events that controllers have written since the last call, as texts: `Normal SuccessfulCreate Created pod:
    /// web-1`.
    pub fn take_event_texts(&mut self) -> Vec<String> {
        let line = |told: TrialEvent| {
            let PlannedEvent { warning, reason, message, .. } = told.event;
            format!("{} {reason} {message}", if warning { "Warning" } else { "Normal" })
        };
        std::mem::take(&mut self.events).into_iter().map(line).collect()
    }

    /// Like [`Trial::take_event_texts`], but each Event has all its fields.
    pub fn take_events(&mut self) -> Vec<TrialEvent> {
        std::mem::take(&mut self.events)
    }

    /// The actions of controllers that were refused since the last call.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    #[track_caller]
    fn locate(&self, kind: &str, name: &str) -> (Resource, Key) {
        let resource = self.resource(kind);
        let key = match (resource.namespaced(), name.split_once('/')) {
            (false, _) => Key::cluster(name),
            (true, Some((namespace, name))) => Key::new(namespace, name),
            (true, None) => Key::new("default", name),
        };
        (resource, key)
    }

    #[track_caller]
    fn resource(&self, name: &str) -> Resource {
        let (plural, group) = match name.split_once('.') {
            Some((plural, group)) => (plural, Some(group)),
            None => (name, None),
        };
        let is_meant = |kind: &&holdfast_core::kinds::Kind| {
            kind.resource == plural && group.is_none_or(|group| kind.versions.iter().any(|of| of.group == group))
        };
        let kind = self.state.registry.iter().map(|(_, kind)| kind).find(is_meant);
        let kind = kind.unwrap_or_else(|| panic!("there is no resource {name}"));
        let group = group.unwrap_or(&kind.hub().group);
        let version = kind.versions.iter().find(|version| version.group == group).unwrap_or(kind.hub());
        Resource::new(&version.group, &version.version, &kind.resource, &kind.kind, kind.is_namespaced())
    }

    #[track_caller]
    fn find(&self, resource: &Resource) -> (KindId, usize) {
        let found = self.state.registry.find(resource.group(), resource.version(), resource.plural());
        found.unwrap_or_else(|| panic!("{resource:?} is not served"))
    }
}

/// The part of the trial that acts as the API server: it judges and stores requests.
impl Trial {
    /// Carries out a request of any user; returns null if the request deleted the object.
    pub fn act(&mut self, action: &Action, actor: &Actor) -> Result<Value, Refusal> {
        if let Some((resource, key, _)) = action.absent.iter().find(|absent| self.is_there(absent)) {
            return Err(Refusal::stale(format!("{resource} {key} is there")));
        }
        let request = request::of(action, &self.state.registry, actor, format!("r{}", self.requests));
        let request = request.ok_or_else(|| Refusal::from(&holdfast_core::Refusal::NoSuchPath))?;
        self.submit(&request).map_err(|refusal| Refusal::from(&refusal))
    }

    /// The answer to a GET request for this path. A list has all objects of the namespace, because selectors are
    /// ignored.
    pub fn read(&self, path: &str) -> Result<Value, Refusal> {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let no_such_path = || Refusal::from(&holdfast_core::Refusal::NoSuchPath);
        let request = request::get(&self.state.registry, path, &self.user).ok_or_else(no_such_path)?;
        if request.target.name.is_none() {
            let (kind, version) = (self.state.kind(request.target.kind), request.target.version);
            let objects = self.state.scan(request.target.kind, "", None);
            let within = |key: &str| meta::split_key(key).0 == request.target.namespace.as_deref();
            let items = objects.filter(|(key, _)| within(key)).map(|(_, entry)| entry.document_in(kind, version));
            return Ok(json!({"items": items.collect::<Vec<_>>()}));
        }
        let entry = list::get(&self.state, &request).map_err(|refusal| Refusal::from(&refusal))?;
        let (kind, version) = (self.state.kind(request.target.kind), request.target.version);
        let document = entry.document_in(kind, version);
        let part = request.target.subresource.as_deref().and_then(|name| kind.subresource(version, name));
        Ok(match part.and_then(|part| part.scale.as_ref()) {
            Some(paths) => Value::Object(pipeline::scale_of(paths, &document)),
            None => document,
        })
    }

    fn is_there(&self, (resource, key, uid): &(Resource, Key, Text)) -> bool {
        let found = request::find(&self.state, resource, key);
        found.is_some_and(|(_, entry)| *uid.as_ref() == *entry.document()["metadata"]["uid"].as_str().unwrap_or(""))
    }

    fn core_stamp(&mut self) -> holdfast_core::stamp::Stamp {
        self.requests += 1;
        holdfast_core::stamp::Stamp { time: self.now.0, seed: self.requests }
    }

    /// Carries out a request, which may be a request of the server itself.
    pub fn request(&mut self, request: &Request) -> Result<Value, Refusal> {
        self.submit(request).map_err(|refusal| Refusal::from(&refusal))
    }

    fn submit(&mut self, request: &Request) -> Result<Value, holdfast_core::Refusal> {
        let stamp = self.core_stamp();
        let basis = Basis::without_authorization(&self.state, &self.settings);
        let decision = match pipeline::judge(basis, request, stamp, &Answers::default()) {
            Judgement::Done(decided, _) => decided?,
            Judgement::Need(effect) => panic!("a trial cannot {}", effect.what()),
        };
        let mut entries = Vec::new();
        for write in decision.writes {
            let offset = self.state.offset.next();
            let record = Record {
                offset: offset.0,
                time_ms: self.now.millis(),
                resource: self.state.kind(write.kind).storage.path.clone(),
                key: write.key.to_string(),
                replaces: self.state.version_of(write.kind, &write.key).map_or(0, |offset| offset.0),
                operation: if write.delete { Operation::Delete } else { Operation::Put } as i32,
                actor: pipeline::actor(request),
                object: write.draft.seal(offset),
            };
            let change = state::Change::from_record(&self.state.registry, &record).expect("a known kind");
            apply(&mut self.state, &change);
            let entry = (!change.deleted).then_some(&change.entry);
            for member in &mut self.members {
                member.notify(&self.state, change.kind, &change.key, entry, self.now);
            }
            entries.push(change.entry.clone());
            self.changes.iter_mut().for_each(|changes| changes.push(change.clone()));
        }
        Ok(match decision.answer {
            pipeline::Answer::Written { index, .. } => entries[index].document(),
            pipeline::Answer::Entry { entry, .. } => entry.document(),
            pipeline::Answer::Document { document, .. } => Value::Object(document),
            pipeline::Answer::Success | pipeline::Answer::Deleted { .. } => Value::Null,
        })
    }
}

impl TrialController {
    fn new(controller: Box<dyn Controller>) -> TrialController {
        let (actor, resources) = (Actor::of(controller.as_ref()), controller.resources());
        let (mut driver, back_off) = (Driver::new(), controller.back_off());
        driver.add(controller, 1, back_off);
        TrialController { driver, actor, resources, known: BTreeSet::new(), revision: None }
    }

    /// Notifies the controller of the new state of an object. `entry` is `None` if the object was deleted.
    fn notify(&mut self, state: &State, id: KindId, key: &str, entry: Option<&Arc<Entry>>, now: Time) {
        self.show(state);
        let Some((resource, version)) = self.resource_of(state, id) else { return };
        let (namespace, name) = meta::split_key(key);
        let key = Key::new(namespace.unwrap_or_default(), name);
        let body = entry.map(|entry| entry.body_in(state.kind(id), version));
        self.driver.apply(&resource, key, body, state.offset.0, now);
    }

    /// Reports the kinds that exist to a controller that needs extra kinds.
    fn show(&mut self, state: &State) {
        let revision = Some(state.registry.revision());
        if self.driver.extra_kinds() != ExtraKinds::None && self.revision != revision {
            self.revision = revision;
            self.driver.set_served(request::served(&state.registry));
            for (_, kind) in state.registry.iter().filter(|(_, kind)| kind.stored) {
                self.driver.reach(&request::resource_of(kind), 0);
            }
        }
    }

    /// The resource by which the controller reads the objects of a kind; `None` if it does not read them.
    fn resource_of(&self, state: &State, id: KindId) -> Option<(Resource, usize)> {
        for resource in &self.resources {
            match state.registry.find(resource.group(), resource.version(), resource.plural()) {
                Some((found, version)) if found == id => return Some((resource.clone(), version)),
                _ => {}
            }
        }
        let kind = state.kind(id);
        let everything = self.driver.extra_kinds() != ExtraKinds::None && kind.stored;
        everything.then(|| (request::resource_of(kind), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Pod;
    use crate::{Change, Keys, View, World};

    /// A controller that creates one twin pod for each pod with the label `twin: wanted`, and annotates such a pod 60
    /// seconds after its creation.
    struct Twins;

    impl Controller for Twins {
        fn name(&self) -> &'static str {
            "twins-controller"
        }

        fn resources(&self) -> Vec<Resource> {
            vec![Pod::resource().clone()]
        }

        fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
            let Some(object) = change.newest() else { return };
            match object.meta.controller() {
                Some(owner) => keys.add(Key::new(&object.meta.namespace, &owner.name)),
                None => keys.add(object.key()),
            }
        }

        fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
            let mut plan = Plan::default();
            let Some(pod) = world.get::<Pod>(key) else { return plan };
            if pod.meta().label("twin") != Some("wanted") {
                return plan;
            }
            if world.owned::<Pod>(&pod.meta().uid).next().is_none() {
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": &*key.name, "uid": pod.meta().uid,
                    "controller": true});
                let body = json!({
                    "metadata": {"generateName": format!("{}-", key.name), "ownerReferences": [owner]},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                });
                let planned = PlannedEvent {
                    resource: Pod::resource().clone(),
                    key: key.clone(),
                    uid: pod.meta().uid.as_str().into(),
                    version: pod.meta().resource_version.as_str().into(),
                    warning: false,
                    reason: "Twin",
                    message: "Created {name}".into(),
                    part: String::new(),
                    host: String::new(),
                };
                let create = Verb::Create(body);
                plan.then(Action::new(Pod::resource(), Key::new(&key.namespace, ""), create).with_event(planned));
            }
            let old = pod.meta().creation_timestamp.expect("a time").plus_seconds(60);
            match old <= stamp.time {
                false => plan.requeue_at(old),
                true if pod.meta().annotation("old").is_none() => {
                    let version = &pod.meta().resource_version;
                    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {"old": "yes"}}});
                    plan.then(Action::new(Pod::resource(), key.clone(), Verb::MergePatch(patch)));
                }
                true => {}
            }
            plan
        }
    }

    fn pod(name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"twin": "wanted"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    }

    #[test]
    fn controllers_run_to_quiet_and_look_again_when_it_is_time() {
        let mut trial = Trial::new().with(Twins);
        trial.create(pod("a"));
        trial.run();
        let pods = trial.list("pods");
        assert_eq!(pods.len(), 2);
        let twin = &pods[1];
        assert_eq!(twin["spec"]["restartPolicy"], "Always", "the core fills in defaults");
        assert_eq!(twin["metadata"]["managedFields"][0]["manager"], "kube-controller-manager");
        let name = twin["metadata"]["name"].as_str().expect("a name");
        assert_eq!(trial.take_event_texts(), [format!("Normal Twin Created {name}")]);
        trial.run_for(59);
        assert_eq!(trial.get("pods", "a")["metadata"]["annotations"], Value::Null);
        trial.run_for(1);
        assert_eq!(trial.get("pods", "a")["metadata"]["annotations"]["old"], "yes");
        trial.delete_as("pods", name, None, Some(0));
        trial.run();
        assert_eq!(trial.list("pods").len(), 2, "another twin is made");
    }

    #[test]
    fn a_controller_that_comes_later_sees_what_there_is() {
        let mut trial = Trial::new();
        trial.create(pod("a"));
        let mut trial = trial.with(Twins);
        trial.run();
        assert_eq!(trial.list("pods").len(), 2);
        trial.restart(Twins);
        trial.run();
        assert_eq!(trial.list("pods").len(), 2);
    }

    /// A controller that never ends: after each of its own writes, it writes again.
    struct Restless;

    impl Controller for Restless {
        fn name(&self) -> &'static str {
            "restless-controller"
        }

        fn resources(&self) -> Vec<Resource> {
            vec![Pod::resource().clone()]
        }

        fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
            keys.add(change.key.clone());
        }

        fn plan(&mut self, _: &World, key: &Key, stamp: Stamp) -> Plan {
            let patch = json!({"metadata": {"annotations": {"n": stamp.seed.to_string()}}});
            let mut plan = Plan::default();
            plan.then(Action::new(Pod::resource(), key.clone(), Verb::MergePatch(patch)));
            plan
        }
    }

    #[test]
    #[should_panic(expected = "never quiet")]
    fn endless_writes_are_found_out() {
        let mut trial = Trial::new().with(Restless);
        trial.create(pod("a"));
        trial.run();
    }
}

//! All controllers in one process. The simulation drives them as the runtime of the controllers does. The manager
//! receives the news of a change some time after the change: in order within a kind, and in any order between kinds.
//! The actions are carried out one at a time.

use super::cluster::{Cluster, Event};
use super::load;
use crate::random::Dice;
use holdfast_controllers::Settings;
use holdfast_controllers::settings::NodeSettings;
use holdfast_core::kinds::KindId;
use holdfast_core::object::{Body, meta};
use holdfast_core::state::State;
use holdfast_value::{Value, json};
use holdfast_world::request::{resource_of, version_of};
use holdfast_world::views::Node;
use holdfast_world::{
    Action, ActionResult, Actor, Driver, Key, ParallelActions, Plan, Refusal, Refused, Resource, Stamp, Task,
    TaskOutcome, Text, Time, Verb, WriteResult,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The grace period of nodes in runs without heartbeats, in seconds. It is so long that all nodes stay healthy.
const FOR_EVER_SECONDS: i64 = 100 * 365 * 86_400;
const WORKERS: usize = 2;

pub struct Manager {
    pub driver: Driver,
    actors: Vec<Actor>,
    /// The resource of each kind, and the version in which the objects of the kind are shown to the manager.
    shown: BTreeMap<KindId, (Resource, Option<usize>)>,
    news: BTreeMap<KindId, VecDeque<News>>,
    works: Vec<RunningPlan>,
    /// Every key that was planned so far, with the index of its controller.
    pub known: BTreeSet<(usize, Key)>,
    plans: u64,
    /// After this time without a heartbeat, in seconds, a node counts as silent.
    grace_seconds: i64,
    started: Time,
    /// The time at which the manager last saw a renewal of each lease, by the lease's name.
    renewed: BTreeMap<String, Time>,
}

struct News {
    key: Key,
    body: Option<Body>,
    version: u64,
}

/// A plan whose actions are being carried out.
struct RunningPlan {
    member: usize,
    key: Key,
    steps: VecDeque<ParallelActions>,
    written: Vec<ActionResult>,
    refused: Vec<Refused>,
    again: Option<Time>,
    unready: bool,
    is_last: bool,
}

/// An action that is about to be carried out.
pub struct Due {
    work: usize,
    pub controller: &'static str,
    pub action: Action,
}

impl Manager {
    /// A manager that has just started, and that has read all current objects.
    pub fn new(state: &State, now: Time, nodes_speak: bool) -> Manager {
        let mut nodes = NodeSettings::default();
        if !nodes_speak {
            (nodes.monitor_grace_seconds, nodes.startup_grace_seconds) = (FOR_EVER_SECONDS, FOR_EVER_SECONDS);
        }
        let grace_seconds = nodes.monitor_grace_seconds;
        let mut driver = Driver::new();
        let mut actors = Vec::new();
        for controller in
            holdfast_controllers::all(&Settings { nodes, host_path_provisioner: true, ..Settings::default() })
        {
            actors.push(Actor::of(controller.as_ref()));
            let back_off = controller.back_off();
            driver.add(controller, WORKERS, back_off);
        }
        let mut shown = BTreeMap::new();
        for resource in driver.resources() {
            if let Some((kind, version)) = state.registry.find(resource.group(), resource.version(), resource.plural())
            {
                shown.insert(kind, (resource.clone(), Some(version)));
            }
        }
        for (id, kind) in state.registry.iter().filter(|(_, kind)| kind.stored && !kind.deletion.expires) {
            shown.entry(id).or_insert_with(|| (resource_of(kind), None));
        }
        let (news, works, known, renewed) = Default::default();
        let mut manager =
            Manager { driver, actors, shown, news, works, known, plans: 0, grace_seconds, started: now, renewed };
        for (id, (resource, version)) in &manager.shown {
            let kind = state.kind(*id);
            let objects = state.scan(*id, "", None).map(|(key, entry)| {
                let (namespace, name) = meta::split_key(key);
                let body = version.map_or_else(|| entry.body().clone(), |version| entry.body_in(kind, version));
                (Key::new(namespace.unwrap_or_default(), name), body, entry.offset.0)
            });
            manager.driver.replace(resource, objects.collect(), state.offset.0, now);
        }
        manager.driver.complete();
        manager
    }

    /// Queues the news of a change, so that the manager receives it later.
    pub fn queue_news(&mut self, state: &State, event: &Event) {
        let Some((_, version)) = self.shown.get(&event.kind) else { return };
        let body = event.entry.as_ref().map(|entry| match version {
            Some(version) => entry.body_in(state.kind(event.kind), *version),
            None => entry.body().clone(),
        });
        let news = News { key: event.key.clone(), body, version: event.version };
        self.news.entry(event.kind).or_default().push_back(news);
    }

    /// Delivers the oldest news of a random kind to the manager.
    pub fn receive_news(&mut self, dice: &mut Dice, now: Time) -> Option<String> {
        let kinds: Vec<KindId> = self.news.iter().filter(|(_, news)| !news.is_empty()).map(|(kind, _)| *kind).collect();
        if kinds.is_empty() {
            return None;
        }
        let kind = kinds[dice.below(kinds.len())];
        let News { key, body, version } = self.news.get_mut(&kind)?.pop_front()?;
        let (resource, _) = self.shown.get(&kind)?;
        let told = format!("{resource} {key} at {version}");
        if resource.plural() == "leases" {
            self.renewed.insert(key.name.to_string(), now);
        }
        self.driver.apply(resource, key, body, version, now);
        self.driver.release_written();
        Some(told)
    }

    /// Makes the next plan. Returns an error if the plan contradicts what the manager itself knows.
    pub fn turn(&mut self, cluster: &Cluster) -> Result<Option<String>, String> {
        self.plans += 1;
        let (time, seed) = (cluster.trial.now(), self.plans);
        let Some(Task { controller_index: member, key, plan, .. }) = self.driver.next_task(|| Stamp { time, seed })
        else {
            return Ok(None);
        };
        let controller = self.driver.controller(member).name();
        let told = format!("{controller} plans {key}");
        self.known.insert((member, key.clone()));
        if controller == "garbage-collector-controller" {
            self.check_foreground(&key, &plan)?;
        }
        if controller == "node-lifecycle-controller" {
            self.check_silence(&key, &plan, time)?;
        }
        if plan.is_idle() {
            let outcome = TaskOutcome { failed: plan.unready, requeue_at: plan.requeue_at, ..TaskOutcome::default() };
            self.driver.finish(member, key, outcome, time);
        } else if !plan.gets.is_empty() || !plan.reviews.is_empty() {
            for path in &plan.gets {
                self.driver.answered(member, &key, path, load::read(cluster, path));
            }
            for review in &plan.reviews {
                let mut answer = review.clone();
                answer["status"] = json!({"allowed": false});
                self.driver.reviewed(member, &key, review, Ok(answer));
            }
            self.driver.finish(member, key, TaskOutcome { requeue_at: Some(time), ..TaskOutcome::default() }, time);
        } else {
            let Plan { steps, requeue_at: again, unready, .. } = plan;
            let (written, refused) = Default::default();
            let steps = steps.into_iter().filter(|step| !step.is_empty()).collect();
            self.works.push(RunningPlan { member, key, steps, written, refused, again, unready, is_last: false });
        }
        Ok(Some(told))
    }

    /// Checks that the manager removes the finalizer of an owner under foreground deletion only when its world contains
    /// no dependent that blocks the owner's deletion.
    fn check_foreground(&self, key: &Key, plan: &Plan) -> Result<(), String> {
        let world = self.driver.world();
        let Some((_, owner)) = world.by_uid(&key.name) else { return Ok(()) };
        let waits = owner.meta.is_deleting() && owner.meta.has_finalizer("foregroundDeletion");
        if !waits || plan.steps.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let blocks = |object: &holdfast_world::Object| {
            let mut owners = object.meta.owner_references.iter();
            owners.any(|of| of.uid == owner.meta.uid && of.block_owner_deletion)
        };
        match world.owned_by(&owner.meta.uid).find(|(_, owned)| blocks(owned)) {
            Some((_, owned)) => Err(format!("{} is let go of while {} is there", owner.meta.name, owned.meta.name)),
            None => Ok(()),
        }
    }

    /// Checks that the manager marks a node as unreachable only when the node was silent for the grace period.
    fn check_silence(&self, node: &Key, plan: &Plan, now: Time) -> Result<(), String> {
        let is_status = |action: &Action| action.resource.plural() == "nodes" && action.subresource == "status";
        let renewed = self.renewed.get(&*node.name).copied().unwrap_or(self.started);
        // A node that has never reported a condition is not checked, because its grace period begins at its creation.
        let found = self.driver.world().get::<Node>(node);
        let is_known = found.is_some_and(|node| !node.status.conditions.is_empty());
        let gives_up = is_known && plan.steps.iter().flatten().any(is_status);
        match gives_up && renewed.plus_seconds(self.grace_seconds) > now {
            true => Err(format!("a node is given up that is alive: {node}, seen at {renewed}")),
            false => Ok(()),
        }
    }

    /// Removes a random action that is ready to be carried out from its plan, and returns it.
    pub fn due(&mut self, dice: &mut Dice) -> Option<Due> {
        if self.works.is_empty() {
            return None;
        }
        let work = dice.below(self.works.len());
        let RunningPlan { member, steps, .. } = &mut self.works[work];
        let step = steps.front_mut()?;
        let action = step.swap_remove(dice.below(step.len()));
        Some(Due { work, controller: self.driver.controller(*member).name(), action })
    }

    pub fn actor(&self, due: &Due) -> &Actor {
        &self.actors[self.works[due.work].member]
    }

    /// Passes the result of an action to the controller that planned the action.
    pub fn answer(&mut self, due: Due, answer: Result<Value, Refusal>, stamp: Stamp) {
        let work = &mut self.works[due.work];
        match answer {
            Ok(object) => work.written.push(written(due.action, &object)),
            Err(refusal) => work.refused.push(Refused { action: due.action, refusal }),
        }
        if work.steps.front().is_some_and(Vec::is_empty) {
            work.steps.pop_front();
            if !work.refused.is_empty() {
                work.steps.clear();
            }
        }
        if work.steps.is_empty() {
            let work = self.works.swap_remove(due.work);
            self.finish(work, stamp);
        }
    }

    fn finish(&mut self, mut work: RunningPlan, stamp: Stamp) {
        if !work.refused.is_empty() && !work.is_last {
            let after = self.driver.refused(work.member, &work.key, &work.refused, stamp);
            work.is_last = true;
            work.again = work.again.into_iter().chain(after.requeue_at).min();
            work.steps = after.steps.into_iter().filter(|step| !step.is_empty()).collect();
            if !work.steps.is_empty() {
                return self.works.push(work);
            }
        }
        let RunningPlan { member, key, written, refused, again, unready, .. } = work;
        let failed = unready || !refused.is_empty();
        let refused = refused.iter().any(|refused| !refused.refusal.is_stale());
        self.driver.finish(
            member,
            key,
            TaskOutcome { written, failed, refused, awaits_answers: false, requeue_at: again },
            stamp.time,
        );
    }

    /// Removes and returns the actions in progress of a manager that ends.
    pub fn under_way(&mut self) -> Vec<(Actor, Action)> {
        let works = std::mem::take(&mut self.works).into_iter();
        let actions = works.filter_map(|mut work| Some((work.member, work.steps.pop_front()?)));
        actions
            .flat_map(|(member, step)| step.into_iter().map(move |action| (member, action)))
            .map(|(member, action)| (self.actors[member].clone(), action))
            .collect()
    }
}

fn written(action: Action, object: &Value) -> ActionResult {
    let Action { resource, key, subresource, verb, .. } = action;
    let result = match (&verb, object) {
        (Verb::Delete { uid, .. }, Value::Null) => WriteResult::Gone(uid.clone().unwrap_or_default()),
        (_, Value::Null) => WriteResult::Gone(Text::default()),
        _ if matches!(subresource, "" | "status") => WriteResult::Version(version_of(object)),
        _ => WriteResult::Nothing,
    };
    let name = object["metadata"]["name"].as_str().unwrap_or(&key.name);
    let key = Key::new(&key.namespace, name);
    ActionResult { resource, key, result }
}

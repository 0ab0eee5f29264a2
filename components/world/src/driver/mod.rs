//! Drives controllers over one world, without a clock and without tokio. The caller notifies the driver of changes,
//! carries out the plans that the driver returns, and reports the results of these plans. The driver then determines
//! when each key is planned again.
//!
//! Namespaces take turns: the next key is from the namespace for which all controllers together have done the least
//! work. Work is counted ([`crate::work`]), so that a namespace with few cheap keys never waits behind a namespace with
//! many or expensive keys.
//!
//! The work of a plan is bounded. If a key's last plan was expensive, the caller may make the key's next plan in the
//! background, on a copy of the world. Meanwhile a placeholder replaces the controller; when the plan is made, the
//! controller is notified of the changes that it missed.
//!
//! After the actions for a key were carried out, the key is planned again only when the world has reached the versions
//! of the writes. So no controller has to keep track of its own writes.

mod background;
mod managed;
mod task;
#[cfg(test)]
mod tests;

pub use background::{BackgroundPlan, FinishedPlan};
pub use task::{ActionResult, Task, TaskOutcome, WriteResult};

use background::Placeholder;
use managed::ManagedController;

use crate::cloud::{CloudAnswer, CloudCall, Fault};
use crate::work::WorkAborted;
use crate::{
    BackOff, Change, Controller, ExtraKinds, FairQueue, Key, Keys, Plan, Refusal, Refused, Resource, Served, Stamp,
    Time, WorkQueue, World, work,
};
use holdfast_core::object::Body;
use holdfast_value::Value;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A time that is before any time for which a key may wait.
const START: Time = Time(jiff::Timestamp::MIN);

/// The work that every plan counts in addition to the work of reading objects, in the units of [`crate::work`].
const PLAN: u64 = 10;
/// A plan that takes more work than this is expensive.
const EXPENSIVE_WORK: u64 = 5_000;
/// The maximum work of one plan. It equals the work of many thousand ordinary plans, or a few seconds.
const PLAN_MAX: u64 = 4_000_000;

/// Several controllers, and the world that they share.
#[derive(Default)]
pub struct Driver {
    world: World,
    controllers: Vec<ManagedController>,
    /// The indexes of the controllers that named a resource, by the resource.
    watchers: HashMap<Resource, Vec<usize>>,
    /// The indexes of the controllers that need other kinds than the resources that they name. Each is notified of
    /// every change.
    extra_watchers: Vec<usize>,
    /// The index of the controller whose keys are considered first in the next namespace. It advances with each key, so
    /// that no controller waits for another controller that always has keys.
    first_considered: usize,
    fair_queue: FairQueue,
    /// The changes that arrived before the world was complete; `None` when the world is complete. Nothing is planned
    /// before that.
    early_changes: Option<Vec<Change>>,
}

/// The next plan: either a task to carry out, or a plan that must first be made in the background.
pub enum NextPlan {
    Task(Task),
    Background(BackgroundPlan),
}

impl Driver {
    /// A driver without controllers. It plans nothing before [`Self::complete`] is called.
    pub fn new() -> Driver {
        Driver { early_changes: Some(Vec::new()), ..Driver::default() }
    }

    /// Adds a controller that works on at most `workers` keys of a namespace at once, and returns the index of the
    /// controller. The caller must add controllers before the world has any objects.
    pub fn add(&mut self, controller: Box<dyn Controller>, workers: usize, back_off: BackOff) -> usize {
        let index = self.controllers.len();
        for resource in controller.resources() {
            self.world.track_resource(&resource);
            let watchers = self.watchers.entry(resource).or_default();
            if watchers.last() != Some(&index) {
                watchers.push(index);
            }
        }
        let extra_kinds = controller.extra_kinds();
        if extra_kinds != ExtraKinds::None {
            self.extra_watchers.push(index);
        }
        controller.indexes(&mut self.world);
        let queue = WorkQueue::new(back_off);
        self.controllers.push(ManagedController {
            controller,
            extra_kinds,
            is_in_background: false,
            missed_changes: Vec::new(),
            expensive: HashSet::new(),
            queue,
            workers: workers.max(1),
            in_progress: HashMap::new(),
            awaited_writes: BTreeMap::new(),
        });
        index
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn controller(&self, index: usize) -> &dyn Controller {
        self.controllers[index].controller.as_ref()
    }

    pub fn queue(&self, index: usize) -> &WorkQueue {
        &self.controllers[index].queue
    }

    pub fn len(&self) -> usize {
        self.controllers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Every resource that a controller names.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.watchers.keys()
    }

    /// The kinds that the world must contain in addition to the resources in [`Driver::resources`].
    pub fn extra_kinds(&self) -> ExtraKinds {
        let extra_watchers = self.extra_watchers.iter().map(|index| {
            let managed = &self.controllers[*index];
            if managed.is_in_background { managed.extra_kinds.clone() } else { managed.controller.extra_kinds() }
        });
        extra_watchers.fold(ExtraKinds::None, ExtraKinds::and)
    }

    /// Applies one version of an object; `body` is `None` if the object was deleted.
    pub fn apply(&mut self, resource: &Resource, key: Key, body: Option<Body>, version: u64, now: Time) {
        let change = self.world.apply(resource, key, body, version, now);
        self.notify(change, now);
    }

    /// Replaces all objects of a resource by a list at a version. The objects that are not in the list were deleted.
    pub fn replace(&mut self, resource: &Resource, objects: Vec<(Key, Body, u64)>, version: u64, now: Time) {
        let changes = self.world.replace(resource, objects, version, now);
        changes.into_iter().for_each(|change| self.notify(change, now));
    }

    /// Records that the server does not serve a resource any more, so that the objects of the resource do not exist any
    /// more.
    pub fn drop_resource(&mut self, resource: &Resource, now: Time) {
        self.replace(resource, Vec::new(), 0, now);
        if !self.watchers.contains_key(resource) {
            self.world.untrack(resource);
        }
    }

    /// Sets which kinds the server serves, and in which versions.
    pub fn set_served(&mut self, served: Served) {
        self.world.set_served(served);
    }

    /// Records that the world contains all changes of the resource up to this version.
    pub fn reach(&mut self, resource: &Resource, version: u64) {
        self.world.reach(resource, version);
    }

    /// Records that the world contains all changes up to this version, whatever the resource.
    pub fn reach_all(&mut self, version: u64) {
        self.world.reach_all(version);
    }

    /// Records that the world is complete, and starts planning. At the start no key waits for more changes, not even a
    /// key in [`Keys::later`].
    pub fn complete(&mut self) {
        let Some(early) = self.early_changes.take() else { return };
        early.into_iter().for_each(|change| self.notify(change, START));
        for managed in &mut self.controllers {
            let mut keys = Keys::default();
            let (world, controller) = (&self.world, &mut managed.controller);
            let _ = catch_unwind(AssertUnwindSafe(|| controller.begin(world, &mut keys)));
            managed.queue.add_all(keys, START);
        }
    }

    pub fn is_complete(&self) -> bool {
        self.early_changes.is_none()
    }

    fn notify(&mut self, change: Change, now: Time) {
        if let Some(early) = &mut self.early_changes {
            early.push(change);
            return;
        }
        let watchers = self.watchers.get(&change.resource).map_or(&[][..], Vec::as_slice);
        let named = watchers.iter().copied();
        let extra_watchers = self.extra_watchers.iter().copied().filter(|index| !watchers.contains(index));
        for index in named.chain(extra_watchers) {
            self.controllers[index].notify(&self.world, &change, now);
        }
    }

    /// The next plan to be carried out; `None` if there is none. A panic in a plan counts as a failure of the plan's
    /// key, and does not affect other keys.
    pub fn next_task(&mut self, stamp: impl FnMut() -> Stamp) -> Option<Task> {
        match self.choose_plan(stamp, None)? {
            NextPlan::Task(task) => Some(task),
            // This case does not occur, because without `background_slots` no plan is made in the background.
            NextPlan::Background(_) => None,
        }
    }

    /// Like [`Driver::next_task`], but an expensive plan is returned without being made, so that the caller can make it
    /// in the background. `background_slots` is the number of further plans that may be made in the background. If it
    /// is 0, expensive plans wait.
    pub fn next_plan(&mut self, stamp: impl FnMut() -> Stamp, background_slots: usize) -> Option<NextPlan> {
        self.choose_plan(stamp, Some(background_slots))
    }

    fn choose_plan(&mut self, mut stamp: impl FnMut() -> Stamp, background_slots: Option<usize>) -> Option<NextPlan> {
        if self.early_changes.is_some() {
            return None;
        }
        let now = stamp().time;
        self.update_turns(now);
        while let Some((index, key, waited_ms)) = self.next_key(now, background_slots) {
            let managed = &mut self.controllers[index];
            if background_slots.is_some() && managed.expensive.contains(&key) {
                managed.extra_kinds = managed.controller.extra_kinds();
                let controller = std::mem::replace(&mut managed.controller, Box::new(Placeholder));
                managed.is_in_background = true;
                let (world, stamp) = (self.world.clone(), stamp());
                return Some(NextPlan::Background(BackgroundPlan {
                    controller_index: index,
                    key,
                    controller,
                    world,
                    stamp,
                    waited_ms,
                }));
            }
            let plan = || managed.controller.plan(&self.world, &key, stamp());
            let (planned, work) = work::limited(PLAN_MAX, plan);
            if let Some(task) = self.handle_planned(index, key, (planned, work), waited_ms, now) {
                return Some(NextPlan::Task(task));
            }
            self.update_turns(now);
        }
        None
    }

    /// Puts a controller that has made a plan in the background back in place, and notifies it of the changes that it
    /// has missed. Returns the task that carries out the plan.
    pub fn finish_background(&mut self, back: FinishedPlan, now: Time) -> Option<Task> {
        let FinishedPlan { controller_index: index, key, controller, planned, waited_ms } = back;
        let managed = &mut self.controllers[index];
        (managed.controller, managed.is_in_background) = (controller, false);
        for change in std::mem::take(&mut managed.missed_changes) {
            managed.notify(&self.world, &change, now);
        }
        self.handle_planned(index, key, planned, waited_ms, now)
    }

    /// Whether a controller is making a plan in the background, so that it cannot do other work.
    pub fn is_in_background(&self, index: usize) -> bool {
        self.controllers[index].is_in_background
    }

    /// The task that carries out a finished plan; `None` if the plan panicked, which counts as a failure of the plan's
    /// key.
    fn handle_planned(
        &mut self,
        index: usize,
        key: Key,
        (planned, work): (Result<Plan, WorkAborted>, u64),
        waited_ms: i64,
        now: Time,
    ) -> Option<Task> {
        let work = work + PLAN;
        self.fair_queue.charge(&key.namespace, work);
        let expensive = &mut self.controllers[index].expensive;
        if work <= EXPENSIVE_WORK {
            expensive.remove(&key);
        } else if !expensive.contains(&key) {
            expensive.insert(key.clone());
        }
        let plan = match planned {
            Ok(plan) => plan,
            Err(WorkAborted::TooMuch) => {
                let left = vec![format!("to plan it takes more work than {PLAN_MAX} looks at objects")];
                Plan { unready: true, skipped: left, ..Plan::default() }
            }
            Err(WorkAborted::Panicked) => {
                self.finish(index, key, TaskOutcome { failed: true, ..TaskOutcome::default() }, now);
                return None;
            }
        };
        Some(Task { controller_index: index, key, plan, waited_ms, work })
    }

    /// Registers the namespaces that have keys now, so that each gets a turn.
    fn update_turns(&mut self, now: Time) {
        for (index, managed) in self.controllers.iter_mut().enumerate() {
            for namespace in managed.queue.wake(now) {
                self.fair_queue.join(namespace, index);
            }
        }
    }

    /// The next key that may be planned, from the namespace that has the turn. Returns the index of the key's
    /// controller, the key, and the number of milliseconds for which the key has waited.
    fn next_key(&mut self, now: Time, background_slots: Option<usize>) -> Option<(usize, Key, i64)> {
        let may_take =
            |index: usize, namespace: &str| self.controllers[index].may_plan(namespace, background_slots != Some(0));
        let (namespace, index) = self.fair_queue.next(self.first_considered, may_take)?;
        let managed = &mut self.controllers[index];
        let (key, waited_ms) = managed.queue.take(&namespace, now)?;
        *managed.in_progress.entry(namespace.clone()).or_default() += 1;
        if managed.queue.first(&namespace).is_none() {
            self.fair_queue.leave(&namespace, index);
        }
        self.first_considered = index + 1;
        Some((index, key, waited_ms))
    }

    /// Whether a key could be taken now, if `background_slots` more plans may be made in the background.
    pub fn has_next(&mut self, background_slots: usize, now: Time) -> bool {
        self.update_turns(now);
        let may_take =
            |index: usize, namespace: &str| self.controllers[index].may_plan(namespace, background_slots > 0);
        self.early_changes.is_none() && self.fair_queue.next(self.first_considered, may_take).is_some()
    }

    /// Makes the plan of a controller for a key, without carrying the plan out.
    pub fn preview(&mut self, index: usize, key: &Key, stamp: Stamp) -> Plan {
        self.controllers[index].controller.plan(&self.world, key, stamp)
    }

    /// The plan that a controller makes about refused actions; an empty plan if all refusals are stale.
    pub fn refused(&mut self, index: usize, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let worse: Vec<Refused> = refused.iter().filter(|refused| !refused.refusal.is_stale()).cloned().collect();
        if worse.is_empty() {
            return Plan::default();
        }
        let ManagedController { controller, .. } = &mut self.controllers[index];
        let world = &self.world;
        catch_unwind(AssertUnwindSafe(|| controller.refused(world, key, &worse, stamp))).unwrap_or_default()
    }

    /// Passes the answer to a GET to the controller that requested it.
    pub fn answered(&mut self, index: usize, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        let controller = &mut self.controllers[index].controller;
        // If the controller panics, it continues without the answer.
        let _ = catch_unwind(AssertUnwindSafe(|| controller.answered(key, path, answer)));
    }

    /// Passes the answer to a review to the controller that requested it.
    pub fn reviewed(&mut self, index: usize, key: &Key, review: &Value, answer: Result<Value, Refusal>) {
        let controller = &mut self.controllers[index].controller;
        let _ = catch_unwind(AssertUnwindSafe(|| controller.reviewed(key, review, answer)));
    }

    /// Passes the result of a call to a cloud to the controller whose plan made the call.
    pub fn called(&mut self, index: usize, key: &Key, call: &CloudCall, answer: Result<CloudAnswer, Fault>, now: Time) {
        let controller = &mut self.controllers[index].controller;
        let _ = catch_unwind(AssertUnwindSafe(|| controller.called(key, call, answer, now)));
    }

    /// Handles the results of a plan that was carried out, at least in part.
    pub fn finish(&mut self, index: usize, key: Key, outcome: TaskOutcome, now: Time) {
        let world = &self.world;
        let managed = &mut self.controllers[index];
        if let Entry::Occupied(mut in_progress) = managed.in_progress.entry(key.namespace.clone()) {
            *in_progress.get_mut() -= 1;
            if *in_progress.get() == 0 {
                in_progress.remove();
            }
        }
        match outcome.failed {
            true => _ = managed.queue.fail(key.clone(), now, outcome.refused),
            false if outcome.awaits_answers => {}
            false => managed.queue.forget(&key),
        }
        if let Some(time) = outcome.requeue_at {
            managed.queue.add_at(key.clone(), time);
        }
        let missing: Vec<ActionResult> = outcome.written.into_iter().filter(|written| !written.is_in(world)).collect();
        match missing.is_empty() {
            true => managed.queue.done(&key),
            false => _ = managed.awaited_writes.insert(key, missing),
        }
    }

    /// Releases the keys that waited for writes which the world contains now. The caller calls this function after each
    /// batch of news.
    pub fn release_written(&mut self) {
        let world = &self.world;
        for managed in &mut self.controllers {
            let queue = &mut managed.queue;
            managed.awaited_writes.retain(|key, awaited| {
                awaited.retain(|written| !written.is_in(world));
                if awaited.is_empty() {
                    queue.done(key);
                }
                !awaited.is_empty()
            });
        }
    }

    /// The earliest time at which a key must be planned even if nothing changes; `None` if there is no such key.
    pub fn next_time(&self) -> Option<Time> {
        self.controllers.iter().filter_map(|managed| managed.queue.next_time()).min()
    }
}

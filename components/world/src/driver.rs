//! Drives controllers over one world, without time or tokio. The caller notifies it of changes, carries out the plans
//! that it returns, and reports their results; the driver then determines when each key is planned again.
//!
//! Namespaces take turns: the next key is from the namespace for which all controllers together have done the least
//! work. Work is counted ([`crate::work`]), so that a namespace with few cheap keys never waits behind a namespace with
//! many or expensive ones.
//!
//! The work of a plan is bounded. The caller may make a plan that was expensive the last time in the background, on a
//! copy of the world. Meanwhile a placeholder replaces the controller; when the plan is made, the controller is
//! notified of the changes that it missed.
//!
//! After the actions for a key were carried out, the key is planned again only once the world has reached the versions
//! of these writes. So no controller has to remember its own writes.

use crate::cloud::{CloudAnswer, CloudCall, Fault};
use crate::work::WorkAborted;
use crate::{
    BackOff, Change, Controller, ExtraKinds, FairQueue, Key, Keys, Plan, Refusal, Refused, Resource, Served, Stamp,
    Text, Time, WorkQueue, World, work,
};
use holdfast_core::object::Body;
use holdfast_value::Value;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A time before any time that a key waits for.
const START: Time = Time(jiff::Timestamp::MIN);

/// The work of every plan, in addition to the work of reading objects.
const PLAN: u64 = 10;
/// A plan with more work than this is expensive.
const EXPENSIVE_WORK: u64 = 5_000;
/// The limit of a plan's work. It equals the work of many thousand ordinary plans, or a few seconds.
const PLAN_MAX: u64 = 4_000_000;

/// Controllers, and the world that they share.
#[derive(Default)]
pub struct Driver {
    world: World,
    controllers: Vec<ManagedController>,
    /// The members that named a resource, by their index.
    watchers: HashMap<Resource, Vec<usize>>,
    /// The members that need kinds beyond their resources: each is notified of every change.
    extra_watchers: Vec<usize>,
    /// The index of the member whose keys are considered first in the next namespace. It advances with each key, so
    /// that no member waits for another member that always has keys.
    first_considered: usize,
    fair_queue: FairQueue,
    /// The changes before the world was complete; `None` once it is. Nothing is planned before that.
    early_changes: Option<Vec<Change>>,
}

struct ManagedController {
    controller: Box<dyn Controller>,
    /// The kinds that the controller needs in addition to its resources.
    extra_kinds: ExtraKinds,
    /// Whether the controller is making a plan in the background. Until the plan is made, [`Placeholder`] replaces it.
    is_in_background: bool,
    /// The changes since the plan in the background was begun.
    missed_changes: Vec<Change>,
    /// Keys whose last plan was expensive.
    expensive: HashSet<Key>,
    queue: WorkQueue,
    /// How many keys of one namespace may be planned and acted on at once.
    workers: usize,
    /// How many keys are being worked on, by namespace.
    in_progress: HashMap<Text, usize>,
    /// Keys whose plans were carried out and whose writes the world does not contain yet.
    awaited_writes: BTreeMap<Key, Vec<ActionResult>>,
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionResult {
    pub resource: Resource,
    pub key: Key,
    pub result: WriteResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    /// The object has this version after the action.
    Version(u64),
    /// The object was deleted. The text is its uid, or empty if the uid is unknown.
    Gone(Text),
    /// The action changed nothing that a world contains.
    Nothing,
}

/// A plan that is to be carried out.
#[derive(Debug)]
pub struct Task {
    pub controller_index: usize,
    pub key: Key,
    pub plan: Plan,
    /// For how many milliseconds the key had waited.
    pub waited_ms: i64,
    /// The work of making the plan.
    pub work: u64,
}

/// The next plan: a plan to carry out, or a plan that must first be made in the background.
pub enum NextPlan {
    Task(Task),
    Background(BackgroundPlan),
}

/// A plan that is to be made in the background, on the world as it is now.
pub struct BackgroundPlan {
    controller_index: usize,
    key: Key,
    controller: Box<dyn Controller>,
    world: World,
    stamp: Stamp,
    waited_ms: i64,
}

/// The result of a plan that was made in the background.
pub struct FinishedPlan {
    controller_index: usize,
    key: Key,
    controller: Box<dyn Controller>,
    planned: (Result<Plan, WorkAborted>, u64),
    waited_ms: i64,
}

/// The result of carrying out a plan.
#[derive(Debug, Default)]
pub struct TaskOutcome {
    pub written: Vec<ActionResult>,
    /// Whether an action was refused or the plan was not ready: the key is planned again without a change.
    pub failed: bool,
    /// Whether the failure has a reason that also affects a newer plan: the server forbids the action, or does not
    /// answer.
    pub refused: bool,
    /// Whether the plan only made requests for answers. Then the key's count of failures stays as it is, and the next
    /// plan shows whether it succeeds.
    pub awaits_answers: bool,
    /// The time at which the plan requests that the key is planned again.
    pub requeue_at: Option<Time>,
}

impl Driver {
    /// A driver without controllers, which plans nothing before [`Self::complete`].
    pub fn new() -> Driver {
        Driver { early_changes: Some(Vec::new()), ..Driver::default() }
    }

    /// Adds a controller that works on `workers` keys of a namespace at once; returns its index. Called before the
    /// world has any objects.
    pub fn add(&mut self, controller: Box<dyn Controller>, workers: usize, back_off: BackOff) -> usize {
        let place = self.controllers.len();
        for resource in controller.resources() {
            self.world.track_resource(&resource);
            let watchers = self.watchers.entry(resource).or_default();
            if watchers.last() != Some(&place) {
                watchers.push(place);
            }
        }
        let extra_kinds = controller.extra_kinds();
        if extra_kinds != ExtraKinds::None {
            self.extra_watchers.push(place);
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
        place
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn controller(&self, member: usize) -> &dyn Controller {
        self.controllers[member].controller.as_ref()
    }

    pub fn queue(&self, member: usize) -> &WorkQueue {
        &self.controllers[member].queue
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

    /// The kinds that the world must contain in addition to these resources.
    pub fn extra_kinds(&self) -> ExtraKinds {
        let extra_watchers = self.extra_watchers.iter().map(|place| {
            let member = &self.controllers[*place];
            if member.is_in_background { member.extra_kinds.clone() } else { member.controller.extra_kinds() }
        });
        extra_watchers.fold(ExtraKinds::None, ExtraKinds::and)
    }

    /// Applies one version of an object; `None`: it was deleted.
    pub fn apply(&mut self, resource: &Resource, key: Key, body: Option<Body>, version: u64, now: Time) {
        let change = self.world.apply(resource, key, body, version, now);
        self.notify(change, now);
    }

    /// Replaces all objects of a resource by a list at a version: objects that are not in the list were deleted.
    pub fn replace(&mut self, resource: &Resource, objects: Vec<(Key, Body, u64)>, version: u64, now: Time) {
        let changes = self.world.replace(resource, objects, version, now);
        changes.into_iter().for_each(|change| self.notify(change, now));
    }

    /// A resource is no longer served, and its objects no longer exist.
    pub fn drop_resource(&mut self, resource: &Resource, now: Time) {
        self.replace(resource, Vec::new(), 0, now);
        if !self.watchers.contains_key(resource) {
            self.world.untrack(resource);
        }
    }

    /// Sets which kinds are served in which versions.
    pub fn set_served(&mut self, served: Served) {
        self.world.set_served(served);
    }

    /// The world contains all changes of the resource up to this version.
    pub fn reach(&mut self, resource: &Resource, version: u64) {
        self.world.reach(resource, version);
    }

    /// The world contains all changes up to this version, whatever the resource.
    pub fn reach_all(&mut self, version: u64) {
        self.world.reach_all(version);
    }

    /// The world is complete: planning starts. Keys of existing objects that may wait for more changes do not wait.
    pub fn complete(&mut self) {
        let Some(early) = self.early_changes.take() else { return };
        early.into_iter().for_each(|change| self.notify(change, START));
        for member in &mut self.controllers {
            let mut keys = Keys::default();
            let (world, controller) = (&self.world, &mut member.controller);
            let _ = catch_unwind(AssertUnwindSafe(|| controller.begin(world, &mut keys)));
            member.queue.add_all(keys, START);
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
        let extra_watchers = self.extra_watchers.iter().copied().filter(|place| !watchers.contains(place));
        for place in named.chain(extra_watchers) {
            self.controllers[place].notify(&self.world, &change, now);
        }
    }

    /// The next plan to be carried out, if there is one. A panic in a plan fails only its key.
    pub fn next_task(&mut self, stamp: impl FnMut() -> Stamp) -> Option<Task> {
        match self.choose_plan(stamp, None)? {
            NextPlan::Task(task) => Some(task),
            // Without `background_slots` no plan is made in the background.
            NextPlan::Background(_) => None,
        }
    }

    /// Like [`Driver::take`], but an expensive plan is returned to be made in the background. `background_slots` is the
    /// number of further plans that may be made there; with 0, expensive plans wait.
    pub fn next_plan(&mut self, stamp: impl FnMut() -> Stamp, background_slots: usize) -> Option<NextPlan> {
        self.choose_plan(stamp, Some(background_slots))
    }

    fn choose_plan(&mut self, mut stamp: impl FnMut() -> Stamp, background_slots: Option<usize>) -> Option<NextPlan> {
        if self.early_changes.is_some() {
            return None;
        }
        let now = stamp().time;
        self.update_turns(now);
        while let Some((place, key, waited_ms)) = self.next_key(now, background_slots) {
            let member = &mut self.controllers[place];
            if background_slots.is_some() && member.expensive.contains(&key) {
                member.extra_kinds = member.controller.extra_kinds();
                let controller = std::mem::replace(&mut member.controller, Box::new(Placeholder));
                member.is_in_background = true;
                let (world, stamp) = (self.world.clone(), stamp());
                return Some(NextPlan::Background(BackgroundPlan {
                    controller_index: place,
                    key,
                    controller,
                    world,
                    stamp,
                    waited_ms,
                }));
            }
            let plan = || member.controller.plan(&self.world, &key, stamp());
            let (planned, work) = work::limited(PLAN_MAX, plan);
            if let Some(task) = self.handle_planned(place, key, (planned, work), waited_ms, now) {
                return Some(NextPlan::Task(task));
            }
            self.update_turns(now);
        }
        None
    }

    /// Restores a controller that has made a plan in the background, and notifies it of the changes since then.
    pub fn finish_background(&mut self, back: FinishedPlan, now: Time) -> Option<Task> {
        let FinishedPlan { controller_index: place, key, controller, planned, waited_ms } = back;
        let member = &mut self.controllers[place];
        (member.controller, member.is_in_background) = (controller, false);
        for change in std::mem::take(&mut member.missed_changes) {
            member.notify(&self.world, &change, now);
        }
        self.handle_planned(place, key, planned, waited_ms, now)
    }

    /// Whether a controller is making a plan in the background and cannot do other work.
    pub fn is_in_background(&self, member: usize) -> bool {
        self.controllers[member].is_in_background
    }

    /// Handles a finished plan; `None`: it panicked, and its key has failed.
    fn handle_planned(
        &mut self,
        place: usize,
        key: Key,
        (planned, work): (Result<Plan, WorkAborted>, u64),
        waited_ms: i64,
        now: Time,
    ) -> Option<Task> {
        let work = work + PLAN;
        self.fair_queue.charge(&key.namespace, work);
        let expensive = &mut self.controllers[place].expensive;
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
                self.finish(place, key, TaskOutcome { failed: true, ..TaskOutcome::default() }, now);
                return None;
            }
        };
        Some(Task { controller_index: place, key, plan, waited_ms, work })
    }

    /// Registers the namespaces that now have keys, so that they get turns.
    fn update_turns(&mut self, now: Time) {
        for (place, member) in self.controllers.iter_mut().enumerate() {
            for namespace in member.queue.wake(now) {
                self.fair_queue.join(namespace, place);
            }
        }
    }

    /// The next key by turns, with its member, which may work on the key.
    fn next_key(&mut self, now: Time, background_slots: Option<usize>) -> Option<(usize, Key, i64)> {
        let may_take =
            |place: usize, namespace: &str| self.controllers[place].may_plan(namespace, background_slots != Some(0));
        let (namespace, place) = self.fair_queue.next(self.first_considered, may_take)?;
        let member = &mut self.controllers[place];
        let (key, waited_ms) = member.queue.take(&namespace, now)?;
        *member.in_progress.entry(namespace.clone()).or_default() += 1;
        if member.queue.first(&namespace).is_none() {
            self.fair_queue.leave(&namespace, place);
        }
        self.first_considered = place + 1;
        Some((place, key, waited_ms))
    }

    /// Whether a key could be taken now, if `background_slots` more plans may be made in the background.
    pub fn has_next(&mut self, background_slots: usize, now: Time) -> bool {
        self.update_turns(now);
        let may_take =
            |place: usize, namespace: &str| self.controllers[place].may_plan(namespace, background_slots > 0);
        self.early_changes.is_none() && self.fair_queue.next(self.first_considered, may_take).is_some()
    }

    /// Makes the present plan for a key, without carrying it out.
    pub fn preview(&mut self, member: usize, key: &Key, stamp: Stamp) -> Plan {
        self.controllers[member].controller.plan(&self.world, key, stamp)
    }

    /// The controller's plan about refused actions; empty if all refusals are stale.
    pub fn refused(&mut self, member: usize, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let worse: Vec<Refused> = refused.iter().filter(|refused| !refused.refusal.is_stale()).cloned().collect();
        if worse.is_empty() {
            return Plan::default();
        }
        let ManagedController { controller, .. } = &mut self.controllers[member];
        let world = &self.world;
        catch_unwind(AssertUnwindSafe(|| controller.refused(world, key, &worse, stamp))).unwrap_or_default()
    }

    /// Passes the answer to a GET to the controller that requested it.
    pub fn answered(&mut self, member: usize, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        let controller = &mut self.controllers[member].controller;
        // A controller that panics continues without the answer.
        let _ = catch_unwind(AssertUnwindSafe(|| controller.answered(key, path, answer)));
    }

    /// Passes the answer to a review to the controller that requested it.
    pub fn reviewed(&mut self, member: usize, key: &Key, review: &Value, answer: Result<Value, Refusal>) {
        let controller = &mut self.controllers[member].controller;
        let _ = catch_unwind(AssertUnwindSafe(|| controller.reviewed(key, review, answer)));
    }

    /// Passes the result of a call to a cloud to the controller whose plan made the call.
    pub fn called(
        &mut self,
        member: usize,
        key: &Key,
        call: &CloudCall,
        answer: Result<CloudAnswer, Fault>,
        now: Time,
    ) {
        let controller = &mut self.controllers[member].controller;
        let _ = catch_unwind(AssertUnwindSafe(|| controller.called(key, call, answer, now)));
    }

    /// Handles the end of a plan that was carried out, at least in part.
    pub fn finish(&mut self, member: usize, key: Key, outcome: TaskOutcome, now: Time) {
        let world = &self.world;
        let member = &mut self.controllers[member];
        if let Entry::Occupied(mut in_progress) = member.in_progress.entry(key.namespace.clone()) {
            *in_progress.get_mut() -= 1;
            if *in_progress.get() == 0 {
                in_progress.remove();
            }
        }
        match outcome.failed {
            true => _ = member.queue.fail(key.clone(), now, outcome.refused),
            false if outcome.awaits_answers => {}
            false => member.queue.forget(&key),
        }
        if let Some(time) = outcome.requeue_at {
            member.queue.add_at(key.clone(), time);
        }
        let missing: Vec<ActionResult> = outcome.written.into_iter().filter(|written| !written.is_in(world)).collect();
        match missing.is_empty() {
            true => member.queue.done(&key),
            false => _ = member.awaited_writes.insert(key, missing),
        }
    }

    /// Releases the keys whose writes the world contains now. Called after each batch of news.
    pub fn release_written(&mut self) {
        let world = &self.world;
        for member in &mut self.controllers {
            let queue = &mut member.queue;
            member.awaited_writes.retain(|key, awaited| {
                awaited.retain(|written| !written.is_in(world));
                if awaited.is_empty() {
                    queue.done(key);
                }
                !awaited.is_empty()
            });
        }
    }

    /// The earliest time at which a key must be planned without a change.
    pub fn next_time(&self) -> Option<Time> {
        self.controllers.iter().filter_map(|member| member.queue.next_time()).min()
    }
}

impl ManagedController {
    /// Whether the next key of a namespace may be taken. `even_expensive`: even an expensive one.
    fn may_plan(&self, namespace: &str, even_expensive: bool) -> bool {
        let is_expensive = || self.queue.first(namespace).is_some_and(|key| self.expensive.contains(key));
        !self.is_in_background
            && self.in_progress.get(namespace).is_none_or(|working| *working < self.workers)
            && (even_expensive || !is_expensive())
    }

    fn notify(&mut self, world: &World, change: &Change, now: Time) {
        if self.is_in_background {
            return self.missed_changes.push(change.clone());
        }
        let mut keys = Keys::default();
        let told = catch_unwind(AssertUnwindSafe(|| self.controller.concerns(world, change, &mut keys)));
        if told.is_ok() {
            self.queue.add_all(keys, now);
        }
    }
}

impl BackgroundPlan {
    /// Makes the plan, on any thread.
    pub fn run(self) -> FinishedPlan {
        let BackgroundPlan { controller_index: member, key, mut controller, world, stamp, waited_ms } = self;
        let planned = work::limited(PLAN_MAX, || controller.plan(&world, &key, stamp));
        FinishedPlan { controller_index: member, key, controller, planned, waited_ms }
    }
}

/// Replaces a controller while it makes a plan in the background.
struct Placeholder;

impl Controller for Placeholder {
    fn name(&self) -> &'static str {
        "away"
    }

    fn resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    fn concerns(&mut self, _: &World, _: &Change, _: &mut Keys) {}

    fn plan(&mut self, _: &World, _: &Key, _: Stamp) -> Plan {
        Plan::default()
    }
}

impl ActionResult {
    /// Whether the world contains the write. A world without the resource never contains it, so such a write is not
    /// waited for.
    fn is_in(&self, world: &World) -> bool {
        if !world.tracks(&self.resource) {
            return true;
        }
        match &self.result {
            WriteResult::Version(version) => world.version(&self.resource) >= *version,
            WriteResult::Gone(uid) => match world.object(&self.resource, &self.key) {
                Some(object) => !uid.is_empty() && *object.meta.uid != **uid,
                None => true,
            },
            WriteResult::Nothing => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Pod;
    use crate::{Action, Verb, View};
    use holdfast_value::json;

    /// A controller that wants one pod, and panics if a pod is called `bad`.
    struct One;

    impl Controller for One {
        fn name(&self) -> &'static str {
            "one-controller"
        }

        fn resources(&self) -> Vec<Resource> {
            vec![Pod::resource().clone()]
        }

        fn begin(&mut self, _: &World, keys: &mut Keys) {
            keys.add(Key::cluster("one"));
        }

        fn concerns(&mut self, _: &World, _: &Change, keys: &mut Keys) {
            keys.add(Key::cluster("one"));
            keys.add(Key::cluster("other"));
        }

        fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
            let mut plan = Plan::default();
            assert!(world.all::<Pod>().all(|pod| pod.meta().name != "bad" || *key.name != *"one"), "it is bad");
            if world.all::<Pod>().next().is_none() {
                plan.then(Action::new(Pod::resource(), Key::new("default", ""), Verb::Create(json!({}))));
            }
            plan
        }
    }

    fn now() -> Time {
        Time::from_second(1_795_255_200)
    }

    fn driver() -> Driver {
        let mut driver = Driver::new();
        driver.add(Box::new(One), 2, BackOff::default());
        driver
    }

    fn take(driver: &mut Driver, at: Time) -> Option<String> {
        driver.next_task(|| Stamp { time: at, seed: 0 }).map(|task| task.key.to_string())
    }

    fn see(driver: &mut Driver, name: &str, version: u64) {
        let bytes = json!({"metadata": {"name": name, "namespace": "default", "uid": name}}).to_string();
        driver.apply(Pod::resource(), Key::new("default", name), Some(bytes.into()), version, now());
        driver.release_written();
    }

    #[test]
    fn nothing_is_planned_before_the_world_is_complete() {
        let mut driver = driver();
        see(&mut driver, "a", 1);
        assert_eq!(take(&mut driver, now()), None);
        driver.complete();
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    }

    #[test]
    fn a_key_waits_until_the_world_shows_what_was_written_for_it() {
        let mut driver = driver();
        driver.complete();
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
        let (resource, key) = (Pod::resource().clone(), Key::new("default", "a"));
        let written = vec![ActionResult { resource, key, result: WriteResult::Version(7) }];
        driver.finish(0, Key::cluster("one"), TaskOutcome { written, ..TaskOutcome::default() }, now());
        see(&mut driver, "other", 6);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("other"), "another key waits for nothing");
        assert_eq!(take(&mut driver, now()), None);
        see(&mut driver, "a", 7);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    }

    /// A controller that reads as many objects for each key as the key's name says.
    struct Expensive;

    impl Controller for Expensive {
        fn name(&self) -> &'static str {
            "expensive-controller"
        }

        fn resources(&self) -> Vec<Resource> {
            vec![Pod::resource().clone()]
        }

        fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
            keys.add(change.key.clone());
        }

        fn plan(&mut self, _: &World, key: &Key, _: Stamp) -> Plan {
            work::count(key.name.split('-').next().and_then(|cost| cost.parse().ok()).unwrap_or(0));
            Plan::default()
        }
    }

    #[test]
    fn a_namespace_waits_for_no_more_work_of_another_than_its_own() {
        let mut driver = Driver::new();
        for _ in 0..2 {
            driver.add(Box::new(Expensive), 1000, BackOff::default());
        }
        driver.complete();
        let show = |driver: &mut Driver, namespace: &str, name: String| {
            let bytes = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}}).to_string();
            driver.apply(Pod::resource(), Key::new(namespace, &name), Some(bytes.into()), 1, now());
        };
        (0..500).for_each(|number| show(&mut driver, "many", format!("0-{number}")));
        (0..100).for_each(|number| show(&mut driver, "expensive", format!("100000-{number}")));
        let next = |driver: &mut Driver| {
            let task = driver.next_task(|| Stamp { time: now(), seed: 0 }).expect("a key");
            driver.finish(task.controller_index, task.key.clone(), TaskOutcome::default(), now());
            task
        };
        // The many cheap keys wait for one expensive plan only.
        let first: Vec<u64> = (0..1001).map(|_| next(&mut driver).work).collect();
        assert_eq!(first.iter().filter(|work| **work > 1000).count(), 1);
        // A namespace that appears later gets the next turn, but only one: it has saved up no turns.
        show(&mut driver, "late", "0-a".into());
        let late: Vec<Task> = (0..2).map(|_| next(&mut driver)).collect();
        assert!(late.iter().all(|task| &*task.key.namespace == "late" && task.waited_ms == 0));
        assert_eq!(
            (late[0].controller_index + late[1].controller_index, &*next(&mut driver).key.namespace),
            (1, "expensive")
        );
    }

    fn show(driver: &mut Driver, namespace: &str, name: &str, version: u64) {
        let bytes = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}}).to_string();
        driver.apply(Pod::resource(), Key::new(namespace, name), Some(bytes.into()), version, now());
    }

    #[test]
    fn an_expensive_plan_is_made_in_the_background_and_its_controller_misses_no_change() {
        let stamp = || Stamp { time: now(), seed: 0 };
        let mut driver = Driver::new();
        for _ in 0..2 {
            driver.add(Box::new(Expensive), 1000, BackOff::default());
        }
        driver.complete();
        let rest = |driver: &mut Driver| {
            while let Some(task) = driver.next_task(stamp) {
                driver.finish(task.controller_index, task.key, TaskOutcome::default(), now());
            }
        };
        show(&mut driver, "a", "100000", 1);
        // The driver does not know yet that the key is expensive.
        rest(&mut driver);
        show(&mut driver, "a", "100000", 2);
        assert!(!driver.has_next(0, now()) && driver.has_next(1, now()));
        assert!(driver.next_plan(stamp, 0).is_none());
        let Some(NextPlan::Background(background_plan)) = driver.next_plan(stamp, 1) else { panic!("it is expensive") };
        let (away, other) = (background_plan.controller_index, 1 - background_plan.controller_index);
        assert!(driver.is_in_background(away) && !driver.is_in_background(other));
        show(&mut driver, "b", "1", 3);
        let Some(NextPlan::Task(task)) = driver.next_plan(stamp, 0) else { panic!("the other controller goes on") };
        assert_eq!((task.controller_index, task.key.to_string()), (other, "b/1".into()));
        driver.finish(task.controller_index, task.key, TaskOutcome::default(), now());
        assert!(driver.next_plan(stamp, 0).is_none(), "the other plan is as expensive");
        let task = driver.finish_background(background_plan.run(), now()).expect("a plan");
        assert!(task.controller_index == away && task.work > 100_000);
        driver.finish(task.controller_index, task.key, TaskOutcome::default(), now());
        let task = driver.next_task(stamp).expect("what it missed");
        assert_eq!((task.controller_index, task.key.to_string()), (away, "b/1".into()));
    }

    #[test]
    fn a_plan_is_bounded_by_the_work_that_it_may_be() {
        let mut driver = Driver::new();
        driver.add(Box::new(Expensive), 1, BackOff::default());
        driver.complete();
        show(&mut driver, "a", "1000000000000", 1);
        let task = driver.next_task(|| Stamp { time: now(), seed: 0 }).expect("a plan");
        assert!(task.plan.unready && task.plan.steps.is_empty());
        assert_eq!(task.plan.skipped, ["to plan it takes more work than 4000000 looks at objects"]);
    }

    #[test]
    fn the_workers_of_a_namespace_are_its_own() {
        let mut driver = Driver::new();
        driver.add(Box::new(Expensive), 2, BackOff::default());
        driver.complete();
        for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")] {
            let bytes = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}}).to_string();
            driver.apply(Pod::resource(), Key::new(namespace, name), Some(bytes.into()), 1, now());
        }
        let mut taken: Vec<_> = (0..4).map(|_| take(&mut driver, now())).collect();
        taken.sort();
        assert_eq!(taken, [None, Some("a/1".into()), Some("a/2".into()), Some("b/1".into())]);
        assert!(!driver.has_next(1, now()));
        driver.finish(0, Key::new("a", "2"), TaskOutcome::default(), now());
        assert!(driver.has_next(1, now()));
        assert_eq!(take(&mut driver, now()).as_deref(), Some("a/3"));
    }

    #[test]
    fn what_is_not_shown_is_not_waited_for() {
        let mut driver = driver();
        driver.complete();
        take(&mut driver, now());
        let resource = Resource::new("", "v1", "secrets", "Secret", true);
        let written = vec![ActionResult { resource, key: Key::new("default", "a"), result: WriteResult::Version(7) }];
        driver.finish(0, Key::cluster("one"), TaskOutcome { written, ..TaskOutcome::default() }, now());
        see(&mut driver, "a", 1);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    }

    #[test]
    fn a_deletion_is_awaited_by_the_uid() {
        let mut driver = driver();
        driver.complete();
        see(&mut driver, "a", 1);
        take(&mut driver, now());
        let (resource, key) = (Pod::resource().clone(), Key::new("default", "a"));
        let written =
            vec![ActionResult { resource: resource.clone(), key: key.clone(), result: WriteResult::Gone("a".into()) }];
        driver.finish(0, Key::cluster("one"), TaskOutcome { written, ..TaskOutcome::default() }, now());
        assert_eq!(take(&mut driver, now()).as_deref(), Some("other"));
        assert_eq!(take(&mut driver, now()), None);
        driver.apply(&resource, key, None, 2, now());
        driver.release_written();
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    }

    #[test]
    fn a_panic_fails_its_key_alone_and_is_tried_again_later() {
        let mut driver = driver();
        driver.complete();
        see(&mut driver, "bad", 1);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("other"));
        driver.finish(0, Key::cluster("other"), TaskOutcome::default(), now());
        assert_eq!(driver.next_time(), Some(now().plus_millis(5)));
        driver.apply(Pod::resource(), Key::new("default", "bad"), None, 2, now());
        driver.release_written();
        assert!(take(&mut driver, now().plus_millis(5)).is_some());
    }

    #[test]
    fn a_list_tells_what_has_come_and_what_has_gone() {
        let mut driver = driver();
        driver.complete();
        see(&mut driver, "a", 1);
        let object = |name: &str| {
            let bytes = json!({"metadata": {"name": name, "namespace": "default", "uid": name}}).to_string();
            (Key::new("default", name), bytes.into(), 5)
        };
        driver.replace(Pod::resource(), vec![object("b")], 5, now());
        let names: Vec<&str> = driver.world().all::<Pod>().map(|pod| pod.meta().name.as_str()).collect();
        assert_eq!(names, ["b"]);
        assert!(driver.world().by_uid("a").is_none());
        assert_eq!(driver.world().version(Pod::resource()), 5);
    }
}

//! Drives controllers over one world, and knows neither time nor tokio: told what changed, it says which plan is to be
//! carried out next; told how that went, it knows when the key is planned again.
//!
//! A key that was acted on is planned again only when the world has come as far as the writes that were made for it, so
//! that no controller has to remember what it has just done.

use crate::{
    BackOff, Change, Controller, Key, Keys, Plan, Queue, Refusal, Refused, Resource, Served, Sight, Stamp, Text, Time,
    World,
};
use holdfast_core::object::Body;
use holdfast_value::Value;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Before any time that a key waits for.
const START: Time = Time(jiff::Timestamp::MIN);

/// Controllers, and the world that they share.
#[derive(Default)]
pub struct Driver {
    world: World,
    members: Vec<Member>,
    /// Who looks at a resource, by the place among the members.
    lookers: HashMap<Resource, Vec<usize>>,
    /// Who looks at more than what it names: each is told of everything that is shown.
    overseers: Vec<usize>,
    /// Where the next key is looked for first, so that nobody waits for a member that never rests.
    turn: usize,
    /// Changes that came before the world was complete; nothing is planned until then.
    early: Option<Vec<Change>>,
}

struct Member {
    controller: Box<dyn Controller>,
    queue: Queue,
    /// How many keys may be planned and acted on at once.
    workers: usize,
    /// How many are.
    working: usize,
    /// Keys that were acted on and whose writes the world has not shown yet.
    awaited: BTreeMap<Key, Vec<Written>>,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub resource: Resource,
    pub key: Key,
    pub came: Came,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Came {
    /// The object has this version now.
    Version(u64),
    /// The object is gone; empty where its uid is not known.
    Gone(Text),
    /// Nothing that a world shows.
    Nothing,
}

/// A plan that is to be carried out.
#[derive(Debug)]
pub struct Task {
    pub member: usize,
    pub key: Key,
    pub plan: Plan,
    /// For how many milliseconds the key had waited.
    pub waited_ms: i64,
}

/// How that went.
#[derive(Debug, Default)]
pub struct Outcome {
    pub written: Vec<Written>,
    /// Whether an action was refused or nothing could be done yet: the key is planned again though nothing changes.
    pub failed: bool,
    /// Whether it failed because of what a newer plan will meet again: the server does not let it, or does not answer.
    pub refused: bool,
    /// When the plan asked to be made again.
    pub again: Option<Time>,
}

impl Driver {
    /// Drives nobody yet, and waits until it is told that the world is complete.
    pub fn new() -> Driver {
        Driver { early: Some(Vec::new()), ..Driver::default() }
    }

    /// Takes in one more controller, which works on so many keys at once. Called before any object is there.
    pub fn add(&mut self, controller: Box<dyn Controller>, workers: usize, back_off: BackOff) -> usize {
        let place = self.members.len();
        for resource in controller.resources() {
            self.world.show_resource(&resource);
            let lookers = self.lookers.entry(resource).or_default();
            if lookers.last() != Some(&place) {
                lookers.push(place);
            }
        }
        if controller.sight() != Sight::None {
            self.overseers.push(place);
        }
        controller.indexes(&mut self.world);
        let queue = Queue::new(back_off);
        let member = Member { controller, queue, workers: workers.max(1), working: 0, awaited: BTreeMap::new() };
        self.members.push(member);
        place
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn controller(&self, member: usize) -> &dyn Controller {
        self.members[member].controller.as_ref()
    }

    pub fn queue(&self, member: usize) -> &Queue {
        &self.members[member].queue
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Every resource that somebody looks at by name.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.lookers.keys()
    }

    /// What must be shown beside these.
    pub fn sight(&self) -> Sight {
        let overseers = self.overseers.iter().map(|place| self.members[*place].controller.sight());
        overseers.fold(Sight::None, Sight::and)
    }

    /// Takes in one version of an object, or its absence.
    pub fn change(&mut self, resource: &Resource, key: Key, body: Option<Body>, version: u64, now: Time) {
        let change = self.world.apply(resource, key, body, version, now);
        self.tell(change, now);
    }

    /// Takes in all objects of a resource as they are at a version: what is not among them is gone.
    pub fn replace(&mut self, resource: &Resource, objects: Vec<(Key, Body, u64)>, version: u64, now: Time) {
        let changes = self.world.replace(resource, objects, version, now);
        changes.into_iter().for_each(|change| self.tell(change, now));
    }

    /// A resource is no longer there, nor are its objects.
    pub fn drop_resource(&mut self, resource: &Resource, now: Time) {
        self.replace(resource, Vec::new(), 0, now);
        if !self.lookers.contains_key(resource) {
            self.world.hide(resource);
        }
    }

    /// Which kinds are served in which versions, from here on.
    pub fn serve(&mut self, served: Served) {
        self.world.serve(served);
    }

    /// Everything of the resource up to this version is in.
    pub fn reach(&mut self, resource: &Resource, version: u64) {
        self.world.reach(resource, version);
    }

    /// Everything up to this version is in, whatever the resource.
    pub fn reach_all(&mut self, version: u64) {
        self.world.reach_all(version);
    }

    /// The world is complete: plans may be made from here on, and what there is waits for no batch.
    pub fn complete(&mut self) {
        let Some(early) = self.early.take() else { return };
        early.into_iter().for_each(|change| self.tell(change, START));
        for member in &mut self.members {
            let mut keys = Keys::default();
            let (world, controller) = (&self.world, &mut member.controller);
            let _ = catch_unwind(AssertUnwindSafe(|| controller.begin(world, &mut keys)));
            member.queue.add_all(keys, START);
        }
    }

    pub fn is_complete(&self) -> bool {
        self.early.is_none()
    }

    fn tell(&mut self, change: Change, now: Time) {
        if let Some(early) = &mut self.early {
            early.push(change);
            return;
        }
        let lookers = self.lookers.get(&change.resource).map_or(&[][..], Vec::as_slice);
        let named = lookers.iter().copied();
        let overseers = self.overseers.iter().copied().filter(|place| !lookers.contains(place));
        for place in named.chain(overseers) {
            let member = &mut self.members[place];
            let mut keys = Keys::default();
            let told = catch_unwind(AssertUnwindSafe(|| {
                member.controller.concerns(&self.world, &change, &mut keys);
            }));
            if told.is_ok() {
                member.queue.add_all(keys, now);
            }
        }
    }

    /// The next plan to be carried out, if there is one. A panic in a plan fails its key alone.
    pub fn take(&mut self, mut stamp: impl FnMut() -> Stamp) -> Option<Task> {
        if self.early.is_some() {
            return None;
        }
        let now = stamp().time;
        let count = self.members.len();
        let first = self.turn;
        for place in (0..count).map(|step| (first + step) % count) {
            while self.members[place].working < self.members[place].workers {
                let member = &mut self.members[place];
                let Some((key, waited_ms)) = member.queue.take_waited(now) else { break };
                self.turn = (place + 1) % count;
                member.working += 1;
                let planned = catch_unwind(AssertUnwindSafe(|| member.controller.plan(&self.world, &key, stamp())));
                match planned {
                    Ok(plan) => return Some(Task { member: place, key, plan, waited_ms }),
                    // The next key of the same controller does not wait for this one.
                    Err(_) => self.done(place, key, Outcome { failed: true, ..Outcome::default() }, now),
                }
            }
        }
        None
    }

    /// Whether a key of this member could be planned at once.
    pub fn can_take(&self, member: usize) -> bool {
        let Member { queue, working, workers, .. } = &self.members[member];
        self.early.is_none() && working < workers && queue.depth() > 0
    }

    /// What would be planned for a key now. Nothing is to be carried out.
    pub fn rehearse(&mut self, member: usize, key: &Key, stamp: Stamp) -> Plan {
        self.members[member].controller.plan(&self.world, key, stamp)
    }

    /// What the controller says of a step that was refused; nothing where the plan was only stale.
    pub fn refused(&mut self, member: usize, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let worse: Vec<Refused> = refused.iter().filter(|refused| !refused.refusal.is_stale()).cloned().collect();
        if worse.is_empty() {
            return Plan::default();
        }
        let Member { controller, .. } = &mut self.members[member];
        let world = &self.world;
        catch_unwind(AssertUnwindSafe(|| controller.refused(world, key, &worse, stamp))).unwrap_or_default()
    }

    /// What came of a GET that a plan asked for.
    pub fn answered(&mut self, member: usize, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        let controller = &mut self.members[member].controller;
        // One that panics at an answer does without it.
        let _ = catch_unwind(AssertUnwindSafe(|| controller.answered(key, path, answer)));
    }

    /// What came of a review that a plan asked for.
    pub fn reviewed(&mut self, member: usize, key: &Key, review: &Value, answer: Result<Value, Refusal>) {
        let controller = &mut self.members[member].controller;
        let _ = catch_unwind(AssertUnwindSafe(|| controller.reviewed(key, review, answer)));
    }

    /// A plan was carried out, as far as it could be.
    pub fn done(&mut self, member: usize, key: Key, outcome: Outcome, now: Time) {
        let world = &self.world;
        let member = &mut self.members[member];
        member.working -= 1;
        match outcome.failed {
            true => _ = member.queue.fail(key.clone(), now, outcome.refused),
            false => member.queue.forget(&key),
        }
        if let Some(time) = outcome.again {
            member.queue.add_at(key.clone(), time);
        }
        let missing: Vec<Written> = outcome.written.into_iter().filter(|written| !written.is_in(world)).collect();
        match missing.is_empty() {
            true => member.queue.done(&key),
            false => _ = member.awaited.insert(key, missing),
        }
    }

    /// Lets go of the keys whose writes the world shows by now. Called after each batch of news.
    pub fn settle(&mut self) {
        let world = &self.world;
        for member in &mut self.members {
            let queue = &mut member.queue;
            member.awaited.retain(|key, awaited| {
                awaited.retain(|written| !written.is_in(world));
                if awaited.is_empty() {
                    queue.done(key);
                }
                !awaited.is_empty()
            });
        }
    }

    /// When the first key wants to be planned again though nothing changes.
    pub fn next_time(&self) -> Option<Time> {
        self.members.iter().filter_map(|member| member.queue.next_time()).min()
    }
}

impl Written {
    /// Whether the world has come as far. One that does not show the resource never will.
    fn is_in(&self, world: &World) -> bool {
        if !world.shows(&self.resource) {
            return true;
        }
        match &self.came {
            Came::Version(version) => world.version(&self.resource) >= *version,
            Came::Gone(uid) => match world.object(&self.resource, &self.key) {
                Some(object) => !uid.is_empty() && *object.meta.uid != **uid,
                None => true,
            },
            Came::Nothing => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Pod;
    use crate::{Action, Verb, View};
    use holdfast_value::json;

    /// Wants one pod, and fails at the sight of one that is called `bad`.
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
        driver.take(|| Stamp { time: at, seed: 0 }).map(|task| task.key.to_string())
    }

    fn see(driver: &mut Driver, name: &str, version: u64) {
        let bytes = json!({"metadata": {"name": name, "namespace": "default", "uid": name}}).to_string();
        driver.change(Pod::resource(), Key::new("default", name), Some(bytes.into()), version, now());
        driver.settle();
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
        let written = vec![Written { resource, key, came: Came::Version(7) }];
        driver.done(0, Key::cluster("one"), Outcome { written, ..Outcome::default() }, now());
        see(&mut driver, "other", 6);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("other"), "another key waits for nothing");
        assert_eq!(take(&mut driver, now()), None);
        see(&mut driver, "a", 7);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    }

    #[test]
    fn what_is_not_shown_is_not_waited_for() {
        let mut driver = driver();
        driver.complete();
        take(&mut driver, now());
        let resource = Resource::new("", "v1", "secrets", "Secret", true);
        let written = vec![Written { resource, key: Key::new("default", "a"), came: Came::Version(7) }];
        driver.done(0, Key::cluster("one"), Outcome { written, ..Outcome::default() }, now());
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
        let written = vec![Written { resource: resource.clone(), key: key.clone(), came: Came::Gone("a".into()) }];
        driver.done(0, Key::cluster("one"), Outcome { written, ..Outcome::default() }, now());
        assert_eq!(take(&mut driver, now()).as_deref(), Some("other"));
        assert_eq!(take(&mut driver, now()), None);
        driver.change(&resource, key, None, 2, now());
        driver.settle();
        assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    }

    #[test]
    fn a_panic_fails_its_key_alone_and_is_tried_again_later() {
        let mut driver = driver();
        driver.complete();
        see(&mut driver, "bad", 1);
        assert_eq!(take(&mut driver, now()).as_deref(), Some("other"));
        driver.done(0, Key::cluster("other"), Outcome::default(), now());
        assert_eq!(driver.next_time(), Some(now().plus_millis(5)));
        driver.change(Pod::resource(), Key::new("default", "bad"), None, 2, now());
        driver.settle();
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

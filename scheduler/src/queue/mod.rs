//! Which pod is next. Time comes in with every call, in nanoseconds since 1970; nothing here waits.
//!
//! A pod is in one of these places: *active* (to be tried), *back-off* (tried a short while ago), *unschedulable*
//! (until an event may help), *gated* (must not be tried yet), *in flight* (being tried, or being bound).

mod backoff;
#[cfg(test)]
mod tests;
mod waiting;

use crate::configuration::Configuration;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plugin::{Cycle, Hint, Point};
use crate::plugins::service_affinity;
use crate::profile::Profile;
use crate::snapshot::{Event, Seen, Snapshot};
use backoff::Backoff;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use waiting::{Group, Waiting};

/// Nanoseconds since 1970.
pub type Time = i128;

pub const SECOND: Time = 1_000_000_000;

/// What the queue needs to know when it is told something.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub configuration: &'a Configuration,
}

impl<'a> World<'a> {
    fn profile(&self, pod: &Pod) -> Option<&'a Profile> {
        self.configuration.profile(&pod.template.scheduler_name)
    }

    fn gate(&self, pod: &Pod) -> Option<&'static str> {
        let cycle = Cycle { snapshot: self.snapshot, pod };
        let plugins = self.profile(pod)?.at(Point::PreEnqueue).iter();
        plugins.filter_map(|enabled| enabled.plugin.pre_enqueue(cycle)).map(|refusal| refusal.plugin).next()
    }

    /// The event's name, if any pod may wait for it. Only the old plug-in ServiceAffinity waits for events of Services.
    pub fn label(&self, event: &Event) -> Option<&'static str> {
        let waits = |profile: &Profile| profile.has(Point::Filter, service_affinity::NAME);
        event.label().filter(|_| event.kind != Kind::Service || self.configuration.profiles.iter().any(waits))
    }

    /// Whether an event may help pods that one of these plug-ins refused, among pods that the event is not about.
    fn hears(&self, scheduler: &Text, plugins: &[&'static str], event: &Event) -> bool {
        let Some(profile) = self.configuration.profile(scheduler) else { return false };
        plugins.iter().any(|name| profile.plugin(name).is_none_or(|plugin| plugin.hears(event)))
    }

    /// Whether one of these plug-ins says that the event may help the pod. Each call's duration goes into `hinted`.
    fn hopes(&self, pod: &Pod, plugins: &[&'static str], event: &Event, hinted: &mut Vec<Hinted>) -> bool {
        let Some(profile) = self.profile(pod) else { return false };
        let cycle = Cycle { snapshot: self.snapshot, pod };
        let (clock, label) = (self.snapshot.clock, event.label().unwrap_or_default());
        plugins.iter().any(|name| {
            let began = clock.now();
            let hint = profile.plugin(name).map_or(Hint::Queue, |plugin| plugin.hint(cycle, event));
            if hinted.len() < HINTED_MAX {
                let took = clock.now().saturating_sub(began);
                hinted.push(Hinted { plugin: name, event: label, hint, took });
            }
            hint == Hint::Queue
        })
    }
}

/// A plug-in's hint for an event, and how long the call took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hinted {
    pub plugin: &'static str,
    pub event: &'static str,
    pub hint: Hint,
    pub took: Duration,
}

/// How many hints are kept until [`Queue::hinted`] takes them.
const HINTED_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Active,
    Backoff,
    Unschedulable,
    Gated,
    InFlight,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    priority: i64,
    /// When the pod was added, or came back after an attempt that failed. Waiting does not change it, so a pod that
    /// waits longer is tried before pods that were added meanwhile.
    since: Time,
    /// The number in the order of arrival, for pods that came at the same time.
    number: u64,
    /// How many turns of [`TURN_PODS`] pods of its namespace come before its own, while it is active.
    turn: usize,
    /// How many ordinary pods it is as much work as, and as how many it counts while it is active.
    weight: usize,
    counted: usize,
    pub attempts: u32,
    first_active: Option<Time>,
    refusals: u32,
    errors: u32,
    rejectors: Arc<[&'static str]>,
    template: u64,
    scheduler_name: Text,
    /// The number of the first event that must still be looked at if the pod's attempt fails; `u64::MAX`: none.
    missed_from: u64,
    /// Whether it is to be tried because it has waited for too long.
    flushed: bool,
}

/// Sorts pods in the order in which they are taken: by priority, then by turn, then by time.
type Rank = (Reverse<i64>, usize, Time, u64, Key);

/// So many pods of a namespace are tried before it is the turn of others of their priority that came later: nobody keeps
/// a cluster's scheduler to himself by making pods. One that says much about where it may lie is more work, and counts as
/// several: a namespace that has one before it waits with the next.
const TURN_PODS: usize = 64;
/// With so much to look at on each node, a pod counts as one more.
const WEIGHT_TERMS: usize = 16;

/// How many ordinary pods it is as much work as to look for a place for this one.
fn weight(pod: &Pod) -> usize {
    1 + pod.template.terms() / WEIGHT_TERMS
}

impl Entry {
    fn rank(&self, key: &Key) -> Rank {
        (Reverse(self.priority), self.turn, self.since, self.number, key.clone())
    }

    /// How many attempts in a row failed, as the back-off counts them.
    fn failures(&self) -> u32 {
        if self.errors > 0 { self.errors } else { self.refusals }
    }
}

/// Why a pod that was taken from the queue comes back.
#[derive(Debug, Clone)]
pub enum Failure {
    /// These plug-ins refused it.
    Refused(Vec<&'static str>),
    /// The attempt failed with an error.
    Error,
}

#[derive(Debug)]
pub struct Queue {
    backoff: Backoff,
    entries: HashMap<Key, Entry>,
    active: BTreeSet<Rank>,
    /// How many active pods each namespace has.
    crowds: HashMap<Text, usize>,
    waiting: Waiting,
    /// Events since the oldest pod in flight was taken, each with its number.
    missed: VecDeque<(u64, Arc<Event>)>,
    /// How many events are kept in `missed`, by name.
    kept_events: BTreeMap<&'static str, usize>,
    next_event: u64,
    in_flight: BTreeSet<(u64, Key)>,
    next_number: u64,
    last_flush: Time,
    /// A pod that waits longer than this for an event is tried again without one.
    wait_max: Time,
    /// How many pods came to each part of the queue, by the name of the event that brought them there.
    incoming: BTreeMap<(&'static str, &'static str), u64>,
    hinted: Vec<Hinted>,
}

/// How many pods are in each place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lengths {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
    pub in_flight: usize,
}

/// What the queue knows of a pod that was taken to be tried.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub attempts: u32,
    /// When the pod could first be tried.
    pub first_active: Time,
    /// Whether it is tried because it had waited too long without an event that might help.
    pub flushed: bool,
}

const FLUSH_EVERY: Time = 30 * SECOND;

impl Queue {
    /// A queue with the back-off times of a configuration.
    pub fn new(configuration: &Configuration) -> Self {
        let seconds = |seconds: i64| Time::from(seconds) * SECOND;
        Queue {
            backoff: Backoff::new(
                seconds(configuration.pod_initial_backoff_seconds),
                seconds(configuration.pod_max_backoff_seconds),
                configuration.pops_from_backoff,
            ),
            entries: HashMap::new(),
            crowds: HashMap::new(),
            active: BTreeSet::new(),
            waiting: Waiting::default(),
            missed: VecDeque::new(),
            kept_events: BTreeMap::new(),
            next_event: 0,
            in_flight: BTreeSet::new(),
            next_number: 0,
            last_flush: 0,
            wait_max: (configuration.pod_max_in_unschedulable_seconds * SECOND as f64) as Time,
            incoming: BTreeMap::new(),
            hinted: Vec::new(),
        }
    }

    /// The hints of plug-ins since the last call.
    pub fn hinted(&mut self) -> Vec<Hinted> {
        std::mem::take(&mut self.hinted)
    }

    /// Applies an event: pods are added, changed and removed, and waiting pods are woken if the event may help them.
    pub fn event(&mut self, world: World<'_>, event: Event, now: Time) {
        if let Seen::Pod(before, after) = &event.seen {
            self.own(world, &event, before.as_ref(), after.as_ref(), now);
        }
        self.hear(world, event, now);
    }

    /// Wakes the waiting pods that an event may help, and keeps the event for pods in flight.
    pub fn hear(&mut self, world: World<'_>, event: Event, now: Time) {
        let Some(label) = world.label(&event) else { return };
        self.hope(world, &event, label, now);
        // The set is sorted by the first missed event, so if the first pod in flight keeps none (`takes_long`), no pod
        // does.
        let awaited = self.in_flight.first().is_some_and(|(from, _)| *from != u64::MAX);
        if awaited {
            *self.kept_events.entry(label).or_default() += 1;
            self.missed.push_back((self.next_event, Arc::new(event)));
        }
        self.next_event += 1;
    }

    /// How many pods came to each part of the queue, by the name of the event that brought them there.
    pub fn incoming(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        self.incoming.iter().map(|((queue, event), count)| (*queue, *event, *count))
    }

    fn count(&mut self, key: &Key, event: &'static str) {
        let queue = match self.entries.get(key).map(|entry| entry.place) {
            Some(Place::Active) => "active",
            Some(Place::Backoff) => "backoff",
            Some(Place::Unschedulable) => "unschedulable",
            Some(Place::Gated) => "gated",
            Some(Place::InFlight) | None => return,
        };
        *self.incoming.entry((queue, event)).or_default() += 1;
    }

    /// Applies an event to the pod that it is about.
    fn own(&mut self, world: World<'_>, event: &Event, before: Option<&Arc<Pod>>, after: Option<&Arc<Pod>>, now: Time) {
        // An assumed pod stays in the queue until its own events show its node: its binding may still fail.
        let assumed = |pod: &Pod| world.snapshot.is_assumed(&pod.key);
        let unplaced = |pod: &Pod| pod.node_name.is_none() || assumed(pod);
        let ours = |pod: &&Arc<Pod>| unplaced(pod) && world.profile(pod).is_some();
        let Some(pod) = after.filter(ours) else { return self.remove(&event.key) };
        if before.is_some_and(|before| before.uid != pod.uid) {
            self.remove(&event.key);
        }
        let Some(entry) = self.entries.get_mut(&event.key) else { return self.add(world, pod, now) };
        entry.weight = weight(pod);
        let changed_rank = entry.priority != pod.priority;
        let (place, rejectors) = (entry.place, entry.rejectors.clone());
        match place {
            Place::InFlight => entry.priority = pod.priority,
            Place::Active | Place::Backoff if changed_rank => {
                let since = entry.since;
                self.take_out(&event.key);
                if let Some(entry) = self.entries.get_mut(&event.key) {
                    entry.priority = pod.priority;
                }
                self.put(&event.key, place, since);
            }
            Place::Active | Place::Backoff => {}
            Place::Gated | Place::Unschedulable => {
                entry.priority = pod.priority;
                entry.template = pod.template_id;
                let hopes = place == Place::Gated || world.hopes(pod, &rejectors, event, &mut self.hinted);
                self.take_out(&event.key);
                if !hopes {
                    return self.put_back(&event.key);
                }
                self.revive(world, &event.key, now);
                let is_woken = |entry: &Entry| matches!(entry.place, Place::Active | Place::Backoff);
                if let (Some(label), true) = (event.label(), self.entries.get(&event.key).is_some_and(is_woken)) {
                    self.count(&event.key, label);
                }
            }
        }
    }

    fn add(&mut self, world: World<'_>, pod: &Arc<Pod>, now: Time) {
        self.next_number += 1;
        let entry = Entry {
            place: Place::Gated,
            priority: pod.priority,
            since: now,
            number: self.next_number,
            turn: 0,
            weight: weight(pod),
            counted: 0,
            attempts: 0,
            first_active: None,
            refusals: 0,
            errors: 0,
            rejectors: Arc::default(),
            template: pod.template_id,
            scheduler_name: pod.template.scheduler_name.clone(),
            missed_from: 0,
            flushed: false,
        };
        self.entries.insert(pod.key.clone(), entry);
        self.revive(world, &pod.key, now);
        self.count(&pod.key, "UnschedulablePodAdd");
    }

    /// Wakes the waiting pods that an event may help. For pods of one template that the same plug-ins refused, the
    /// hints are computed once.
    fn hope(&mut self, world: World<'_>, event: &Event, label: &'static str, now: Time) {
        let mut woken = Vec::new();
        // The event's own pod was handled in `own`. An object of another kind may have the same key as a pod.
        let is_other = |key: &&Key| event.kind != Kind::Pod || **key != event.key;
        // The pod that a claim for extended resources was made for is asked too, because its hint decides for its whole
        // group.
        let owner = match &event.seen {
            Seen::DeviceClaim(Some(claim), _) if claim.is_extended => claim.owner.as_ref(),
            _ => None,
        };
        let is_owner = |key: &&Key| owner.is_some() && world.snapshot.pod(key).map(|pod| &pod.uid) == owner;
        for (group, keys) in self.waiting.groups(|scheduler, plugins| world.hears(scheduler, plugins, event)) {
            let own = owner.and_then(|_| keys.iter().find(is_owner));
            let asked = own.or_else(|| keys.iter().find(is_other));
            let Some(pod) = asked.and_then(|key| world.snapshot.pod(key)) else {
                continue;
            };
            if world.hopes(pod, &group.rejectors, event, &mut self.hinted) {
                woken.extend(keys.iter().filter(is_other).cloned());
            }
        }
        for key in woken {
            self.take_out(&key);
            self.revive(world, &key, now);
            self.count(&key, label);
        }
    }

    /// Moves a pod that may be schedulable now to the active queue, or to back-off until that is over, or to gated.
    fn revive(&mut self, world: World<'_>, key: &Key, now: Time) {
        let Some(entry) = self.entries.get(key) else { return };
        let over = self.backoff.is_over(entry.since, entry.failures(), now);
        self.put_unless_gated(world, key, if over { Place::Active } else { Place::Backoff }, now);
    }

    fn put_unless_gated(&mut self, world: World<'_>, key: &Key, place: Place, now: Time) {
        let gate = world.snapshot.pod(key).and_then(|pod| world.gate(pod));
        let Some(entry) = self.entries.get_mut(key) else { return };
        match (gate, place) {
            (Some(plugin), _) => entry.rejectors = Arc::new([plugin]),
            (None, Place::Active) => _ = entry.first_active.get_or_insert(now),
            (None, _) => {}
        }
        let since = entry.since;
        self.put(key, if gate.is_some() { Place::Gated } else { place }, since);
    }

    fn put_back(&mut self, key: &Key) {
        if let Some(since) = self.entries.get(key).map(|entry| entry.since) {
            self.put(key, Place::Unschedulable, since);
        }
    }

    fn put(&mut self, key: &Key, place: Place, since: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.place = place;
        entry.since = since;
        entry.turn = 0;
        match place {
            Place::Active => {
                let crowd = self.crowds.entry(key.namespace.clone()).or_default();
                entry.turn = *crowd / TURN_PODS;
                entry.counted = entry.weight;
                *crowd += entry.counted;
                self.active.insert(entry.rank(key));
            }
            Place::Backoff => self.backoff.insert(entry.errors > 0, since, entry.failures(), entry.rank(key)),
            Place::Unschedulable | Place::Gated => {
                let group = Group {
                    template: entry.template,
                    rejectors: entry.rejectors.clone(),
                    scheduler_name: entry.scheduler_name.clone(),
                    gated: place == Place::Gated,
                };
                self.waiting.insert(key, group);
            }
            Place::InFlight => {
                self.in_flight.insert((entry.missed_from, key.clone()));
            }
        }
    }

    fn take_out(&mut self, key: &Key) {
        let Some(entry) = self.entries.get(key) else { return };
        match entry.place {
            Place::Active => {
                self.active.remove(&entry.rank(key));
                if let Some(crowd) = self.crowds.get_mut(&key.namespace) {
                    *crowd -= entry.counted;
                    if *crowd == 0 {
                        self.crowds.remove(&key.namespace);
                    }
                }
            }
            Place::Backoff => self.backoff.remove(entry.errors > 0, entry.since, entry.failures(), &entry.rank(key)),
            Place::Unschedulable | Place::Gated => self.waiting.remove(key),
            Place::InFlight => {
                self.in_flight.remove(&(entry.missed_from, key.clone()));
                self.forget_missed();
            }
        }
    }

    fn forget_missed(&mut self) {
        let oldest = self.in_flight.first().map_or(u64::MAX, |(from, _)| *from);
        while self.missed.front().is_some_and(|(number, _)| *number < oldest) {
            let label = self.missed.pop_front().and_then(|(_, event)| event.label()).unwrap_or_default();
            if let Some(count) = self.kept_events.get_mut(label) {
                *count -= 1;
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        self.take_out(key);
        self.entries.remove(key);
    }

    /// Takes the pod that is to be tried next. If no pod is active, a pod is taken before its back-off is over, unless
    /// its last attempt failed by an error.
    pub fn pop(&mut self, now: Time) -> Option<(Key, Attempt)> {
        self.tick_backoff(now);
        let active = self.active.first().cloned();
        let is_early = active.is_none();
        let key = active.or_else(|| self.backoff.first_refused())?.4;
        if is_early {
            *self.incoming.entry(("active", "PopFromBackoffQ")).or_default() += 1;
        }
        self.take_out(&key);
        let next_event = self.next_event;
        let entry = self.entries.get_mut(&key)?;
        entry.attempts += 1;
        entry.missed_from = next_event;
        let first_active = *entry.first_active.get_or_insert(now);
        let flushed = std::mem::take(&mut entry.flushed);
        let attempt = Attempt { attempts: entry.attempts, first_active, flushed };
        let since = entry.since;
        self.put(&key, Place::InFlight, since);
        Some((key, attempt))
    }

    /// A pod that was taken is bound, or is no longer the scheduler's.
    pub fn done(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|entry| entry.place == Place::InFlight) {
            self.remove(key);
        }
    }

    /// A pod that was taken a while ago is tried only now, on the present state: earlier events need not be kept for
    /// it. `false`: it is not to be tried any more.
    pub fn begins(&mut self, key: &Key) -> bool {
        let next_event = self.next_event;
        let is_taken = self.entries.get(key).is_some_and(|entry| entry.place == Place::InFlight);
        if is_taken {
            self.hears_from(key, next_event);
        }
        is_taken
    }

    fn hears_from(&mut self, key: &Key, event: u64) {
        self.take_out(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.missed_from = event;
        let since = entry.since;
        self.put(key, Place::InFlight, since);
    }

    /// A pod that was taken takes long to be bound: events are no longer kept for it. If its binding fails, it is tried
    /// again without waiting for an event.
    pub fn takes_long(&mut self, key: &Key) {
        if self.entries.get(key).is_none_or(|entry| entry.place != Place::InFlight) {
            return;
        }
        self.hears_from(key, u64::MAX);
        self.forget_missed();
    }

    /// An attempt failed. An event since the pod was taken may wake it at once.
    pub fn failed(&mut self, world: World<'_>, key: &Key, failure: Failure, now: Time) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.place == Place::InFlight) else { return };
        let from = entry.missed_from;
        let Some(pod) = world.snapshot.pod(key).filter(|pod| pod.node_name.is_none()).cloned() else {
            return self.remove(key);
        };
        let rejectors = match failure {
            Failure::Refused(rejectors) => rejectors,
            Failure::Error => Vec::new(),
        };
        let mut hinted = std::mem::take(&mut self.hinted);
        let mut hope = || {
            // The newest event first: for pods that were in flight for long, one of many events mostly helps, and the
            // newest finds that soonest.
            let first = self.missed.front().map_or(from, |(number, _)| *number);
            let known = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX).min(self.missed.len());
            let mut missed = self.missed.range(known..).rev();
            from == u64::MAX || missed.any(|(_, event)| world.hopes(&pod, &rejectors, event, &mut hinted))
        };
        let (error, hope) = (rejectors.is_empty(), hope());
        self.hinted = hinted;
        self.take_out(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        if error {
            entry.errors = entry.errors.saturating_add(1);
        } else {
            entry.errors = 0;
            entry.refusals = entry.refusals.saturating_add(1);
        }
        entry.rejectors = rejectors.into();
        entry.template = pod.template_id;
        entry.priority = pod.priority;
        entry.since = now;
        match (error, hope) {
            (true, _) => self.put_unless_gated(world, key, Place::Backoff, now),
            (false, true) => self.revive(world, key, now),
            (false, false) => self.put(key, Place::Unschedulable, now),
        }
        self.count(key, "ScheduleAttemptFailure");
    }

    /// Makes a pod active at once, even during its back-off.
    pub fn activate(&mut self, world: World<'_>, key: &Key, now: Time) {
        let waits = |entry: &&Entry| matches!(entry.place, Place::Backoff | Place::Unschedulable);
        if self.entries.get(key).filter(waits).is_some() {
            self.take_out(key);
            self.put_unless_gated(world, key, Place::Active, now);
            self.count(key, "ForceActivate");
        }
    }

    fn tick_backoff(&mut self, now: Time) {
        for rank in self.backoff.take_over(now) {
            if let Some(entry) = self.entries.get(&rank.4) {
                let since = entry.since;
                self.put(&rank.4, Place::Active, since);
                self.count(&rank.4, "BackoffComplete");
            }
        }
    }

    /// Ends back-offs that are over, and wakes pods that have waited too long.
    pub fn tick(&mut self, world: World<'_>, now: Time) {
        self.tick_backoff(now);
        if now - self.last_flush < FLUSH_EVERY {
            return;
        }
        self.last_flush = now;
        let long = |entry: &Entry| entry.place == Place::Unschedulable && now - entry.since > self.wait_max;
        let late: Vec<Key> = self.entries.iter().filter(|(_, entry)| long(entry)).map(|(key, _)| key.clone()).collect();
        for key in late {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.flushed = true;
            }
            self.take_out(&key);
            self.revive(world, &key, now);
            self.count(&key, "UnschedulableTimeout");
        }
    }

    /// When [`Queue::tick`] next has something to do.
    pub fn wakes_at(&self) -> Option<Time> {
        let waits = self.waiting.len() > 0;
        let flush = waits.then_some(self.last_flush + FLUSH_EVERY);
        self.backoff.next_end().into_iter().chain(flush).min()
    }

    /// Whether any pod can be tried at once.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    pub fn lengths(&self) -> Lengths {
        let gated = self.waiting.gated();
        Lengths {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.waiting.len() - gated,
            gated,
            in_flight: self.in_flight.len(),
        }
    }

    /// Each pod, its place in the queue and its attempts, for people.
    pub fn dump(&self) -> impl Iterator<Item = String> + '_ {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(key, entry)| (entry.place, entry.rank(key)));
        entries.into_iter().map(|(key, entry)| {
            let (place, attempts, rejectors) = (entry.place, entry.attempts, entry.rejectors.join(" "));
            format!("pod {key}: {place:?}, priority {}, attempts {attempts}, refused by: {rejectors}", entry.priority)
        })
    }

    /// How many waiting pods each plug-in refused, by scheduler name.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, &Text, usize)> {
        self.waiting.refused()
    }

    /// How many events are kept for pods in flight, by name.
    pub fn kept_events(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.kept_events.iter().map(|(event, count)| (*event, *count))
    }
}

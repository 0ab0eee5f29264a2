//! Determines which pod is tried next. The caller passes the time to each function, in nanoseconds since 1970; no
//! function waits.
//!
//! A pod is in one of these parts: *active* (to be tried), *back-off* (tried a short while ago), *unschedulable* (until
//! an event may help), *gated* (must not be tried yet), *in flight* (being tried, or being bound).

mod backoff;
#[cfg(test)]
mod tests;
mod unschedulable;

use crate::configuration::Configuration;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plugin::{ExtensionPoint, QueueingHint, SchedulingCycle};
use crate::plugins::service_affinity;
use crate::profile::Profile;
use crate::snapshot::{ClusterEvent, ObjectChange, Snapshot};
use backoff::Backoff;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use unschedulable::{UnschedulableGroup, UnschedulablePods};

/// A time in nanoseconds since 1970, or a duration in nanoseconds.
pub type Time = i128;

pub const SECOND: Time = 1_000_000_000;

/// What the queue reads while it handles an event: the snapshot and the configuration.
#[derive(Clone, Copy)]
pub struct QueueContext<'a> {
    pub snapshot: &'a Snapshot,
    pub configuration: &'a Configuration,
}

impl<'a> QueueContext<'a> {
    fn profile(&self, pod: &Pod) -> Option<&'a Profile> {
        self.configuration.profile(&pod.template.scheduler_name)
    }

    fn gating_plugin(&self, pod: &Pod) -> Option<&'static str> {
        let cycle = SchedulingCycle { snapshot: self.snapshot, pod };
        let plugins = self.profile(pod)?.at(ExtensionPoint::PreEnqueue).iter();
        plugins.filter_map(|enabled| enabled.plugin.pre_enqueue(cycle)).map(|refusal| refusal.plugin).next()
    }

    /// The event's name in metrics; `None` if no waiting pod reacts to such events. Only the old plug-in
    /// ServiceAffinity makes pods wait for events of Services.
    pub fn event_label(&self, event: &ClusterEvent) -> Option<&'static str> {
        let waits = |profile: &Profile| profile.has(ExtensionPoint::Filter, service_affinity::NAME);
        event.label().filter(|_| event.kind != Kind::Service || self.configuration.profiles.iter().any(waits))
    }

    /// Whether an event may help pods that one of these plug-ins rejected, other than the pod that the event is about.
    fn concerns_any(&self, scheduler: &Text, plugins: &[&'static str], event: &ClusterEvent) -> bool {
        let Some(profile) = self.configuration.profile(scheduler) else { return false };
        plugins.iter().any(|name| profile.plugin(name).is_none_or(|plugin| plugin.concerns_other_pods(event)))
    }

    /// Whether the event may help the pod, according to a hint of one of these plug-ins. Each call of a hint is added
    /// to `hint_calls`.
    fn any_hint_queues(
        &self,
        pod: &Pod,
        plugins: &[&'static str],
        event: &ClusterEvent,
        hint_calls: &mut Vec<HintCall>,
    ) -> bool {
        let Some(profile) = self.profile(pod) else { return false };
        let cycle = SchedulingCycle { snapshot: self.snapshot, pod };
        let (clock, label) = (self.snapshot.clock, event.label().unwrap_or_default());
        plugins.iter().any(|name| {
            let began = clock.now();
            let hint = profile.plugin(name).map_or(QueueingHint::Queue, |plugin| plugin.queueing_hint(cycle, event));
            if hint_calls.len() < HINT_CALLS_MAX {
                let took = clock.now().saturating_sub(began);
                hint_calls.push(HintCall { plugin: name, event: label, hint, took });
            }
            hint == QueueingHint::Queue
        })
    }
}

/// A call of a plug-in's queueing hint for an event: the answer, and how long the call took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintCall {
    pub plugin: &'static str,
    pub event: &'static str,
    pub hint: QueueingHint,
    pub took: Duration,
}

/// How many calls of hints are stored at most until [`Queue::take_hint_calls`] returns them.
const HINT_CALLS_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueuePart {
    Active,
    Backoff,
    Unschedulable,
    Gated,
    InFlight,
}

#[derive(Debug)]
struct QueuedPodInfo {
    part: QueuePart,
    priority: i64,
    /// When the pod was added, or returned to the queue after a failed attempt. Waiting does not change this time, so a
    /// pod that waits longer is tried before pods that were added later.
    timestamp: Time,
    /// The number of pods that arrived before this pod, which decides between pods that were added at the same time.
    arrival: u64,
    /// While the pod is active: how many active pods its namespace had when the pod was added, divided by
    /// [`TURN_PODS`]. Among pods of equal priority, those with the smallest turn are tried first.
    turn: usize,
    /// The work of scheduling this pod, as a number of ordinary pods.
    weight: usize,
    /// The weight with which the pod was added to the count of its namespace's active pods. `weight` may change while
    /// the pod waits.
    counted_weight: usize,
    pub attempts: u32,
    first_active: Option<Time>,
    unschedulable_count: u32,
    consecutive_errors: u32,
    rejectors: Arc<[&'static str]>,
    template: u64,
    scheduler_name: Text,
    /// If the pod's attempt fails, the events from this number on are checked, because one of them may help the pod;
    /// `u64::MAX` if no event must be checked.
    first_event: u64,
    /// Whether the pod is tried because it has waited for too long, and not because of an event.
    flushed: bool,
}

/// The rank by which pods are popped: priority, turn, time, arrival and key. The pod with the smallest rank comes
/// first.
type QueueRank = (Reverse<i64>, usize, Time, u64, Key);

/// After this many pods of one namespace, pods of other namespaces with the same priority are tried, even if they were
/// added later. So no namespace can keep the scheduler busy by creating very many pods. A pod with many terms takes
/// more work and counts as several pods.
const TURN_PODS: usize = 64;
/// A pod counts as one more pod for every this many terms in its template.
const WEIGHT_TERMS: usize = 16;

/// The work of finding a node for this pod, as a number of ordinary pods.
fn weight(pod: &Pod) -> usize {
    1 + pod.template.term_count() / WEIGHT_TERMS
}

impl QueuedPodInfo {
    fn rank(&self, key: &Key) -> QueueRank {
        (Reverse(self.priority), self.turn, self.timestamp, self.arrival, key.clone())
    }

    /// How many failures in a row determine the pod's back-off: attempts that failed with an error, or else attempts
    /// that found no node.
    fn failures(&self) -> u32 {
        if self.consecutive_errors > 0 { self.consecutive_errors } else { self.unschedulable_count }
    }
}

/// Why a pod that was popped returns to the queue.
#[derive(Debug, Clone)]
pub enum AttemptFailure {
    /// These plug-ins rejected the pod.
    Rejected(Vec<&'static str>),
    /// The attempt failed with an error.
    Error,
}

#[derive(Debug)]
pub struct Queue {
    backoff: Backoff,
    entries: HashMap<Key, QueuedPodInfo>,
    active: BTreeSet<QueueRank>,
    /// For each namespace, how many pods are active, where a pod with a weight above 1 counts as that many pods.
    active_by_namespace: HashMap<Text, usize>,
    unschedulable: UnschedulablePods,
    /// The events since the oldest of the pods in flight was popped, each with its number.
    in_flight_events: VecDeque<(u64, Arc<ClusterEvent>)>,
    /// How many events `in_flight_events` contains, by the event's name.
    in_flight_event_counts: BTreeMap<&'static str, usize>,
    next_event: u64,
    in_flight: BTreeSet<(u64, Key)>,
    next_number: u64,
    last_flush: Time,
    /// A pod that has waited for an event for longer than this is tried again without an event.
    unschedulable_max: Time,
    /// How many pods have entered each part of the queue, by the part and the name of the event that moved the pods.
    incoming_pods: BTreeMap<(&'static str, &'static str), u64>,
    hint_calls: Vec<HintCall>,
}

/// How many pods are in each part of the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PendingPods {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
    pub in_flight: usize,
}

/// What the queue knows about a pod that was popped.
#[derive(Debug, Clone, Copy)]
pub struct AttemptInfo {
    pub attempts: u32,
    /// The time at which the pod became active for the first time.
    pub first_active: Time,
    /// Whether the pod is tried because it has waited for too long without an event that might help it.
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
            active_by_namespace: HashMap::new(),
            active: BTreeSet::new(),
            unschedulable: UnschedulablePods::default(),
            in_flight_events: VecDeque::new(),
            in_flight_event_counts: BTreeMap::new(),
            next_event: 0,
            in_flight: BTreeSet::new(),
            next_number: 0,
            last_flush: 0,
            unschedulable_max: (configuration.pod_max_in_unschedulable_seconds * SECOND as f64) as Time,
            incoming_pods: BTreeMap::new(),
            hint_calls: Vec::new(),
        }
    }

    /// The calls of queueing hints since this function was last called.
    pub fn take_hint_calls(&mut self) -> Vec<HintCall> {
        std::mem::take(&mut self.hint_calls)
    }

    /// Applies an event: adds, changes or removes the pod that the event is about, and makes waiting pods active if the
    /// event may help them.
    pub fn handle_event(&mut self, context: QueueContext<'_>, event: ClusterEvent, now: Time) {
        if let ObjectChange::Pod(before, after) = &event.change {
            self.update_own_pod(context, &event, before.as_ref(), after.as_ref(), now);
        }
        self.move_for_event(context, event, now);
    }

    /// Makes active the waiting pods that an event may help, and keeps the event for the pods in flight.
    pub fn move_for_event(&mut self, context: QueueContext<'_>, event: ClusterEvent, now: Time) {
        let Some(label) = context.event_label(&event) else { return };
        self.wake_waiting(context, &event, label, now);
        // `in_flight` is sorted by the number of the first event that a pod has missed. If that number is `u64::MAX`
        // for the first pod (see `stop_keeping_events`), events are kept for no pod in flight.
        let is_kept = self.in_flight.first().is_some_and(|(from, _)| *from != u64::MAX);
        if is_kept {
            *self.in_flight_event_counts.entry(label).or_default() += 1;
            self.in_flight_events.push_back((self.next_event, Arc::new(event)));
        }
        self.next_event += 1;
    }

    /// How many pods have entered each part of the queue: the part, the name of the event that moved the pods, and the
    /// number of pods.
    pub fn incoming_pods(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        self.incoming_pods.iter().map(|((queue, event), count)| (*queue, *event, *count))
    }

    fn count_incoming(&mut self, key: &Key, event: &'static str) {
        let queue = match self.entries.get(key).map(|entry| entry.part) {
            Some(QueuePart::Active) => "active",
            Some(QueuePart::Backoff) => "backoff",
            Some(QueuePart::Unschedulable) => "unschedulable",
            Some(QueuePart::Gated) => "gated",
            Some(QueuePart::InFlight) | None => return,
        };
        *self.incoming_pods.entry((queue, event)).or_default() += 1;
    }

    /// Applies an event to the pod that it is about.
    fn update_own_pod(
        &mut self,
        context: QueueContext<'_>,
        event: &ClusterEvent,
        before: Option<&Arc<Pod>>,
        after: Option<&Arc<Pod>>,
        now: Time,
    ) {
        // A pod that is assumed to be on a node stays in the queue until its own events show the node, because its
        // binding may still fail.
        let assumed = |pod: &Pod| context.snapshot.is_assumed(&pod.key);
        let unplaced = |pod: &Pod| pod.node_name.is_none() || assumed(pod);
        let ours = |pod: &&Arc<Pod>| unplaced(pod) && context.profile(pod).is_some();
        let Some(pod) = after.filter(ours) else { return self.remove(&event.key) };
        if before.is_some_and(|before| before.uid != pod.uid) {
            self.remove(&event.key);
        }
        let Some(entry) = self.entries.get_mut(&event.key) else { return self.add(context, pod, now) };
        entry.weight = weight(pod);
        let changed_rank = entry.priority != pod.priority;
        let (part, rejectors) = (entry.part, entry.rejectors.clone());
        match part {
            QueuePart::InFlight => entry.priority = pod.priority,
            QueuePart::Active | QueuePart::Backoff if changed_rank => {
                let timestamp = entry.timestamp;
                self.take_from_part(&event.key);
                if let Some(entry) = self.entries.get_mut(&event.key) {
                    entry.priority = pod.priority;
                }
                self.put(&event.key, part, timestamp);
            }
            QueuePart::Active | QueuePart::Backoff => {}
            QueuePart::Gated | QueuePart::Unschedulable => {
                entry.priority = pod.priority;
                entry.template = pod.template_id;
                let is_worth_retrying =
                    part == QueuePart::Gated || context.any_hint_queues(pod, &rejectors, event, &mut self.hint_calls);
                self.take_from_part(&event.key);
                if !is_worth_retrying {
                    return self.put_unschedulable(&event.key);
                }
                self.requeue(context, &event.key, now);
                let is_woken = |entry: &QueuedPodInfo| matches!(entry.part, QueuePart::Active | QueuePart::Backoff);
                if let (Some(label), true) = (event.label(), self.entries.get(&event.key).is_some_and(is_woken)) {
                    self.count_incoming(&event.key, label);
                }
            }
        }
    }

    fn add(&mut self, context: QueueContext<'_>, pod: &Arc<Pod>, now: Time) {
        self.next_number += 1;
        let entry = QueuedPodInfo {
            part: QueuePart::Gated,
            priority: pod.priority,
            timestamp: now,
            arrival: self.next_number,
            turn: 0,
            weight: weight(pod),
            counted_weight: 0,
            attempts: 0,
            first_active: None,
            unschedulable_count: 0,
            consecutive_errors: 0,
            rejectors: Arc::default(),
            template: pod.template_id,
            scheduler_name: pod.template.scheduler_name.clone(),
            first_event: 0,
            flushed: false,
        };
        self.entries.insert(pod.key.clone(), entry);
        self.requeue(context, &pod.key, now);
        self.count_incoming(&pod.key, "UnschedulablePodAdd");
    }

    /// Makes active the waiting pods that an event may help, unless they are gated or still in back-off. The hints are
    /// computed once for all pods of one template that the same plug-ins rejected.
    fn wake_waiting(&mut self, context: QueueContext<'_>, event: &ClusterEvent, label: &'static str, now: Time) {
        let mut woken = Vec::new();
        // The pod that the event is about was handled in `update_own_pod`. If the event is about an object of another
        // kind, a pod may have the same key as the object by chance.
        let is_other = |key: &&Key| event.kind != Kind::Pod || **key != event.key;
        // If the event is about a claim for extended resources, the pod for which the claim was made represents its
        // group, because only for that pod can the hint be `Queue`.
        let owner = match &event.change {
            ObjectChange::DeviceClaim(Some(claim), _) if claim.is_extended => claim.owner.as_ref(),
            _ => None,
        };
        let is_owner = |key: &&Key| owner.is_some() && context.snapshot.pod(key).map(|pod| &pod.uid) == owner;
        for (group, keys) in
            self.unschedulable.groups(|scheduler, plugins| context.concerns_any(scheduler, plugins, event))
        {
            let own = owner.and_then(|_| keys.iter().find(is_owner));
            let representative = own.or_else(|| keys.iter().find(is_other));
            let Some(pod) = representative.and_then(|key| context.snapshot.pod(key)) else {
                continue;
            };
            if context.any_hint_queues(pod, &group.rejectors, event, &mut self.hint_calls) {
                woken.extend(keys.iter().filter(is_other).cloned());
            }
        }
        for key in woken {
            self.take_from_part(&key);
            self.requeue(context, &key, now);
            self.count_incoming(&key, label);
        }
    }

    /// Moves a pod that may be schedulable now to the active queue, to back-off while its back-off lasts, or to gated.
    fn requeue(&mut self, context: QueueContext<'_>, key: &Key, now: Time) {
        let Some(entry) = self.entries.get(key) else { return };
        let over = self.backoff.is_over(entry.timestamp, entry.failures(), now);
        self.put_unless_gated(context, key, if over { QueuePart::Active } else { QueuePart::Backoff }, now);
    }

    fn put_unless_gated(&mut self, context: QueueContext<'_>, key: &Key, part: QueuePart, now: Time) {
        let gate = context.snapshot.pod(key).and_then(|pod| context.gating_plugin(pod));
        let Some(entry) = self.entries.get_mut(key) else { return };
        match (gate, part) {
            (Some(plugin), _) => entry.rejectors = Arc::new([plugin]),
            (None, QueuePart::Active) => _ = entry.first_active.get_or_insert(now),
            (None, _) => {}
        }
        let timestamp = entry.timestamp;
        self.put(key, if gate.is_some() { QueuePart::Gated } else { part }, timestamp);
    }

    fn put_unschedulable(&mut self, key: &Key) {
        if let Some(timestamp) = self.entries.get(key).map(|entry| entry.timestamp) {
            self.put(key, QueuePart::Unschedulable, timestamp);
        }
    }

    fn put(&mut self, key: &Key, part: QueuePart, timestamp: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.part = part;
        entry.timestamp = timestamp;
        entry.turn = 0;
        match part {
            QueuePart::Active => {
                let active = self.active_by_namespace.entry(key.namespace.clone()).or_default();
                entry.turn = *active / TURN_PODS;
                entry.counted_weight = entry.weight;
                *active += entry.counted_weight;
                self.active.insert(entry.rank(key));
            }
            QueuePart::Backoff => {
                self.backoff.insert(entry.consecutive_errors > 0, timestamp, entry.failures(), entry.rank(key))
            }
            QueuePart::Unschedulable | QueuePart::Gated => {
                let group = UnschedulableGroup {
                    template: entry.template,
                    rejectors: entry.rejectors.clone(),
                    scheduler_name: entry.scheduler_name.clone(),
                    gated: part == QueuePart::Gated,
                };
                self.unschedulable.insert(key, group);
            }
            QueuePart::InFlight => {
                self.in_flight.insert((entry.first_event, key.clone()));
            }
        }
    }

    fn take_from_part(&mut self, key: &Key) {
        let Some(entry) = self.entries.get(key) else { return };
        match entry.part {
            QueuePart::Active => {
                self.active.remove(&entry.rank(key));
                if let Some(active) = self.active_by_namespace.get_mut(&key.namespace) {
                    *active -= entry.counted_weight;
                    if *active == 0 {
                        self.active_by_namespace.remove(&key.namespace);
                    }
                }
            }
            QueuePart::Backoff => {
                self.backoff.remove(entry.consecutive_errors > 0, entry.timestamp, entry.failures(), &entry.rank(key))
            }
            QueuePart::Unschedulable | QueuePart::Gated => self.unschedulable.remove(key),
            QueuePart::InFlight => {
                self.in_flight.remove(&(entry.first_event, key.clone()));
                self.drop_old_events();
            }
        }
    }

    fn drop_old_events(&mut self) {
        let oldest = self.in_flight.first().map_or(u64::MAX, |(from, _)| *from);
        while self.in_flight_events.front().is_some_and(|(number, _)| *number < oldest) {
            let label = self.in_flight_events.pop_front().and_then(|(_, event)| event.label()).unwrap_or_default();
            if let Some(count) = self.in_flight_event_counts.get_mut(label) {
                *count -= 1;
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        self.take_from_part(key);
        self.entries.remove(key);
    }

    /// Removes and returns the pod to be tried next. If no pod is active and the feature gate SchedulerPopFromBackoffQ
    /// is on, a pod may be popped before its back-off is over, unless its last attempt failed with an error.
    pub fn pop(&mut self, now: Time) -> Option<(Key, AttemptInfo)> {
        self.flush_backoff(now);
        let active = self.active.first().cloned();
        let is_early = active.is_none();
        let key = active.or_else(|| self.backoff.first_unschedulable())?.4;
        if is_early {
            *self.incoming_pods.entry(("active", "PopFromBackoffQ")).or_default() += 1;
        }
        self.take_from_part(&key);
        let next_event = self.next_event;
        let entry = self.entries.get_mut(&key)?;
        entry.attempts += 1;
        entry.first_event = next_event;
        let first_active = *entry.first_active.get_or_insert(now);
        let flushed = std::mem::take(&mut entry.flushed);
        let info = AttemptInfo { attempts: entry.attempts, first_active, flushed };
        let timestamp = entry.timestamp;
        self.put(&key, QueuePart::InFlight, timestamp);
        Some((key, info))
    }

    /// Removes a pod that was popped and is now bound, or for which this scheduler is no longer responsible.
    pub fn done(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|entry| entry.part == QueuePart::InFlight) {
            self.remove(key);
        }
    }

    /// Records that a popped pod is tried now, with the present state of the cluster, so earlier events need not be
    /// kept for it. Returns `false` if the pod is no longer in flight.
    pub fn restart_in_flight(&mut self, key: &Key) -> bool {
        let next_event = self.next_event;
        let is_taken = self.entries.get(key).is_some_and(|entry| entry.part == QueuePart::InFlight);
        if is_taken {
            self.keep_events_from(key, next_event);
        }
        is_taken
    }

    fn keep_events_from(&mut self, key: &Key, event: u64) {
        self.take_from_part(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.first_event = event;
        let timestamp = entry.timestamp;
        self.put(key, QueuePart::InFlight, timestamp);
    }

    /// Stops keeping events for a popped pod whose binding takes long. If the binding fails, the pod is tried again
    /// without waiting for an event.
    pub fn stop_keeping_events(&mut self, key: &Key) {
        if self.entries.get(key).is_none_or(|entry| entry.part != QueuePart::InFlight) {
            return;
        }
        self.keep_events_from(key, u64::MAX);
        self.drop_old_events();
    }

    /// Puts the pod of a failed attempt back into the queue. An event since the pod was popped may make it active at
    /// once.
    pub fn requeue_failed(&mut self, context: QueueContext<'_>, key: &Key, failure: AttemptFailure, now: Time) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.part == QueuePart::InFlight) else { return };
        let from = entry.first_event;
        let Some(pod) = context.snapshot.pod(key).filter(|pod| pod.node_name.is_none()).cloned() else {
            return self.remove(key);
        };
        let rejectors = match failure {
            AttemptFailure::Rejected(rejectors) => rejectors,
            AttemptFailure::Error => Vec::new(),
        };
        let mut hint_calls = std::mem::take(&mut self.hint_calls);
        let mut is_worth_retrying = || {
            // The newest event is checked first. If a pod was in flight for long, one of its many events usually helps,
            // and this order usually finds that event soon.
            let first = self.in_flight_events.front().map_or(from, |(number, _)| *number);
            let known =
                usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX).min(self.in_flight_events.len());
            let mut in_flight_events = self.in_flight_events.range(known..).rev();
            from == u64::MAX
                || in_flight_events.any(|(_, event)| context.any_hint_queues(&pod, &rejectors, event, &mut hint_calls))
        };
        let (error, is_worth_retrying) = (rejectors.is_empty(), is_worth_retrying());
        self.hint_calls = hint_calls;
        self.take_from_part(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        if error {
            entry.consecutive_errors = entry.consecutive_errors.saturating_add(1);
        } else {
            entry.consecutive_errors = 0;
            entry.unschedulable_count = entry.unschedulable_count.saturating_add(1);
        }
        entry.rejectors = rejectors.into();
        entry.template = pod.template_id;
        entry.priority = pod.priority;
        entry.timestamp = now;
        match (error, is_worth_retrying) {
            (true, _) => self.put_unless_gated(context, key, QueuePart::Backoff, now),
            (false, true) => self.requeue(context, key, now),
            (false, false) => self.put(key, QueuePart::Unschedulable, now),
        }
        self.count_incoming(key, "ScheduleAttemptFailure");
    }

    /// Makes a pod active at once, even during its back-off.
    pub fn activate(&mut self, context: QueueContext<'_>, key: &Key, now: Time) {
        let waits = |entry: &&QueuedPodInfo| matches!(entry.part, QueuePart::Backoff | QueuePart::Unschedulable);
        if self.entries.get(key).filter(waits).is_some() {
            self.take_from_part(key);
            self.put_unless_gated(context, key, QueuePart::Active, now);
            self.count_incoming(key, "ForceActivate");
        }
    }

    fn flush_backoff(&mut self, now: Time) {
        for rank in self.backoff.pop_completed(now) {
            if let Some(entry) = self.entries.get(&rank.4) {
                let timestamp = entry.timestamp;
                self.put(&rank.4, QueuePart::Active, timestamp);
                self.count_incoming(&rank.4, "BackoffComplete");
            }
        }
    }

    /// Ends back-offs that are over, and wakes pods that have waited too long.
    pub fn flush(&mut self, context: QueueContext<'_>, now: Time) {
        self.flush_backoff(now);
        if now - self.last_flush < FLUSH_EVERY {
            return;
        }
        self.last_flush = now;
        let long = |entry: &QueuedPodInfo| {
            entry.part == QueuePart::Unschedulable && now - entry.timestamp > self.unschedulable_max
        };
        let late: Vec<Key> = self.entries.iter().filter(|(_, entry)| long(entry)).map(|(key, _)| key.clone()).collect();
        for key in late {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.flushed = true;
            }
            self.take_from_part(&key);
            self.requeue(context, &key, now);
            self.count_incoming(&key, "UnschedulableTimeout");
        }
    }

    /// The time at which [`Queue::flush`] next has something to do; `None` if no pod waits.
    pub fn next_flush(&self) -> Option<Time> {
        let waits = self.unschedulable.len() > 0;
        let flush = waits.then_some(self.last_flush + FLUSH_EVERY);
        self.backoff.next_end().into_iter().chain(flush).min()
    }

    /// Whether a pod is active, so that it can be tried at once.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    pub fn pending_pods(&self) -> PendingPods {
        let gated = self.unschedulable.gated();
        PendingPods {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.unschedulable.len() - gated,
            gated,
            in_flight: self.in_flight.len(),
        }
    }

    /// For each pod of the queue a line with its part of the queue and its number of attempts, for debugging.
    pub fn dump(&self) -> impl Iterator<Item = String> + '_ {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(key, entry)| (entry.part, entry.rank(key)));
        entries.into_iter().map(|(key, entry)| {
            let (part, attempts, rejectors) = (entry.part, entry.attempts, entry.rejectors.join(" "));
            format!("pod {key}: {part:?}, priority {}, attempts {attempts}, refused by: {rejectors}", entry.priority)
        })
    }

    /// For each plug-in and scheduler name, how many waiting pods the plug-in rejected.
    pub fn unschedulable_pods(&self) -> impl Iterator<Item = (&'static str, &Text, usize)> {
        self.unschedulable.pods_by_rejector()
    }

    /// How many events are kept for the pods in flight, by the event's name.
    pub fn in_flight_event_counts(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.in_flight_event_counts.iter().map(|(event, count)| (*event, *count))
    }
}

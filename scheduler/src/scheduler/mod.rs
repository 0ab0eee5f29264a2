//! A running scheduler, still without clock, thread or socket.
//!
//! It is told of changes ([`Scheduler::see`]), of answers ([`Scheduler::answer`]) and of the time. Each
//! [`Scheduler::turn`] plans one pod, and [`Scheduler::orders`] returns the requests to send to other servers. The
//! caller carries orders out in any order and at any time, or never: a scheduler that is started anew comes to the same
//! end.
//!
//! Once a node is chosen for a pod, the pod is in its binding cycle ([`way`]) until its own events show the node. In it
//! the pod may have to wait for others of its gang ([`gang`]). [`evict`] evicts the victims of preemption, [`status`]
//! and [`event`] write pods' statuses and Events, and [`consult`] calls extenders.

mod consult;
mod dump;
mod event;
mod evict;
mod gang;
mod order;
mod prepare;
mod status;
#[cfg(test)]
mod tests;
mod way;

use crate::clock::Clock;
use crate::configuration::Configuration;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text, WHOLE};
use crate::plan::{Nomination, Outcome, Plan, SCHEDULER_ERROR, Unschedulable};
use crate::planner::Planner;
use crate::plugin::{POINTS, Point};
use crate::profile::Profile;
use crate::queue::{Attempt, Failure, Hinted, Lengths, Queue, Time, World};
use crate::snapshot::{Event, Seen, Snapshot};
use consult::Consultation;
use event::Events;
use evict::{Eviction, Leaving};
use gang::Patience;
use holdfast_value::Value;
use order::Purpose;
pub use order::{Answer, Ask, Order};
use status::Statuses;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use way::Way;

/// While more orders for pods than this have no answer, statuses and Events wait.
const FEW_ORDERS: usize = 32;

pub struct Scheduler {
    configuration: Arc<Configuration>,
    snapshot: Snapshot,
    queue: Queue,
    planner: Planner,
    /// Pods in their binding cycle: a node was chosen, and their own events do not show it yet.
    ways: HashMap<Key, Way>,
    /// Pods in their binding cycle that wait for another object to change, by that object.
    awaited: HashMap<(Kind, Key), BTreeSet<Key>>,
    /// When each pod in its binding cycle has waited too long.
    deadlines: BTreeSet<(Time, Key)>,
    patience: Patience,
    statuses: Statuses,
    evictions: HashMap<Key, Eviction>,
    /// Victims by UID, until their own events show that they go.
    leaving: HashMap<Text, Leaving>,
    consultation: Option<Consultation>,
    /// Pods that wait for their consultation, by rank. Consultations are one after the other, because the node of one
    /// pod decides what is left for the next.
    line: BTreeMap<(Reverse<i64>, u64), InLine>,
    /// Whole objects, if extenders are sent these.
    documents: HashMap<(Kind, Key), Arc<Value>>,
    events: Events,
    next_order: u64,
    purposes: HashMap<u64, Purpose>,
    orders: Vec<Order>,
    observed: Vec<Observed>,
    /// How many points were passed in binding cycles.
    passed: u64,
}

/// What happened, for metrics. Times are in nanoseconds; the reader computes durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// An attempt ended: `scheduled`, `unschedulable` or `error`.
    Attempt { profile: Text, result: &'static str, began: Time, ended: Time },
    /// A pod was bound. `first_active`: when it could first be tried; `flushed`: whether it was tried because it had
    /// waited too long without an event.
    Bound { attempts: u32, first_active: Time, flushed: bool, at: Time },
    /// A point of a binding cycle was passed, successfully or not. Only one in ten is reported.
    Passed { profile: Text, point: &'static str, plugin: &'static str, success: bool, began: Time, ended: Time },
    /// Preemption looked for victims for a pod.
    PreemptionTried,
    /// Preemption chose victims.
    Preemption { victims: usize },
    /// The eviction of a preemptor's victims ended.
    Evicted { success: bool, began: Time, ended: Time },
    /// A plug-in's hint for an event was computed.
    Hinted(Hinted),
    /// Volumes could not be bound for a pod with a chosen node.
    VolumesFailed,
    /// The creation of a claim for a pod's extended resources ended.
    ClaimMade { success: bool },
    /// A pod no longer waits for others of its gang.
    Waited { result: &'static str, began: Time, ended: Time },
}

/// A pod that waits for its consultation.
struct InLine {
    key: Key,
    uid: Text,
    attempt: Attempt,
}

/// A pod that is being tried.
#[derive(Debug, Clone)]
struct Trying {
    pod: Arc<Pod>,
    profile: usize,
    attempt: Attempt,
    began: Time,
}

impl Scheduler {
    pub fn new(configuration: Arc<Configuration>) -> Scheduler {
        Scheduler::with_clock(configuration, Clock::default())
    }

    /// As [`Scheduler::new`], with a clock for searches that have a time limit.
    pub fn with_clock(configuration: Arc<Configuration>, clock: Clock) -> Scheduler {
        let mut snapshot = Snapshot::with(&configuration);
        snapshot.clock = clock;
        Scheduler {
            queue: Queue::new(&configuration),
            configuration,
            snapshot,
            planner: Planner::new(),
            ways: HashMap::new(),
            awaited: HashMap::new(),
            deadlines: BTreeSet::new(),
            patience: Patience::default(),
            statuses: Statuses::default(),
            evictions: HashMap::new(),
            leaving: HashMap::new(),
            consultation: None,
            line: BTreeMap::new(),
            documents: HashMap::new(),
            events: Events::default(),
            next_order: 0,
            purposes: HashMap::new(),
            orders: Vec::new(),
            observed: Vec::new(),
            passed: 0,
        }
    }

    /// Sets the machine's name, for Events.
    pub fn runs_on(&mut self, host: &str) {
        self.events.host = host.to_owned();
    }

    /// Reads the limits of pods, too, for readers of the snapshot.
    pub fn read_limits(&mut self) {
        self.snapshot.read_limits();
    }

    /// Applies the new state of an object; `None`: it is gone. Returns the event's name, if pods may wait for such an
    /// event.
    pub fn see(&mut self, kind: Kind, key: &Key, object: Option<&Value>, now: Time) -> Option<&'static str> {
        self.keep_document(kind, key, object);
        let event = self.snapshot.apply(kind, key, object)?;
        self.happened(event, now)
    }

    /// As [`Scheduler::see`], for an object as it is stored. Only the fields that the scheduler reads are decoded.
    pub fn see_stored(&mut self, kind: Kind, key: &Key, json: Option<&[u8]>, now: Time) -> Option<&'static str> {
        // Extenders may be sent whole pods and nodes.
        let is_for_extenders = !self.configuration.extenders.is_empty();
        if kind == Kind::Pod && !is_for_extenders {
            let event = self.snapshot.apply_stored_pod(key, json)?;
            return self.happened(event, now);
        }
        let glance = if is_for_extenders { &WHOLE } else { kind.glance() };
        self.see(kind, key, json.map(|json| glance.look(json).document).as_ref(), now)
    }

    fn happened(&mut self, event: Event, now: Time) -> Option<&'static str> {
        let (kind, key) = (event.kind, event.key.clone());
        if let Seen::Pod(_, after) = &event.seen
            && after.as_ref().is_none_or(|pod| pod.node_name.is_some())
        {
            self.statuses.forget(&key);
        }
        if kind == Kind::Pod {
            self.keep_nomination(&key);
            self.own_way(&key, now);
        }
        if let Seen::Pod(Some(before), _) = &event.seen {
            self.left(before);
        }
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        let label = world.label(&event);
        self.queue.event(world, event, now);
        self.awaited_changed(kind, &key, now);
        label
    }

    /// Does what is due, and tries the next pod. `false`: no pod is to be tried now.
    pub fn turn(&mut self, now: Time) -> bool {
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        self.queue.tick(world, now);
        self.overdue(now);
        if self.consultation.is_none()
            && let Some((_, InLine { key, uid, attempt })) = self.line.pop_first()
        {
            let is_same = self.snapshot.pod(&key).is_some_and(|pod| pod.uid == uid);
            if is_same && self.queue.begins(&key) {
                self.attempt(&key, attempt, now);
            }
            return true;
        }
        let Some((key, attempt)) = self.queue.pop(now) else { return false };
        self.attempt(&key, attempt, now);
        true
    }

    /// The requests to send now.
    pub fn orders(&mut self, now: Time) -> Vec<Order> {
        let is_calm = self.is_calm();
        self.order_statuses(is_calm, now);
        self.order_events(is_calm, now);
        std::mem::take(&mut self.orders)
    }

    /// What happened since the last call.
    pub fn observed(&mut self) -> Vec<Observed> {
        let hinted = self.queue.hinted().into_iter().map(Observed::Hinted);
        self.observed.extend(hinted);
        std::mem::take(&mut self.observed)
    }

    /// When [`Scheduler::turn`] or [`Scheduler::orders`] next has something to do without an event.
    pub fn wakes_at(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let told = self.statuses.due().into_iter().chain(self.event_due());
        self.queue.wakes_at().into_iter().chain(deadline).chain(told).min()
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub fn lengths(&self) -> Lengths {
        self.queue.lengths()
    }

    /// How many pods came to each part of the queue, by the name of the event that brought them there.
    pub fn incoming(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        self.queue.incoming()
    }

    /// How many waiting pods each plug-in refused, by scheduler name.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, &Text, usize)> {
        self.queue.refused()
    }

    /// How often each plug-in was called at a point, by scheduler name.
    pub fn evaluations(&mut self) -> impl Iterator<Item = (&Text, &'static str, &'static str, u64)> {
        let profiles = &self.configuration.profiles;
        let point = |point: Point| POINTS.iter().find(|row| row.0 == point).map_or("", |row| row.2);
        self.planner.evaluations().iter().filter_map(move |((profile, at, plugin), count)| {
            let point = point(*at).trim_end_matches("Plugin");
            Some((&profiles.get(*profile)?.scheduler_name, point, *plugin, *count))
        })
    }

    /// How many events are kept for pods that are being tried or bound, by name.
    pub fn kept_events(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.queue.kept_events()
    }

    pub fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// How many orders have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.purposes.len()
    }

    /// Whether so few pods are under way that writing statuses and Events delays none.
    fn is_calm(&self) -> bool {
        let pods = self.unanswered() - self.events.unanswered;
        pods <= FEW_ORDERS && self.line.is_empty() && !self.queue.has_active()
    }

    fn profile(&self, number: usize) -> &Profile {
        &self.configuration.profiles[number]
    }

    fn attempt(&mut self, key: &Key, attempt: Attempt, now: Time) {
        let Some(pod) = self.snapshot.pod(key).cloned() else { return self.queue.done(key) };
        let name = &pod.template.scheduler_name;
        let Some(profile) = self.configuration.profiles.iter().position(|one| one.scheduler_name == *name) else {
            return self.queue.done(key);
        };
        if pod.deleting {
            self.tell_failure(&pod, profile, &format!("skip schedule deleting pod: {key}"), now);
            return self.queue.done(key);
        }
        let trying = Trying { pod, profile, attempt, began: now };
        if self.wants_consultation(&trying.pod) {
            return match self.consultation {
                None => self.consult(trying, now),
                Some(_) => self.stand_in_line(trying),
            };
        }
        let configuration = self.configuration.clone();
        let plan = self.planner.plan(&self.snapshot, (profile, &configuration.profiles[profile]), &trying.pod);
        self.carry_out(trying, plan, now);
    }

    fn carry_out(&mut self, trying: Trying, plan: Plan, now: Time) {
        match plan.outcome {
            Outcome::Bind { node, promise } => self.set_out(trying, node, promise, now),
            Outcome::Unschedulable(why) => self.refuse(trying, why, now),
        }
    }

    /// No node is feasible: the pod waits, its status and an Event say why, and victims may be evicted for it.
    fn refuse(&mut self, trying: Trying, why: Unschedulable, now: Time) {
        let Trying { pod, profile, began, .. } = trying;
        self.observe_attempt(
            profile,
            if why.reason == SCHEDULER_ERROR { "error" } else { "unschedulable" },
            began,
            now,
        );
        self.observed.extend(why.preemption_tried.then_some(Observed::PreemptionTried));
        self.tell_failure(&pod, profile, &why.message, now);
        let condition = Some((why.reason, why.message));
        match why.victims {
            Some(_) => self.write_status_in_time(&pod, condition, why.nomination, now),
            None => self.write_status(&pod, condition, why.nomination, now),
        }
        if let Some(claim) = &why.deallocate {
            self.deallocate(claim);
        }
        match why.victims {
            Some(victims) => self.evict(&pod, profile, victims, why.rejectors, now),
            None => self.requeue(&pod.key, failure(why.rejectors), now),
        }
    }

    fn requeue(&mut self, key: &Key, failure: Failure, now: Time) {
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        self.queue.failed(world, key, failure, now);
    }

    fn observe_attempt(&mut self, profile: usize, result: &'static str, began: Time, ended: Time) {
        let profile = self.profile(profile).scheduler_name.clone();
        self.observed.push(Observed::Attempt { profile, result, began, ended });
    }

    /// The nomination in the pod's status may be older than the one that is being written.
    fn keep_nomination(&mut self, key: &Key) {
        if let Some(nomination) = self.statuses.nomination(key) {
            self.snapshot.nominate(key, nomination);
        }
    }
}

fn failure(rejectors: Vec<&'static str>) -> Failure {
    if rejectors.is_empty() { Failure::Error } else { Failure::Refused(rejectors) }
}

/// The nomination to be written into the pod's status; `None`: no change.
fn wanted(nomination: Nomination) -> Option<Option<Text>> {
    match nomination {
        Nomination::Keep => None,
        Nomination::Clear => Some(None),
        Nomination::Set(node) => Some(Some(node)),
    }
}

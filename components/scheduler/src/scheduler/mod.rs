//! A running scheduler, without clock, thread or socket.
//!
//! The caller passes changes of objects ([`Scheduler::apply_object`]), outcomes of requests
//! ([`Scheduler::handle_outcome`]) and the time. Each call of [`Scheduler::schedule_one`] plans one pod, and
//! [`Scheduler::take_requests`] returns the requests to send to other servers. The caller may send requests in any
//! order and at any time, or never: a scheduler that restarts then reaches the same result.
//!
//! Once a node is chosen for a pod, the pod is in its binding cycle ([`binding_cycle`]) until its own events show the
//! node. During the cycle the pod may have to wait for other pods of its gang ([`permit`]). [`eviction`] evicts the
//! victims of preemption, [`status_writer`] and [`event_recorder`] write pods' statuses and Events, and
//! [`extender_calls`] calls extenders.

mod binding_cycle;
mod dump;
mod event_recorder;
mod eviction;
mod extender_answers;
mod extender_calls;
mod permit;
mod pre_bind;
mod requests;
mod status_writer;
#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::configuration::Configuration;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text, WHOLE};
use crate::plan::{Plan, PlanOutcome, SCHEDULER_ERROR, Unschedulable};
use crate::planner::Planner;
use crate::plugin::{ExtensionPoint, POINTS};
use crate::profile::Profile;
use crate::queue::{AttemptFailure, AttemptInfo, HintCall, PendingPods, Queue, QueueContext, Time};
use crate::snapshot::{ClusterEvent, ObjectChange, Snapshot};
use crate::status::Nomination;
use binding_cycle::BindingCycles;
use event_recorder::EventRecorder;
use eviction::Evictions;
use extender_calls::{ExtenderQueueEntry, ExtenderState};
use holdfast_value::Value;
use permit::PermitDeadlines;
use requests::Requests;
pub use requests::{OutgoingRequest, RequestContent, RequestOutcome};
use status_writer::StatusWriter;
use std::sync::Arc;

/// While the API server has not answered more requests than this number (writes of Events do not count), Events and the
/// statuses of pods that preempt others wait, up to a maximum delay.
const FEW_REQUESTS: usize = 32;

pub struct Scheduler {
    configuration: Arc<Configuration>,
    snapshot: Snapshot,
    queue: Queue,
    planner: Planner,
    binding_cycles: BindingCycles,
    permit_deadlines: PermitDeadlines,
    statuses: StatusWriter,
    evictions: Evictions,
    extenders: ExtenderState,
    events: EventRecorder,
    requests: Requests,
    samples: Vec<MetricSample>,
}

/// An observation that the caller adds to its metrics. Times are in nanoseconds since 1970; the caller computes
/// durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricSample {
    /// An attempt ended. `result` is `scheduled`, `unschedulable` or `error`.
    Attempt { profile: Text, result: &'static str, began: Time, ended: Time },
    /// A pod was bound. `first_active` is the time at which the pod became active for the first time, and `flushed` is
    /// whether it was tried because it had waited too long without an event.
    Bound { attempts: u32, first_active: Time, flushed: bool, at: Time },
    /// A pod has passed a point of its binding cycle, with or without success. Only one in ten passed points is
    /// reported.
    ExtensionPoint { profile: Text, point: &'static str, plugin: &'static str, success: bool, began: Time, ended: Time },
    /// Preemption has looked for victims for a pod.
    PreemptionAttempted,
    /// Preemption has chosen this many victims.
    Preemption { victims: usize },
    /// The eviction of the victims for one pod has ended.
    Evicted { success: bool, began: Time, ended: Time },
    /// A queueing hint of a plug-in was called.
    HintCall(HintCall),
    /// The volumes of a pod could not be bound after a node was chosen for the pod.
    VolumeBindingFailed,
    /// The request to create a claim for a pod's extended resources has ended.
    ClaimCreated { success: bool },
    /// A pod has ended its wait for other pods of its gang.
    PermitWait { result: &'static str, began: Time, ended: Time },
}

/// A pod that is being tried.
#[derive(Debug, Clone)]
struct Attempt {
    pod: Arc<Pod>,
    profile: usize,
    info: AttemptInfo,
    began: Time,
}

impl Scheduler {
    pub fn new(configuration: Arc<Configuration>) -> Scheduler {
        Scheduler::with_clock(configuration, Clock::default())
    }

    /// Like [`Scheduler::new`], with a clock for searches that have a time limit.
    pub fn with_clock(configuration: Arc<Configuration>, clock: Clock) -> Scheduler {
        let mut snapshot = configuration.new_snapshot();
        snapshot.clock = clock;
        Scheduler {
            queue: Queue::new(&configuration),
            configuration,
            snapshot,
            planner: Planner::new(),
            binding_cycles: BindingCycles::default(),
            permit_deadlines: PermitDeadlines::default(),
            statuses: StatusWriter::default(),
            evictions: Evictions::default(),
            extenders: ExtenderState::default(),
            events: EventRecorder::default(),
            requests: Requests::default(),
            samples: Vec::new(),
        }
    }

    /// Sets the name of the machine, which Events contain.
    pub fn set_host(&mut self, host: &str) {
        self.events.host = host.to_owned();
    }

    /// Makes the snapshot contain the limits of pods, for callers that read them.
    pub fn read_limits(&mut self) {
        self.snapshot.read_limits();
    }

    /// Applies the new state of an object; `object` is `None` if it was deleted. Returns the event's name, if pods may
    /// wait for such an event.
    pub fn apply_object(&mut self, kind: Kind, key: &Key, object: Option<&Value>, now: Time) -> Option<&'static str> {
        self.store_document(kind, key, object);
        let event = self.snapshot.apply(kind, key, object)?;
        self.handle_event(event, now)
    }

    /// Like [`Scheduler::apply_object`], for an object as it is stored. Only the fields that the scheduler reads are
    /// decoded.
    pub fn apply_stored_object(
        &mut self,
        kind: Kind,
        key: &Key,
        json: Option<&[u8]>,
        now: Time,
    ) -> Option<&'static str> {
        // Requests to extenders may contain whole pods and nodes, so these are decoded in full.
        let is_for_extenders = !self.configuration.extenders.is_empty();
        if kind == Kind::Pod && !is_for_extenders {
            let event = self.snapshot.apply_stored_pod(key, json)?;
            return self.handle_event(event, now);
        }
        let glance = if is_for_extenders { &WHOLE } else { kind.glance() };
        self.apply_object(kind, key, json.map(|json| glance.look(json).document).as_ref(), now)
    }

    fn handle_event(&mut self, event: ClusterEvent, now: Time) -> Option<&'static str> {
        let (kind, key) = (event.kind, event.key.clone());
        if let ObjectChange::Pod(_, after) = &event.change
            && after.as_ref().is_none_or(|pod| pod.node_name.is_some())
        {
            self.statuses.forget(&key);
        }
        if kind == Kind::Pod {
            self.restore_nomination(&key);
            self.update_binding_cycle(&key, now);
        }
        if let ObjectChange::Pod(Some(before), _) = &event.change {
            self.evictions.forget_gone_victim(&self.snapshot, before);
        }
        let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
        let label = context.event_label(&event);
        self.queue.handle_event(context, event, now);
        self.awaited_object_changed(kind, &key, now);
        label
    }

    /// Ends the waits whose time is over, and tries the next pod. Returns `false` if no pod can be tried now.
    pub fn schedule_one(&mut self, now: Time) -> bool {
        let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
        self.queue.flush(context, now);
        self.expire_deadlines(now);
        if let Some(ExtenderQueueEntry { key, uid, info }) = self.extenders.pop_waiting() {
            let is_same = self.snapshot.pod(&key).is_some_and(|pod| pod.uid == uid);
            if is_same && self.queue.restart_in_flight(&key) {
                self.schedule_pod(&key, info, now);
            }
            return true;
        }
        let Some((key, info)) = self.queue.pop(now) else { return false };
        self.schedule_pod(&key, info, now);
        true
    }

    /// The requests to send now.
    pub fn take_requests(&mut self, now: Time) -> Vec<OutgoingRequest> {
        let is_lightly_loaded = self.is_lightly_loaded();
        self.send_due_statuses(is_lightly_loaded, now);
        self.send_due_events(is_lightly_loaded, now);
        self.requests.take_unsent()
    }

    /// The observations for metrics since this function was last called.
    pub fn take_samples(&mut self) -> Vec<MetricSample> {
        let hinted = self.queue.take_hint_calls().into_iter().map(MetricSample::HintCall);
        self.samples.extend(hinted);
        std::mem::take(&mut self.samples)
    }

    /// The time at which [`Scheduler::schedule_one`] or [`Scheduler::take_requests`] next has something to do, if no
    /// event arrives before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let deadline = self.binding_cycles.next_deadline();
        let reports = self.statuses.due().into_iter().chain(self.next_event_due());
        self.queue.next_flush().into_iter().chain(deadline).chain(reports).min()
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub fn pending_pods(&self) -> PendingPods {
        self.queue.pending_pods()
    }

    /// How many pods have entered each part of the queue: the part, the name of the event that moved the pods, and the
    /// number of pods.
    pub fn incoming_pods(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        self.queue.incoming_pods()
    }

    /// For each plug-in and scheduler name, how many waiting pods the plug-in rejected.
    pub fn unschedulable_pods(&self) -> impl Iterator<Item = (&'static str, &Text, usize)> {
        self.queue.unschedulable_pods()
    }

    /// How many times each plug-in was called: the scheduler name of the profile, the point, the plug-in's name, and
    /// the number of calls.
    pub fn evaluations(&mut self) -> impl Iterator<Item = (&Text, &'static str, &'static str, u64)> {
        let profiles = &self.configuration.profiles;
        let point = |point: ExtensionPoint| POINTS.iter().find(|row| row.0 == point).map_or("", |row| row.2);
        self.planner.evaluations().iter().filter_map(move |((profile, at, plugin), count)| {
            let point = point(*at).trim_end_matches("Plugin");
            Some((&profiles.get(*profile)?.scheduler_name, point, *plugin, *count))
        })
    }

    /// How many events are kept for pods that are being tried or bound, by the event's name.
    pub fn in_flight_event_counts(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.queue.in_flight_event_counts()
    }

    pub fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// How many requests have no outcome yet.
    pub fn pending_requests(&self) -> usize {
        self.requests.pending()
    }

    /// Whether writes of statuses and Events delay no pod: few requests for pods are pending, no pod is active, and no
    /// pod waits for extenders.
    fn is_lightly_loaded(&self) -> bool {
        let pods = self.pending_requests() - self.events.unanswered;
        pods <= FEW_REQUESTS && self.extenders.is_queue_empty() && !self.queue.has_active()
    }

    fn profile(&self, number: usize) -> &Profile {
        &self.configuration.profiles[number]
    }

    fn schedule_pod(&mut self, key: &Key, info: AttemptInfo, now: Time) {
        let Some(pod) = self.snapshot.pod(key).cloned() else { return self.queue.done(key) };
        let name = &pod.template.scheduler_name;
        let Some(profile) = self.configuration.profiles.iter().position(|one| one.scheduler_name == *name) else {
            return self.queue.done(key);
        };
        if pod.deleting {
            self.record_failure(&pod, profile, &format!("skip schedule deleting pod: {key}"), now);
            return self.queue.done(key);
        }
        let attempt = Attempt { pod, profile, info, began: now };
        if self.needs_extenders(&attempt.pod) {
            return match self.extenders.is_busy() {
                false => self.call_extenders(attempt, now),
                true => self.queue_for_extenders(attempt),
            };
        }
        let configuration = self.configuration.clone();
        let plan = self.planner.plan(&self.snapshot, (profile, &configuration.profiles[profile]), &attempt.pod);
        self.apply_plan(attempt, plan, now);
    }

    fn apply_plan(&mut self, attempt: Attempt, plan: Plan, now: Time) {
        match plan.outcome {
            PlanOutcome::Bind { node, reservation } => self.begin_binding_cycle(attempt, node, reservation, now),
            PlanOutcome::Unschedulable(why) => self.fail_attempt(attempt, why, now),
        }
    }

    /// Handles an attempt that found no feasible node: the pod waits, its status and an Event show the reason, and
    /// victims may be evicted for it.
    fn fail_attempt(&mut self, attempt: Attempt, why: Unschedulable, now: Time) {
        let Attempt { pod, profile, began, .. } = attempt;
        self.observe_attempt(
            profile,
            if why.reason == SCHEDULER_ERROR { "error" } else { "unschedulable" },
            began,
            now,
        );
        self.samples.extend(why.preemption_tried.then_some(MetricSample::PreemptionAttempted));
        self.record_failure(&pod, profile, &why.message, now);
        let condition = Some((why.reason, why.message));
        match why.victims {
            Some(_) => self.delay_status(&pod, condition, why.nomination, now),
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

    fn requeue(&mut self, key: &Key, failure: AttemptFailure, now: Time) {
        let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
        self.queue.requeue_failed(context, key, failure, now);
    }

    fn observe_attempt(&mut self, profile: usize, result: &'static str, began: Time, ended: Time) {
        let profile = self.profile(profile).scheduler_name.clone();
        self.samples.push(MetricSample::Attempt { profile, result, began, ended });
    }

    /// Restores the nomination from the pod's pending status, because the nomination in the pod's present status may be
    /// older.
    fn restore_nomination(&mut self, key: &Key) {
        if let Some(nomination) = self.statuses.nomination(key) {
            self.snapshot.nominate(key, nomination);
        }
    }
}

fn failure(rejectors: Vec<&'static str>) -> AttemptFailure {
    if rejectors.is_empty() { AttemptFailure::Error } else { AttemptFailure::Rejected(rejectors) }
}

/// The nomination to write into the pod's status: `Some(None)` removes it, and `None` leaves it as it is.
fn nomination_change(nomination: Nomination) -> Option<Option<Text>> {
    match nomination {
        Nomination::Keep => None,
        Nomination::Clear => Some(None),
        Nomination::Set(node) => Some(Some(node)),
    }
}

//! The binding cycle of a pod: from the choice of a node to the binding.
//!
//! Most pods are bound at once. A pod of a gang waits with a reserved node until enough other pods of its gang have
//! nodes. A pod with volumes or devices needs writes to their claims first; before these writes, the pod's status is
//! written, so that it shows the node as nominated.

use super::event_recorder::PodEvent;
use super::pre_bind::{self, PreBindProgress, PreBindStep};
use super::requests::{Purpose, RequestContent, binding_action};
use super::{Attempt, MetricSample, Scheduler, failure};
use crate::object::device_claim::Readiness;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plan::{SCHEDULER_ERROR, UNSCHEDULABLE};
use crate::planted::{Bug, planted};
use crate::plugins::{dynamic_resources, marker, volume_binding};
use crate::queue::{AttemptInfo, SECOND, Time};
use crate::snapshot::assume::Reservation;
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::{EXTENDER, Nomination};
use holdfast_value::json;
use holdfast_world::{Action, Refusal};
use std::collections::{BTreeSet, HashMap, VecDeque};

pub(super) struct BindingCycle {
    pub attempt: Attempt,
    pub node: Text,
    pub reservation: Reservation,
    pub stage: BindingStage,
    /// The steps of PreBind that still must be done before the wait for volumes and devices. The writes of one step are
    /// sent at the same time.
    pre_bind_steps: VecDeque<PreBindStep>,
    /// The time at which the binding cycle fails if the pod still waits for its gang or for objects; `None` while the
    /// pod does not wait.
    deadline: Option<Time>,
    /// The volume claims whose events show the annotation with the chosen node, which requests the provisioning of a
    /// volume.
    pub annotated_claims: BTreeSet<Key>,
    /// The objects that other components must change before the pod can be bound.
    awaited_objects: Vec<(Kind, Key)>,
    /// Whether the pod's own events have confirmed that the pod is bound.
    confirmed: bool,
    /// The index of the extender that binds the pod; `None` if the scheduler binds the pod itself.
    binding_extender: Option<usize>,
    /// The time at which the pod reached its present extension point.
    point_began: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BindingStage {
    /// The pod has a reserved node and waits for other pods of its gang. The wait began at `began` and lasts for
    /// `timeout` at most.
    WaitingOnPermit { began: Time, timeout: Time },
    /// The pod waits until the write of its nomination into its status has ended.
    WritingNomination,
    /// The pod waits for the outcome of these PreBind requests.
    PreBinding(BTreeSet<u64>),
    /// The pod waits for its volumes and devices to become ready.
    WaitingForVolumesAndDevices,
    /// The pod can be bound as soon as no write of its status is pending.
    Ready,
    /// The binding was requested, with the request of this number.
    Binding(u64),
    /// The binding request has succeeded, and the pod's own event does not show the node yet.
    Bound,
}

impl BindingCycle {
    /// Whether a pod of higher priority may preempt this pod, because its binding was not requested yet.
    pub fn can_be_preempted(&self) -> bool {
        !matches!(self.stage, BindingStage::Ready | BindingStage::Binding(_) | BindingStage::Bound)
    }

    fn key(&self) -> &Key {
        &self.attempt.pod.key
    }
}

/// What the next step of PreBind is.
enum NextPreBindStep {
    Write(Vec<Action>),
    Wait,
    None,
}

/// How long the binding cycle waits for the event of a claim after it has requested the claim's creation.
const CLAIM_CREATION_TIMEOUT: Time = 120 * SECOND;

/// Why a binding cycle has failed, and which plug-ins rejected the pod.
pub(super) struct BindingFailure {
    message: String,
    rejectors: Vec<&'static str>,
    is_volume_failure: bool,
}

impl BindingFailure {
    fn error(message: String) -> BindingFailure {
        BindingFailure { message, rejectors: Vec::new(), is_volume_failure: false }
    }

    pub fn rejected(plugin: &'static str, reason: &str) -> BindingFailure {
        BindingFailure {
            message: format!("0/1 nodes are available: 1 {reason}."),
            rejectors: vec![plugin],
            is_volume_failure: false,
        }
    }
}

/// Of the extension points that pods pass in their binding cycles, one in this many is reported to metrics.
const POINTS_PER_SAMPLE: u64 = 10;

/// The pods that are in their binding cycle: a node was chosen for each of them, and the pod's own events do not show
/// the node yet.
#[derive(Default)]
pub(super) struct BindingCycles {
    by_pod: HashMap<Key, BindingCycle>,
    /// For each object, the pods that wait until the object changes.
    awaited_by: HashMap<(Kind, Key), BTreeSet<Key>>,
    /// The deadlines of the waits that pods are in, earliest first.
    deadlines: BTreeSet<(Time, Key)>,
    /// How many extension points pods have passed in their binding cycles.
    points_passed: u64,
}

impl BindingCycles {
    pub fn get(&self, pod: &Key) -> Option<&BindingCycle> {
        self.by_pod.get(pod)
    }

    pub fn get_mut(&mut self, pod: &Key) -> Option<&mut BindingCycle> {
        self.by_pod.get_mut(pod)
    }

    pub fn iter(&self) -> impl Iterator<Item = &BindingCycle> {
        self.by_pod.values()
    }

    fn insert(&mut self, binding: BindingCycle) {
        self.by_pod.insert(binding.key().clone(), binding);
    }

    fn remove(&mut self, pod: &Key) -> Option<BindingCycle> {
        self.clear_waits(pod);
        self.by_pod.remove(pod)
    }

    /// Makes the pod's binding cycle continue when one of these objects changes.
    fn await_objects(&mut self, pod: &Key, objects: Vec<(Kind, Key)>) {
        for object in &objects {
            self.awaited_by.entry(object.clone()).or_default().insert(pod.clone());
        }
        if let Some(binding) = self.get_mut(pod) {
            binding.awaited_objects = objects;
        }
    }

    /// The pods that wait until this object changes.
    fn waiting_for(&self, kind: Kind, object: &Key) -> BTreeSet<Key> {
        self.awaited_by.get(&(kind, object.clone())).cloned().unwrap_or_default()
    }

    fn set_deadline(&mut self, pod: &Key, until: Time) {
        if let Some(binding) = self.by_pod.get_mut(pod) {
            binding.deadline = Some(until);
            self.deadlines.insert((until, pod.clone()));
        }
    }

    pub fn clear_deadline(&mut self, pod: &Key) {
        if let Some(until) = self.get_mut(pod).and_then(|binding| binding.deadline.take()) {
            self.deadlines.remove(&(until, pod.clone()));
        }
    }

    /// Ends all waits of the pod: for objects, and for its deadline.
    fn clear_waits(&mut self, pod: &Key) {
        self.clear_deadline(pod);
        let Some(binding) = self.by_pod.get_mut(pod) else { return };
        for object in std::mem::take(&mut binding.awaited_objects) {
            if let Some(pods) = self.awaited_by.get_mut(&object) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.awaited_by.remove(&object);
                }
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// If the earliest deadline has passed, removes it and returns its pod.
    fn pop_expired(&mut self, now: Time) -> Option<Key> {
        self.next_deadline().filter(|at| *at <= now)?;
        self.deadlines.pop_first().map(|(_, pod)| pod)
    }

    /// Counts that a pod has passed an extension point. Returns whether it is reported to metrics.
    fn is_point_sampled(&mut self) -> bool {
        self.points_passed += 1;
        self.points_passed.is_multiple_of(POINTS_PER_SAMPLE)
    }

    /// Whether no pod is in its binding cycle, and nothing is left in the indexes by object and by deadline.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_pod.is_empty() && self.has_no_waits()
    }

    #[cfg(test)]
    pub fn has_no_waits(&self) -> bool {
        self.awaited_by.is_empty() && self.deadlines.is_empty()
    }
}

impl Scheduler {
    /// For how many pods the binding was requested and its outcome is not known yet.
    pub fn binding_count(&self) -> usize {
        self.binding_cycles.iter().filter(|binding| matches!(binding.stage, BindingStage::Binding(_))).count()
    }

    /// Reports to metrics how long the pod was at the extension point that it leaves now.
    fn observe_point(&mut self, key: &Key, point: &'static str, plugin: &'static str, success: bool, now: Time) {
        let Some(binding) = self.binding_cycles.get_mut(key) else { return };
        let (began, profile) = (std::mem::replace(&mut binding.point_began, now), binding.attempt.profile);
        if self.binding_cycles.is_point_sampled() {
            let profile = self.profile(profile).scheduler_name.clone();
            self.samples.push(MetricSample::ExtensionPoint { profile, point, plugin, success, began, ended: now });
        }
    }

    /// Starts the binding cycle of a pod, and assumes that the pod is on the chosen node.
    pub(super) fn begin_binding_cycle(&mut self, attempt: Attempt, node: Text, reservation: Reservation, now: Time) {
        let pod = attempt.pod.clone();
        let pre_bind_steps = self.pre_bind_steps(&pod, &node, &reservation, now);
        if !planted(Bug::NodeNotAssumed) {
            self.snapshot.assume(&pod.key, &node, &reservation);
        }
        let permit = self.permit_timeout(&pod, attempt.profile, now);
        let awaits = !reservation.volumes.is_empty() || !self.claims_with_binding_conditions(&pod).is_empty();
        let stage = match (&permit, pre_bind_steps.is_empty() && !awaits) {
            (Ok(Some(timeout)), _) => BindingStage::WaitingOnPermit { began: now, timeout: *timeout },
            (Ok(None), true) => BindingStage::Ready,
            _ => BindingStage::WritingNomination,
        };
        let annotated_claims = BTreeSet::new();
        let new_claim = reservation.new_claim.as_ref().map(|new| (Kind::ResourceClaim, new.claim.key.clone()));
        let binding = BindingCycle {
            attempt,
            node: node.clone(),
            reservation,
            stage,
            pre_bind_steps,
            deadline: None,
            annotated_claims,
            awaited_objects: Vec::new(),
            confirmed: false,
            binding_extender: None,
            point_began: now,
        };
        let is_ready = binding.stage == BindingStage::Ready;
        self.binding_cycles.insert(binding);
        self.binding_cycles.await_objects(&pod.key, new_claim.into_iter().collect());
        let waits = match permit {
            Ok(timeout) => timeout,
            Err(why) => return self.fail_binding_cycle(&pod.key, BindingFailure::error(why), now),
        };
        if !is_ready && self.configuration.nominates_expected_nodes {
            self.write_status(&pod, None, Nomination::Set(node), now);
        }
        match waits {
            Some(timeout) => {
                self.binding_cycles.set_deadline(&pod.key, now + timeout);
                self.activate_gang(&pod, now);
            }
            None => {
                self.continue_binding_cycle(&pod.key, now);
                self.allow_waiting_gang(&pod, now);
            }
        }
    }

    /// Carries out all steps of the binding cycle that are possible now.
    pub(super) fn continue_binding_cycle(&mut self, key: &Key, now: Time) {
        loop {
            let is_idle = self.statuses.is_idle(key) || planted(Bug::BoundBeforeStatus);
            let Some(binding) = self.binding_cycles.get_mut(key) else { return };
            match &binding.stage {
                BindingStage::WritingNomination if is_idle => {
                    binding.stage = BindingStage::PreBinding(BTreeSet::new());
                    self.queue.stop_keeping_events(key);
                }
                BindingStage::PreBinding(open) if open.is_empty() => match self.next_pre_bind_step(key, now) {
                    NextPreBindStep::Write(actions) => self.send_pre_bind_writes(key, actions),
                    NextPreBindStep::Wait => return,
                    NextPreBindStep::None => self.await_volumes_and_devices(key, now),
                },
                BindingStage::WaitingForVolumesAndDevices => match self.pre_bind_progress(key) {
                    PreBindProgress::Waiting => return,
                    PreBindProgress::Done => {
                        self.binding_cycles.clear_waits(key);
                        if let Some(binding) = self.binding_cycles.get_mut(key) {
                            binding.stage = BindingStage::Ready;
                        }
                    }
                    PreBindProgress::Failed(why) => return self.fail_binding_cycle(key, volume_failure(&why), now),
                    PreBindProgress::DevicesFailed(why) => return self.fail_devices(key, &why, now),
                },
                BindingStage::Ready if is_idle => {
                    if let Some(plugin) = pre_bind::plugin_of(&binding.reservation) {
                        self.observe_point(key, "PreBind", plugin, true, now);
                    }
                    return self.send_binding(key, now);
                }
                _ => return,
            }
        }
    }

    fn send_pre_bind_writes(&mut self, key: &Key, step: Vec<Action>) {
        let open = step
            .into_iter()
            .map(|action| self.requests.send_action(action, Purpose::BindingCycle(key.clone())))
            .collect();
        if let Some(binding) = self.binding_cycles.get_mut(key) {
            binding.stage = BindingStage::PreBinding(open);
        }
    }

    fn next_pre_bind_step(&mut self, key: &Key, now: Time) -> NextPreBindStep {
        let Some(binding) = self.binding_cycles.get(key) else { return NextPreBindStep::Wait };
        let (pod, reservation) = (binding.attempt.pod.clone(), binding.reservation.clone());
        if matches!(binding.pre_bind_steps.front(), Some(PreBindStep::WriteAllocations))
            && !self.new_claim_exists(&reservation)
        {
            // Writes into the claim need the claim's uid, which is known only from the claim's event.
            if binding.deadline.is_none() {
                self.binding_cycles.set_deadline(key, now + CLAIM_CREATION_TIMEOUT);
            }
            return NextPreBindStep::Wait;
        }
        match self.binding_cycles.get_mut(key).and_then(|binding| binding.pre_bind_steps.pop_front()) {
            None => NextPreBindStep::None,
            Some(PreBindStep::Write(actions)) => NextPreBindStep::Write(actions),
            Some(PreBindStep::WriteAllocations) => {
                NextPreBindStep::Write(self.allocation_writes(&pod, &reservation, now))
            }
            Some(PreBindStep::AddFinalizers) => NextPreBindStep::Write(self.finalizer_writes(&reservation)),
        }
    }

    /// Makes a pod wait until its volumes and devices are ready.
    fn await_volumes_and_devices(&mut self, key: &Key, now: Time) {
        self.binding_cycles.clear_waits(key);
        let Some(binding) = self.binding_cycles.get(key) else { return };
        let (pod, profile, node) = (binding.attempt.pod.clone(), binding.attempt.profile, binding.node.clone());
        let volumes: Vec<Key> = if binding.reservation.volumes.is_empty() {
            Vec::new()
        } else {
            pod.volume_claims().map(|(claim, _)| claim).collect()
        };
        let devices = self.claims_with_binding_conditions(&pod);
        let stage = if volumes.is_empty() && devices.is_empty() {
            BindingStage::Ready
        } else {
            BindingStage::WaitingForVolumesAndDevices
        };
        let timeout = |name: &str| {
            let seconds =
                self.profile(profile).plugin(name).and_then(|plugin| plugin.pre_bind_timeout_seconds()).unwrap_or(0);
            Time::from(seconds) * SECOND
        };
        let for_volumes = (!volumes.is_empty()).then(|| now.saturating_add(timeout(volume_binding::NAME)));
        let for_devices = devices.iter().map(|claim| {
            let since = claim.allocation.as_ref().and_then(|allocation| allocation.since).unwrap_or(now);
            since.saturating_add(timeout(dynamic_resources::NAME))
        });
        let deadline = for_devices.chain(for_volumes).min();
        if !devices.is_empty() {
            let note = format!("waiting for binding conditions for device on node {node}");
            let reporter = self.profile(profile).scheduler_name.clone();
            let (reason, action) = ("BindingConditionsPending", "Scheduling");
            self.record_event(PodEvent { pod, warning: false, reason, action, note, related: None, reporter }, now);
        }
        let volumes = volumes.into_iter().map(|claim| (Kind::PersistentVolumeClaim, claim));
        let devices = devices.iter().map(|claim| (Kind::ResourceClaim, claim.key.clone()));
        self.binding_cycles.await_objects(key, volumes.chain(devices).collect());
        if let Some(binding) = self.binding_cycles.get_mut(key) {
            binding.stage = stage;
        }
        if let Some(deadline) = deadline {
            self.binding_cycles.set_deadline(key, deadline);
        }
    }

    /// Continues the binding cycles of the pods that wait until this object changes.
    pub(super) fn awaited_object_changed(&mut self, kind: Kind, object: &Key, now: Time) {
        for key in self.binding_cycles.waiting_for(kind, object) {
            if kind == Kind::PersistentVolumeClaim
                && let Some(claim) = self.snapshot.volumes().claim(object)
                && let Some(binding) = self.binding_cycles.get_mut(&key)
                && claim.selected_node.as_ref() == Some(&binding.node)
            {
                binding.annotated_claims.insert(object.clone());
            }
            self.continue_binding_cycle(&key, now);
        }
    }

    fn send_binding(&mut self, key: &Key, now: Time) {
        let Some(binding) = self.binding_cycles.get(key) else { return };
        self.statuses.forget(key);
        let (pod, node) = (binding.attempt.pod.clone(), binding.node.clone());
        let binding_extender = self.binding_extender(&pod, binding.binding_extender);
        let content = match binding_extender {
            Some(extender) => {
                let body = json!({
                    "PodName": &*pod.key.name, "PodNamespace": &*pod.key.namespace, "PodUID": &*pod.uid, "Node": &*node,
                });
                let verb = self.configuration.extenders[extender].bind_verb.clone();
                RequestContent::Extender { extender, verb, body }
            }
            None => RequestContent::Api(binding_action(key, &pod.uid, &node)),
        };
        let request = self.requests.send(content, Purpose::BindingCycle(key.clone()));
        if let Some(binding) = self.binding_cycles.get_mut(key) {
            binding.stage = BindingStage::Binding(request);
            binding.binding_extender = binding_extender;
            binding.point_began = now;
        }
    }

    fn observe_bind(&mut self, key: &Key, success: bool, now: Time) {
        let by_extender = self.binding_cycles.get(key).is_some_and(|binding| binding.binding_extender.is_some());
        self.observe_point(key, "Bind", if by_extender { EXTENDER } else { marker::DEFAULT_BINDER }, success, now);
    }

    fn binding_failed(&mut self, key: &Key, why: &str, now: Time) {
        match self.binding_cycles.get(key).and_then(|binding| binding.binding_extender) {
            // If an extender whose failure is ignored (`ignorable`) fails to bind, the next extender binds the pod, or
            // the scheduler itself.
            Some(extender) if self.configuration.extenders[extender].ignorable => self.send_binding(key, now),
            Some(_) => self.fail_binding_cycle(key, BindingFailure::error(why.to_owned()), now),
            None => {
                let name = marker::DEFAULT_BINDER;
                self.fail_binding_cycle(
                    key,
                    BindingFailure::error(format!("running Bind plugin \"{name}\": {why}")),
                    now,
                );
            }
        }
    }

    pub(super) fn handle_binding_cycle_outcome(&mut self, key: &Key, number: u64, refusal: Option<Refusal>, now: Time) {
        let Some(binding) = self.binding_cycles.get_mut(key) else { return };
        // The claim is created before the step `WriteAllocations`. While that step is still to be done, this is the
        // outcome of the request that creates the claim.
        let creates_claim = binding.reservation.new_claim.is_some()
            && matches!(binding.pre_bind_steps.front(), Some(PreBindStep::WriteAllocations));
        if creates_claim && matches!(&binding.stage, BindingStage::PreBinding(open) if open.contains(&number)) {
            self.samples.push(MetricSample::ClaimCreated { success: refusal.is_none() });
        }
        match (&mut binding.stage, refusal) {
            (BindingStage::Binding(request), None) if *request == number => {
                self.observe_bind(key, true, now);
                self.finish_binding(key, now);
            }
            (BindingStage::Binding(request), Some(refusal)) if *request == number => {
                self.observe_bind(key, false, now);
                self.binding_failed(key, &refusal.message, now);
            }
            (BindingStage::PreBinding(open), refusal) => match (open.remove(&number), refusal) {
                (false, _) => {}
                (true, None) => self.continue_binding_cycle(key, now),
                (true, Some(refusal)) => self.fail_binding_cycle(key, self.pre_bind_failure(key, &refusal), now),
            },
            _ => {}
        }
    }

    fn pre_bind_failure(&self, key: &Key, refusal: &Refusal) -> BindingFailure {
        let is_volume_failure = self.binding_cycles.get(key).is_some_and(|binding| {
            binding.attempt.pod.template.claims.is_empty() && binding.reservation.new_claim.is_none()
        });
        match is_volume_failure {
            true => volume_failure(&refusal.message),
            false => device_failure(&refusal.message),
        }
    }

    fn finish_binding(&mut self, key: &Key, now: Time) {
        let Some(binding) = self.binding_cycles.get_mut(key) else { return };
        binding.stage = BindingStage::Bound;
        let (attempt, node, confirmed) = (binding.attempt.clone(), binding.node.clone(), binding.confirmed);
        let Attempt { pod, profile, info, began } = attempt;
        self.observe_attempt(profile, "scheduled", began, now);
        let AttemptInfo { attempts, first_active, flushed } = info;
        self.samples.push(MetricSample::Bound { attempts, first_active, flushed, at: now });
        let note = format!("Successfully assigned {key} to {node}");
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("Scheduled", "Binding");
        self.record_event(PodEvent { pod, warning: false, reason, action, note, related: None, reporter }, now);
        if confirmed {
            self.binding_cycles.remove(key);
        }
    }

    /// Ends a binding cycle that failed: frees the node, and puts the pod back into the queue.
    pub(super) fn fail_binding_cycle(&mut self, key: &Key, why: BindingFailure, now: Time) {
        let Some(binding) = self.binding_cycles.remove(key) else { return };
        let BindingCycle { attempt: Attempt { profile, began, pod: before, .. }, node, reservation, stage, .. } =
            binding;
        let assumed = self.snapshot.pod(key).filter(|_| self.snapshot.is_assumed(key)).cloned();
        if !planted(Bug::AssumedPodKept) {
            self.snapshot.forget(key);
        }
        if !matches!(stage, BindingStage::WaitingOnPermit { .. } | BindingStage::WritingNomination) {
            self.unreserve(&before, &reservation);
        }
        let Some(pod) = self.snapshot.pod(key).filter(|pod| pod.uid == before.uid && pod.node_name.is_none()).cloned()
        else {
            return self.queue.done(key);
        };
        let (result, reason) = match why.rejectors.is_empty() {
            true => ("error", SCHEDULER_ERROR),
            false => ("unschedulable", UNSCHEDULABLE),
        };
        self.observe_attempt(profile, result, began, now);
        self.samples.extend(why.is_volume_failure.then_some(MetricSample::VolumeBindingFailed));
        self.record_failure(&pod, profile, &why.message, now);
        self.write_status(&pod, Some((reason, why.message)), Nomination::Clear, now);
        match planted(Bug::FailedPodDropped) {
            true => self.queue.done(key),
            false => self.requeue(key, failure(why.rejectors), now),
        }
        // The node's resources are free again. Waiting pods get the event that they would get if the pod had been on
        // the node and were deleted.
        if let Some(mut gone) = assumed.map(|pod| Pod::clone(&pod)) {
            gone.node_name = Some(node);
            let event =
                ClusterEvent { kind: Kind::Pod, key: key.clone(), change: ObjectChange::Pod(Some(gone.into()), None) };
            let context = crate::queue::QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
            self.queue.move_for_event(context, event, now);
        }
    }

    /// Ends the binding cycle of a pod whose binding was not requested yet, because a pod of higher priority preempts
    /// it.
    pub(super) fn preempt_binding_cycle(&mut self, key: &Key, why: &str, now: Time) {
        self.fail_binding_cycle(key, BindingFailure::rejected(crate::plugins::default_preemption::NAME, why), now);
    }

    /// Ends the binding cycles whose deadline has passed.
    pub(super) fn expire_deadlines(&mut self, now: Time) {
        while let Some(key) = self.binding_cycles.pop_expired(now) {
            match self.binding_cycles.get(&key).map(|binding| binding.stage.clone()) {
                Some(BindingStage::WaitingOnPermit { began, timeout }) => {
                    self.permit_timed_out(&key, began, timeout, now)
                }
                Some(BindingStage::WaitingForVolumesAndDevices) => match self.device_timeout(&key, now) {
                    Some(why) => self.fail_devices(&key, &why, now),
                    None => self.fail_binding_cycle(&key, volume_failure("timed out waiting for the condition"), now),
                },
                Some(BindingStage::PreBinding(open)) if open.is_empty() => {
                    self.fail_binding_cycle(
                        &key,
                        device_failure("the claim for extended resources did not appear"),
                        now,
                    );
                }
                _ => {}
            }
        }
    }

    /// The message if the pod's devices did not become ready before its deadline; `None` if the pod waits for something
    /// else.
    fn device_timeout(&self, key: &Key, now: Time) -> Option<String> {
        let binding = self.binding_cycles.get(key)?;
        let plugin = self.profile(binding.attempt.profile).plugin(dynamic_resources::NAME);
        let timeout = Time::from(plugin.and_then(|plugin| plugin.pre_bind_timeout_seconds()).unwrap_or(0)) * SECOND;
        let mut claims = self.claims_with_binding_conditions(&binding.attempt.pod).into_iter();
        let late = claims.find(|claim| {
            let since = claim.allocation.as_ref().and_then(|allocation| allocation.since);
            claim.readiness() == Readiness::Waiting && since.is_none_or(|since| since.saturating_add(timeout) <= now)
        });
        late.map(|claim| format!("claim {} binding timeout", claim.key.name))
    }

    /// Releases the pod's devices that did not become ready, so that the next attempt can find other devices, and ends
    /// the binding cycle.
    fn fail_devices(&mut self, key: &Key, why: &str, now: Time) {
        if let Some(pod) = self.binding_cycles.get(key).map(|binding| binding.attempt.pod.clone()) {
            self.release_unready_devices(&pod);
        }
        self.fail_binding_cycle(key, device_failure(why), now);
    }

    /// Handles a change of a pod that is in its binding cycle. The cycle ends if the pod is deleted, or if its own
    /// events show a node while no binding request is pending.
    pub(super) fn update_binding_cycle(&mut self, key: &Key, now: Time) {
        let Some(binding) = self.binding_cycles.get_mut(key) else { return };
        let same = self.snapshot.pod(binding.key()).is_some_and(|pod| pod.uid == binding.attempt.pod.uid);
        if same && self.snapshot.is_assumed(key) {
            return;
        }
        if same && matches!(binding.stage, BindingStage::Binding(_)) {
            // The pod's own event shows the node before the outcome of the binding request is known. The outcome
            // decides whether this scheduler has bound the pod.
            binding.confirmed = true;
            return;
        }
        let Some(binding) = self.binding_cycles.remove(key) else { return };
        if !same {
            self.allow_waiting_gang(&binding.attempt.pod, now);
        }
    }
}

fn volume_failure(why: &str) -> BindingFailure {
    let message = format!("running PreBind plugin \"{}\": binding volumes: {why}", volume_binding::NAME);
    BindingFailure { is_volume_failure: true, ..BindingFailure::error(message) }
}

fn device_failure(why: &str) -> BindingFailure {
    BindingFailure::error(format!("running PreBind plugin \"{}\": {why}", dynamic_resources::NAME))
}

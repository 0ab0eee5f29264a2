//! Preemption: evicts the victims of a pod.
//!
//! All victims but one are evicted at the same time, and the last victim after them. So when the last victim's deletion
//! makes the preemptor active again, all deletions have been requested. Until then the preemptor stays in flight;
//! afterwards the queue checks the events that arrived meanwhile.
//!
//! Several pods may preempt the same victims, one after the other, before the events of the victims' deletion arrive.
//! Each victim is still evicted only once.

use super::event_recorder::PodEvent;
use super::requests::{PODS, Purpose, status_patch};
use super::status_writer::timestamp;
use super::{MetricSample, Scheduler, failure};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::planted::{Bug, planted};
use crate::plugins::default_preemption::{Victims, eviction_message};
use crate::queue::{QueueContext, Time};
use crate::snapshot::Snapshot;
use crate::status::Nomination;
use holdfast_value::json;
use holdfast_world::{Action, Refusal, Verb};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[derive(Debug)]
struct Eviction {
    preemptor: Arc<Pod>,
    profile: usize,
    node: Text,
    /// The UIDs of the victims whose eviction has no outcome yet.
    open: HashSet<Text>,
    /// The victim that is evicted after all other victims.
    last: Option<Arc<Pod>>,
    rejectors: Vec<&'static str>,
    failed: bool,
    began: Time,
}

#[derive(Debug)]
struct EvictedVictim {
    pod: Arc<Pod>,
    step: VictimStep,
    /// The pods for which this victim is evicted; the eviction was requested for the first of them.
    preemptors: Vec<Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VictimStep {
    /// The write of the victim's condition `DisruptionTarget` is pending.
    WritingCondition,
    /// The victim's deletion was requested and has no outcome yet.
    Deleting,
    /// The API server has accepted the victim's deletion, and the victim's own events do not show it yet.
    Deleted,
}

/// The evictions that have not ended yet.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    by_preemptor: HashMap<Key, Eviction>,
    /// The victims by UID, until a victim's own events show that it is gone or being deleted.
    victims: HashMap<Text, EvictedVictim>,
}

impl Evictions {
    /// Forgets the eviction of a victim whose own events show that it is gone or being deleted.
    pub fn forget_gone_victim(&mut self, snapshot: &Snapshot, before: &Pod) {
        let Some(evicted) = self.victims.get(&before.uid).filter(|evicted| evicted.step == VictimStep::Deleted) else {
            return;
        };
        if snapshot.pod(&evicted.pod.key).is_none_or(|now| now.uid != before.uid || now.deleting) {
            self.victims.remove(&before.uid);
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_preemptor.is_empty() && self.victims.is_empty()
    }
}

impl Scheduler {
    pub(super) fn evict(
        &mut self,
        preemptor: &Arc<Pod>,
        profile: usize,
        victims: Victims,
        rejectors: Vec<&'static str>,
        now: Time,
    ) {
        self.samples.push(MetricSample::Preemption { victims: victims.pods.len() });
        for key in &victims.clear_nominations {
            if let Some(pod) = self.snapshot.pod(key).cloned() {
                self.write_status(&pod, None, Nomination::Clear, now);
            }
        }
        let Victims { node, pods: mut victims, .. } = victims;
        let last = victims.pop();
        let eviction = Eviction {
            preemptor: preemptor.clone(),
            profile,
            node,
            open: HashSet::new(),
            last,
            rejectors,
            failed: false,
            began: now,
        };
        self.evictions.by_preemptor.insert(preemptor.key.clone(), eviction);
        for victim in victims {
            self.evict_victim(&preemptor.key, victim, now);
        }
        self.continue_eviction(&preemptor.key, now);
    }

    /// Evicts one victim. If the victim is in its binding cycle and its binding was not requested yet, the victim only
    /// returns to the queue, and no request is sent.
    fn evict_victim(&mut self, preemptor: &Key, victim: Arc<Pod>, now: Time) {
        let Some(eviction) = self.evictions.by_preemptor.get_mut(preemptor) else { return };
        if self.binding_cycles.get(&victim.key).is_some_and(|binding| binding.can_be_preempted()) {
            let (preemptor, profile, node) = (eviction.preemptor.clone(), eviction.profile, eviction.node.clone());
            self.record_preempted(&victim, &preemptor, profile, &format!("{node} (in kube-scheduler memory)."), now);
            return self.preempt_binding_cycle(&victim.key, "preempted", now);
        }
        if let Some(evicted) = self.evictions.victims.get_mut(&victim.uid) {
            if evicted.step != VictimStep::Deleted && eviction.open.insert(victim.uid.clone()) {
                evicted.preemptors.push(preemptor.clone());
            }
            return;
        }
        eviction.open.insert(victim.uid.clone());
        let name = self.preemptor_profile(preemptor);
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": eviction_message(&name),
            "lastTransitionTime": timestamp(now),
        });
        if victim.generation > 0 {
            condition["observedGeneration"] = victim.generation.into();
        }
        let purpose = Purpose::Eviction(victim.uid.clone());
        self.requests.send_action(status_patch(&victim.key, &victim.uid, json!({"conditions": [condition]})), purpose);
        let evicted = EvictedVictim {
            pod: victim.clone(),
            step: VictimStep::WritingCondition,
            preemptors: vec![preemptor.clone()],
        };
        self.evictions.victims.insert(victim.uid.clone(), evicted);
    }

    fn preemptor_profile(&self, preemptor: &Key) -> Text {
        let profile = self.evictions.by_preemptor.get(preemptor).map_or(0, |eviction| eviction.profile);
        self.profile(profile).scheduler_name.clone()
    }

    pub(super) fn handle_eviction_outcome(&mut self, uid: &Text, refusal: Option<Refusal>, now: Time) {
        let Some(evicted) = self.evictions.victims.get_mut(uid) else { return };
        let pod = evicted.pod.clone();
        if refusal.is_none() && evicted.step == VictimStep::WritingCondition {
            evicted.step = VictimStep::Deleting;
            let verb = Verb::Delete { uid: Some(uid.clone()), version: None, propagation: None, grace_seconds: None };
            self.requests.send_action(Action::new(&PODS, pod.key.clone(), verb), Purpose::Eviction(uid.clone()));
            return;
        }
        let preemptors = std::mem::take(&mut evicted.preemptors);
        let is_evicted = refusal.is_none();
        // `NotFound` means that the victim is gone, and `Conflict` means that another pod has the victim's name. In
        // both cases the victim counts as evicted.
        let is_gone = refusal.is_none_or(|refusal| refusal.is_not_found() || refusal.is_conflict());
        match is_gone && self.snapshot.pod(&pod.key).is_some_and(|one| one.uid == *uid && !one.deleting) {
            true => evicted.step = VictimStep::Deleted,
            false => _ = self.evictions.victims.remove(uid),
        }
        for (at, preemptor) in preemptors.iter().enumerate() {
            let Some(eviction) = self.evictions.by_preemptor.get_mut(preemptor) else { continue };
            eviction.open.remove(uid);
            eviction.failed |= !is_gone;
            if is_evicted && at == 0 {
                let (preemptor, profile, node) = (eviction.preemptor.clone(), eviction.profile, eviction.node.clone());
                self.record_preempted(&pod, &preemptor, profile, &node, now);
            }
            self.continue_eviction(preemptor, now);
        }
    }

    fn continue_eviction(&mut self, preemptor: &Key, now: Time) {
        let Some(eviction) = self.evictions.by_preemptor.get_mut(preemptor).filter(|eviction| eviction.open.is_empty())
        else {
            return;
        };
        let failed = eviction.failed;
        if let Some(last) = eviction.last.take().filter(|_| !failed) {
            self.evict_victim(preemptor, last, now);
            return self.continue_eviction(preemptor, now);
        }
        let Some(eviction) = self.evictions.by_preemptor.remove(preemptor) else { return };
        self.samples.push(MetricSample::Evicted { success: !failed, began: eviction.began, ended: now });
        if !planted(Bug::PreemptorDropped) {
            self.requeue(preemptor, failure(eviction.rejectors), now);
        }
        if failed {
            let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
            self.queue.activate(context, preemptor, now);
        }
    }

    fn record_preempted(&mut self, victim: &Arc<Pod>, preemptor: &Arc<Pod>, profile: usize, node: &str, now: Time) {
        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("Preempted", "Preempting");
        let (pod, related) = (victim.clone(), Some(preemptor.clone()));
        self.record_event(PodEvent { pod, warning: false, reason, action, note, related, reporter }, now);
    }
}

//! Preemption: evicts the victims of a pod.
//!
//! All victims but one are evicted at the same time, and the last one after them. So when the preemptor is woken by the
//! last victim's deletion, all deletions have been requested. Until then the preemptor stays in flight; afterwards the
//! queue checks the events since.
//!
//! Several pods may preempt the same victims, one after the other, before the victims' deletion is seen. Each victim is
//! evicted once all the same.

use super::event::Saying;
use super::order::{PODS, Purpose, patch_status};
use super::status::seconds;
use super::{Observed, Scheduler, failure};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plan::Nomination;
use crate::planted::{Bug, planted};
use crate::plugins::default_preemption::{Victims, eviction_message};
use crate::queue::{Time, World};
use holdfast_value::json;
use holdfast_world::{Action, Refusal, Verb};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Eviction {
    preemptor: Arc<Pod>,
    profile: usize,
    node: Text,
    /// The UIDs of the victims whose eviction is not answered yet.
    open: HashSet<Text>,
    /// The victim that is evicted after all others.
    last: Option<Arc<Pod>>,
    rejectors: Vec<&'static str>,
    failed: bool,
    began: Time,
}

/// A victim.
#[derive(Debug)]
pub(super) struct Leaving {
    pod: Arc<Pod>,
    step: Step,
    /// The pods that it is evicted for; the first of them caused the eviction.
    preemptors: Vec<Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Its condition `DisruptionTarget` is being written.
    Why,
    /// It is being deleted.
    Go,
    /// Its deletion was accepted; its own events do not show that yet.
    Gone,
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
        self.observed.push(Observed::Preemption { victims: victims.pods.len() });
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
        self.evictions.insert(preemptor.key.clone(), eviction);
        for victim in victims {
            self.send_off(&preemptor.key, victim, now);
        }
        self.next_victim(&preemptor.key, now);
    }

    /// Evicts one victim. A victim whose own binding was not requested yet is only taken back from its node, without a
    /// request.
    fn send_off(&mut self, preemptor: &Key, victim: Arc<Pod>, now: Time) {
        let Some(eviction) = self.evictions.get_mut(preemptor) else { return };
        if self.ways.get(&victim.key).is_some_and(|way| way.can_be_called_back()) {
            let (preemptor, profile, node) = (eviction.preemptor.clone(), eviction.profile, eviction.node.clone());
            self.tell_preempted(&victim, &preemptor, profile, &format!("{node} (in kube-scheduler memory)."), now);
            return self.call_back(&victim.key, "preempted", now);
        }
        if let Some(leaving) = self.leaving.get_mut(&victim.uid) {
            if leaving.step != Step::Gone && eviction.open.insert(victim.uid.clone()) {
                leaving.preemptors.push(preemptor.clone());
            }
            return;
        }
        eviction.open.insert(victim.uid.clone());
        let name = self.profile_name(preemptor);
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": eviction_message(&name),
            "lastTransitionTime": seconds(now),
        });
        if victim.generation > 0 {
            condition["observedGeneration"] = victim.generation.into();
        }
        let purpose = Purpose::Victim(victim.uid.clone());
        self.order(patch_status(&victim.key, &victim.uid, json!({"conditions": [condition]})), purpose);
        let leaving = Leaving { pod: victim.clone(), step: Step::Why, preemptors: vec![preemptor.clone()] };
        self.leaving.insert(victim.uid.clone(), leaving);
    }

    fn profile_name(&self, preemptor: &Key) -> Text {
        let profile = self.evictions.get(preemptor).map_or(0, |eviction| eviction.profile);
        self.profile(profile).scheduler_name.clone()
    }

    pub(super) fn victim_answered(&mut self, uid: &Text, refusal: Option<Refusal>, now: Time) {
        let Some(leaving) = self.leaving.get_mut(uid) else { return };
        let pod = leaving.pod.clone();
        if refusal.is_none() && leaving.step == Step::Why {
            leaving.step = Step::Go;
            let verb = Verb::Delete { uid: Some(uid.clone()), version: None, propagation: None, grace_seconds: None };
            self.order(Action::new(&PODS, pod.key.clone(), verb), Purpose::Victim(uid.clone()));
            return;
        }
        let preemptors = std::mem::take(&mut leaving.preemptors);
        let is_told = refusal.is_none();
        // Not found or conflict: the victim is gone, or another pod has its name. It counts as evicted.
        let goes = refusal.is_none_or(|refusal| refusal.is_not_found() || refusal.is_conflict());
        match goes && self.snapshot.pod(&pod.key).is_some_and(|one| one.uid == *uid && !one.deleting) {
            true => leaving.step = Step::Gone,
            false => _ = self.leaving.remove(uid),
        }
        for (at, preemptor) in preemptors.iter().enumerate() {
            let Some(eviction) = self.evictions.get_mut(preemptor) else { continue };
            eviction.open.remove(uid);
            eviction.failed |= !goes;
            if is_told && at == 0 {
                let (preemptor, profile, node) = (eviction.preemptor.clone(), eviction.profile, eviction.node.clone());
                self.tell_preempted(&pod, &preemptor, profile, &node, now);
            }
            self.next_victim(preemptor, now);
        }
    }

    /// A pod changed: once its own events show that it is gone or being deleted, its eviction need not be remembered.
    pub(super) fn left(&mut self, before: &Pod) {
        let Some(leaving) = self.leaving.get(&before.uid).filter(|leaving| leaving.step == Step::Gone) else { return };
        if self.snapshot.pod(&leaving.pod.key).is_none_or(|now| now.uid != before.uid || now.deleting) {
            self.leaving.remove(&before.uid);
        }
    }

    fn next_victim(&mut self, preemptor: &Key, now: Time) {
        let Some(eviction) = self.evictions.get_mut(preemptor).filter(|eviction| eviction.open.is_empty()) else {
            return;
        };
        let failed = eviction.failed;
        if let Some(last) = eviction.last.take().filter(|_| !failed) {
            self.send_off(preemptor, last, now);
            return self.next_victim(preemptor, now);
        }
        let Some(eviction) = self.evictions.remove(preemptor) else { return };
        self.observed.push(Observed::Evicted { success: !failed, began: eviction.began, ended: now });
        if !planted(Bug::EvictionNeverEnds) {
            self.requeue(preemptor, failure(eviction.rejectors), now);
        }
        if failed {
            let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
            self.queue.activate(world, preemptor, now);
        }
    }

    fn tell_preempted(&mut self, victim: &Arc<Pod>, preemptor: &Arc<Pod>, profile: usize, node: &str, now: Time) {
        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("Preempted", "Preempting");
        let (pod, related) = (victim.clone(), Some(preemptor.clone()));
        self.tell(Saying { pod, warning: false, reason, action, note, related, reporter }, now);
    }
}

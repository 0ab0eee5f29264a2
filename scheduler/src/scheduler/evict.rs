//! Pods that go so that one that matters more finds a place.
//!
//! All but one go at the same time, the last one after them: so the pod that waits is woken when all are on their way.
//! Until then it is kept in flight, and hears afterwards of what happened meanwhile.

use super::event::Saying;
use super::order::{PODS, Purpose, patch_status};
use super::status::seconds;
use super::{Observed, Scheduler, failure};
use crate::object::Key;
use crate::object::pod::Pod;
use crate::plan::Nomination;
use crate::planted::{Bug, planted};
use crate::plugins::default_preemption::{Victims, eviction_message};
use crate::queue::Time;
use holdfast_world::{Action, Refusal, Verb};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Eviction {
    preemptor: Arc<Pod>,
    profile: usize,
    node: crate::object::Text,
    /// Those who are on their way out, and whether they know.
    open: HashMap<Key, (Arc<Pod>, Told)>,
    /// Who goes when all others do.
    last: Option<Arc<Pod>>,
    rejectors: Vec<&'static str>,
    failed: bool,
    began: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It is being told why it goes.
    Why,
    /// It is being deleted.
    Go,
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
            open: HashMap::new(),
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

    /// Has one of them go. Who is only on its way to the node is called back, which nobody needs to be asked for.
    fn send_off(&mut self, preemptor: &Key, victim: Arc<Pod>, now: Time) {
        let Some(eviction) = self.evictions.get_mut(preemptor) else { return };
        if self.ways.get(&victim.key).is_some_and(|way| way.can_be_called_back()) {
            let (preemptor, profile, node) = (eviction.preemptor.clone(), eviction.profile, eviction.node.clone());
            self.tell_preempted(&victim, &preemptor, profile, &format!("{node} (in kube-scheduler memory)."), now);
            return self.call_back(&victim.key, "preempted", now);
        }
        eviction.open.insert(victim.key.clone(), (victim.clone(), Told::Why));
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
        let purpose = Purpose::Victim { victim: victim.key.clone(), preemptor: preemptor.clone() };
        self.order(patch_status(&victim.key, &victim.uid, json!({"conditions": [condition]})), purpose);
    }

    fn profile_name(&self, preemptor: &Key) -> crate::object::Text {
        let profile = self.evictions.get(preemptor).map_or(0, |eviction| eviction.profile);
        self.profile(profile).scheduler_name.clone()
    }

    pub(super) fn victim_answered(&mut self, victim: &Key, preemptor: &Key, refusal: Option<Refusal>, now: Time) {
        let Some(eviction) = self.evictions.get_mut(preemptor) else { return };
        let Some((pod, told)) = eviction.open.get_mut(victim) else { return };
        // A pod that is gone, or is another one by now, has gone.
        let gone = refusal.as_ref().is_some_and(|refusal| refusal.is_not_found() || refusal.is_conflict());
        let (pod, step) = (pod.clone(), *told);
        match (refusal, step) {
            (None, Told::Why) => {
                *told = Told::Go;
                let uid = Some(pod.uid.clone());
                let verb = Verb::Delete { uid, version: None, propagation: None, grace_seconds: None };
                let purpose = Purpose::Victim { victim: victim.clone(), preemptor: preemptor.clone() };
                self.order(Action::new(&PODS, victim.clone(), verb), purpose);
                return;
            }
            (None, Told::Go) => {
                eviction.open.remove(victim);
                let (preemptor, profile, node) = (eviction.preemptor.clone(), eviction.profile, eviction.node.clone());
                self.tell_preempted(&pod, &preemptor, profile, &node, now);
            }
            (Some(_), _) => {
                eviction.open.remove(victim);
                eviction.failed |= !gone;
            }
        }
        self.next_victim(preemptor, now);
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
            self.queue.activate(preemptor, now);
        }
    }

    fn tell_preempted(&mut self, victim: &Pod, preemptor: &Pod, profile: usize, node: &str, now: Time) {
        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("Preempted", "Preempting");
        let related = Some(preemptor);
        self.tell(Saying { pod: victim, warning: false, reason, action, note, related, reporter }, now);
    }
}

//! Permit for gangs: pods keep their nodes reserved until enough other pods of their gang have nodes.

use super::binding_cycle::{BindingCycle, BindingFailure, BindingStage};
use super::{MetricSample, Scheduler};
use crate::object::Key;
use crate::object::pod::{Gang, Pod};
use crate::plugin::ExtensionPoint;
use crate::plugins::gang_scheduling::{self, NAME, PERMIT_TIMEOUT_SECONDS};
use crate::queue::{QueueContext, SECOND, Time};
use holdfast_core::object::duration;
use std::collections::HashMap;

/// For each gang, the time at which the reservations of its pods end. All pods of a gang have the deadline of the
/// gang's first pod.
#[derive(Debug, Default)]
pub(super) struct PermitDeadlines {
    until: HashMap<Gang, Time>,
    sweep_at: usize,
}

impl PermitDeadlines {
    /// How long the pods of a gang may still wait. If the deadline has passed, a new wait begins with this call.
    fn remaining(&mut self, gang: &Gang, now: Time) -> Time {
        if self.until.len() >= self.sweep_at {
            self.until.retain(|_, until| *until > now);
            self.sweep_at = (self.until.len() * 2).max(64);
        }
        let anew = now + Time::from(PERMIT_TIMEOUT_SECONDS) * SECOND;
        let until = self.until.entry(gang.clone()).or_insert(anew);
        if *until <= now {
            *until = anew;
        }
        *until - now
    }
}

impl Scheduler {
    /// How long a pod with a chosen node must wait for other pods of its gang; `Ok(None)` if it need not wait. Fails if
    /// the gang's Workload or group does not exist.
    pub(super) fn permit_timeout(&mut self, pod: &Pod, profile: usize, now: Time) -> Result<Option<Time>, String> {
        if !self.profile(profile).has(ExtensionPoint::Permit, NAME) {
            return Ok(None);
        }
        let waits = gang_scheduling::must_wait(&self.snapshot, pod);
        let waits = waits.map_err(|why| format!("running Permit plugin \"{NAME}\": {why}"))?;
        Ok(pod.template.gang.as_ref().filter(|_| waits).map(|gang| self.permit_deadlines.remaining(gang, now)))
    }

    /// Makes the waiting pods of a pod's gang active: the pod keeps its reservation for them.
    pub(super) fn activate_gang(&mut self, pod: &Pod, now: Time) {
        let Some(gang) = &pod.template.gang else { return };
        let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
        for other in self.snapshot.gang(gang).filter(|other| other.node_name.is_none()) {
            self.queue.activate(context, &other.key, now);
        }
    }

    /// Continues the binding cycles of the waiting pods of this pod's gang, because this pod may have been the last
    /// that the gang needed.
    pub(super) fn allow_waiting_gang(&mut self, pod: &Pod, now: Time) {
        if pod.template.gang.is_none() {
            return;
        }
        let waits = |binding: &&BindingCycle| {
            matches!(binding.stage, BindingStage::WaitingOnPermit { .. })
                && binding.attempt.pod.template.gang == pod.template.gang
        };
        let others: Vec<_> =
            self.binding_cycles.iter().filter(waits).map(|binding| binding.attempt.pod.clone()).collect();
        for other in &others {
            // While the gang's minimum number of pods is unknown, its pods wait.
            if gang_scheduling::must_wait(&self.snapshot, other) != Ok(false) {
                continue;
            }
            let Some(binding) = self.binding_cycles.get_mut(&other.key) else { continue };
            if let BindingStage::WaitingOnPermit { began, .. } =
                std::mem::replace(&mut binding.stage, BindingStage::WritingNomination)
            {
                self.samples.push(MetricSample::PermitWait { result: "Success", began, ended: now });
            }
            self.binding_cycles.clear_deadline(&other.key);
            self.continue_binding_cycle(&other.key, now);
        }
    }

    /// Fails the binding cycle of a pod, because other pods of its gang did not get nodes in time.
    pub(super) fn permit_timed_out(&mut self, key: &Key, began: Time, timeout: Time, now: Time) {
        self.samples.push(MetricSample::PermitWait { result: "Unschedulable", began, ended: now });
        let timeout = duration::text(i64::try_from(timeout).unwrap_or(i64::MAX));
        let why = format!("rejected due to timeout after waiting {timeout} at plugin {NAME}");
        self.fail_binding_cycle(key, BindingFailure::rejected(NAME, &why), now);
    }
}

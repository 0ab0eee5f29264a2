//! Permit for gangs: pods that keep their nodes reserved until enough others of their gang have nodes.

use super::way::{Fall, Stage, Way};
use super::{Observed, Scheduler};
use crate::object::Key;
use crate::object::pod::{Gang, Pod};
use crate::plugin::Point;
use crate::plugins::gang_scheduling::{self, NAME, PATIENCE_SECONDS};
use crate::queue::{SECOND, Time, World};
use holdfast_core::object::duration;
use std::collections::HashMap;

/// Until when the pods of each gang keep their reservations: all of them as long as the first one.
#[derive(Debug, Default)]
pub(super) struct Patience {
    until: HashMap<Gang, Time>,
    sweep_at: usize,
}

impl Patience {
    /// How long a gang may still wait. Once the time has passed, the next pod starts it again.
    fn left(&mut self, gang: &Gang, now: Time) -> Time {
        if self.until.len() >= self.sweep_at {
            self.until.retain(|_, until| *until > now);
            self.sweep_at = (self.until.len() * 2).max(64);
        }
        let anew = now + Time::from(PATIENCE_SECONDS) * SECOND;
        let until = self.until.entry(gang.clone()).or_insert(anew);
        if *until <= now {
            *until = anew;
        }
        *until - now
    }
}

impl Scheduler {
    /// How long a pod with a chosen node must wait for others of its gang; `Ok(None)`: not at all. Fails if the gang
    /// cannot be looked up.
    pub(super) fn hold_time(&mut self, pod: &Pod, profile: usize, now: Time) -> Result<Option<Time>, String> {
        if !self.profile(profile).has(Point::Permit, NAME) {
            return Ok(None);
        }
        let waits = gang_scheduling::must_wait(&self.snapshot, pod);
        let waits = waits.map_err(|why| format!("running Permit plugin \"{NAME}\": {why}"))?;
        Ok(pod.template.gang.as_ref().filter(|_| waits).map(|gang| self.patience.left(gang, now)))
    }

    /// Makes the waiting pods of a pod's gang active: the pod keeps its reservation for them.
    pub(super) fn activate_gang(&mut self, pod: &Pod, now: Time) {
        let Some(gang) = &pod.template.gang else { return };
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        for other in self.snapshot.gang(gang).filter(|other| other.node_name.is_none()) {
            self.queue.activate(world, &other.key, now);
        }
    }

    /// Pods of the same gang may have waited for this pod alone: continues their binding cycles.
    pub(super) fn let_gang_go(&mut self, pod: &Pod, now: Time) {
        if pod.template.gang.is_none() {
            return;
        }
        let waits =
            |way: &&Way| matches!(way.stage, Stage::Waits { .. }) && way.trying.pod.template.gang == pod.template.gang;
        let others: Vec<_> = self.ways.values().filter(waits).map(|way| way.trying.pod.clone()).collect();
        for other in &others {
            // While the minimum number of pods is unknown, they wait.
            if gang_scheduling::must_wait(&self.snapshot, other) != Ok(false) {
                continue;
            }
            let Some(way) = self.ways.get_mut(&other.key) else { continue };
            if let Stage::Waits { began, .. } = std::mem::replace(&mut way.stage, Stage::Tells) {
                self.observed.push(Observed::Waited { result: "Success", began, ended: now });
            }
            self.forget_deadline(&other.key);
            self.go_on(&other.key, now);
        }
    }

    /// The others of the gang did not get nodes in time.
    pub(super) fn waited_in_vain(&mut self, key: &Key, began: Time, patience: Time, now: Time) {
        self.observed.push(Observed::Waited { result: "Unschedulable", began, ended: now });
        let patience = duration::text(i64::try_from(patience).unwrap_or(i64::MAX));
        let why = format!("rejected due to timeout after waiting {patience} at plugin {NAME}");
        self.fall(key, Fall::refused(NAME, &why), now);
    }
}

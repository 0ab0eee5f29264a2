//! Pods that hold their places until enough others of their gang have theirs.

use super::way::{Fall, Stage, Way};
use super::{Observed, Scheduler};
use crate::duration;
use crate::object::Key;
use crate::object::pod::{Gang, Pod};
use crate::plugin::Point;
use crate::plugins::gang_scheduling::{self, NAME, PATIENCE_SECONDS};
use crate::queue::{SECOND, Time, World};
use std::collections::HashMap;

/// Until when the pods of each gang hold places for the others: all of them as long as the first one.
#[derive(Debug, Default)]
pub(super) struct Patience {
    until: HashMap<Gang, Time>,
    sweep_at: usize,
}

impl Patience {
    /// How long a gang may still wait. Its time begins anew when it has passed.
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
    /// For how long a pod that has a place must hold it, if others of its gang have none yet; or what is wrong.
    pub(super) fn hold_time(&mut self, pod: &Pod, profile: usize, now: Time) -> Result<Option<Time>, String> {
        if !self.profile(profile).has(Point::Permit, NAME) {
            return Ok(None);
        }
        let waits = gang_scheduling::must_wait(&self.snapshot, pod);
        let waits = waits.map_err(|why| format!("running Permit plugin \"{NAME}\": {why}"))?;
        Ok(pod.template.gang.as_ref().filter(|_| waits).map(|gang| self.patience.left(gang, now)))
    }

    /// Has those of a pod's gang tried at once that have no place yet: it holds its own for them.
    pub(super) fn activate_gang(&mut self, pod: &Pod, now: Time) {
        let Some(gang) = &pod.template.gang else { return };
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        for other in self.snapshot.gang(gang).filter(|other| other.node_name.is_none()) {
            self.queue.activate(world, &other.key, now);
        }
    }

    /// Others of the pod's gang may have waited for it alone.
    pub(super) fn let_gang_go(&mut self, pod: &Pod, now: Time) {
        if pod.template.gang.is_none() {
            return;
        }
        let waits =
            |way: &&Way| matches!(way.stage, Stage::Waits { .. }) && way.trying.pod.template.gang == pod.template.gang;
        let others: Vec<_> = self.ways.values().filter(waits).map(|way| way.trying.pod.clone()).collect();
        for other in &others {
            // As long as it is not known how many there must be, they wait.
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

    /// The others did not find places in time.
    pub(super) fn waited_in_vain(&mut self, key: &Key, began: Time, patience: Time, now: Time) {
        self.observed.push(Observed::Waited { result: "Unschedulable", began, ended: now });
        let patience = duration::text(i64::try_from(patience).unwrap_or(i64::MAX));
        let why = format!("rejected due to timeout after waiting {patience} at plugin {NAME}");
        self.fall(key, Fall::refused(NAME, &why), now);
    }
}

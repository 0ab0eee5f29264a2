//! The strategy RollingUpdate, which scales the new set up and the old sets down in steps.

use super::{Flow, GO_ON, STOP, Sync};
use crate::planted::{Bug, planted};

impl Sync<'_> {
    /// Makes the next step of a rollout. A plan either scales the new set or scales old sets down, because the next
    /// step depends on the result.
    pub fn roll(&mut self) -> Flow {
        self.set_revision()?;
        self.ensure_new_set()?;
        if self.grow_new_set() || self.shrink_old_sets() {
            self.write_progress();
            return STOP;
        }
        if self.is_complete_as_told() && !planted(Bug::HistoryForEver) {
            self.forget_old_sets();
        }
        self.write_progress();
        GO_ON
    }

    /// How many pods the new set should have; `now` is how many it has at present.
    pub fn new_size(&self, now: i64) -> i64 {
        if !self.is_rolling() {
            return self.replicas();
        }
        let room = self.max_replicas() - self.asked();
        let room = if planted(Bug::SurgeUnbounded) { self.replicas() } else { room };
        if room <= 0 { now } else { now + room.min(self.replicas() - now) }
    }

    fn grow_new_set(&mut self) -> bool {
        let Some(now) = self.new.as_ref().map(|set| set.replicas) else { return false };
        let size = if now > self.replicas() { self.replicas() } else { self.new_size(now) };
        self.scale_new(size)
    }

    /// Scales old sets down as long as enough pods stay available. Their unavailable pods are removed first.
    fn shrink_old_sets(&mut self) -> bool {
        let new_unavailable = self.new.as_ref().map_or(0, |set| set.replicas - set.lasting());
        let budget = self.asked() - self.min_available() - new_unavailable;
        if budget <= 0 || self.old.iter().all(|set| !set.is_active()) {
            return false;
        }
        let lasting: i64 = self.sets().map(super::Set::lasting).sum();
        let available = if planted(Bug::UnreadyCountsAsAvailable) { self.asked() } else { lasting };
        self.scale_down_old(budget, |set| set.replicas - set.lasting())
            || self.scale_down_old(available - self.min_available(), |set| set.replicas)
    }

    /// Removes up to `budget` pods in total from old sets, from the oldest set first. `most` is how many pods a set may
    /// lose.
    fn scale_down_old(&mut self, budget: i64, most: impl Fn(&super::Set<'_>) -> i64) -> bool {
        let mut left = budget;
        for index in 0..self.old.len() {
            let set = &self.old[index];
            let taken = most(set).clamp(0, set.replicas.max(0)).min(left);
            if taken > 0 {
                left -= taken;
                self.scale_old(index, self.old[index].replicas - taken);
            }
        }
        left < budget
    }
}

//! Replaces pods of an older revision, from the highest ordinal down to the partition.

use super::{Flow, GO_ON, STOP, Sync};
use crate::planted::{Bug, planted};
use crate::revisions::{self, POD_REVISION};
use holdfast_world::Viewed;
use holdfast_world::views::Pod;
use std::collections::BTreeSet;

impl<'w> Sync<'w> {
    pub fn replace_old(&mut self) -> Flow {
        let strategy = &self.set.spec.update_strategy;
        if strategy.kind == "OnDelete" || !self.made.is_empty() {
            return GO_ON;
        }
        let rolling = strategy.rolling_update.as_ref();
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
        let partition = if planted(Bug::PartitionIgnored) { 0 } else { partition };
        let first = self.pods.start.saturating_add(partition);
        let targets: Vec<_> = self.pods.wanted.range(first..).rev().map(|(_, pod)| *pod).collect();
        match rolling.and_then(|rolling| rolling.max_unavailable) {
            Some(amount) => {
                let bound = amount.of(self.pods.replicas, false).max(1);
                self.replace_several(&targets, usize::try_from(bound).unwrap_or(usize::MAX))
            }
            None => self.replace_one(&targets),
        }
    }

    /// Deletes the old pod with the highest ordinal, unless a new pod with a higher ordinal is not healthy yet.
    fn replace_one(&mut self, targets: &[Viewed<'w, Pod>]) -> Flow {
        for pod in targets {
            if self.is_old(*pod) && !pod.meta().is_deleting() {
                self.delete(*pod);
                return STOP;
            }
            if !self.is_healthy(*pod) && !planted(Bug::UpdateUnordered) {
                return STOP;
            }
        }
        GO_ON
    }

    /// Deletes old pods as long as at most `bound` pods are unavailable, including pods that were unavailable before.
    fn replace_several(&mut self, targets: &[Viewed<'w, Pod>], bound: usize) -> Flow {
        let missing = self.pods.wanted.values().filter(|pod| !self.is_healthy(**pod)).count();
        let old = targets.iter().filter(|pod| self.is_old(**pod) && !pod.meta().is_deleting());
        let leaving: Vec<_> = old.take(bound.saturating_sub(missing)).copied().collect();
        leaving.into_iter().for_each(|pod| self.delete(pod));
        GO_ON
    }

    fn is_old(&self, pod: Viewed<'w, Pod>) -> bool {
        pod.meta().label(POD_REVISION) != Some(self.revisions.present.name())
    }

    /// Deletes old revisions beyond the limit, except the revisions of pods and of an update in progress.
    pub fn forget_revisions(&mut self) {
        let mut used: BTreeSet<&str> =
            self.pods.all().filter_map(|pod| pod.object.meta.labels.get(POD_REVISION).map(String::as_str)).collect();
        used.insert(self.revisions.present.name());
        used.insert(&self.set.status.current_revision);
        let unused: Vec<_> =
            self.revisions.known.iter().filter(|seen| !used.contains(seen.meta().name.as_str())).copied().collect();
        let surplus = unused.len().saturating_sub(revisions::limit(self.set.spec.revision_history_limit));
        revisions::forget(unused.into_iter(), surplus, &mut self.plan);
    }
}

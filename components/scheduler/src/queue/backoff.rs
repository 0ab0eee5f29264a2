//! Pods in back-off: pods that were tried a short while ago and could not be scheduled, so they wait before the next
//! attempt.

use super::{QueueRank, SECOND, Time};
use std::collections::BTreeSet;

/// Keeps the pods in back-off. With `pops_early`, back-offs end at whole seconds, and pods whose back-offs end in the
/// same second leave in the order of the queue.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The wait after the first failure, in nanoseconds; it doubles with each further failure.
    initial: Time,
    max: Time,
    pops_early: bool,
    unschedulable: BTreeSet<(Time, QueueRank)>,
    errors: BTreeSet<(Time, QueueRank)>,
}

impl Backoff {
    pub fn new(initial: Time, max: Time, pops_early: bool) -> Self {
        Backoff { initial, max, pops_early, unschedulable: BTreeSet::new(), errors: BTreeSet::new() }
    }

    /// The end of the back-off of a pod that failed at `since`, after `failures` failures in a row: the first moment at
    /// which the pod may be tried again.
    fn end(&self, since: Time, failures: u32) -> Time {
        let Some(doublings) = failures.checked_sub(1) else { return Time::MIN };
        let longer = self.initial.saturating_mul(1 << doublings.min(64));
        let end = since.saturating_add(longer.min(self.max));
        if self.pops_early { end.div_euclid(SECOND).saturating_add(1).saturating_mul(SECOND) } else { end }
    }

    pub fn is_over(&self, since: Time, failures: u32, now: Time) -> bool {
        self.end(since, failures) <= now
    }

    fn part(&mut self, error: bool) -> &mut BTreeSet<(Time, QueueRank)> {
        if error { &mut self.errors } else { &mut self.unschedulable }
    }

    pub fn insert(&mut self, error: bool, since: Time, failures: u32, rank: QueueRank) {
        let end = self.end(since, failures);
        self.part(error).insert((end, rank));
    }

    pub fn remove(&mut self, error: bool, since: Time, failures: u32, rank: &QueueRank) {
        let end = self.end(since, failures);
        self.part(error).remove(&(end, rank.clone()));
    }

    /// Removes the pods whose back-off is over, and returns them.
    pub fn pop_completed(&mut self, now: Time) -> Vec<QueueRank> {
        let mut over = Vec::new();
        for set in [&mut self.unschedulable, &mut self.errors] {
            while set.first().is_some_and(|(end, _)| *end <= now) {
                over.extend(set.pop_first().map(|(_, rank)| rank));
            }
        }
        over
    }

    /// With `pops_early`, the first pod in back-off that a plug-in rejected: while no pod is active, such a pod may be
    /// tried before its back-off is over. A pod whose attempt failed with an error may not.
    pub fn first_unschedulable(&self) -> Option<QueueRank> {
        self.unschedulable.first().filter(|_| self.pops_early).map(|(_, rank)| rank.clone())
    }

    pub fn next_end(&self) -> Option<Time> {
        let ends = [&self.unschedulable, &self.errors].into_iter().filter_map(|set| set.first());
        ends.map(|(end, _)| *end).min()
    }

    pub fn len(&self) -> usize {
        self.unschedulable.len() + self.errors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Key;
    use std::cmp::Reverse;

    #[test]
    fn back_offs_double_up_to_the_maximum() {
        let backoff = Backoff::new(SECOND, 10 * SECOND, true);
        let ends: Vec<_> = (1..=6).map(|failures| backoff.end(0, failures) / SECOND).collect();
        assert_eq!(ends, [2, 3, 5, 9, 11, 11], "with the whole second after it");
        assert!(backoff.is_over(0, 0, 0), "who never failed has none");
        assert!(!backoff.is_over(SECOND / 2, 1, SECOND + SECOND / 2), "it ends with the second");
        assert!(backoff.is_over(SECOND / 2, 1, 2 * SECOND));
        assert_eq!(backoff.end(0, u32::MAX), 11 * SECOND);
    }

    #[test]
    fn no_pod_is_popped_early_if_the_gate_is_off() {
        for (pops_early, end) in [(true, 3 * SECOND), (false, 2 * SECOND + 7)] {
            let mut backoff = Backoff::new(SECOND, 10 * SECOND, pops_early);
            let rank = (Reverse(0), 0, SECOND + 7, 1, Key::new("default", "p"));
            backoff.insert(false, SECOND + 7, 1, rank.clone());
            assert_eq!(backoff.first_unschedulable().is_some(), pops_early);
            assert_eq!(backoff.next_end(), Some(end));
            assert!(backoff.pop_completed(end - 1).is_empty());
            assert_eq!(backoff.pop_completed(end), [rank]);
        }
    }
}

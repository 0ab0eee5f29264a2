//! How much a search for devices may do, and for how long.

use crate::clock::Clock;
use std::time::Duration;

/// Tries after which a node is given up: a search that goes back and forth never ends by itself.
const TRIES_MAX: u64 = 100_000;
/// Tries for all nodes together after which a pod is given up, so that it does not keep others waiting.
const ALL_TRIES_MAX: u64 = 500_000;
/// So many tries on one node are no effort, however many nodes there are.
const FREE: u64 = 1024;
/// After so many tries it is asked how late it is.
const LOOK_EVERY: u64 = 512;

/// What the searches for the devices of one pod may take.
#[derive(Debug)]
pub(super) struct Effort {
    clock: Clock,
    /// For one node; nought: as long as it takes.
    timeout: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Spent {
    /// On all nodes before this one.
    before: u64,
    here: u64,
    /// The number of tries at which it is asked how late it is.
    look_at: u64,
    began: Duration,
}

impl Effort {
    pub fn new(clock: Clock, timeout: Duration) -> Effort {
        Effort { clock, timeout }
    }
}

impl Spent {
    pub fn next_node(&mut self, effort: &Effort) {
        self.before += std::mem::take(&mut self.here).saturating_sub(FREE);
        (self.began, self.look_at) = (effort.clock.now(), 0);
    }

    /// Whether all nodes together have taken what they may.
    pub fn is_all_spent(&self) -> bool {
        self.before.saturating_add(self.here.saturating_sub(FREE)) > ALL_TRIES_MAX
    }

    /// Whether there is so much left to spend, which is spent then.
    pub fn may_spend(&mut self, effort: &Effort, tries: u64) -> bool {
        self.here = self.here.saturating_add(tries);
        let counted = self.here.saturating_sub(FREE);
        if self.here > TRIES_MAX || (counted > 0 && self.before.saturating_add(counted) > ALL_TRIES_MAX) {
            return false;
        }
        if self.here < self.look_at || effort.timeout.is_zero() {
            return true;
        }
        self.look_at = self.here + LOOK_EVERY;
        effort.clock.now().saturating_sub(self.began) <= effort.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_search_ends_in_time_and_after_so_many_tries() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        let clock = Clock::new(|| Duration::from_millis(NOW.fetch_add(1, Ordering::Relaxed)));
        let effort = Effort::new(clock, Duration::from_millis(10));
        let mut spent = Spent::default();
        spent.next_node(&effort);
        let tries = (0..TRIES_MAX).take_while(|_| spent.may_spend(&effort, 1)).count() as u64;
        assert!((9 * LOOK_EVERY..=11 * LOOK_EVERY).contains(&tries), "{tries}");
        // The next node has its own time.
        spent.next_node(&effort);
        assert!(spent.may_spend(&effort, 1));
        let endless = Effort::new(clock, Duration::ZERO);
        let mut nodes = 0;
        while spent.may_spend(&endless, TRIES_MAX / 2) {
            spent.next_node(&endless);
            nodes += 1;
        }
        assert!((9..12).contains(&nodes), "{nodes}");
        spent.next_node(&endless);
        assert!(!spent.may_spend(&endless, TRIES_MAX / 2), "all nodes together have their bound");
        spent.next_node(&endless);
        assert!(spent.may_spend(&endless, FREE), "what costs nothing is always looked at");
    }
}

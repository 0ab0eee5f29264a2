//! Limits the work and the time of searches for devices.
//!
//! Work is counted in tries: one for a device that is tried for a request, and some for the cost of an expression.
//! Trying the devices of a node is free until the search first backtracks. Tries after that are paid from the purse of
//! the pod's namespace, which refills with time. A namespace with endless searches so delays its own pods only.

use crate::clock::Clock;
use crate::object::Text;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A node is given up after so many tries: a search that backtracks may take exponential time.
const TRIES_MAX: u64 = 100_000;
/// The clock is read once in so many tries.
const LOOK_EVERY: u64 = 512;
/// The content of a full purse, in tries.
pub(super) const FULL: u64 = 500_000;
/// How many tries come back into a purse in a millisecond.
const REFILL: u64 = 100;
/// Full purses are dropped when there are so many entries.
const SWEEP_AT: usize = 1024;

/// What each namespace has spent, and when that was last updated.
#[derive(Debug, Default)]
pub(super) struct Purses {
    spent: Mutex<HashMap<Text, (u64, Duration)>>,
}

impl Purses {
    /// What a namespace has left. With a clock that stands still every search begins with a full purse.
    fn left(&self, namespace: &Text, clock: Clock) -> u64 {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let owed = spent.get(namespace).map_or(0, |spent| owed(*spent, clock.now()));
        FULL.saturating_sub(owed)
    }

    fn pay(&self, namespace: &Text, clock: Clock, tries: u64) {
        if tries == 0 || !clock.goes() {
            return;
        }
        let now = clock.now();
        let mut all = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SWEEP_AT {
            all.retain(|_, spent| owed(*spent, now) > 0);
        }
        let spent = all.entry(namespace.clone()).or_default();
        *spent = (owed(*spent, now).saturating_add(tries), now);
    }
}

fn owed((spent, since): (u64, Duration), now: Duration) -> u64 {
    let back = now.saturating_sub(since).as_millis().saturating_mul(REFILL.into());
    spent.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX))
}

/// The limits of the searches for the devices of one pod.
#[derive(Debug)]
pub(super) struct Effort {
    clock: Clock,
    /// For one node; 0: no limit.
    timeout: Duration,
    namespace: Text,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The search of this node took too long.
    Late,
    /// The purse is empty.
    Spent,
}

#[derive(Debug, Default)]
pub(super) struct Spent {
    /// Tries on this node.
    here: u64,
    /// Whether the search of this node has backtracked: from then on tries are paid for.
    is_back: bool,
    /// Tries to be paid for this node.
    owed: u64,
    /// Tries that were paid while the clock stands still.
    paid: u64,
    /// What was in the purse at the start of this node.
    left: u64,
    /// The number of tries at which the clock is read next.
    look_at: u64,
    began: Duration,
}

impl Effort {
    pub fn new(clock: Clock, timeout: Duration, namespace: Text) -> Effort {
        Effort { clock, timeout, namespace }
    }
}

impl Spent {
    pub fn next_node(&mut self, effort: &Effort, purses: &Purses) {
        self.left = purses.left(&effort.namespace, effort.clock).saturating_sub(self.paid);
        (self.here, self.is_back, self.owed) = (0, false, 0);
        (self.began, self.look_at) = (effort.clock.now(), 0);
    }

    /// Pays for the work on a node; returns the number of tries there.
    pub fn settle(&mut self, effort: &Effort, purses: &Purses) -> u64 {
        let owed = std::mem::take(&mut self.owed);
        purses.pay(&effort.namespace, effort.clock, owed);
        if !effort.clock.goes() {
            self.paid = self.paid.saturating_add(owed);
        }
        self.left = self.left.saturating_sub(owed);
        self.here
    }

    /// Counts one try; fails if a limit is exceeded.
    pub fn may_try(&mut self, effort: &Effort) -> Result<(), Over> {
        self.here += 1;
        if self.is_back {
            self.may_pay()?;
            self.owed += 1;
        }
        if self.here > TRIES_MAX {
            return Err(Over::Late);
        }
        if self.here < self.look_at || effort.timeout.is_zero() {
            return Ok(());
        }
        self.look_at = self.here + LOOK_EVERY;
        let took = effort.clock.now().saturating_sub(self.began);
        if took <= effort.timeout { Ok(()) } else { Err(Over::Late) }
    }

    /// The search backtracks.
    pub fn gave_back(&mut self) {
        self.is_back = true;
    }

    /// Whether anything is left in the purse, for work whose cost is known only afterwards.
    pub fn may_pay(&self) -> Result<(), Over> {
        if self.owed < self.left { Ok(()) } else { Err(Over::Spent) }
    }

    /// Records the cost of such work.
    pub fn owe(&mut self, tries: u64) {
        self.owed = self.owed.saturating_add(tries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn of(namespace: &str, clock: Clock, timeout: Duration) -> Effort {
        Effort::new(clock, timeout, namespace.into())
    }

    /// How many tries one node gets until a limit ends them.
    fn tries(spent: &mut Spent, effort: &Effort, purses: &Purses) -> (u64, Option<Over>) {
        spent.next_node(effort, purses);
        spent.gave_back();
        let over = (0..2 * TRIES_MAX).find_map(|_| spent.may_try(effort).err());
        (spent.settle(effort, purses), over)
    }

    #[test]
    fn a_search_ends_in_time_and_after_so_many_tries() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        let clock = Clock::new(|| Duration::from_millis(NOW.fetch_add(1, Ordering::Relaxed)));
        let (purses, mut spent) = (Purses::default(), Spent::default());
        let (made, over) = tries(&mut spent, &of("a", clock, Duration::from_millis(10)), &purses);
        assert!((9 * LOOK_EVERY..=11 * LOOK_EVERY).contains(&made) && over == Some(Over::Late), "{made} {over:?}");
        let endless = of("a", Clock::default(), Duration::ZERO);
        let mut spent = Spent::default();
        assert_eq!(tries(&mut spent, &endless, &purses), (TRIES_MAX + 1, Some(Over::Late)));
        let nodes = (0..20).take_while(|_| tries(&mut spent, &endless, &purses).1 == Some(Over::Late)).count();
        assert_eq!(nodes as u64, FULL / (TRIES_MAX + 1) - 1, "all nodes together have their bound");
        spent.next_node(&endless, &purses);
        assert!((0..1000).all(|_| spent.may_try(&endless).is_ok()), "what costs nothing is always looked at");
        assert_eq!(tries(&mut Spent::default(), &endless, &purses).1, Some(Over::Late), "the next pod has its own");
    }

    #[test]
    fn the_pods_of_a_namespace_pay_from_one_purse() {
        static NOW: AtomicU64 = AtomicU64::new(1000);
        let clock = Clock::new(|| Duration::from_millis(NOW.load(Ordering::Relaxed)));
        let purses = Purses::default();
        let (a, b) = (of("a", clock, Duration::ZERO), of("b", clock, Duration::ZERO));
        let all = |effort: &Effort| {
            let made = (0..100).map(|_| tries(&mut Spent::default(), effort, &purses));
            made.take_while(|(_, over)| *over != Some(Over::Spent)).map(|(tries, _)| tries).sum::<u64>()
        };
        let made = all(&a);
        assert!((FULL - TRIES_MAX..=FULL + 10).contains(&made), "{made}");
        assert_eq!(all(&a), 0, "it is empty");
        assert_eq!(all(&b), made, "that of others is full");
        NOW.fetch_add(FULL / REFILL, Ordering::Relaxed);
        assert_eq!(all(&a), made, "it has filled up again");
    }
}

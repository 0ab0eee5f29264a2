//! Limits the work and the time of searches for devices.
//!
//! Work is counted in tries: one for a device that is tried for a request, and some for the cost of an expression.
//! Trying the devices of a node is free until the search first backtracks. Tries after that are charged to the budget
//! of the pod's namespace, which refills with time. So if the searches for the pods of a namespace need very many
//! tries, only the pods of that namespace wait.

use crate::clock::Clock;
use crate::object::Text;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The search on a node ends after this many tries, because a search that backtracks may take exponential time.
const TRIES_MAX: u64 = 100_000;
/// The number of tries from one reading of the clock to the next.
const CLOCK_INTERVAL: u64 = 512;
/// The number of tries in a full budget of a namespace.
pub(super) const BUDGET: u64 = 500_000;
/// How many tries a namespace's budget regains in a millisecond.
const REFILL: u64 = 100;
/// When the map of budgets has this many entries, the entries of full budgets are dropped.
const SWEEP_AT: usize = 1024;

/// For each namespace, how many tries of its budget are spent, and when that number was last computed.
#[derive(Debug, Default)]
pub(super) struct NamespaceBudgets {
    spent: Mutex<HashMap<Text, (u64, Duration)>>,
}

impl NamespaceBudgets {
    /// How many tries are left in a namespace's budget. If the clock stands still, each pod's search begins with a full
    /// budget.
    fn remaining(&self, namespace: &Text, clock: Clock) -> u64 {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let unpaid = spent.get(namespace).map_or(0, |spent| unpaid(*spent, clock.now()));
        BUDGET.saturating_sub(unpaid)
    }

    fn charge(&self, namespace: &Text, clock: Clock, tries: u64) {
        if tries == 0 || !clock.goes() {
            return;
        }
        let now = clock.now();
        let mut all = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SWEEP_AT {
            all.retain(|_, spent| unpaid(*spent, now) > 0);
        }
        let spent = all.entry(namespace.clone()).or_default();
        *spent = (unpaid(*spent, now).saturating_add(tries), now);
    }
}

fn unpaid((spent, since): (u64, Duration), now: Duration) -> u64 {
    let refilled = now.saturating_sub(since).as_millis().saturating_mul(REFILL.into());
    spent.saturating_sub(u64::try_from(refilled).unwrap_or(u64::MAX))
}

/// The limits that apply to the searches for the devices of one pod.
#[derive(Debug)]
pub(super) struct SearchLimits {
    clock: Clock,
    /// How long the search on one node may take; 0 means no limit.
    timeout: Duration,
    namespace: Text,
}

/// Which limit ended a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// The search on this node took longer than the timeout, or needed more than [`TRIES_MAX`] tries.
    Timeout,
    /// The budget of the pod's namespace is used up.
    BudgetSpent,
}

#[derive(Debug, Default)]
pub(super) struct SearchCost {
    /// How many tries the search on this node has made.
    tries: u64,
    /// Whether the search on this node has backtracked. From then on tries are charged to the budget.
    has_backtracked: bool,
    /// How many tries on this node must be charged to the budget and are not charged yet.
    unpaid: u64,
    /// How many tries were charged for this pod while the clock stood still.
    charged: u64,
    /// How many tries were left in the budget when the search on this node began.
    remaining: u64,
    /// The number of tries after which the clock is read next.
    read_clock_at: u64,
    began: Duration,
}

impl SearchLimits {
    pub fn new(clock: Clock, timeout: Duration, namespace: Text) -> SearchLimits {
        SearchLimits { clock, timeout, namespace }
    }
}

impl SearchCost {
    pub fn next_node(&mut self, limits: &SearchLimits, budgets: &NamespaceBudgets) {
        self.remaining = budgets.remaining(&limits.namespace, limits.clock).saturating_sub(self.charged);
        (self.tries, self.has_backtracked, self.unpaid) = (0, false, 0);
        (self.began, self.read_clock_at) = (limits.clock.now(), 0);
    }

    /// Charges the tries on a node to the budget; returns how many tries the search on the node made.
    pub fn settle(&mut self, limits: &SearchLimits, budgets: &NamespaceBudgets) -> u64 {
        let unpaid = std::mem::take(&mut self.unpaid);
        budgets.charge(&limits.namespace, limits.clock, unpaid);
        if !limits.clock.goes() {
            self.charged = self.charged.saturating_add(unpaid);
        }
        self.remaining = self.remaining.saturating_sub(unpaid);
        self.tries
    }

    /// Counts one try; fails if a limit is exceeded.
    pub fn count_try(&mut self, limits: &SearchLimits) -> Result<(), LimitExceeded> {
        self.tries += 1;
        if self.has_backtracked {
            self.check_budget()?;
            self.unpaid += 1;
        }
        if self.tries > TRIES_MAX {
            return Err(LimitExceeded::Timeout);
        }
        if self.tries < self.read_clock_at || limits.timeout.is_zero() {
            return Ok(());
        }
        self.read_clock_at = self.tries + CLOCK_INTERVAL;
        let took = limits.clock.now().saturating_sub(self.began);
        if took <= limits.timeout { Ok(()) } else { Err(LimitExceeded::Timeout) }
    }

    /// Records that the search backtracks.
    pub fn backtrack(&mut self) {
        self.has_backtracked = true;
    }

    /// Fails if nothing is left of the budget. Called before work whose cost is known only afterwards.
    pub fn check_budget(&self) -> Result<(), LimitExceeded> {
        if self.unpaid < self.remaining { Ok(()) } else { Err(LimitExceeded::BudgetSpent) }
    }

    /// Records the cost of work for which [`SearchCost::check_budget`] was called before.
    pub fn add_cost(&mut self, tries: u64) {
        self.unpaid = self.unpaid.saturating_add(tries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn of(namespace: &str, clock: Clock, timeout: Duration) -> SearchLimits {
        SearchLimits::new(clock, timeout, namespace.into())
    }

    /// How many tries a search on one node can make before a limit ends it, and which limit that is.
    fn tries(cost: &mut SearchCost, limits: &SearchLimits, budgets: &NamespaceBudgets) -> (u64, Option<LimitExceeded>) {
        cost.next_node(limits, budgets);
        cost.backtrack();
        let exceeded = (0..2 * TRIES_MAX).find_map(|_| cost.count_try(limits).err());
        (cost.settle(limits, budgets), exceeded)
    }

    #[test]
    fn a_search_ends_at_its_timeout_and_at_the_limit_of_tries() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        let clock = Clock::new(|| Duration::from_millis(NOW.fetch_add(1, Ordering::Relaxed)));
        let (budgets, mut cost) = (NamespaceBudgets::default(), SearchCost::default());
        let (tries_made, exceeded) = tries(&mut cost, &of("a", clock, Duration::from_millis(10)), &budgets);
        assert!(
            (9 * CLOCK_INTERVAL..=11 * CLOCK_INTERVAL).contains(&tries_made)
                && exceeded == Some(LimitExceeded::Timeout),
            "{tries_made} {exceeded:?}"
        );
        let endless = of("a", Clock::default(), Duration::ZERO);
        let mut cost = SearchCost::default();
        assert_eq!(tries(&mut cost, &endless, &budgets), (TRIES_MAX + 1, Some(LimitExceeded::Timeout)));
        let nodes =
            (0..20).take_while(|_| tries(&mut cost, &endless, &budgets).1 == Some(LimitExceeded::Timeout)).count();
        assert_eq!(nodes as u64, BUDGET / (TRIES_MAX + 1) - 1, "all nodes together have their bound");
        cost.next_node(&endless, &budgets);
        assert!((0..1000).all(|_| cost.count_try(&endless).is_ok()), "what costs nothing is always looked at");
        assert_eq!(
            tries(&mut SearchCost::default(), &endless, &budgets).1,
            Some(LimitExceeded::Timeout),
            "the next pod has its own"
        );
    }

    #[test]
    fn the_pods_of_a_namespace_share_one_budget() {
        static NOW: AtomicU64 = AtomicU64::new(1000);
        let clock = Clock::new(|| Duration::from_millis(NOW.load(Ordering::Relaxed)));
        let budgets = NamespaceBudgets::default();
        let (a, b) = (of("a", clock, Duration::ZERO), of("b", clock, Duration::ZERO));
        let all = |limits: &SearchLimits| {
            let tries_made = (0..100).map(|_| tries(&mut SearchCost::default(), limits, &budgets));
            tries_made
                .take_while(|(_, exceeded)| *exceeded != Some(LimitExceeded::BudgetSpent))
                .map(|(tries, _)| tries)
                .sum::<u64>()
        };
        let tries_made = all(&a);
        assert!((BUDGET - TRIES_MAX..=BUDGET + 10).contains(&tries_made), "{tries_made}");
        assert_eq!(all(&a), 0, "it is empty");
        assert_eq!(all(&b), tries_made, "that of others is full");
        NOW.fetch_add(BUDGET / REFILL, Ordering::Relaxed);
        assert_eq!(all(&a), tries_made, "it has filled up again");
    }
}

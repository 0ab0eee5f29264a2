//! Limits how fast controllers write for one namespace. The limit is needed because a user's small request may cause a
//! million writes: a change of a Deployment's replica count and of its pods' size needs only a few bytes.
//!
//! Writes for a namespace do not wait if little was written for it recently. If more was written than [`Rates`] allow,
//! the next write for the namespace waits until the rate has caught up; writes for other namespaces continue. [`Rates`]
//! also record which namespaces are active.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many bytes are written for one namespace before the writes for this namespace wait.
pub const BYTES_AT_ONCE: u64 = 64 << 20;
/// How many bytes a second are written for a namespace whose writes wait: several thousand pods of ordinary size.
pub const BYTES_A_SECOND: u64 = 32 << 20;

/// How long a namespace counts as active after an action for it. The actions of one rollout follow each other within
/// less time.
const LATELY: Duration = Duration::from_secs(1);
/// The namespaces of the cluster's own components. Actions for them never stop (nodes renew leases), so they do not
/// make other namespaces wait. The names are compared as a whole, because a tenant may create a namespace with any
/// other name.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-node-lease", "kube-public"];

/// The number of bytes that were written for each namespace, and the namespaces that were active last.
pub struct Rates {
    a_second: u64,
    began: Instant,
    accounts: Mutex<Accounts>,
    /// The two namespaces that were active last, each with the time of its last action.
    last: Mutex<[(String, Duration); 2]>,
}

#[derive(Default)]
struct Accounts {
    /// For each namespace, the time at which its rate has caught up with all bytes written so far, in nanoseconds since
    /// the creation of this value.
    paid: HashMap<String, u64>,
    /// If `paid` has this many entries, the entries of namespaces without recent writes are dropped.
    most: usize,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates::new(BYTES_A_SECOND)
    }
}

impl Rates {
    pub fn new(bytes_a_second: u64) -> Rates {
        Rates {
            a_second: bytes_a_second.max(1),
            began: Instant::now(),
            accounts: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Records that an action for a namespace begins now.
    pub(crate) fn acts_for(&self, namespace: &str) {
        self.acts_for_at(self.began.elapsed(), namespace);
    }

    /// Whether another namespace was active within the last [`LATELY`]. The namespaces of the cluster's own components
    /// do not count as other namespaces. If `namespace` is one of them, the result is always `false`.
    pub(crate) fn acts_for_others(&self, namespace: &str) -> bool {
        self.acts_for_others_at(self.began.elapsed(), namespace)
    }

    fn acts_for_at(&self, time: Duration, namespace: &str) {
        if is_own(namespace) {
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last[0].0 != namespace {
            last.swap(0, 1);
            namespace.clone_into(&mut last[0].0);
        }
        last[0].1 = time;
    }

    fn acts_for_others_at(&self, time: Duration, namespace: &str) -> bool {
        if is_own(namespace) {
            return false;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |name: &str| !name.is_empty() && name != namespace;
        last.iter().any(|(name, at)| is_other(name) && time.saturating_sub(*at) < LATELY)
    }

    /// Charges bytes to a namespace, before or after they are written. Returns how long the next write for the
    /// namespace must wait. Writes outside of any namespace belong to the cluster itself and do not wait.
    pub fn charge(&self, namespace: &str, bytes: usize) -> Duration {
        self.charge_at(self.began.elapsed(), namespace, bytes)
    }

    /// Like [`Rates::charge`]; `time` is the time since the creation of this value.
    fn charge_at(&self, time: Duration, namespace: &str, bytes: usize) -> Duration {
        if namespace.is_empty() {
            return Duration::ZERO;
        }
        // A write waits only if the namespace's time in `paid` is later than `now`, which is ahead of the real time by
        // the cost of `BYTES_AT_ONCE`. So this many bytes may be written without a wait.
        let ahead = self.nanos(BYTES_AT_ONCE);
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_add(ahead);
        let rested = now.saturating_sub(ahead);
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.paid.len() >= accounts.most {
            accounts.paid.retain(|_, paid| *paid > rested);
            accounts.most = 2 * accounts.paid.len() + 64;
        }
        let cost = self.nanos(bytes as u64);
        match accounts.paid.get_mut(namespace) {
            Some(paid) => {
                let before = (*paid).max(rested);
                *paid = before.saturating_add(cost);
                Duration::from_nanos(before.saturating_sub(now))
            }
            None => {
                accounts.paid.insert(namespace.to_owned(), rested.saturating_add(cost));
                Duration::ZERO
            }
        }
    }

    fn nanos(&self, bytes: u64) -> u64 {
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.a_second)).unwrap_or(u64::MAX)
    }
}

fn is_own(namespace: &str) -> bool {
    namespace.is_empty() || SYSTEM_NAMESPACES.contains(&namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_namespace_is_not_the_clusters_whatever_its_name_begins_with() {
        let rates = Rates::default();
        rates.acts_for_at(Duration::ZERO, "kube-tenant");
        rates.acts_for_at(Duration::ZERO, "kube-system");
        assert!(rates.acts_for_others_at(Duration::ZERO, "a"));
        rates.acts_for_at(Duration::ZERO, "a");
        assert!(rates.acts_for_others_at(Duration::ZERO, "kube-tenant"));
        assert!(!rates.acts_for_others_at(Duration::ZERO, "kube-node-lease"));
    }

    #[test]
    fn what_is_done_for_others_counts_for_a_second() {
        let rates = Rates::default();
        let at = Duration::from_millis;
        assert!(!rates.acts_for_others_at(at(0), "a"));
        rates.acts_for_at(at(0), "a");
        rates.acts_for_at(at(0), "kube-node-lease");
        assert!(!rates.acts_for_others_at(at(1), "a") && rates.acts_for_others_at(at(1), "b"));
        assert!(!rates.acts_for_others_at(at(1), "kube-system") && !rates.acts_for_others_at(at(1), ""));
        for time in 1..100 {
            rates.acts_for_at(at(time), "b");
        }
        assert!(rates.acts_for_others_at(at(999), "b") && !rates.acts_for_others_at(at(1000), "b"));
        rates.acts_for_at(at(1000), "c");
        assert!(rates.acts_for_others_at(at(1001), "b") && rates.acts_for_others_at(at(1001), "c"));
    }

    #[test]
    fn a_namespace_waits_for_what_was_written_for_it_alone() {
        let rates = Rates::new(1 << 20);
        let charge = |second: u64, namespace: &str, bytes: u64| {
            rates.charge_at(Duration::from_secs(second), namespace, bytes as usize).as_secs()
        };
        assert_eq!(charge(0, "large", BYTES_AT_ONCE), 0);
        assert_eq!(charge(0, "large", 3 << 20), 0, "what is paid for is paid for");
        assert_eq!(charge(0, "large", 1 << 20), 3);
        assert_eq!(charge(0, "large", 0), 4);
        assert_eq!(charge(0, "other", 1 << 20), 0);
        assert_eq!([charge(0, "", u64::MAX), charge(0, "", u64::MAX)], [0, 0]);
        assert_eq!(charge(3, "large", 0), 1);
        assert_eq!(charge(3603, "large", BYTES_AT_ONCE), 0);
        assert_eq!(charge(3603, "large", 7 << 20), 0, "what is paid for is paid for");
        assert_eq!(charge(3603, "large", 0), 7, "nobody saves up more than that");
        for number in 0..10_000 {
            charge(4000 + 2 * number, &format!("n{number}"), 1 << 20);
        }
        assert!(rates.accounts.lock().expect("nobody panics").paid.len() < 400);
    }
}

//! Places for requests in progress. Each user may hold a fair share of the places. Places are counted without a lock.
//!
//! While less than half of the places are taken, every request gets a place. When more places are taken, a user may
//! hold no more than an equal share of all places, so that one user's requests cannot take all places. Users are
//! counted in slots, which are chosen by a hash with a secret seed, so that clients cannot aim at another user's slot.
//! Two users in one slot have one share together.

use holdfast_core::authz::User;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 1024;

/// A number of places for requests in progress. Clones share the places.
#[derive(Clone)]
pub struct Shares {
    inner: Arc<Inner>,
}

struct Inner {
    /// The number of places; zero for no limit.
    max: u64,
    taken: AtomicU64,
    /// The number of slots whose users hold at least one place.
    active: AtomicU64,
    slots: Box<[AtomicU64]>,
    /// The secret seed of the hash that chooses a user's slot.
    seed: u64,
}

/// Places of one user. They are freed when this value is dropped.
pub struct Share {
    of: Arc<Inner>,
    slot: usize,
    count: u64,
}

impl Shares {
    /// Creates `max` places. If `max` is zero, there is no limit.
    pub fn new(max: u64) -> Shares {
        Shares::seeded(max, RandomState::new().hash_one(max))
    }

    /// Like [`Shares::new`] with a given seed, which must be secret.
    pub fn seeded(max: u64, seed: u64) -> Shares {
        let slots = if max == 0 { 0 } else { SLOTS };
        let slots = (0..slots).map(|_| AtomicU64::new(0)).collect();
        let inner = Inner { max, taken: AtomicU64::new(0), active: AtomicU64::new(0), slots, seed };
        Shares { inner: Arc::new(inner) }
    }

    /// Takes places for a user, unless the user has its share or no place is left.
    pub fn take(&self, user: &User, count: u64) -> Option<Share> {
        let of = self.inner.clone();
        let slot = of.slot(user);
        let mut share = Share { of, slot, count: 0 };
        share.grow(count).then_some(share)
    }

    pub fn taken(&self) -> u64 {
        self.inner.taken.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn slot(&self, user: &User) -> usize {
        match self.slots.len() {
            0 => 0,
            slots => BuildHasherDefault::<DefaultHasher>::new().hash_one((self.seed, &user.name)) as usize % slots,
        }
    }

    fn take(&self, slot: usize, count: u64) -> bool {
        // If no places are requested, nothing is counted, because a user without places does not count as active.
        if count == 0 {
            return true;
        }
        let taken = self.taken.fetch_add(count, Ordering::Relaxed) + count;
        let Some(held) = self.slots.get(slot) else { return true };
        let before = held.fetch_add(count, Ordering::Relaxed);
        let mut active = self.active.load(Ordering::Relaxed);
        if before == 0 {
            active = self.active.fetch_add(1, Ordering::Relaxed) + 1;
        }
        // The share of one more user stays free even if there are no other users.
        let share = (self.max / active.max(2)).max(1);
        if taken > self.max || (taken > self.max / 2 && before + count > share) {
            self.give_back(slot, count);
            return false;
        }
        true
    }

    fn give_back(&self, slot: usize, count: u64) {
        self.taken.fetch_sub(count, Ordering::Relaxed);
        let Some(held) = self.slots.get(slot) else { return };
        if held.fetch_sub(count, Ordering::Relaxed) == count {
            self.active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Share {
    /// Takes more places. Returns false if the user can get no more places; the user then keeps the places that it has.
    pub fn grow(&mut self, count: u64) -> bool {
        let grown = self.of.take(self.slot, count);
        if grown {
            self.count += count;
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.count > 0 {
            self.of.give_back(self.slot, self.count);
        }
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The users ask in this order, each for one place at a time until it is refused. Returns the number of places that
    /// each user got.
    fn greedy(max: u64, users: &[&str]) -> Vec<usize> {
        let shares = Shares::new(max);
        let mut held: Vec<Share> = Vec::new();
        let mut take_all = |name: &&str| {
            let user = User::new(*name, &[]);
            let before = held.len();
            held.extend(std::iter::from_fn(|| shares.take(&user, 1)).take(1000));
            held.len() - before
        };
        let counts = users.iter().map(&mut take_all).collect();
        drop(held);
        assert_eq!((shares.taken(), shares.inner.active.load(Ordering::Relaxed)), (0, 0));
        counts
    }

    #[test]
    fn nobody_holds_all_places() {
        assert_eq!(greedy(100, &["a"]), [50]);
        // A later user gets a share, although the first user took as many places as it could.
        assert_eq!(greedy(100, &["a", "b", "a"]), [50, 50, 0]);
        assert_eq!(greedy(100, &["a", "b", "c"])[..2], [50, 50]);
        assert_eq!(greedy(3, &["a", "b"]), [1, 1]);
        assert_eq!(greedy(1, &["a", "b"]), [1, 0]);
        assert_eq!(greedy(0, &["a"]), [1000]);
    }

    #[test]
    fn many_users_get_equal_shares() {
        let shares = Shares::new(100);
        let users: Vec<User> = (0..10).map(|number| User::new(format!("u{number}"), &[])).collect();
        let mut held: Vec<Share> = users.iter().filter_map(|user| shares.take(user, 1)).collect();
        for _ in 0..100 {
            held.extend(users.iter().filter_map(|user| shares.take(user, 1)));
        }
        // Two users may be in the same slot. They then have one share together.
        for user in &users {
            let slot = shares.inner.slot(user);
            assert!(held.iter().filter(|share| share.slot == slot).count() >= 10, "{}", user.name);
        }
    }

    #[test]
    fn a_share_may_grow_within_its_bound() {
        let shares = Shares::new(100);
        let user = User::new("a", &[]);
        let mut share = shares.take(&user, 10).unwrap();
        assert!(share.grow(40) && !share.grow(1));
        assert_eq!(shares.taken(), 50);
        drop(share);
        drop(shares.take(&user, 0).unwrap());
        assert_eq!((shares.taken(), shares.inner.active.load(Ordering::Relaxed)), (0, 0));
    }
}

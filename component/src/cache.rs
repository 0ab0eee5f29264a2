//! A cache of answers that are valid for a while.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most answers that are kept, since clients decide what is asked.
const ENTRIES_MAX: usize = 4096;
/// The most of them about one user, so that no user can displace the answers about all others.
const OF_USER_MAX: usize = ENTRIES_MAX / 8;

pub struct Cache<K, V>(Mutex<Kept<K, V>>);

struct Kept<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The oldest first.
    by_age: BTreeMap<u64, K>,
    /// The same for each user.
    of_users: HashMap<String, BTreeMap<u64, K>>,
    count: u64,
}

struct Entry<V> {
    value: V,
    until: Instant,
    user: String,
    number: u64,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Cache<K, V> {
        let (entries, by_age, of_users) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Cache(Mutex::new(Kept { entries, by_age, of_users, count: 0 }))
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: Instant) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let kept = self.lock();
        kept.entries.get(key).filter(|entry| now < entry.until).map(|entry| entry.value.clone())
    }

    /// Keeps an answer about a user for `time`. Answers about no user count as one user's.
    pub fn put(&self, key: K, user: &str, value: V, now: Instant, time: Duration) {
        let Some(until) = now.checked_add(time).filter(|_| !time.is_zero()) else { return };
        let mut kept = self.lock();
        kept.forget(&key);
        let own = kept.of_users.get(user).filter(|own| own.len() >= OF_USER_MAX);
        let crowd = own.or_else(|| (kept.entries.len() >= ENTRIES_MAX).then_some(&kept.by_age));
        if let Some(oldest) = crowd.and_then(|crowd| crowd.values().next()).cloned() {
            kept.forget(&oldest);
        }
        kept.count += 1;
        let (number, user) = (kept.count, user.to_owned());
        kept.by_age.insert(number, key.clone());
        kept.of_users.entry(user.clone()).or_default().insert(number, key.clone());
        kept.entries.insert(key, Entry { value, until, user, number });
    }

    fn lock(&self) -> MutexGuard<'_, Kept<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, V> Kept<K, V> {
    fn forget(&mut self, key: &K) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.by_age.remove(&entry.number);
        if let Some(own) = self.of_users.get_mut(&entry.user) {
            own.remove(&entry.number);
            if own.is_empty() {
                self.of_users.remove(&entry.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_and_are_never_too_many() {
        let (cache, now, second) = (Cache::default(), Instant::now(), Duration::from_secs(1));
        cache.put(0, "u", 'a', now, 2 * second);
        cache.put(1, "u", 'b', now, Duration::ZERO);
        assert_eq!((cache.get(&0, now + second), cache.get(&1, now)), (Some('a'), None));
        assert_eq!(cache.get(&0, now + 2 * second), None);
        for key in 0..10 * ENTRIES_MAX {
            cache.put(key, &format!("user{}", key % 100), 'c', now, second);
        }
        let kept = cache.lock();
        assert!(kept.entries.len() <= ENTRIES_MAX && kept.by_age.len() == kept.entries.len());
        assert_eq!(kept.of_users.values().map(BTreeMap::len).sum::<usize>(), kept.entries.len());
    }

    #[test]
    fn nobody_fills_the_place_of_others() {
        let (cache, now, second) = (Cache::default(), Instant::now(), Duration::from_secs(1));
        cache.put(0, "jane", 'a', now, second);
        for key in 1..=2 * ENTRIES_MAX {
            cache.put(key, "eve", 'b', now, second);
        }
        assert_eq!((cache.get(&0, now), cache.get(&(2 * ENTRIES_MAX), now)), (Some('a'), Some('b')));
        assert_eq!((cache.get(&1, now), cache.lock().of_users["eve"].len()), (None, OF_USER_MAX));
        // A key that is put again is counted once.
        cache.put(0, "jane", 'c', now, second);
        assert_eq!((cache.get(&0, now), cache.lock().of_users["jane"].len()), (Some('c'), 1));
    }
}

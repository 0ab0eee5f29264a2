//! A cache of answers that are valid for a while.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The default maximum number of answers in a cache. The number is limited because clients choose the questions.
const ENTRIES_MAX: usize = 4096;

/// A cache of the most recently used answers.
pub struct Cache<K, V> {
    kept: Mutex<Entries<K, V>>,
    /// The maximum number of answers.
    most: usize,
}

struct Entries<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    /// Keys by the number of their last use.
    by_use: BTreeMap<u64, K>,
    /// For each user, the keys in `by_use` of the user's answers.
    of_users: HashMap<String, BTreeSet<u64>>,
    uses: u64,
}

struct CacheEntry<V> {
    value: V,
    until: Instant,
    user: String,
    used: u64,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Cache<K, V> {
        Cache::of(ENTRIES_MAX)
    }
}

impl<K, V> Cache<K, V> {
    /// A cache of at most this many answers. The answers of one user take at most an eighth of the cache, so that no
    /// user can displace the answers of all others.
    pub fn of(most: usize) -> Cache<K, V> {
        let (entries, by_use, of_users) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Cache { kept: Mutex::new(Entries { entries, by_use, of_users, uses: 0 }), most }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: Instant) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let mut kept = self.lock();
        let is_valid = now < kept.entries.get(key)?.until;
        let (key, entry) = kept.forget(key)?;
        let value = is_valid.then(|| entry.value.clone());
        if is_valid {
            kept.insert(key, entry);
        }
        value
    }

    /// Stores an answer about a user for `time`. Answers about no user count as the answers of one user.
    pub fn put(&self, key: K, user: &str, value: V, now: Instant, time: Duration) {
        let Some(until) = now.checked_add(time).filter(|_| !time.is_zero()) else { return };
        let mut kept = self.lock();
        kept.forget(&key);
        let own = kept.of_users.get(user).filter(|own| own.len() >= self.most / 8).and_then(BTreeSet::first);
        let oldest = match own {
            Some(oldest) => Some(*oldest),
            None if kept.entries.len() >= self.most => kept.by_use.first_key_value().map(|(used, _)| *used),
            None => None,
        };
        if let Some(oldest) = oldest.and_then(|oldest| kept.by_use.get(&oldest).cloned()) {
            kept.forget(&oldest);
        }
        kept.insert(key, CacheEntry { value, until, user: user.to_owned(), used: 0 });
    }
}

impl<K: Eq + Hash + Clone, V> Entries<K, V> {
    fn insert(&mut self, key: K, entry: CacheEntry<V>) {
        self.uses += 1;
        let entry = CacheEntry { used: self.uses, ..entry };
        self.by_use.insert(entry.used, key.clone());
        match self.of_users.get_mut(&entry.user) {
            Some(own) => {
                own.insert(entry.used);
            }
            None => {
                self.of_users.insert(entry.user.clone(), BTreeSet::from([entry.used]));
            }
        }
        self.entries.insert(key, entry);
    }

    fn forget<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<(K, CacheEntry<V>)>
    where
        K: Borrow<Q>,
    {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.by_use.remove(&entry.used);
        if let Some(own) = self.of_users.get_mut(&entry.user) {
            own.remove(&entry.used);
            if own.is_empty() {
                self.of_users.remove(&entry.user);
            }
        }
        Some((key, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_USER_MAX: usize = ENTRIES_MAX / 8;

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
        assert!(kept.entries.len() <= ENTRIES_MAX && kept.by_use.len() == kept.entries.len());
        assert_eq!(kept.of_users.values().map(BTreeSet::len).sum::<usize>(), kept.entries.len());
    }

    #[test]
    fn the_answer_that_was_used_longest_ago_goes_first() {
        let (cache, now, second) = (Cache::of(16), Instant::now(), Duration::from_secs(1));
        for (key, user) in [(0, "a"), (1, "a"), (2, "a")] {
            cache.put(key, user, key, now, second);
            assert_eq!(cache.get(&0, now), Some(0));
        }
        assert_eq!((cache.get(&1, now), cache.get(&2, now)), (None, Some(2)), "a user has an eighth");
        for key in 3..18 {
            cache.put(key, &format!("user{key}"), key, now, second);
            assert_eq!(cache.get(&0, now), Some(0));
        }
        assert_eq!((cache.get(&2, now), cache.get(&3, now), cache.get(&17, now)), (None, Some(3), Some(17)));
    }

    #[test]
    fn no_user_displaces_the_answers_about_others() {
        let (cache, now, second) = (Cache::default(), Instant::now(), Duration::from_secs(1));
        cache.put(0, "jane", 'a', now, second);
        for key in 1..=2 * ENTRIES_MAX {
            cache.put(key, "eve", 'b', now, second);
        }
        assert_eq!((cache.get(&0, now), cache.get(&(2 * ENTRIES_MAX), now)), (Some('a'), Some('b')));
        assert_eq!((cache.get(&1, now), cache.lock().of_users["eve"].len()), (None, OF_USER_MAX));
        // A key that is stored again is counted once.
        cache.put(0, "jane", 'c', now, second);
        assert_eq!((cache.get(&0, now), cache.lock().of_users["jane"].len()), (Some('c'), 1));
    }
}

//! Answers that are good for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many answers are kept: strangers decide what is asked.
const ENTRIES_MAX: usize = 4096;

pub struct Cache<K, V> {
    entries: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Cache<K, V> {
        Cache { entries: Mutex::default() }
    }
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    /// Keeps an answer for so long.
    pub fn put(&self, key: K, value: V, now: Instant, time: Duration) {
        let Some(until) = now.checked_add(time).filter(|_| !time.is_zero()) else { return };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        entries.insert(key, (value, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_and_are_never_too_many() {
        let (cache, now, second) = (Cache::default(), Instant::now(), Duration::from_secs(1));
        cache.put(0, 'a', now, 2 * second);
        cache.put(1, 'b', now, Duration::ZERO);
        assert_eq!((cache.get(&0, now + second), cache.get(&1, now)), (Some('a'), None));
        assert_eq!(cache.get(&0, now + 2 * second), None);
        for key in 0..10 * ENTRIES_MAX {
            cache.put(key, 'c', now, second);
        }
        assert!(cache.entries.lock().unwrap().len() <= ENTRIES_MAX);
    }
}

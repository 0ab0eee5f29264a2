//! The token buckets of admission's rate limits. Each server has its own buckets, which are lost when the server ends.

use holdfast_core::admission::call::Bucket;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The number that counts as one token: buckets count in thousandths of a token.
const TOKEN: u64 = 1000;

#[derive(Default)]
pub struct Limits {
    /// For each rate limit, its buckets by key.
    levels: Mutex<Vec<HashMap<String, Level>>>,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    left: u64,
    at_ms: i64,
}

impl Limits {
    /// Takes a token from each bucket. Returns the indexes of the empty buckets.
    pub fn take(&self, buckets: &[Bucket], now_ms: i64) -> Vec<usize> {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |bucket: &Bucket| {
            if levels.len() <= bucket.limit {
                levels.resize_with(bucket.limit + 1, HashMap::new);
            }
            take_one(&mut levels[bucket.limit], bucket, now_ms)
        };
        let empty: Vec<bool> = buckets.iter().map(is_empty).collect();
        empty.iter().enumerate().filter(|(_, empty)| **empty).map(|(at, _)| at).collect()
    }
}

/// Takes a token from one bucket. Returns true if the bucket was empty.
fn take_one(levels: &mut HashMap<String, Level>, bucket: &Bucket, now_ms: i64) -> bool {
    let full = u64::from(bucket.burst) * TOKEN;
    if levels.len() >= bucket.keys_max && !levels.contains_key(&bucket.key) {
        // The bucket of the key that was unused for the longest time has had the most time to refill, so its removal
        // changes the limit least.
        let oldest = levels.iter().min_by_key(|(_, level)| level.at_ms).map(|(key, _)| key.clone());
        oldest.map(|key| levels.remove(&key));
    }
    let level = levels.entry(bucket.key.clone()).or_insert(Level { left: full, at_ms: now_ms });
    let elapsed = u64::try_from(now_ms.saturating_sub(level.at_ms)).unwrap_or(0);
    level.left = level.left.saturating_add(elapsed.saturating_mul(u64::from(bucket.per_second))).min(full);
    level.at_ms = level.at_ms.max(now_ms);
    match level.left.checked_sub(TOKEN) {
        Some(left) => {
            level.left = left;
            false
        }
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_empty_and_fill_again() {
        let limits = Limits::default();
        let bucket =
            |limit: usize, key: &str, burst: u32| Bucket { limit, key: key.into(), per_second: 1, burst, keys_max: 2 };
        let both = [bucket(0, "a", 3), bucket(1, "x", 2)];
        for (now_ms, expected) in
            [(0, vec![]), (0, vec![]), (0, vec![1]), (0, vec![0, 1]), (1000, vec![]), (1500, vec![0, 1])]
        {
            assert_eq!(limits.take(&both, now_ms), expected, "at {now_ms}");
        }
        // If there are too many keys, the key that was unused for the longest time is removed.
        for key in ["b", "c", "a"] {
            assert_eq!(limits.take(&[bucket(0, key, 1)], 2000), Vec::<usize>::new(), "{key}");
        }
    }
}

//! The keys of one controller that are to be planned. Each key is in the queue at most once, and two plans of one key
//! are never made at the same time. A key waits longer if its plan requests a later time or if its actions were
//! refused. Each namespace has a queue of its own, and the caller decides which namespace is next.
//!
//! The queue has no clock: the caller passes the time.

use crate::{Key, Keys, Text, Time};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// How long a key waits after a failure: `first_ms` milliseconds, doubled with each failure up to `last_ms`, as in
/// client-go's queues.
#[derive(Debug, Clone, Copy)]
pub struct BackOff {
    pub first_ms: i64,
    pub last_ms: i64,
}

impl Default for BackOff {
    fn default() -> BackOff {
        BackOff { first_ms: 5, last_ms: 1_000_000 }
    }
}

impl BackOff {
    /// The wait, in milliseconds, after a failure that follows `failures` failures in a row.
    pub fn after(&self, failures: u32) -> i64 {
        let factor = 1i64.checked_shl(failures).filter(|factor| *factor > 0).unwrap_or(i64::MAX);
        self.first_ms.saturating_mul(factor).min(self.last_ms)
    }
}

/// The limit of retries after refusals, for all keys of a namespace together: `REFUSED_AT_ONCE` retries at once, and
/// then one retry every `REFUSED_EVERY_MS` milliseconds. client-go's queues have one limit for all keys, so that one
/// namespace delays all other namespaces.
const REFUSED_AT_ONCE: i64 = 100;
const REFUSED_EVERY_MS: i64 = 100;

/// For each namespace, the time at which the last of its refused keys is planned again.
#[derive(Debug, Default)]
struct Paces {
    turns: HashMap<String, Time>,
    /// If there are this many entries, the entries that delay no key any more are dropped.
    most: usize,
}

impl Paces {
    fn turn(&mut self, namespace: &str, now: Time) -> Time {
        let rested = now.plus_millis(-REFUSED_AT_ONCE * REFUSED_EVERY_MS);
        if self.turns.len() >= self.most {
            self.turns.retain(|_, last| *last > rested);
            self.most = 2 * self.turns.len() + 16;
        }
        let last = self.turns.entry(namespace.to_owned()).or_insert(rested);
        *last = (*last).max(rested).plus_millis(REFUSED_EVERY_MS);
        *last
    }
}

#[derive(Debug, Default)]
pub struct WorkQueue {
    back_off: BackOff,
    /// The keys that may be taken, oldest first, by namespace. No namespace in the map has an empty queue.
    ready: HashMap<Text, VecDeque<Key>>,
    /// The keys in `ready`, each with the time at which it was added.
    waiting: HashMap<Key, Time>,
    /// The namespaces whose queue has become non-empty since the last [`Self::wake`], oldest first.
    newly_nonempty: Vec<Text>,
    /// The latest time that a caller has passed.
    now: Option<Time>,
    /// The keys that are being planned or acted on. The value is `true` if the key was added again in the meantime.
    busy: HashMap<Key, bool>,
    /// The timers of waiting keys, ordered by time. A key has at most one timer; `times` has its time.
    timers: BTreeSet<(Time, Key)>,
    times: HashMap<Key, Time>,
    failures: HashMap<Key, u32>,
    paces: Paces,
    /// How many times a key was added.
    adds: u64,
    /// How many times a key was added after a failure.
    retries: u64,
}

impl WorkQueue {
    pub fn new(back_off: BackOff) -> WorkQueue {
        WorkQueue { back_off, ..WorkQueue::default() }
    }

    /// Adds a key that is to be planned as soon as possible. Returns `true` if the key was not in the queue before.
    pub fn add(&mut self, key: Key) -> bool {
        if let Some(again) = self.busy.get_mut(&key) {
            return !std::mem::replace(again, true);
        }
        if self.waiting.contains_key(&key) {
            return false;
        }
        self.adds += 1;
        self.waiting.insert(key.clone(), self.now.unwrap_or(Time::from_second(0)));
        match self.ready.get_mut(&key.namespace) {
            Some(line) => line.push_back(key),
            None => {
                self.newly_nonempty.push(key.namespace.clone());
                self.ready.insert(key.namespace.clone(), VecDeque::from([key]));
            }
        }
        true
    }

    /// Adds the keys that a change concerns.
    pub fn add_all(&mut self, keys: Keys, now: Time) {
        self.now = Some(now);
        keys.now.into_iter().for_each(|key| _ = self.add(key));
        keys.later.into_iter().for_each(|(key, millis)| self.add_at(key, now.plus_millis(millis)));
    }

    /// Adds a key that is to be planned at this time, or at its earlier time if it has one.
    pub fn add_at(&mut self, key: Key, time: Time) {
        if let Some(known) = self.times.get(&key) {
            if *known <= time {
                return;
            }
            self.timers.remove(&(*known, key.clone()));
        }
        self.times.insert(key.clone(), time);
        self.timers.insert((time, key));
    }

    /// Records that a key failed. The key is planned again after a wait that grows with each failure. If an action was
    /// refused, the key also waits for its namespace's limit of retries. Returns how many failures in a row came before
    /// this failure.
    pub fn fail(&mut self, key: Key, now: Time, was_refused: bool) -> u32 {
        self.retries += 1;
        let failures = self.failures.entry(key.clone()).or_default();
        let before = *failures;
        *failures = failures.saturating_add(1);
        let mut time = now.plus_millis(self.back_off.after(before));
        if was_refused {
            time = time.max(self.paces.turn(&key.namespace, now));
        }
        self.add_at(key, time);
        before
    }

    /// Records that a key succeeded. The count of its failures starts at 0 again.
    pub fn forget(&mut self, key: &Key) {
        self.failures.remove(key);
    }

    /// Adds the keys that have waited long enough. Returns the namespaces whose queue has become non-empty since the
    /// last call.
    pub fn wake(&mut self, now: Time) -> Vec<Text> {
        self.now = Some(now);
        while let Some((time, key)) = self.timers.first().cloned()
            && time <= now
        {
            self.timers.remove(&(time, key.clone()));
            self.times.remove(&key);
            self.add(key);
        }
        std::mem::take(&mut self.newly_nonempty)
    }

    /// Takes the next key of a namespace. Returns the key and the number of milliseconds for which it has waited. The
    /// key is busy until [`Self::done`] is called.
    pub fn take(&mut self, namespace: &str, now: Time) -> Option<(Key, i64)> {
        let line = self.ready.get_mut(namespace)?;
        let key = line.pop_front()?;
        if line.is_empty() {
            self.ready.remove(namespace);
        }
        let since = self.waiting.remove(&key).unwrap_or(now);
        self.busy.insert(key.clone(), false);
        Some((key, now.millis_since(since).max(0)))
    }

    /// The key of a namespace that would be taken next; `None` if the namespace has no key.
    pub fn first(&self, namespace: &str) -> Option<&Key> {
        self.ready.get(namespace)?.front()
    }

    /// Marks a key as no longer busy.
    pub fn done(&mut self, key: &Key) {
        if self.busy.remove(key) == Some(true) {
            self.add(key.clone());
        }
    }

    /// The earliest time at which a waiting key may be taken.
    pub fn next_time(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// How many keys could be taken now.
    pub fn depth(&self) -> usize {
        self.waiting.len()
    }

    pub fn adds(&self) -> u64 {
        self.adds
    }

    pub fn retries(&self) -> u64 {
        self.retries
    }

    pub fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Whether the last plan of the key failed.
    pub fn is_failing(&self, key: &Key) -> bool {
        self.failures.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time::from_second(second)
    }

    fn key(name: &str) -> Key {
        Key::new("default", name)
    }

    #[test]
    fn a_key_waits_once_and_is_taken_by_one() {
        let mut queue = WorkQueue::default();
        assert!(queue.add(key("a")));
        assert!(!queue.add(key("a")));
        queue.add(key("b"));
        assert_eq!(take(&mut queue, at(0)), Some(key("a")));
        queue.add(key("a"));
        assert_eq!(take(&mut queue, at(0)), Some(key("b")));
        assert_eq!(take(&mut queue, at(0)), None, "a is busy");
        queue.done(&key("b"));
        queue.done(&key("a"));
        assert_eq!(take(&mut queue, at(0)), Some(key("a")), "it was added while it was busy");
        queue.done(&key("a"));
        assert_eq!((take(&mut queue, at(0)), queue.busy()), (None, 0));
    }

    #[test]
    fn the_earliest_time_counts() {
        let mut queue = WorkQueue::default();
        queue.add_at(key("a"), at(20));
        queue.add_at(key("a"), at(10));
        queue.add_at(key("a"), at(30));
        assert_eq!(queue.next_time(), Some(at(10)));
        assert_eq!(take(&mut queue, at(9)), None);
        assert_eq!(take(&mut queue, at(10)), Some(key("a")));
        assert_eq!(queue.next_time(), None);
    }

    #[test]
    fn changes_of_a_moment_are_answered_together() {
        let mut queue = WorkQueue::default();
        for second in [0, 1, 2] {
            let mut keys = Keys::default();
            keys.add_after(key("a"), 2000);
            keys.add_after(key("b"), 0);
            queue.add_all(keys, at(second));
        }
        assert_eq!(take(&mut queue, at(1)), Some(key("b")));
        assert_eq!(take(&mut queue, at(1)), None);
        assert_eq!(take(&mut queue, at(2)), Some(key("a")), "as long after the first as it may wait");
    }

    #[test]
    fn failures_wait_longer_each_time_up_to_a_bound() {
        let mut queue = WorkQueue::default();
        let mut waits = Vec::new();
        for _ in 0..70 {
            queue.fail(key("a"), at(0), false);
            waits.push(queue.next_time().expect("a time").millis());
            take(&mut queue, at(2000));
            queue.done(&key("a"));
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[17..20], [655_360, 1_000_000, 1_000_000]);
        assert_eq!(waits[69], 1_000_000);
        queue.forget(&key("a"));
        assert_eq!(queue.fail(key("a"), at(0), false), 0);
    }

    /// Takes the next key of the namespace that these tests use.
    fn take(queue: &mut WorkQueue, now: Time) -> Option<Key> {
        queue.wake(now);
        queue.take("default", now).map(|(key, _)| key)
    }

    #[test]
    fn each_namespace_has_its_line() {
        let mut queue = WorkQueue::default();
        for name in ["a", "b"] {
            queue.add(Key::new("one", name));
        }
        queue.add(Key::new("other", "c"));
        assert_eq!(queue.wake(at(0)).iter().map(|text| &**text).collect::<Vec<_>>(), ["one", "other"]);
        assert!(queue.wake(at(0)).is_empty() && queue.depth() == 3);
        let mut of = |namespace: &str| queue.take(namespace, at(0)).map(|(key, _)| key.name.to_string());
        assert_eq!([of("other"), of("other"), of("one")], [Some("c".to_owned()), None, Some("a".to_owned())]);
        assert!(queue.first("one").is_some_and(|key| &*key.name == "b") && queue.first("other").is_none());
        queue.add(Key::new("other", "d"));
        assert_eq!(&*queue.wake(at(0))[0], "other");
    }

    /// Plans every key for a minute. Each plan is refused, or each plan is stale if `was_refused` is false. Returns the
    /// number of plans.
    fn tries_in_a_minute(keys: usize, was_refused: bool) -> usize {
        let mut queue = WorkQueue::default();
        (0..keys).for_each(|number| _ = queue.add(key(&number.to_string())));
        let (mut tries, mut now) = (0, at(1000));
        while now < at(1060) {
            while let Some(key) = take(&mut queue, now) {
                tries += 1;
                queue.done(&key);
                queue.fail(key, now, was_refused);
            }
            now = queue.next_time().expect("a time");
        }
        tries
    }

    #[test]
    fn refusals_in_one_namespace_keep_no_other_waiting() {
        let mut queue = WorkQueue::default();
        (0..10_000).for_each(|number| _ = queue.fail(key(&number.to_string()), at(1000), true));
        let (other, long) = (Key::new("other", "a"), Key::new("default", "last"));
        queue.fail(other.clone(), at(1000), true);
        queue.fail(long.clone(), at(1000), true);
        assert!(queue.times[&other] < at(1001));
        assert!(queue.times[&long] > at(1900));
        // Ten thousand namespaces have one failure each, one after the other, so their entries must be dropped.
        for number in 0..10_000 {
            queue.fail(Key::new(&format!("n{number}"), "a"), at(3000 + 60 * number), true);
        }
        assert!(queue.paces.turns.len() < 100, "{}", queue.paces.turns.len());
    }

    #[test]
    fn refusals_of_many_keys_are_met_at_a_pace() {
        // Each of the thousand keys is tried once. Then a hundred retries are made at once, and after that ten retries
        // a second.
        assert!((1600..=1700).contains(&tries_in_a_minute(1000, true)), "{}", tries_in_a_minute(1000, true));
        assert_eq!(tries_in_a_minute(1, true), tries_in_a_minute(1, false), "one key has only its own back-off");
        assert_eq!(
            tries_in_a_minute(1000, false),
            1000 * tries_in_a_minute(1, false),
            "what is stale waits for nobody"
        );
    }
}

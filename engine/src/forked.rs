//! A log in memory that continues another log from one of its events. A fork of a running cluster has such a log.
//!
//! Events up to the fork are read from the other log and never copied; later events are stored here. Forking takes the
//! same time for any length of the other log. While a fork exists, the other log [keeps](Held) the history that the two
//! logs share. Nothing is written to a disk, so the fork ends when it is dropped.

use crate::log::{Append, AsOf, Changed, Changes, Fault, Identity, Log, LogRead, Origin, Proposal, Size};
use crate::volatile::VolatileLog;
use holdfast_core::event::{Offset, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

pub struct ForkedLog {
    base: Arc<dyn LogRead>,
    /// The last event that this log shares with the other log.
    at: Offset,
    /// The events that were written to this log after the fork began.
    own: VolatileLog,
    /// The events of the other log, up to the beginning of the fork, that were removed from this log.
    forgotten: RwLock<Forgotten>,
    room: Room,
    /// The unique name of this log.
    id: String,
    secret: [u8; 32],
    _held: Option<Held>,
}

#[derive(Default)]
struct Forgotten {
    events: BTreeSet<Offset>,
    bytes: u64,
    /// This log has all events from this version to its end.
    oldest: Offset,
}

/// The limit of the memory of all forks together. Clones share one limit.
#[derive(Clone)]
pub struct Room {
    taken: Arc<AtomicU64>,
    bytes_max: u64,
}

impl Room {
    pub fn new(bytes_max: u64) -> Room {
        Room { taken: Arc::default(), bytes_max }
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let grown = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.bytes_max);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The versions of a log at which forks begin. While the forks exist, the log keeps its history from the oldest of
/// these versions on.
#[derive(Clone, Default)]
pub struct Holds {
    held: Arc<Mutex<BTreeMap<Offset, usize>>>,
}

/// Keeps the history after one version until this value is dropped.
pub struct Held {
    holds: Holds,
    at: Offset,
}

impl Holds {
    pub fn hold(&self, at: Offset) -> Held {
        *self.lock().entry(at).or_default() += 1;
        Held { holds: self.clone(), at }
    }

    /// The version up to which the log may remove its history, if retention wants to remove the history up to `wanted`.
    pub fn limit(&self, wanted: Offset) -> Offset {
        self.lock().first_key_value().map_or(wanted, |(held, _)| wanted.min(*held))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Offset, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.holds.lock();
        if let Some(count) = held.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.at);
            }
        }
    }
}

impl ForkedLog {
    /// A log with the events of `base` up to `at`. `id` is the new log's name, and `secret` is its own secret. The
    /// memory of its events is taken from `room`.
    pub fn new(
        base: Arc<dyn LogRead>,
        at: Offset,
        held: Option<Held>,
        (id, secret): (String, [u8; 32]),
        room: Room,
    ) -> ForkedLog {
        let own = VolatileLog::after(at);
        ForkedLog { base, at, own, forgotten: RwLock::default(), room, id, secret, _held: held }
    }

    fn forgotten(&self) -> RwLockReadGuard<'_, Forgotten> {
        self.forgotten.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event of the other log is also in this log.
    fn is_shared(&self, offset: Offset) -> bool {
        offset <= self.at && !self.forgotten().events.contains(&offset)
    }

    /// The other log's events after `after` that are also in this log.
    fn shared(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let (mut found, mut after) = (Vec::new(), after);
        while after < self.at && found.len() < limit {
            let wanted = limit - found.len();
            let records = self.base.scan(resource, after, wanted)?;
            let is_last = records.len() < wanted;
            after = records.last().map_or(self.at, Record::offset);
            found.extend(records.into_iter().filter(|record| self.is_shared(record.offset())));
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// The shared events (the events up to the fork) that are no longer current at the version `through`, because an
    /// event up to `through` has replaced or deleted their object. Events that were already removed are not included.
    fn replaced(&self, through: Offset) -> Result<Vec<Record>, Fault> {
        let begin = self.oldest()?;
        let mut replaced = Vec::new();
        // The log's first event may be a deletion that the last call left. This call removes that deletion.
        self.each(Offset(begin.0.saturating_sub(1)), &mut |record| {
            if record.offset() > through {
                return ControlFlow::Break(());
            }
            replaced.push(Offset(record.replaces));
            replaced.extend((record.is_delete() && record.offset() < through).then_some(record.offset()));
            ControlFlow::Continue(())
        })?;
        replaced.retain(|offset| *offset <= self.at);
        let read = replaced.into_iter().map(|offset| self.read(offset)).filter_map(Result::transpose);
        read.collect()
    }
}

impl LogRead for ForkedLog {
    fn last(&self) -> Result<Offset, Fault> {
        self.own.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        match offset {
            offset if offset > self.at => self.own.read(offset),
            offset if self.is_shared(offset) => self.base.read(offset),
            _ => Ok(None),
        }
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut newest = BTreeMap::new();
        self.each(Offset::ZERO, &mut |record| {
            let key = (record.resource.clone(), record.key.clone());
            match record.is_delete() {
                true => newest.remove(&key),
                false => newest.insert(key, record.clone()),
            };
            ControlFlow::Continue(())
        })?;
        newest.into_values().try_for_each(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let mut found = self.shared(resource, after, limit)?;
        found.extend(self.own.scan(resource, after, limit - found.len())?);
        Ok(found)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        if asked.after >= self.at {
            return self.own.changes(asked, limit);
        }
        let shared = Changes { until: asked.until.min(self.at), ..*asked };
        let mut found = self.base.changes(&shared, limit)?;
        found.offsets.retain(|offset| self.is_shared(*offset));
        if found.through < shared.until || found.through >= asked.until || found.offsets.len() >= limit {
            return Ok(found);
        }
        let own = self.own.changes(&Changes { after: self.at, ..*asked }, limit - found.offsets.len())?;
        found.offsets.extend(own.offsets);
        Ok(Changed { through: own.through, ..found })
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        let mut found = self.base.versions(resource, key)?;
        found.retain(|version| self.is_shared(*version));
        found.extend(self.own.versions(resource, key)?);
        Ok(found)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        match self.own.newest(resource, key, at) {
            Some((offset, is_delete)) => Ok((!is_delete).then_some(offset)),
            None => {
                let found = self.base.version_at(resource, key, at.min(self.at))?;
                Ok(found.filter(|offset| self.is_shared(*offset)))
            }
        }
    }

    /// Merges the objects of both logs in the order of their keys.
    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        let written = self.own.written(asked);
        let mut written = written.iter().map(|(key, offset, is_delete)| (key.as_str(), *offset, *is_delete)).peekable();
        let mut has_enough = false;
        self.base.as_of(&AsOf { at: asked.at.min(self.at), ..*asked }, &mut |key, offset| {
            let told = before(&mut written, key, visit).and_then(|| match written.next_if(|own| own.0 == key) {
                Some((_, _, true)) => ControlFlow::Continue(()),
                Some((_, offset, false)) => visit(key, offset),
                None if self.is_shared(offset) => visit(key, offset),
                None => ControlFlow::Continue(()),
            });
            has_enough = told.is_break();
            told
        })?;
        if !has_enough {
            let _ = written.filter(|own| !own.2).try_for_each(|(key, offset, _)| visit(key, offset));
        }
        Ok(())
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        Ok(self.base.oldest()?.min(self.at).max(self.forgotten().oldest))
    }

    /// The size of the events that this log itself stores, without the events of the other log.
    fn size(&self) -> Result<Size, Fault> {
        let (mut size, forgotten) = (self.own.size()?, self.forgotten());
        size.let_go_events += forgotten.events.len() as u64;
        size.let_go_bytes += forgotten.bytes;
        Ok(size)
    }

    fn identity(&self) -> Result<Identity, Fault> {
        let origin = Origin { id: self.base.identity()?.id, version: self.at };
        Ok(Identity { id: Some(self.id.clone()), origin: Some(origin) })
    }

    fn repaired(&self) -> Result<Offset, Fault> {
        Ok(self.base.repaired()?.min(self.at))
    }
}

/// Visits the objects that were written in the fork, up to a key of the other log.
fn before<'a>(
    written: &mut Peekable<impl Iterator<Item = (&'a str, Offset, bool)>>,
    key: &str,
    visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>,
) -> ControlFlow<()> {
    while let Some((own, offset, is_delete)) = written.next_if(|own| own.0 < key) {
        if !is_delete {
            visit(own, offset)?;
        }
    }
    ControlFlow::Continue(())
}

/// Provides `and_then` for `ControlFlow`, because the method of the standard library is not stable.
trait Then {
    fn and_then(self, next: impl FnOnce() -> ControlFlow<()>) -> ControlFlow<()>;
}

impl Then for ControlFlow<()> {
    fn and_then(self, next: impl FnOnce() -> ControlFlow<()>) -> ControlFlow<()> {
        self?;
        next()
    }
}

impl Log for ForkedLog {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let bytes = proposal.records.iter().map(|record| record.encoded_bytes() as u64).sum();
        if !self.room.take(bytes) {
            return Err(Fault::Full { operation: "append to a fork in memory" });
        }
        self.own.commit(proposal)
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        Ok(self.secret)
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        let through = through.min(self.last()?);
        let (begin, gone) = (self.oldest()?, self.replaced(through)?);
        {
            let mut forgotten = self.forgotten.write().unwrap_or_else(PoisonError::into_inner);
            forgotten.oldest = forgotten.oldest.max(begin).max(through);
            for record in gone {
                if forgotten.events.insert(record.offset()) {
                    forgotten.bytes += record.encoded_bytes() as u64;
                }
            }
        }
        self.room.give_back(self.own.let_go(through));
        Ok(())
    }

    fn recover(&self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Drop for ForkedLog {
    fn drop(&mut self) {
        self.room.give_back(self.own.size().map_or(0, |size| size.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryLog;
    use bytes::Bytes;
    use holdfast_core::event::Operation;

    const KEYS: [&str; 7] = ["a/1", "a/2", "a/3", "b/1", "b/2", "c", "d/9"];

    /// Generates the event that follows the last event of `log`; `draw` determines the object and the operation.
    fn record(log: &dyn LogRead, draw: u64) -> Record {
        let (resource, key) = (["pods", "nodes"][(draw % 2) as usize], KEYS[(draw / 2 % 7) as usize]);
        let offset = log.last().expect("the last").next();
        let replaces = log.version_at(resource, key, offset).expect("its version");
        let deleted = replaces.is_some() && draw.is_multiple_of(3);
        Record {
            offset: offset.0,
            time_ms: offset.0 as i64 * 10,
            resource: resource.into(),
            key: key.into(),
            replaces: replaces.map_or(0, |replaces| replaces.0),
            operation: if deleted { Operation::Delete } else { Operation::Put } as i32,
            object: Bytes::from(format!("{{\"at\":{offset}}}")),
            ..Record::default()
        }
    }

    fn fork(base: Arc<dyn LogRead>, at: Offset) -> ForkedLog {
        ForkedLog::new(base, at, None, ("a fork".into(), [7; 32]), Room::new(1 << 20))
    }

    /// All answers of a log about one version, as text.
    fn told(log: &dyn LogRead, at: Offset) -> Vec<String> {
        let mut told = Vec::new();
        for (resource, prefix, after, most) in [
            ("pods", "", None, 99),
            ("nodes", "a/", None, 99),
            ("pods", "a/", Some("a/1"), 99),
            ("nodes", "", Some("a/2"), 2),
            ("pods", "b/", Some("a/9"), 1),
        ] {
            let mut left = most;
            let asked = AsOf { resource, prefix, after, at };
            log.as_of(&asked, &mut |key, offset| {
                told.push(format!("{resource} {prefix} {key} {offset}"));
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("what was there");
        }
        for key in KEYS {
            told.push(format!("{:?}", log.version_at("pods", key, at).expect("a version")));
        }
        told
    }

    #[test]
    fn a_fork_tells_what_a_log_with_the_same_events_tells() {
        for at in [0, 1, 13, 60] {
            let (base, twin) = (Arc::new(MemoryLog::default()), MemoryLog::default());
            for draw in 0..at {
                let next = [record(base.as_ref(), draw * draw + 11)];
                base.append(&next).expect("written");
                twin.append(&next).expect("written");
            }
            let forked = fork(base.clone(), Offset(at));
            for draw in 0..70 {
                // The base log gets events after the fork began. The fork must not have them.
                base.append(&[record(base.as_ref(), draw * 5 + 1)]).expect("written");
                let next = [record(&twin, draw * draw * 7 + draw)];
                forked.append(&next).expect("written");
                twin.append(&next).expect("written");
            }
            let last = Offset(at + 70);
            let same = |oldest: u64| {
                assert_eq!(forked.last().expect("the last"), last);
                assert_eq!(forked.oldest().expect("the oldest"), twin.oldest().expect("the oldest"));
                for offset in 0..=last.0 + 2 {
                    let offset = Offset(offset);
                    assert_eq!(forked.read(offset).expect("one"), twin.read(offset).expect("one"), "{at} {offset}");
                    for (resource, limit) in [(None, 1), (None, 999), (Some("pods"), 3), (Some("nodes"), 999)] {
                        let scan = |log: &dyn LogRead| log.scan(resource, offset, limit).expect("some");
                        assert_eq!(scan(&forked), scan(&twin), "{at} {offset} {resource:?} {limit}");
                    }
                }
                for (prefix, after, limit) in [("", 0, 3), ("a/", 0, 1), ("a/", at / 2, 99), ("b/", at, 2)] {
                    let changes = |log: &dyn LogRead| {
                        let (mut found, mut after) = (Vec::new(), Offset(after));
                        while after < last {
                            let asked = Changes { resource: "pods", prefix, after, until: last };
                            let next = log.changes(&asked, limit).expect("changes");
                            found.extend(next.offsets);
                            after = next.through;
                        }
                        found
                    };
                    assert_eq!(changes(&forked), changes(&twin), "{at} {prefix} {after}");
                }
                for version in oldest..=last.0 {
                    assert_eq!(told(&forked, Offset(version)), told(&twin, Offset(version)), "{at} {version}");
                }
                for key in KEYS {
                    let versions = |log: &dyn LogRead| log.versions("pods", key).expect("versions");
                    assert_eq!(versions(&forked), versions(&twin), "{at} {key}");
                }
            };
            same(0);
            for through in [at / 2, at, at + 30, at + 31] {
                forked.forget(Offset(through)).expect("let go");
                twin.forget(Offset(through)).expect("let go");
                same(through);
            }
        }
    }

    #[test]
    fn what_forks_hold_is_bounded_together_and_given_back() {
        let base = Arc::new(MemoryLog::default());
        let one = record(base.as_ref(), 1);
        let room = Room::new(one.encoded_bytes() as u64 * 3);
        let forks =
            [0, 1].map(|_| ForkedLog::new(base.clone(), Offset::ZERO, None, (String::new(), [0; 32]), room.clone()));
        forks[0].append(std::slice::from_ref(&one)).expect("written");
        forks[1].append(std::slice::from_ref(&one)).expect("written");
        let second = |log: &ForkedLog| log.append(&[record(log, 3)]);
        second(&forks[0]).expect("there is room for a third one");
        assert!(second(&forks[1]).expect_err("and for no fourth").is_full());
        assert_eq!(forks[1].last().expect("the last"), Offset(1), "nothing of it is there");
        let [first, other] = forks;
        drop(first);
        second(&other).expect("room again");
        drop(other);
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn history_is_held_from_the_oldest_fork_on() {
        let holds = Holds::default();
        assert_eq!(holds.limit(Offset(9)), Offset(9));
        let (older, newer, again) = (holds.hold(Offset(3)), holds.hold(Offset(5)), holds.hold(Offset(3)));
        assert_eq!((holds.limit(Offset(9)), holds.limit(Offset(2))), (Offset(3), Offset(2)));
        drop(older);
        assert_eq!(holds.limit(Offset(9)), Offset(3));
        drop(again);
        assert_eq!(holds.limit(Offset(9)), Offset(5));
        drop(newer);
        assert_eq!(holds.limit(Offset(9)), Offset(9));
    }
}

/// A fork of a log without events. The content of the fork ends with the process.
#[cfg(test)]
impl crate::log::suite::Backend for ForkedLog {
    fn fresh() -> Self {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("randomness");
        let name = ("a fork".to_owned(), secret);
        ForkedLog::new(Arc::new(VolatileLog::default()), Offset::ZERO, None, name, Room::new(u64::MAX))
    }

    fn log(&self) -> &dyn Log {
        self
    }

    fn reopened(self) -> Self {
        self
    }
}

#[cfg(test)]
mod suite {
    crate::storage_suite!(crate::forked::ForkedLog);
}

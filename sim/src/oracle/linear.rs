//! Checks that the history of each object is linearizable, using only the answers to clients and the times of these
//! answers.
//!
//! The versions of an object order its states. The history is linearizable if this order agrees with time. A request
//! that begins after another was answered must not show an older version. No two writes may be answered with the same
//! version. The content of a version must be the same for every reader. A write that required a version must directly
//! follow that version. The check uses neither the log nor the twin, with one exception. If the answer is that an
//! object does not exist, it has no version, so the log must contain a moment during the request at which the object
//! did not exist.

use super::{CheckResult, ensure};
use crate::twin::Twin;
use holdfast_core::state::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The time at which a request began: the number of requests that had ended by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant(u64);

/// All answers that clients received.
#[derive(Default)]
pub struct History {
    ended: u64,
    /// The answers about each object, by its storage path and key.
    objects: BTreeMap<String, BTreeMap<String, Register>>,
}

#[derive(Default)]
struct Register {
    /// The content of each version that a client wrote or saw; `None` if no client has seen the content.
    told: BTreeMap<u64, Option<Arc<Entry>>>,
    written: BTreeSet<u64>,
    /// Pairs of a number of ended requests and the newest version that clients knew at that time. The numbers and the
    /// versions only grow.
    newest: Vec<(u64, u64)>,
}

impl Register {
    /// The newest version that any client already knew when the request began.
    fn floor(&self, began: Instant) -> u64 {
        let known = self.newest.partition_point(|(ended, _)| *ended <= began.0);
        known.checked_sub(1).map_or(0, |at| self.newest[at].1)
    }

    fn tell(&mut self, version: u64, shown: Option<&Arc<Entry>>, ended: u64) -> CheckResult {
        let known = self.told.entry(version).or_default();
        if let Some(entry) = shown {
            let known = known.get_or_insert_with(|| entry.clone());
            ensure(known.body() == entry.body(), || format!("version {version} is not the same for all"))?;
        }
        if self.newest.last().is_none_or(|(_, newest)| *newest < version) {
            self.newest.push((ended, version));
        }
        Ok(())
    }
}

impl History {
    pub fn now(&self) -> Instant {
        Instant(self.ended)
    }

    /// Records that a request about this object has ended.
    fn end(&mut self, storage: &str, key: &str) -> (u64, &mut Register) {
        self.ended += 1;
        // Most objects are already in the map, so their names need not be copied.
        if !self.objects.get(storage).is_some_and(|objects| objects.contains_key(key)) {
            self.objects.entry(storage.to_owned()).or_default().insert(key.to_owned(), Register::default());
        }
        let register = self.objects.get_mut(storage).and_then(|objects| objects.get_mut(key));
        (self.ended, register.unwrap_or_else(|| unreachable!("it is there or was just made")))
    }

    /// Checks an answer which says that the client wrote this version. The answer may contain the content. If the
    /// request required that the object had a certain version, `insisted` is that version.
    pub fn wrote(
        &mut self,
        (storage, key): (&str, &str),
        began: Instant,
        (version, shown): (u64, Option<&Arc<Entry>>),
        insisted: Option<u64>,
    ) -> CheckResult {
        let (ended, register) = self.end(storage, key);
        let blame = |why: String| format!("{storage} {key} is not linearizable: {why}");
        let floor = register.floor(began);
        ensure(version > floor, || blame(format!("a write got version {version} after {floor} was known")))?;
        ensure(register.written.insert(version), || blame(format!("two writes got version {version}")))?;
        if let Some(insisted) = insisted {
            let between = register.told.range(insisted + 1..version).next().map(|(version, _)| version);
            ensure(between.is_none(), || {
                blame(format!("a write on version {insisted} got {version}, and {between:?} was in between"))
            })?;
        }
        register.tell(version, shown, ended).map_err(blame)
    }

    /// Checks an answer that shows a client this version as the newest version.
    pub fn read(&mut self, (storage, key): (&str, &str), began: Instant, entry: &Arc<Entry>) -> CheckResult {
        let (ended, register) = self.end(storage, key);
        let blame = |why: String| format!("{storage} {key} is not linearizable: {why}");
        let (version, floor) = (entry.offset.0, register.floor(began));
        ensure(version >= floor, || blame(format!("version {version} is shown after {floor} was known")))?;
        register.tell(version, Some(entry), ended).map_err(blame)
    }

    /// Checks an answer which says that the object does not exist.
    pub fn missed(&mut self, (storage, key): (&str, &str), began: Instant, twin: &Twin) -> CheckResult {
        let (_, register) = self.end(storage, key);
        let floor = register.floor(began);
        ensure(floor == 0 || twin.was_absent(storage, key, floor), || {
            format!("{storage} {key} is not linearizable: it is missed after version {floor} was known")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{Offset, Operation, Record};
    use holdfast_core::state::Index;
    use holdfast_value::Value;

    const PLACE: (&str, &str) = ("pods", "n/a");

    fn version(offset: u64, holds: &'static str) -> Arc<Entry> {
        Arc::new(Entry::new(holds.into(), 0, Offset(offset), 0, Index::default()))
    }

    #[test]
    fn a_stale_read_is_noticed() {
        let mut history = History::default();
        let before = history.now();
        history.wrote(PLACE, before, (5, Some(&version(5, "five"))), None).unwrap();
        // This read began before any client knew version 5, so it may still show version 3.
        history.read(PLACE, before, &version(3, "three")).unwrap();
        let after = history.now();
        assert!(history.read(PLACE, after, &version(3, "three")).is_err());
        history.read(PLACE, after, &version(5, "five")).unwrap();
        assert!(history.read(PLACE, after, &version(5, "5")).is_err(), "one version, two contents");
    }

    #[test]
    fn what_is_there_is_not_missed() {
        let mut twin = Twin::default();
        let record = |offset, operation| Record {
            offset,
            resource: PLACE.0.into(),
            key: PLACE.1.into(),
            operation: operation as i32,
            ..Record::default()
        };
        twin.push(record(1, Operation::Put), Value::Null);
        let mut history = History::default();
        let before = history.now();
        history.read(PLACE, before, &version(1, "one")).unwrap();
        history.missed(PLACE, before, &twin).unwrap();
        let after = history.now();
        assert!(history.missed(PLACE, after, &twin).is_err(), "nobody deleted it");
        twin.push(record(2, Operation::Delete), Value::Null);
        history.missed(PLACE, after, &twin).unwrap();
    }

    #[test]
    fn a_lost_update_is_noticed() {
        let mut history = History::default();
        let began = history.now();
        history.wrote(PLACE, began, (5, Some(&version(5, "five"))), Some(4)).unwrap();
        assert!(
            history.wrote(PLACE, began, (6, Some(&version(6, "six"))), Some(4)).is_err(),
            "5 is overwritten unseen"
        );
        assert!(history.wrote(PLACE, began, (5, Some(&version(5, "five"))), None).is_err(), "written twice");
        let after = history.now();
        assert!(history.wrote(PLACE, after, (4, Some(&version(4, "four"))), None).is_err(), "against time");
    }
}

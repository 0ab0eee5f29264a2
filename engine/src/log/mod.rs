//! The engine's interface to the log. All other state is a projection of the log.
//!
//! [`LogRead`] has the reads of every log; [`Log`] adds the operations of this process's single writer. Other processes
//! may append to the same log. An append may then return [`Append::Behind`], and [`Log::tail`] returns the events of
//! the other processes.

mod fault;
mod proposal;
pub mod sealing;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod unreadable;

pub use fault::{Cause, DamagedEvent, Fault};
pub use proposal::{Append, Decision, Expected, Proposal, Receipt};
pub use unreadable::{Flaw, Unreadable};

use holdfast_core::event::{Actor, Offset, Record};
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The number of records that the default methods read at a time.
const PIECE: usize = 1024;

/// How little room is left on the disk, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// Little room is left, and only writes to namespaces that fill the disk are refused. `left` is the unused part, in
    /// thousandths, of the room in which only these writes are refused.
    Soon { left: u64, why: String },
    /// No room is left. All writes are refused except writes that make room.
    Now { why: String },
}

/// The reads of a durable sequence of records, ordered by their offsets.
///
/// Every backend must pass the same suite. The trait contains only operations that every backend supports.
pub trait LogRead: Send + Sync + 'static {
    /// The offset of the last event; zero if the log is empty.
    fn last(&self) -> Result<Offset, Fault>;

    /// The record with this offset; `None` if the log has never had the record, or has removed it.
    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault>;

    /// The newest record of every object that exists, in no particular order.
    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault>;

    /// Up to `limit` records after `after`, in order, of one resource or of all resources.
    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault>;

    /// The next events on some of a resource's objects, up to `limit`, which must not be zero. The cost depends only on
    /// the number of found events, not on the events of other objects. A backend without an index of events by object
    /// reads a bounded number of the resource's events, and also returns the version up to which it read.
    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        let records = self.scan(Some(asked.resource), asked.after, PIECE)?;
        let is_end = records.len() < PIECE;
        let seen = records.iter().map(|record| (record.offset(), record.key.as_str()));
        Ok(asked.pick(seen, limit, is_end))
    }

    /// The offset and the time of the first event after `after`. The event's content is not read.
    fn next_time(&self, after: Offset) -> Result<Option<(Offset, i64)>, Fault> {
        Ok(self.scan(None, after, 1)?.first().map(|record| (record.offset(), record.time_ms)))
    }

    /// Visits every record after `after`, in order, until `visit` breaks. This method is for callers that read many
    /// records and store few of them. Records that are appended during the call may or may not be visited.
    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        let mut after = after;
        loop {
            let records = self.scan(None, after, PIECE)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.offset();
            if records.iter().try_for_each(&mut *visit).is_break() {
                return Ok(());
            }
        }
    }

    /// The offsets of one object's events, in order. The default reads all events on the resource.
    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        let (mut found, mut after) = (Vec::new(), Offset::ZERO);
        loop {
            let records = self.scan(Some(resource), after, PIECE)?;
            found.extend(records.iter().filter(|record| record.key == key).map(Record::offset));
            match records.last() {
                Some(record) if records.len() == PIECE => after = record.offset(),
                _ => return Ok(found),
            }
        }
    }

    /// The newest event on an object up to a version; `None` if the object did not exist then. The log must still have
    /// the version.
    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        let versions = self.versions(resource, key)?;
        let Some(found) = versions[..versions.partition_point(|version| *version <= at)].last() else {
            return Ok(None);
        };
        Ok(self.read(*found)?.filter(|record| !record.is_delete()).map(|record| record.offset()))
    }

    /// The objects that existed at a version, in the order of their keys, each with its newest event, until `visit`
    /// breaks. The default reads all events on the resource.
    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        let mut present = BTreeMap::new();
        let mut position = Offset::ZERO;
        while position < asked.at {
            let records = self.scan(Some(asked.resource), position, PIECE)?;
            let Some(last) = records.last() else { break };
            position = last.offset();
            for record in records.into_iter().filter(|record| asked.concerns(record)) {
                match record.is_delete() {
                    true => present.remove(&record.key),
                    false => present.insert(record.key.clone(), record.offset()),
                };
            }
        }
        let _ = present.iter().try_for_each(|(key, offset)| visit(key, *offset));
        Ok(())
    }

    /// The version from which on the log has all events; zero if no event was ever removed.
    fn oldest(&self) -> Result<Offset, Fault>;

    /// The size of the log, and the size of the removed events. The default reads the whole log.
    fn size(&self) -> Result<Size, Fault> {
        let (mut size, mut after) = (Size::default(), Offset::ZERO);
        loop {
            let records = self.scan(None, after, PIECE)?;
            size.bytes += records.iter().map(|record| record.encoded_bytes() as u64).sum::<u64>();
            match records.last() {
                Some(record) if records.len() == PIECE => after = record.offset(),
                _ => return Ok(size),
            }
        }
    }

    /// The log's name and origin; empty for a log without a name.
    fn identity(&self) -> Result<Identity, Fault> {
        Ok(Identity::default())
    }

    /// The version up to which a repair left gaps in the events; the repair reported the gaps. Returns zero if there
    /// was no repair, and [`NUMBERED_ELSEWHERE`] if gaps do not mean that events are missing.
    fn repaired(&self) -> Result<Offset, Fault> {
        Ok(Offset::ZERO)
    }
}

/// The value of [`LogRead::repaired`] for a log whose events have the numbers of another store. That store also uses
/// numbers for other purposes, so there are gaps.
pub const NUMBERED_ELSEWHERE: Offset = Offset(u64::MAX);

/// Selects objects of a resource at a version that the log still has.
#[derive(Debug, Clone, Copy)]
pub struct AsOf<'a> {
    pub resource: &'a str,
    /// The prefix that the keys of the selected objects have.
    pub prefix: &'a str,
    /// Selects only objects whose keys are after this key.
    pub after: Option<&'a str>,
    pub at: Offset,
}

impl<'a> AsOf<'a> {
    /// Selects all objects of a resource at the version `at`.
    pub fn all(resource: &'a str, at: Offset) -> AsOf<'a> {
        AsOf { resource, prefix: "", after: None, at }
    }

    fn concerns(&self, record: &Record) -> bool {
        record.offset() <= self.at
            && record.key.starts_with(self.prefix)
            && self.after.is_none_or(|after| *record.key > *after)
    }
}

/// Selects the events on a resource's objects whose keys have a prefix, between two versions.
#[derive(Debug, Clone, Copy)]
pub struct Changes<'a> {
    pub resource: &'a str,
    pub prefix: &'a str,
    pub after: Offset,
    /// The version of the last event that may be selected.
    pub until: Offset,
}

impl Changes<'_> {
    /// The offset of the first selected event; `None` if no event is selected.
    pub fn first(&self, log: &dyn LogRead) -> Result<Option<Offset>, Fault> {
        let mut asked = *self;
        while asked.after < asked.until {
            let found = log.changes(&asked, 1)?;
            if let Some(first) = found.offsets.first() {
                return Ok(Some(*first));
            }
            asked.after = found.through;
        }
        Ok(None)
    }
}

/// The offsets of the found events, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    pub offsets: Vec<Offset>,
    /// All matching events up to this version are in `offsets`.
    pub through: Offset,
}

impl Changes<'_> {
    /// Picks the selected events from the resource's events, which are passed in order with their keys.
    pub fn pick<'k>(&self, seen: impl Iterator<Item = (Offset, &'k str)>, limit: usize, is_end: bool) -> Changed {
        let mut found = Changed { offsets: Vec::new(), through: self.after };
        for (offset, key) in seen {
            if offset > self.until {
                return Changed { through: self.until, ..found };
            }
            found.through = offset;
            if key.starts_with(self.prefix) {
                found.offsets.push(offset);
            }
            if found.offsets.len() >= limit {
                return found;
            }
        }
        if is_end { Changed { through: self.until, ..found } } else { found }
    }
}

/// Collects the first few of many events that are noted in any order.
pub struct First {
    limit: usize,
    /// The offsets of the first events so far, as a heap with the latest event on top.
    offsets: BinaryHeap<Offset>,
    is_cut: bool,
}

impl First {
    /// Collects the first `limit` events; `limit` must not be zero.
    pub fn new(limit: usize) -> First {
        First { limit, offsets: BinaryHeap::new(), is_cut: false }
    }

    pub fn note(&mut self, offset: Offset) {
        self.offsets.push(offset);
        if self.offsets.len() > self.limit {
            self.offsets.pop();
            self.is_cut = true;
        }
    }

    /// The collected events. All noted events must be after the start of the selection, and not after `until`.
    pub fn changed(self, until: Offset) -> Changed {
        let through = self.offsets.peek().copied().filter(|_| self.is_cut).unwrap_or(until);
        Changed { offsets: self.offsets.into_sorted_vec(), through }
    }
}

/// A log that this process writes to through one writer.
///
/// A log without other appenders uses the writer's numbers, which begin with 1 and have no gaps. It never returns
/// [`Append::Behind`] and never wakes the writer, so the defaults of [`tail`](Self::tail), [`wake_by`](Self::wake_by)
/// and [`is_shared`](Self::is_shared) are enough.
pub trait Log: LogRead {
    /// Writes the proposed decisions into the log and makes them durable: after this call returns, no crash loses any
    /// decision that the result reports as stored.
    ///
    /// After a fault it is unknown whether any of the decisions is stored, except after [`Fault::Unreachable`]. The
    /// caller must [`recover`](Self::recover) before it commits again. The caller must also do so after a
    /// [`Receipt::Unknown`].
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault>;

    /// Commits records that are already numbered. Each record is a decision by itself.
    fn append(&self, batch: &[Record]) -> Result<Append, Fault> {
        self.commit(&Proposal::of(batch))
    }

    /// Whether other servers may append to the log at any time, so that this server's newest state may be older than
    /// the log. A caller that needs the newest state reads the [`last`](LogRead::last) offset and waits until the state
    /// has it.
    fn is_shared(&self) -> bool {
        false
    }

    /// Calls `done` once, on any thread, with a [`last`](LogRead::last) offset that is at least as new as this call.
    /// Neither this call nor `done` may block: a log that asks over the network calls `done` when it receives the
    /// answer. A log that is closed drops `done`.
    fn find_last(&self, done: LastFound) {
        done(self.last());
    }

    /// The next events after `after`, in order, from all servers; empty if there are none yet. This call does not wait.
    fn tail(&self, after: Offset) -> Result<Vec<Record>, Fault> {
        self.scan(None, after, PIECE)
    }

    /// At most `limit` objects of a resource below a key prefix whose values the log cannot read, in the order of their
    /// keys. Only a log to which other programs write has such objects.
    fn unreadable(&self, resource: &str, prefix: &str, limit: usize) -> Vec<Unreadable> {
        let _ = (resource, prefix, limit);
        Vec::new()
    }

    /// Deletes an object whose value cannot be read, if the object still has the version at which reading failed.
    /// Returns whether it had that version. `actor` is the user that deletes the object.
    fn delete_unreadable(&self, object: &Unreadable, actor: Actor, time_ms: i64) -> Result<bool, Fault> {
        let _ = (object, actor, time_ms);
        Ok(false)
    }

    /// The resources for which unreadable objects were found since the last call.
    fn newly_unreadable(&self) -> Vec<String> {
        Vec::new()
    }

    /// Registers `wake`. The log calls it, on any thread, whenever another server has appended. If events arrive while
    /// the writer reads the [`tail`](Self::tail), the log calls `wake` again, so that no event stays unread.
    fn wake_by(&self, wake: Wake) {
        drop(wake);
    }

    /// Random bytes that were created with the log and never change. All servers that append to one log get the same
    /// bytes.
    fn secret(&self) -> Result<[u8; 32], Fault>;

    /// Removes deletions and the events that later events up to `through` replaced. The state at `through` and every
    /// later event stay. The event at `through` itself stays even if it is a deletion, because its time is the time of
    /// that version. The duration depends on the number of events since the last call; writers do not wait.
    fn forget(&self, through: Offset) -> Result<(), Fault>;

    /// Frees the disk space of removed events, if that is worth the work or if `always` is set. This may take long; it
    /// delays neither reads nor writes.
    fn compact(&self, always: bool) -> Result<(), Fault> {
        let _ = always;
        Ok(())
    }

    /// Whether the disk lacks room for a batch of `bytes` bytes that does not make room itself; `None` if there is
    /// enough room. A batch that makes room is written after [`take_reserve`](Self::take_reserve).
    fn lacks_room(&self, bytes: u64) -> Option<Lack> {
        let _ = bytes;
        None
    }

    /// Makes room for a batch of `bytes` bytes from the reserve for batches that make room. May wait a little for room
    /// that is being freed.
    fn take_reserve(&self, bytes: u64) -> Result<(), Fault> {
        let _ = bytes;
        Ok(())
    }

    /// Whether so little room is left that history must be removed earlier than the retention says. Reads the state of
    /// the disk.
    fn is_short_of_room(&self) -> bool {
        false
    }

    /// Frees the disk space of removed events, and uses as little additional disk space for the work as possible.
    fn make_room(&self) -> Result<(), Fault> {
        self.compact(true)
    }

    /// Makes the log writable again after a fault, if the cause no longer exists.
    ///
    /// After success the outcome of earlier commits is certain: the [`tail`](Self::tail) returns their stored events,
    /// and none of their other events will ever be in the log.
    fn recover(&self) -> Result<(), Fault>;
}

/// A function that receives the answer of [`Log::find_last`].
pub type LastFound = Box<dyn FnOnce(Result<Offset, Fault>) + Send>;

/// The log calls this function when the tail may have new events.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The sizes of the events that a log has and of the events that it has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of bytes of the events that were not removed. The disk may use more, until the space of removed
    /// events is freed.
    pub bytes: u64,
    /// The number of events that were removed since the log was opened.
    pub let_go_events: u64,
    pub let_go_bytes: u64,
}

/// A log's unique name, and the log from which it was forked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// A random UUID that is created with the log. A log of an earlier release has no UUID until a server of this
    /// release opens it.
    pub id: Option<String>,
    /// The log and the version from which this log was forked.
    pub origin: Option<Origin>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub id: Option<String>,
    /// The last version up to which both logs have the same events.
    pub version: Offset,
}

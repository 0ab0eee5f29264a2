//! The log that everything else is a projection of, as the engine needs it.
//!
//! [`LogRead`] is what every log can tell; [`Log`] adds what its one writer in this process does to it. Others may
//! append to the same log: then an append may come back [`Append::Behind`], and what they wrote comes by
//! [`Log::tail`].

mod fault;
mod proposal;
pub mod sealing;
#[cfg(any(test, feature = "suite"))]
pub mod suite;

pub use fault::{Cause, DamagedEvent, Fault};
pub use proposal::{Append, Decision, Expected, Proposal, Receipt};

use holdfast_core::event::{Offset, Record};
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;
use std::sync::Arc;

/// How many records are read at a time where all of many are asked for.
const PIECE: usize = 1024;

/// What there is too little room for, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// Soon, for all: whoever fills the disk is refused before the others, who have so many thousandths left of the room
    /// that is for them alone.
    Soon { left: u64, why: String },
    /// For all that makes no room.
    Now { why: String },
}

/// A durable sequence of records in the order of their offsets, to read.
///
/// Every backend passes the same suite. The trait holds what every backend can do, and no more.
pub trait LogRead: Send + Sync + 'static {
    /// The last offset, zero when the log is empty.
    fn last(&self) -> Result<Offset, Fault>;

    /// One record; `None` when it is not (or no longer) in the log.
    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault>;

    /// The newest record of every object that exists, in no particular order.
    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault>;

    /// Up to `limit` records after `after`, in order; of one resource, or of all.
    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault>;

    /// The next events on some of a resource's objects, up to `limit` of them, which is not zero. It costs what it finds,
    /// whatever happened to other objects; where a backend has no index for that, a bounded look at what did, after which
    /// it tells how far it came.
    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        let records = self.scan(Some(asked.resource), asked.after, PIECE)?;
        let is_end = records.len() < PIECE;
        let seen = records.iter().map(|record| (record.offset(), record.key.as_str()));
        Ok(asked.pick(seen, limit, is_end))
    }

    /// The first event after `after`, and its time. What the event was is not looked at.
    fn next_time(&self, after: Offset) -> Result<Option<(Offset, i64)>, Fault> {
        Ok(self.scan(None, after, 1)?.first().map(|record| (record.offset(), record.time_ms)))
    }

    /// Visits every record after `after`, in order, until `visit` has enough: for who reads on and on, and holds no more
    /// than it keeps. What comes while it is under way may be visited or not.
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

    /// The offsets of one object's events, in order. Takes the time of all events on the resource, unless the backend
    /// knows better.
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

    /// The newest event on an object up to a version; `None` when it was not there then. The version is one that the
    /// log remembers.
    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        let versions = self.versions(resource, key)?;
        let Some(found) = versions[..versions.partition_point(|version| *version <= at)].last() else {
            return Ok(None);
        };
        Ok(self.read(*found)?.filter(|record| !record.is_delete()).map(|record| record.offset()))
    }

    /// What was there: the objects that are asked for, in the order of their keys, each with its newest event, until
    /// `visit` has enough. Takes the time of all events on the resource, unless the backend knows better.
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

    /// From this version on everything is there; zero when nothing was ever let go.
    fn oldest(&self) -> Result<Offset, Fault>;

    /// What the log takes, and what was let go. Takes the time of the whole log, unless the backend knows better.
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

    /// Which log this is; nothing for one without a name.
    fn identity(&self) -> Result<Identity, Fault> {
        Ok(Identity::default())
    }

    /// Gaps up to this version were left by a repair, which told of them; zero when there was none.
    fn repaired(&self) -> Result<Offset, Fault> {
        Ok(Offset::ZERO)
    }
}

/// Which objects are asked for, and as of which version that the log remembers.
#[derive(Debug, Clone, Copy)]
pub struct AsOf<'a> {
    pub resource: &'a str,
    /// What their keys begin with.
    pub prefix: &'a str,
    /// Only those whose keys come after this one.
    pub after: Option<&'a str>,
    pub at: Offset,
}

impl<'a> AsOf<'a> {
    /// All objects of a resource.
    pub fn all(resource: &'a str, at: Offset) -> AsOf<'a> {
        AsOf { resource, prefix: "", after: None, at }
    }

    fn concerns(&self, record: &Record) -> bool {
        record.offset() <= self.at
            && record.key.starts_with(self.prefix)
            && self.after.is_none_or(|after| *record.key > *after)
    }
}

/// Which events are asked for: those on a resource's objects whose keys begin so, between two versions.
#[derive(Debug, Clone, Copy)]
pub struct Changes<'a> {
    pub resource: &'a str,
    pub prefix: &'a str,
    pub after: Offset,
    /// The last one that is asked for.
    pub until: Offset,
}

impl Changes<'_> {
    /// The first of them.
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

/// Events that were asked for, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    pub offsets: Vec<Offset>,
    /// Up to here there are no others.
    pub through: Offset,
}

impl Changes<'_> {
    /// Of the resource's events, which come in order and whose keys are told, those that are asked for.
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

/// The first of events that come in no order.
pub struct First {
    limit: usize,
    /// The last of them on top.
    offsets: BinaryHeap<Offset>,
    is_cut: bool,
}

impl First {
    /// So many of them, which is not zero.
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

    /// All that were noted are after one version and up to this one.
    pub fn changed(self, until: Offset) -> Changed {
        let through = self.offsets.peek().copied().filter(|_| self.is_cut).unwrap_or(until);
        Changed { offsets: self.offsets.into_sorted_vec(), through }
    }
}

/// A log that this process writes to, through one writer.
///
/// A log that nobody else appends to takes its records as the writer numbers them, densely from 1, never says
/// [`Append::Behind`] and never wakes anybody: the defaults of [`tail`](Self::tail), [`wake_by`](Self::wake_by) and
/// [`is_shared`](Self::is_shared) are enough for it.
pub trait Log: LogRead {
    /// Puts what is proposed into the log and makes it durable: when this returns, no crash loses what it says is there.
    ///
    /// After a fault it is not known whether anything of it is there, unless the fault is [`Fault::Unreachable`]: the
    /// caller must [`recover`](Self::recover) before it commits again. The same goes for a [`Receipt::Unknown`].
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault>;

    /// Commits records that are numbered already, each by itself.
    fn append(&self, batch: &[Record]) -> Result<Append, Fault> {
        self.commit(&Proposal::of(batch))
    }

    /// Whether other servers append to it all the time, so that the newest state of this one may be older than the log.
    /// Whoever needs the newest asks for the [`last`](LogRead::last) offset, and waits until the state has it.
    fn is_shared(&self) -> bool {
        false
    }

    /// The next events after `after`, in order, whoever appended them; none when there are none yet. It reads what is
    /// there, and does not wait.
    fn tail(&self, after: Offset) -> Result<Vec<Record>, Fault> {
        self.scan(None, after, PIECE)
    }

    /// Has `wake` called, from any thread, whenever others have appended. It is called again for what comes while
    /// the writer reads the [`tail`](Self::tail), so that nothing is left lying.
    fn wake_by(&self, wake: Wake) {
        drop(wake);
    }

    /// Random bytes that are this log's own, made with it and the same at every start. All who append to one log
    /// have the same.
    fn secret(&self) -> Result<[u8; 32], Fault>;

    /// Lets go of what was replaced or deleted by an event up to `through`. What the state was at `through`, and
    /// every event since, stays. So does the event at `through` itself, be it a deletion: it says when that version
    /// was. Takes the time of the events since the last time; writers are not held up.
    fn forget(&self, through: Offset) -> Result<(), Fault>;

    /// Gives back the room of what was let go, where that is worth the work, or `always`. It may take long, and holds
    /// nobody up meanwhile.
    fn compact(&self, always: bool) -> Result<(), Fault> {
        let _ = always;
        Ok(())
    }

    /// Whether there is too little room for a batch of so many bytes that does not make room; nothing if there is enough.
    /// What makes room is written after [`take_reserve`](Self::take_reserve).
    fn lacks_room(&self, bytes: u64) -> Option<Lack> {
        let _ = bytes;
        None
    }

    /// Sees to it that a batch of so many bytes fits, with what is kept aside for what makes room. It may wait a little
    /// for room that is being made.
    fn take_reserve(&self, bytes: u64) -> Result<(), Fault> {
        let _ = bytes;
        Ok(())
    }

    /// Whether there is so little room that history is to go which would be kept otherwise. Looks at the disk.
    fn is_short_of_room(&self) -> bool {
        false
    }

    /// Gives back the room of what was let go, with as little room for that as there is.
    fn make_room(&self) -> Result<(), Fault> {
        self.compact(true)
    }

    /// Makes the log writable again after a fault, if the cause is gone.
    ///
    /// When it succeeds, nothing is unknown any more: what is in the log of earlier commits comes by the
    /// [`tail`](Self::tail), and nothing else of them will ever be in it.
    fn recover(&self) -> Result<(), Fault>;
}

/// Called when there is something in the tail.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a log takes on its disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Without what was let go, even where its room is yet to be given back.
    pub bytes: u64,
    /// Since the log was opened.
    pub let_go_events: u64,
    pub let_go_bytes: u64,
}

/// A log's name among all logs, and where it came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// A random UUID, made with the log. A log that no server of this release has opened has none yet.
    pub id: Option<String>,
    /// What it was forked from.
    pub origin: Option<Origin>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub id: Option<String>,
    /// The two have the same events up to this one.
    pub version: Offset,
}

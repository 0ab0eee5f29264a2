//! Reads from the log the events that a watcher missed while it was not joined to the hub.

use crate::hub::{ChangeType, Delivery, Event};
use crate::log::{Changes, Fault, LogRead};
use crate::planted::{Bug, planted};
use crate::read_memory::{Charge, Reader};
use crate::reads::{Length, Reads};
use holdfast_core::event::{Offset, Record};
use holdfast_core::list::Selection;
use holdfast_core::state::{Change, Entry, State};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

/// A read of the log ends after this many units of work. Reading one event takes one unit.
const WORK_MAX: usize = 256;
/// A read ends when the events that it has found take this many bytes of memory.
const BYTES_MAX: u64 = 256 << 10;
/// The maximum number of events in one look-up of the log's index.
const AHEAD_MAX: usize = 4096;
/// The number of units of work that a look-up in the log's index takes.
const LOOK_UP_WORK: usize = 64;
/// A watcher that is at most this many events behind makes short reads, which do not wait for long reads.
pub const NEAR: u64 = 1024;
/// The number of bytes of memory that an event takes in addition to its object.
const EVENT_BYTES: u64 = 1 << 10;

/// The events that one read found for a watcher, in the form that a watcher of the selection gets.
pub struct Missed {
    pub deliveries: Vec<Delivery>,
    /// No other event up to this offset concerns the watcher.
    pub position: Offset,
    pub ahead: Ahead,
    /// Counts the memory of the events until the watcher has received them.
    pub charge: Charge,
}

/// The offsets of events that were looked up in the log's index, but not read yet.
#[derive(Debug, Default)]
pub struct Ahead {
    offsets: VecDeque<Offset>,
    /// All events up to this offset were looked up.
    through: Offset,
}

/// The future of a read of missed events.
pub type Reading = Pin<Box<dyn Future<Output = Result<Missed, Fault>> + Send>>;

/// A request for the next events after `began`, up to `until`.
pub struct Ask {
    pub selection: Selection,
    /// The state whose kinds decode the records.
    pub state: Arc<State>,
    pub began: Offset,
    pub until: Offset,
    pub reader: Reader,
    pub ahead: Ahead,
}

/// The result of one read of missed events.
enum Read {
    Done(Missed),
    /// There is no memory for the events. The events must be read again when `bytes` bytes of memory are free.
    Crowded {
        bytes: u64,
    },
}

impl Ask {
    /// Starts this read on the threads for reads of the log.
    pub fn begin(mut self, log: Arc<dyn LogRead>, reads: &Reads) -> Reading {
        let reads = reads.clone();
        Box::pin(async move {
            let mut charge = reads.memory().nothing(&self.reader);
            loop {
                let is_near = self.until.0.saturating_sub(self.began.0) <= NEAR;
                let is_first = self.ahead.through == Offset::ZERO;
                let length = if is_near && is_first { Length::Short } else { Length::Long };
                let (log, reader) = (log.clone(), self.reader.clone());
                let work = move || {
                    let read = self.read(log.as_ref(), charge);
                    (self, read)
                };
                let read;
                (self, read) = reads.run_for(&reader, length, work).await;
                match read? {
                    Read::Done(missed) => return Ok(missed),
                    Read::Crowded { bytes } => charge = reads.memory().room(&reader, bytes).await,
                }
            }
        })
    }

    fn read(&mut self, log: &dyn LogRead, mut charge: Charge) -> Result<Read, Fault> {
        let mut deliveries = Vec::new();
        let (mut position, mut bytes, mut work) = (self.began, 0, 0);
        let mut ahead = std::mem::take(&mut self.ahead);
        while position < self.until && work < WORK_MAX && bytes < BYTES_MAX {
            match ahead.offsets.pop_front() {
                Some(offset) => {
                    work += 1;
                    let delivery = log.read(offset)?.map(|record| self.delivery(log, &record)).transpose()?;
                    if let Some(delivery) = delivery.flatten() {
                        bytes += delivery.event.held_bytes() as u64 + EVENT_BYTES;
                        deliveries.push(delivery);
                    }
                    position = offset;
                }
                None => {
                    work += LOOK_UP_WORK;
                    let asked = self.asked(position);
                    let found = log.changes(&asked, AHEAD_MAX)?;
                    ahead = Ahead { offsets: found.offsets.into(), through: found.through };
                }
            }
            if ahead.offsets.is_empty() {
                position = position.max(ahead.through);
            }
        }
        // This check follows the read, because events may be removed from the log during the read.
        let oldest = log.oldest()?;
        if self.began < oldest && !planted(Bug::ForgottenIgnored) {
            return Err(Fault::Forgotten { asked: self.began, oldest });
        }
        bytes += (ahead.offsets.len() * size_of::<Offset>()) as u64;
        if !charge.fits(bytes) {
            return Ok(Read::Crowded { bytes });
        }
        Ok(Read::Done(Missed { deliveries, position: position.min(self.until), ahead, charge }))
    }

    /// Selects the events after `after` that may concern the watcher's selection.
    fn asked(&self, after: Offset) -> Changes<'_> {
        let Selection { key, prefix, .. } = &self.selection;
        let resource = &self.state.kind(self.selection.kind).storage.path;
        Changes { resource, prefix: key.as_deref().unwrap_or(prefix), after, until: self.until }
    }

    /// The event in the form that watchers of the selection get; `None` if the event does not concern the selection.
    fn delivery(&self, log: &dyn LogRead, record: &Record) -> Result<Option<Delivery>, Fault> {
        let Selection { kind, labels, fields, prefix, .. } = &self.selection;
        if !record.key.starts_with(prefix) {
            return Ok(None);
        }
        // For a selection without label and field selectors, the form of an event does not depend on the object before
        // the event.
        let is_alike = labels.is_everything() && fields.is_everything();
        let previous = if is_alike { None } else { self.previous(log, record)? };
        let mut event = Event::new(self.change(record)?, previous);
        let change_type = match (is_alike, record.replaces > 0, record.is_delete()) {
            (false, ..) => event.seen_by(self.state.kind(*kind), &self.selection),
            (true, true, true) => Some(ChangeType::Deleted),
            (true, true, false) => Some(ChangeType::Modified),
            (true, false, is_delete) => (!is_delete).then_some(ChangeType::Added),
        };
        let Some(change_type) = change_type else { return Ok(None) };
        event.keep_shown(change_type);
        Ok(Some(Delivery { event: Arc::new(event), change_type }))
    }

    fn change(&self, record: &Record) -> Result<Change, Fault> {
        Change::from_record(&self.state.registry, record)
            .map_err(|unknown| Fault::Unreadable { what: unknown.to_string() })
    }

    /// The object as it was before the event of `record`.
    fn previous(&self, log: &dyn LogRead, record: &Record) -> Result<Option<Arc<Entry>>, Fault> {
        if record.replaces == 0 {
            return Ok(None);
        }
        let previous = log.read(Offset(record.replaces))?.filter(|previous| !previous.is_delete());
        previous.map(|previous| Ok(self.change(&previous)?.entry)).transpose()
    }
}

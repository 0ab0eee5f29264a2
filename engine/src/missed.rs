//! What a watcher missed while the hub did not know it, read from the log.

use crate::hub::{Delivery, Event};
use crate::log::{Fault, LogRead};
use crate::planted::{Bug, planted};
use crate::reads::Reads;
use holdfast_core::event::{Offset, Record};
use holdfast_core::list::Selection;
use holdfast_core::state::{Change, Entry, State};
use std::pin::Pin;
use std::sync::Arc;

/// How many records are read at a time.
const RECORDS_MAX: usize = 256;

/// Events between two versions, as a watcher of the selection is told of them.
pub struct Missed {
    pub deliveries: Vec<Delivery>,
    /// Up to here nothing else concerned the watcher.
    pub position: Offset,
}

/// A read that is under way.
pub type Reading = Pin<Box<dyn Future<Output = Result<Missed, Fault>> + Send>>;

/// What is asked for: the next events after `began`, none of them after `until`.
pub struct Ask {
    pub selection: Selection,
    /// Has the kinds that the records are read under.
    pub state: Arc<State>,
    pub began: Offset,
    pub until: Offset,
}

impl Ask {
    /// Begins to read, where reads of the log are made.
    pub fn begin(self, log: Arc<dyn LogRead>, reads: &Reads) -> Reading {
        Box::pin(reads.run(move || self.read(log.as_ref())))
    }

    fn read(&self, log: &dyn LogRead) -> Result<Missed, Fault> {
        let kind = self.state.kind(self.selection.kind);
        let records = log.scan(Some(&kind.storage), self.began, RECORDS_MAX)?;
        let mut missed = Missed { deliveries: Vec::new(), position: self.began };
        for record in records.iter().take_while(|record| record.offset() <= self.until) {
            missed.position = record.offset();
            if !record.key.starts_with(&self.selection.prefix) {
                continue;
            }
            let event = Arc::new(Event::new(self.change(record)?, self.previous(log, record)?));
            if let Some(change_type) = event.seen_by(kind, &self.selection) {
                missed.deliveries.push(Delivery { event, change_type });
            }
        }
        // Asked after all was read, for events are let go meanwhile.
        let oldest = log.oldest()?;
        if self.began < oldest && !planted(Bug::ForgottenIgnored) {
            return Err(Fault::Forgotten { asked: self.began, oldest });
        }
        let goes_on = records.len() == RECORDS_MAX && records.last().is_some_and(|last| last.offset() <= self.until);
        if !goes_on {
            missed.position = missed.position.max(self.until);
        }
        Ok(missed)
    }

    fn change(&self, record: &Record) -> Result<Change, Fault> {
        Change::from_record(&self.state.registry, record)
            .map_err(|unknown| Fault::Unreadable { what: unknown.to_string() })
    }

    /// The object before the event.
    fn previous(&self, log: &dyn LogRead, record: &Record) -> Result<Option<Arc<Entry>>, Fault> {
        if record.replaces == 0 {
            return Ok(None);
        }
        let previous = log.read(Offset(record.replaces))?.filter(|previous| !previous.is_delete());
        previous.map(|previous| Ok(self.change(&previous)?.entry)).transpose()
    }
}

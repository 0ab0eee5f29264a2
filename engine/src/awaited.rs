//! Decisions that are or may be in the log, but whose events the log's tail has not shown yet.
//!
//! A log that numbers its events itself reports the offsets of a decision. If such a log gives no answer, the outcome
//! of the decision is unknown. In both cases the client is answered only after the decision's events were folded into
//! the state, and after all events that other servers appended before them. Readers of this server then see the outcome
//! that the client got. A decision's events are recognized by the offsets that the log reported. Without offsets they
//! are recognized by their time and their actor, which includes the id of the request.

use crate::commit::{Command, Rejection};
use crate::numbering::change_at;
use holdfast_core::event::{Offset, Operation, Record};
use holdfast_core::pipeline::Write;
use holdfast_core::state::{Change, Entry, State};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Awaited {
    decisions: Vec<Decided>,
}

struct Decided {
    command: Command,
    /// The offsets of the decision's events; `None` if the outcome of the write is unknown.
    at: Option<Vec<Offset>>,
    /// The objects that the decision writes. Each of them is `None` until the tail has shown its event.
    entries: Vec<Option<Arc<Entry>>>,
}

impl Awaited {
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Adds a decision that the log stored at these offsets.
    pub fn written(&mut self, command: Command, at: Vec<Offset>) {
        self.push(command, Some(at));
    }

    /// Adds a decision that may be in the log, because the log gave no answer about it.
    pub fn unsure(&mut self, command: Command) {
        self.push(command, None);
    }

    fn push(&mut self, command: Command, at: Option<Vec<Offset>>) {
        let entries = vec![None; command.writes.len()];
        self.decisions.push(Decided { command, at, entries });
    }

    /// The index of the decision that an event belongs to, the index of the write in the decision, and the change of
    /// the write; `None` for an event of another server.
    pub fn own(&mut self, state: &State, record: &Record) -> Option<(usize, usize, Change)> {
        let (place, nth) = self
            .decisions
            .iter()
            .enumerate()
            .find_map(|(place, decided)| Some((place, decided.nth(state, record)?)))?;
        let command = &mut self.decisions[place].command;
        let write = command.writes.get_mut(nth)?;
        // The index is cloned, so that the write keeps it: after a fault the same event may be read again.
        let index = write.index.clone();
        let (_, change) = change_at(write, record.offset(), record.time_ms);
        write.index = index;
        Some((place, nth, change))
    }

    /// Called after the caller has folded and published the events of these writes. Answers the decisions whose events
    /// are now complete.
    pub fn shown(&mut self, shown: Vec<(usize, usize, Arc<Entry>)>) {
        for (place, nth, entry) in shown {
            self.decisions[place].entries[nth] = Some(entry);
        }
        for Decided { command, entries, .. } in self.decisions.extract_if(.., |decided| decided.is_whole()) {
            command.answer(Ok(entries.into_iter().flatten().collect()));
        }
    }

    /// Called when the tail has shown all events of the log. The decisions that still lack an event will never have it.
    /// Returns those of them without offsets, which must be judged again; the decisions with offsets fail.
    pub fn absent(&mut self) -> Vec<Command> {
        let mut absent = Vec::new();
        for Decided { command, at, .. } in self.decisions.drain(..) {
            match at {
                None => absent.push(command),
                Some(_) => {
                    command.answer(Err(Rejection::Failed("the log lacks an event that it reported as stored".into())))
                }
            }
        }
        absent
    }
}

impl Decided {
    fn is_whole(&self) -> bool {
        self.entries.iter().all(Option::is_some)
    }

    /// The index, in this decision, of the write that an event belongs to.
    fn nth(&self, state: &State, record: &Record) -> Option<usize> {
        let writes = &self.command.writes;
        match &self.at {
            Some(at) => {
                let is_at = |(write, at): (&Write, &Offset)| *at == record.offset() && is_of(state, write, record);
                writes.iter().zip(at).position(is_at)
            }
            // A decision writes each object once, so the object and the operation identify the write.
            None if self.is_marked(record) => writes.iter().position(|write| is_of(state, write, record)),
            None => None,
        }
    }

    fn is_marked(&self, record: &Record) -> bool {
        record.time_ms == self.command.time_ms && record.actor == self.command.actor
    }
}

fn is_of(state: &State, write: &Write, record: &Record) -> bool {
    let is_delete = record.operation == Operation::Delete as i32;
    record.key == *write.key && is_delete == write.delete && state.kind(write.kind).storage.path == record.resource
}

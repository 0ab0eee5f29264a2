//! Decisions that a log has or may have, and whose events are still to come by its tail.
//!
//! A log that numbers its events itself says where a decision is, or does not say whether it is there at all. Either way
//! its client is told nothing before its events were folded in, behind all that others put before them: then readers
//! here see what the client is told, and the answer is the log's own. Which events are a decision's is told by the offset
//! that the log gave it, or, where it gave none, by what only this decision says: who asked for what, by which request
//! and when.

use crate::writer::{Command, Rejection, change_at};
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
    /// Where the events of its writes are; nothing where nobody said whether there are any.
    at: Option<Vec<Offset>>,
    /// What came of its writes, as far as the tail has shown them.
    entries: Vec<Option<Arc<Entry>>>,
}

impl Awaited {
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// It is in the log, at these offsets.
    pub fn written(&mut self, command: Command, at: Vec<Offset>) {
        self.push(command, Some(at));
    }

    /// It may be in the log.
    pub fn unsure(&mut self, command: Command) {
        self.push(command, None);
    }

    fn push(&mut self, command: Command, at: Option<Vec<Offset>>) {
        let entries = vec![None; command.writes.len()];
        self.decisions.push(Decided { command, at, entries });
    }

    /// Which of the decisions an event is of, of which of its writes, and what it changes; nothing for an event of others.
    pub fn own(&mut self, state: &State, record: &Record) -> Option<(usize, usize, Change)> {
        let (place, nth) = self
            .decisions
            .iter()
            .enumerate()
            .find_map(|(place, decided)| Some((place, decided.nth(state, record)?)))?;
        let command = &mut self.decisions[place].command;
        let write = command.writes.get_mut(nth)?;
        // Kept as well: the same event may have to be read once more, after a fault.
        let index = write.index.clone();
        let (_, change) = change_at(write, record.offset(), record.time_ms);
        write.index = index;
        Some((place, nth, change))
    }

    /// Events of theirs are folded in and shown; whoever has all of its own is answered.
    pub fn shown(&mut self, shown: Vec<(usize, usize, Arc<Entry>)>) {
        for (place, nth, entry) in shown {
            self.decisions[place].entries[nth] = Some(entry);
        }
        for Decided { command, entries, .. } in self.decisions.extract_if(.., |decided| decided.is_whole()) {
            command.answer(Ok(entries.into_iter().flatten().collect()));
        }
    }

    /// The log has told all that it knows of. Gives back those that are not in it, or not to their end, and never will be:
    /// what is there of them makes them stale.
    pub fn absent(&mut self) -> Vec<Command> {
        let mut absent = Vec::new();
        for Decided { command, at, .. } in self.decisions.drain(..) {
            match at {
                None => absent.push(command),
                Some(_) => command.answer(Err(Rejection::Failed("the log does not have what it said it has".into()))),
            }
        }
        absent
    }
}

impl Decided {
    fn is_whole(&self) -> bool {
        self.entries.iter().all(Option::is_some)
    }

    /// Which of its writes an event is, if it is one.
    fn nth(&self, state: &State, record: &Record) -> Option<usize> {
        let writes = &self.command.writes;
        match &self.at {
            Some(at) => {
                let is_at = |(write, at): (&Write, &Offset)| *at == record.offset() && is_of(state, write, record);
                writes.iter().zip(at).position(is_at)
            }
            // A decision puts or deletes an object once.
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
    record.key == *write.key && is_delete == write.delete && state.kind(write.kind).storage == record.resource
}

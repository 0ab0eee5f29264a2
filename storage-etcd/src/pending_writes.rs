//! The writes in progress to a store with plain transactions.
//!
//! No key in the store names the author of a write, so a server recognizes its own events by comparing each event with
//! the writes that the server has sent. No fence stops a late transaction, so a write without an answer is sent again
//! until it has an answer. Only one of the two copies can find the expected revision.

use crate::client::{Event, Operation, Txn};
use bytes::Bytes;
use holdfast_core::event::Record;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct PendingWrites(Mutex<State>);

#[derive(Default)]
struct State {
    /// The writes in progress, by their key and by the revision that they replace.
    writes: HashMap<(Bytes, u64), Write>,
    /// The transactions without an answer.
    unsure: Vec<Txn>,
}

struct Write {
    /// The written value; `None` for a deletion.
    value: Option<Bytes>,
    /// The author and the time of the write.
    who: Record,
}

impl PendingWrites {
    pub fn note(&self, replaces: u64, write: &Operation, who: Record) {
        let value = match write {
            Operation::Put { value, .. } => Some(value.clone()),
            Operation::Delete { .. } => None,
        };
        self.state().writes.insert((write.key().clone(), replaces), Write { value, who });
    }

    /// Records that a transaction has no answer.
    pub fn unsure(&self, txn: Txn) {
        self.state().unsure.push(txn);
    }

    /// The transactions without an answer.
    pub fn all_unsure(&self) -> Vec<Txn> {
        self.state().unsure.clone()
    }

    /// The author of an event, if this server wrote it. If another server deletes a version that this server also tried
    /// to delete, the two deletions look the same.
    pub fn author_of(&self, event: &Event) -> Option<Record> {
        let before = event.before.as_ref().map_or(0, |before| before.mod_revision);
        self.author_of_value(&event.now.key, before, (!event.is_delete).then_some(&event.now.value))
    }

    /// The author of a value that replaced revision `replaces`, if this server wrote it.
    pub fn author_of_value(&self, key: &Bytes, replaces: u64, value: Option<&Bytes>) -> Option<Record> {
        let state = self.state();
        let write = state.writes.get(&(key.clone(), replaces))?;
        (write.value.as_ref() == value).then(|| write.who.clone())
    }

    /// Drops all writes. Called when the outcome of all writes is known and their events are in the local log.
    pub fn clear(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::KeyValue;

    fn event(key: &str, before: u64, value: Option<&str>) -> Event {
        let key_value = |mod_revision| KeyValue { key: key.to_owned().into(), mod_revision, ..KeyValue::default() };
        let now = KeyValue { value: value.unwrap_or_default().to_owned().into(), ..key_value(before + 1) };
        let before = (before > 0).then(|| key_value(before));
        Event { is_delete: value.is_none(), now, before }
    }

    #[test]
    fn own_events_are_told_by_what_was_sent() {
        let sent = PendingWrites::default();
        let put = Operation::Put { key: "a".into(), value: "v".into(), lease: 0 };
        sent.note(0, &put, Record { key: "first".into(), ..Record::default() });
        sent.note(7, &Operation::Delete { key: "b".into() }, Record { key: "second".into(), ..Record::default() });
        let who = |event| sent.author_of(&event).map(|who| who.key);
        assert_eq!(who(event("a", 0, Some("v"))).as_deref(), Some("first"));
        assert_eq!(who(event("b", 7, None)).as_deref(), Some("second"));
        for others in [
            event("a", 0, Some("w")),
            event("a", 3, Some("v")),
            event("a", 0, None),
            event("c", 0, Some("v")),
            event("b", 8, None),
            event("b", 7, Some("")),
        ] {
            assert_eq!(who(others.clone()), None, "{others:?}");
        }
        sent.clear();
        assert_eq!(who(event("a", 0, Some("v"))), None);
    }
}

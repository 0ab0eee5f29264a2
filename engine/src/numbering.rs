//! Gives the writes of a decision their offsets.

use crate::planted::{Bug, planted};
use bytes::Bytes;
use holdfast_core::apply::apply;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_core::pipeline::Write;
use holdfast_core::state::{Change, Entry, State};
use std::sync::Arc;

/// The records of a decision, with the offsets that follow the state's offset. Tests and simulations append such
/// records to the log as another server would.
pub fn numbered(state: &State, mut writes: Vec<Write>, actor: &Actor, time_ms: i64) -> Vec<Record> {
    let mut next = state.clone();
    let number = |write: &mut Write| {
        let (record, change) = number(&next, write, actor, time_ms);
        apply(&mut next, &change);
        record
    };
    writes.iter_mut().map(number).collect()
}

/// Gives the write its offset. The write's index moves into the entry.
pub(crate) fn number(state: &State, write: &mut Write, actor: &Actor, time_ms: i64) -> (Record, Change) {
    let offset = state.offset.next();
    let (json, change) = change_at(write, offset, time_ms);
    let operation = if change.deleted { Operation::Delete } else { Operation::Put };
    let record = Record {
        offset: offset.0,
        time_ms,
        resource: state.kind(write.kind).storage.path.clone(),
        key: write.key.to_string(),
        // The replaced version is the version that the decision expects, or the version of an earlier write of the same
        // decision.
        replaces: state.version_of(write.kind, &write.key).map_or(0, |offset| offset.0),
        operation: operation as i32,
        actor: actor.clone(),
        object: json,
    };
    (record, change)
}

/// The change of a write at this offset, and the JSON of its object with this version. The write's index moves into the
/// entry.
pub(crate) fn change_at(write: &mut Write, offset: Offset, time_ms: i64) -> (Bytes, Change) {
    let json = write.draft.seal(offset);
    let deleted = write.delete || planted(Bug::FinalizersIgnored) && is_deleting(&json);
    let index = std::mem::take(&mut write.index);
    let entry = Arc::new(Entry::new(json.clone(), write.draft.head(), offset, time_ms, index));
    (json, Change { offset, kind: write.kind, key: write.key.clone(), entry, deleted })
}

/// Whether an object is being deleted. A text search is precise enough for a planted bug.
fn is_deleting(json: &[u8]) -> bool {
    String::from_utf8_lossy(json).contains("\"deletionTimestamp\"")
}

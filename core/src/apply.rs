//! The fold: an accepted event becomes state. It cannot fail, and replay is the same function.

use crate::event::Record;
use crate::kinds::custom::{self, Custom};
use crate::object::meta;
use crate::state::{Change, State, UnknownResource};

/// Folds one event into the state.
///
/// The caller applies every event of the log once, in order.
pub fn apply(state: &mut State, change: &Change) {
    debug_assert!(change.offset > state.offset, "events are applied in order");
    state.offset = change.offset;
    hold(state, change);
}

/// Takes in one of the objects that a log holds now, in any order but for definitions, which come before their objects.
pub fn hold(state: &mut State, change: &Change) {
    if change.deleted {
        state.remove(change.kind, &change.key);
    } else {
        state.put(change.kind, change.key.clone(), change.entry.clone());
    }
    index_roles(state, change);
    define(state, change);
}

/// Folds one record of a log that is read from its beginning, for the objects alone: the state serves nobody.
///
/// Objects of a kind whose definition was let go or lost are kept as a start keeps them.
pub fn replay(state: &mut State, record: &Record) -> Result<(), UnknownResource> {
    match Change::unindexed(&state.registry, record) {
        Ok(change) => apply(state, &change),
        Err(unknown) if !custom::is_storage(&unknown.resource) => return Err(unknown),
        Err(_) => {
            state.offset = record.offset();
            match record.is_delete() {
                true => state.drop_orphan(&record.resource, &record.key),
                false => state.hold_orphan(record),
            }
        }
    }
    Ok(())
}

/// A definition makes a kind, changes it, or takes it away.
fn define(state: &mut State, change: &Change) {
    if state.registry.definitions() != Some(change.kind) {
        return;
    }
    let definition = change.entry.document();
    state.definitions.note(change, &definition);
    let Some(storage) = custom::storage_of(&change.key) else { return };
    let known = state.registry.by_storage(&storage);
    let before = known.and_then(|id| state.registry.get(id).custom.as_ref());
    if known.is_some() && before.is_none() {
        // A built-in kind's place is not to be had.
        return;
    }
    let wanted = if change.deleted { None } else { custom::identity(&definition) };
    if before.map(Custom::identity) == wanted {
        return;
    }
    let kind = wanted.and_then(|_| custom::kind_of(&change.entry, &definition));
    state.redefine(known, kind);
}

/// Keeps the authorizer's view of roles and bindings next to the objects themselves.
fn index_roles(state: &mut State, change: &Change) {
    let kind = state.registry.get(change.kind);
    if kind.versions[0].group != "rbac.authorization.k8s.io" {
        return;
    }
    state.rbac_offset = change.offset;
    let (namespace, name) = meta::split_key(&change.key);
    let kind = kind.kind.clone();
    if change.deleted {
        state.rbac.delete(&kind, namespace.unwrap_or(""), name);
    } else {
        state.rbac.put(&kind, namespace.unwrap_or(""), name, &change.entry.document());
    }
}

//! The fold: applies accepted events to the state. Folding an event cannot fail, and a replay of the log uses the same
//! function.

use crate::authz::nodes::Relation;
use crate::authz::nodes::references::CHANGING;
use crate::event::Record;
use crate::kinds::custom::{self, Custom};
use crate::object::meta;
use crate::state::{Change, Entry, State, UnknownResource};
use std::sync::Arc;

/// Folds one event into the state and returns the version that the event replaced.
///
/// The caller must apply every event of the log once, in the order of the offsets.
pub fn apply(state: &mut State, change: &Change) -> Option<Arc<Entry>> {
    debug_assert!(change.offset > state.offset, "events are applied in order");
    state.offset = change.offset;
    hold(state, change)
}

/// Folds an object of the log without advancing the offset. Objects may come in any order, except that a
/// CustomResourceDefinition must come before its objects.
pub fn hold(state: &mut State, change: &Change) -> Option<Arc<Entry>> {
    let before = match change.deleted {
        true => state.remove(change.kind, &change.key),
        false => state.put(change.kind, change.key.clone(), change.entry.clone()),
    };
    index_roles(state, change);
    index_nodes(state, change, before.as_deref());
    index_registered(state, change);
    note_terminating(state, change);
    note_expiring(state, change, before.as_deref());
    note_quota(state, change);
    define(state, change);
    before
}

/// Folds one record of a log that is read from its beginning. The state contains only objects and serves no requests.
/// Returns the version that the event replaced.
///
/// Objects whose CustomResourceDefinition is missing, because of retention or loss, become orphans, as at a server's
/// start.
pub fn replay(state: &mut State, record: &Record) -> Result<Option<Arc<Entry>>, UnknownResource> {
    match Change::unindexed(&state.registry, record) {
        Ok(change) => Ok(apply(state, &change)),
        Err(unknown) if !custom::is_storage(&unknown.resource) => Err(unknown),
        Err(_) => {
            state.offset = record.offset();
            Ok(match record.is_delete() {
                true => state.drop_orphan(&record.resource, &record.key),
                false => state.hold_orphan(record),
            })
        }
    }
}

/// Creates, changes or removes the kind that a CustomResourceDefinition defines.
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
        // A CustomResourceDefinition never replaces a built-in kind.
        return;
    }
    let wanted = if change.deleted { None } else { custom::identity(&definition) };
    if before.map(Custom::identity) == wanted {
        return;
    }
    let kind = wanted.and_then(|_| custom::kind_of(&change.entry.json(), change.offset, &definition));
    state.redefine(known, kind);
}

/// Updates the set of terminating namespaces, so that finding them needs no scan.
fn note_terminating(state: &mut State, change: &Change) {
    if change.kind != state.registry.namespaces() {
        return;
    }
    let document = change.entry.document();
    if !change.deleted && document.as_object().is_some_and(meta::is_deleting) {
        state.terminating.insert(change.key.clone());
    } else {
        state.terminating.remove(&change.key);
    }
}

/// Updates the order of expiring objects by the time of their last change, so that finding old objects needs no scan.
fn note_expiring(state: &mut State, change: &Change, before: Option<&Entry>) {
    if !state.kind(change.kind).deletion.expires {
        return;
    }
    if let Some(before) = before {
        state.expiring.remove(&(before.time_ms, before.offset));
    }
    if !change.deleted {
        state.expiring.insert((change.entry.time_ms, change.offset), (change.kind, change.key.clone()));
    }
}

/// Updates the index of the byte limits that ResourceQuotas set for their namespaces.
fn note_quota(state: &mut State, change: &Change) {
    if change.kind == state.registry.quotas() {
        let document = (!change.deleted).then(|| change.entry.document());
        state.room.note_quota(&change.key, document.as_ref());
    }
}

/// Updates the index of webhooks and policies for a change of the objects that register them.
fn index_registered(state: &mut State, change: &Change) {
    let Some(registers) = state.registry.get(change.kind).influence.registers else { return };
    let document = (!change.deleted).then(|| change.entry.document());
    state.registered.note(registers, &change.key, document.as_ref());
}

/// Updates the Node authorizer's graph for a change of an object that the graph contains.
fn index_nodes(state: &mut State, change: &Change, before: Option<&Entry>) {
    let Some(graph) = &mut state.nodes else { return };
    let Some(relation) = state.registry.get(change.kind).influence.relation else { return };
    let after = (!change.deleted).then_some(&*change.entry);
    if before.zip(after).is_some_and(|(before, after)| leads_alike(relation, before, after)) {
        return;
    }
    let document = |entry: Option<&Entry>| entry.map(Entry::document);
    graph.note(relation, &change.key, document(before).as_ref(), document(after).as_ref());
}

/// Whether both versions of a pod refer to the same node and the same objects. Most events on pods change only the
/// status, so comparing the texts of the specs avoids parsing them.
fn leads_alike(relation: Relation, before: &Entry, after: &Entry) -> bool {
    if relation != Relation::Pod {
        return false;
    }
    let (before, after) = (before.json(), after.json());
    let has = |json: &[u8], text: &str| memchr::memmem::find(json, text.as_bytes()).is_some();
    let may_change = |json: &[u8]| CHANGING.iter().any(|text| has(json, text));
    spec_of(&before) == spec_of(&after) && !may_change(&before) && !may_change(&after)
}

/// The text of a pod's spec, which is between `metadata` and `status`. The metadata has no object field `spec`, and the
/// spec has no object field `status`.
fn spec_of(json: &[u8]) -> &[u8] {
    let from = |json, text: &str| memchr::memmem::find(json, text.as_bytes());
    let spec = from(json, ",\"spec\":{").map_or(json, |begin| &json[begin..]);
    from(spec, ",\"status\":{").map_or(spec, |end| &spec[..end])
}

/// Updates the RBAC index for a change of a role or binding.
fn index_roles(state: &mut State, change: &Change) {
    let Some(role) = state.registry.get(change.kind).influence.role else { return };
    state.rbac_offset = change.offset;
    let (namespace, name) = meta::split_key(&change.key);
    if change.deleted {
        state.rbac.delete(role, namespace.unwrap_or(""), name);
    } else {
        state.rbac.put(role, namespace.unwrap_or(""), name, &change.entry.document());
    }
}

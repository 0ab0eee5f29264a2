//! Resets the fields that an endpoint may not change, and sets the fields that only the server sets.
//!
//! Managed fields are computed before this stage. A manager that writes one part never becomes owner of the fields that
//! this stage resets. The client stays owner of the fields of its own part, even if the server then changes them.

use super::candidate::{Candidate, Old};
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds::{Asking, FieldPaths};
use crate::object::meta::{self, Document, metadata_mut};
use holdfast_value::Value;

/// Resets all fields outside the part of the object that the endpoint may change.
pub(super) fn narrow_to_part(context: &Context, endpoint: &Endpoint, object: &mut Candidate) {
    let Some(old) = &object.old else { return };
    let (new, old) = (&mut object.new, &old.document);
    match endpoint.part {
        Part::Status => narrow_to_status(context.reset_fields(), new, old),
        Part::Approval => {
            let conditions = new.get_mut("status").and_then(|status| status.get_mut("conditions")).map(Value::take);
            let new = meta::fields_mut(new);
            for field in ["spec", "status"] {
                put(new, field, old.get(field).cloned());
            }
            if conditions.is_some() || new.contains_key("status") {
                put(meta::object_mut(new, "status"), "conditions", conditions);
            }
        }
        Part::EphemeralContainers => narrow(new, old, &[&["spec", "ephemeralContainers"]]),
        Part::Resize => narrow(new, old, &[&["spec", "containers"], &["spec", "initContainers"]]),
        // Defaults may have filled in the status. The subresource `finalize` may change everything but the status.
        Part::Replicas | Part::Finalize => put(meta::fields_mut(new), "status", old.get("status").cloned()),
        // `prepare` resets the status for Main. The candidates of Assignment and Deletion change nothing else.
        Part::Main | Part::Assignment | Part::Deletion => {}
    }
}

/// For a write of the object itself: resets the status, and sets the fields that only the server sets.
pub(super) fn prepare(context: &Context, endpoint: &Endpoint, object: &mut Candidate) {
    if !endpoint.part.is_of_server() {
        let old = object.old.as_ref().map(|old: &Old| &old.document);
        context.kind.drop_gated(&mut object.new, old, &context.settings.gates_off);
    }
    if endpoint.part == Part::Main {
        let new = &mut object.new;
        match &object.old {
            None => context.kind.writes.prepare_create(new, context.has_status()),
            Some(old) => context.kind.writes.prepare_update(new, &old.document, context.has_status()),
        }
    }
    if !endpoint.part.is_of_server() {
        note(context, object);
    }
}

fn note(context: &Context, object: &mut Candidate) {
    let Some(note) = context.kind.writes.note else { return };
    let old = object.old.as_ref().map(|old: &Old| &old.document);
    let asking = Asking {
        user: &context.request.user,
        now: &context.stamp.rfc3339(),
        version: context.version(),
        subresource: context.request.target.subresource.as_deref().unwrap_or(""),
    };
    note(&mut object.new, old, &asking);
}

/// Replaces `new` by the old object with the status of `new`, and with the metadata fields that a status write of this
/// kind may change.
fn narrow_to_status(kept: FieldPaths, new: &mut Value, old: &Value) {
    let mut wanted = std::mem::replace(new, old.clone());
    let wanted = meta::fields_mut(&mut wanted);
    let new = meta::fields_mut(new);
    put(new, "status", wanted.remove("status"));
    for field in ["annotations", "finalizers", "labels", "ownerReferences", "managedFields"] {
        if !kept.contains(&["metadata", field].as_slice()) {
            put(metadata_mut(new), field, metadata_mut(wanted).remove(field));
        }
    }
}

impl Context<'_> {
    /// The paths of the fields that the endpoint of the request's path resets. A manager that writes through the
    /// endpoint does not become their owner.
    pub(super) fn reset_fields(&self) -> FieldPaths {
        let target = &self.request.target;
        self.kind.reset_fields(target.version, target.subresource.as_deref())
    }
}

/// Replaces `new` by the old document with the named fields of the new document, and with the new managed fields.
fn narrow(new: &mut Value, old: &Value, fields: &[&[&str; 2]]) {
    let mut wanted = std::mem::replace(new, old.clone());
    let new = meta::fields_mut(new);
    let owners = metadata_mut(meta::fields_mut(&mut wanted)).remove("managedFields");
    put(metadata_mut(new), "managedFields", owners);
    for [outer, inner] in fields {
        let value = wanted.get_mut(*outer).and_then(|value| value.get_mut(*inner)).map(Value::take);
        put(meta::object_mut(new, outer), inner, value);
    }
}

pub(super) fn put(document: &mut Document, field: &str, value: Option<Value>) {
    match value {
        Some(value) => _ = document.insert(field, value),
        None => _ = document.remove(field),
    }
}

//! Puts back what an endpoint may not touch, so that the rest of a body says nothing.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds::FieldPaths;
use crate::object::meta::{self, Document, metadata_mut};
use crate::refusal::Refusal;
use serde_json::Value;

pub(super) fn reset(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    let new = &mut object.new;
    let Some(old) = &object.old else {
        reset_new(context, new);
        return Ok(());
    };
    let old = &old.document;
    match endpoint.part {
        Part::Main => match context.kind.hooks.prepare_update {
            Some(prepare) => prepare(new, old),
            None if context.has_status() => put(meta::fields_mut(new), "status", old.get("status").cloned()),
            None => {}
        },
        Part::Status => reset_to_status(context.reset_fields(), new, old),
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
        Part::Finalize => narrow(new, old, &[&["spec", "finalizers"]]),
        Part::EphemeralContainers => narrow(new, old, &[&["spec", "ephemeralContainers"]]),
        Part::Resize => narrow(new, old, &[&["spec", "containers"], &["spec", "initContainers"]]),
        // Defaults may have completed it.
        Part::Replicas => put(meta::fields_mut(new), "status", old.get("status").cloned()),
        // Their candidates change nothing else.
        Part::Assignment | Part::Deletion => {}
    }
    Ok(())
}

/// Clears what a client may not set on a new object, and writes into it who asks, where the kind wants that.
fn reset_new(context: &Context, new: &mut Value) {
    match context.kind.hooks.prepare_create {
        Some(prepare) => prepare(new),
        None if context.has_status() => _ = meta::fields_mut(new).remove("status"),
        None => {}
    }
    if let Some(sign) = context.kind.hooks.sign {
        sign(new, &context.request.user);
    }
}

/// The old object with the new one's status, and with those parts of its metadata that the kind lets it write there.
fn reset_to_status(kept: FieldPaths, new: &mut Value, old: &Value) {
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
    /// What the path's endpoint puts back to what it was: nobody comes to own that by writing there.
    pub(super) fn reset_fields(&self) -> FieldPaths {
        match self.request.target.subresource.as_deref() {
            None if self.has_status() => &[&["status"]],
            None => &[],
            Some(part) => {
                self.kind.subresource(self.request.target.version, part).map_or(&[], |part| part.reset_fields)
            }
        }
    }
}

/// The old document with only the named fields of the new one.
fn narrow(new: &mut Value, old: &Value, fields: &[&[&str; 2]]) {
    let mut wanted = std::mem::replace(new, old.clone());
    let new = meta::fields_mut(new);
    for [outer, inner] in fields {
        let value = wanted.get_mut(*outer).and_then(|value| value.get_mut(*inner)).map(Value::take);
        put(meta::object_mut(new, outer), inner, value);
    }
}

pub(super) fn put(document: &mut Document, field: &str, value: Option<Value>) {
    match value {
        Some(value) => _ = document.insert(field.into(), value),
        None => _ = document.remove(field),
    }
}

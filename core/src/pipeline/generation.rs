//! `metadata.generation` counts changes of the desired state: for most kinds everything but metadata and status.

use super::candidate::{Candidate, Old};
use super::endpoint::Part;
use super::reset::put;
use super::{Context, Endpoint};
use crate::object::meta::{self, Document, metadata, metadata_mut};
use holdfast_value::Value;

pub(super) fn count(context: &Context, endpoint: &Endpoint, object: &mut Candidate) {
    let begins_deletion = object.begins_deletion();
    let new = meta::fields_mut(&mut object.new);
    let generation = match &object.old {
        None => context.kind.writes.generation.first(new),
        Some(old) => {
            let before = old.metadata().get("generation");
            let number = before.and_then(Value::as_i64).unwrap_or(0);
            // The server assigns the pod's node, so that is not a change of the state that the user wants.
            let is_told = endpoint.part == Part::Assignment;
            let is_counted = if begins_deletion {
                // For a kind with a terminating phase, the change of the phase is the only effect of the delete.
                // Kubernetes does not count it.
                number > 0 && !context.kind.deletion.has_terminating_phase()
            } else {
                !is_told && is_changed(context, endpoint, new, old) && !is_respelled(context, endpoint, new, old)
            };
            if is_counted { Some(number.saturating_add(1).into()) } else { before.cloned() }
        }
    };
    if metadata(new).get("generation") != generation.as_ref() {
        put(metadata_mut(new), "generation", generation);
    }
    context.kind.writes.observe(new, &context.settings.gates_off);
}

/// Whether the new document differs from the old one only in the spelling of quantities, such as `1000m` and `1`.
fn is_respelled(context: &Context, endpoint: &Endpoint, new: &Document, old: &Old) -> bool {
    let respelled = context.respelled(&Value::Object(new.clone()), &old.document);
    respelled.is_some_and(|new| !is_changed(context, endpoint, meta::fields(&new), old))
}

fn is_changed(context: &Context, endpoint: &Endpoint, new: &Document, old: &Old) -> bool {
    let beside = context.kind.writes.generation.counted_metadata(endpoint.part == Part::Status);
    let Some(beside) = beside else { return false };
    // If a custom kind has no status subresource, its status counts as desired state like any other field.
    let reported = context.kind.custom.is_none() || context.has_status();
    let old_fields = old.fields();
    let is_desired = |field: &str| match field {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => !reported,
        _ => true,
    };
    let count = |document: &Document| document.keys().filter(|field| is_desired(field)).count();
    beside.iter().any(|field| metadata(new).get(*field) != old.metadata().get(*field))
        || count(new) != count(old_fields)
        || new.iter().any(|(field, value)| is_desired(field) && old_fields.get(field.as_str()) != Some(value))
}

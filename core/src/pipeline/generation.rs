//! `metadata.generation` counts changes of the desired state: everything but metadata and status.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::reset::put;
use super::{Context, Endpoint};
use crate::object::meta::{self, Document, metadata, metadata_mut};
use serde_json::Value;

pub(super) fn count(context: &Context, endpoint: &Endpoint, object: &mut Candidate) {
    // Where a pod runs is told to it, and is not what anybody wants of it.
    let counts = context.kind.generation && endpoint.part != Part::Assignment;
    let begins_deletion = object.begins_deletion();
    let Some(old) = &object.old else {
        let generation = counts.then(|| 1.into());
        return put(metadata_mut(object.fields_mut()), "generation", generation);
    };
    let new = meta::fields_mut(&mut object.new);
    let before = old.metadata().get("generation");
    // A status that is written like everything else is as much desired as that.
    let reported = context.kind.custom.is_none() || context.has_status();
    let counted = counts && (begins_deletion || is_changed(new, old.fields(), reported));
    let generation = match counted {
        true => Some(before.and_then(Value::as_i64).unwrap_or(0).saturating_add(1).into()),
        false => before.cloned(),
    };
    if metadata(new).get("generation") != generation.as_ref() {
        put(metadata_mut(new), "generation", generation);
    }
}

fn is_changed(new: &Document, old: &Document, reported: bool) -> bool {
    let is_desired = |field: &str| match field {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => !reported,
        _ => true,
    };
    let count = |document: &Document| document.keys().filter(|field| is_desired(field)).count();
    count(new) != count(old)
        || new.iter().any(|(field, value)| is_desired(field) && old.get(field.as_str()) != Some(value))
}

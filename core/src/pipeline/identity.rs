//! An object's identity: name, UID and creation time are set once and never change.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::{Context, Endpoint, owners};
use crate::object::meta::{self, Document, metadata_mut, text};

/// The maximum number of generated names that are tried until one is free.
const GENERATED_NAME_TRIES: u64 = 8;

/// Clears fields that only the server sets on a new object, before managed fields could record an owner for them.
pub(super) fn wipe(object: &mut Candidate) {
    if object.old.is_none() {
        let meta = metadata_mut(object.fields_mut());
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
            meta.remove(field);
        }
    }
}

/// Gives a new object its identity; an existing object keeps its identity.
pub(super) fn identify(context: &Context, endpoint: &Endpoint, object: &mut Candidate) {
    if endpoint.part != Part::Deletion {
        owners::merge(context, metadata_mut(object.fields_mut()), " after mutating admission happens");
    }
    match &object.old {
        // A deletion sets the deletion timestamp, so the old metadata is not restored.
        _ if endpoint.part == Part::Deletion => {}
        Some(old) => keep(meta::fields_mut(&mut object.new), old.metadata()),
        None => {
            // Mutating admission may have set fields that only the server sets.
            wipe(object);
            let name = give(context, object.fields_mut());
            object.key = meta::key(context.request.namespace(), &name).into();
        }
    }
}

/// Sets name, UID and creation time. A missing name is reported by metadata validation.
fn give(context: &Context, document: &mut Document) -> String {
    let meta = metadata_mut(document);
    let mut name = text(meta, "name").to_owned();
    let base = text(meta, "generateName").to_owned();
    if name.is_empty() && !base.is_empty() {
        name = generate(context, &base);
        meta.insert("name", name.as_str().into());
    }
    if name.is_empty() && context.kind.writes.named_by_server {
        name = context.stamp.uid(1);
        meta.insert("name", name.as_str().into());
    }
    meta.insert("uid", context.stamp.uid(0).into());
    meta.insert("creationTimestamp", context.stamp.rfc3339().into());
    name
}

/// Generates a name that no object has. If all tried names are in use, returns the first of them, and a later stage
/// refuses the create.
fn generate(context: &Context, base: &str) -> String {
    const BASE_LENGTH_MAX: usize = 63 - 5;
    let mut end = base.len().min(BASE_LENGTH_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let candidate = |nth| format!("{}{}", &base[..end], context.stamp.name_suffix(nth));
    let taken = |name: &str| {
        let key = meta::key(context.request.namespace(), name);
        context.state.get(context.request.target.kind, &key).is_some()
    };
    (0..GENERATED_NAME_TRIES).map(candidate).find(|name| !taken(name)).unwrap_or_else(|| candidate(0))
}

/// Restores metadata that only the server sets from the old object, so that a client may write an exported object over
/// a newer version. A UID, a grace period or a new deletion timestamp in the body stays, and validation refuses it if
/// it differs from the old object.
fn keep(new: &mut Document, old_meta: &Document) {
    let meta = metadata_mut(new);
    meta.remove("resourceVersion");
    meta.remove("selfLink");
    for field in ["generation", "creationTimestamp"] {
        super::reset::put(meta, field, old_meta.get(field).cloned());
    }
    if let Some(deleted) = old_meta.get("deletionTimestamp") {
        meta.insert("deletionTimestamp", deleted.clone());
    }
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if meta.get(field).is_none_or(|value| value.is_null() || value.as_str() == Some("")) {
            super::reset::put(meta, field, old_meta.get(field).cloned());
        }
    }
    if meta.get("generateName").is_none() {
        super::reset::put(meta, "generateName", old_meta.get("generateName").cloned());
    }
}

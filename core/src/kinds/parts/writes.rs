//! What a create or an update does to an object before the rules judge it.

use super::{FieldPaths, Version};
use crate::authz::user::User;
use crate::kinds::build::keep_old;
use crate::kinds::{Gated, Kind, Observe};
use crate::object::meta::{self, Document, metadata};
use holdfast_value::Value;
use std::collections::BTreeSet;

/// How a create or an update makes the object that is stored. The stages `body`, `default`, `manage`, `identity`,
/// `reset` and `generation` read these rules.
#[derive(Default)]
pub struct WriteRules {
    /// Whether a PUT to a name that does not exist creates the object.
    pub create_on_update: bool,
    /// Whether an update must name the `resourceVersion`. Otherwise an update without it overwrites any version of the
    /// object.
    pub needs_version: bool,
    /// Whether the server names objects that are created without a name.
    pub named_by_server: bool,
    /// Makes older and newer forms of a field agree.
    pub(in crate::kinds) agree: Option<fn(&mut Value)>,
    /// The fields that a write of the object itself resets, so that the writer does not become their owner. `None`
    /// means the status.
    pub(in crate::kinds) reset_fields: Option<FieldPaths>,
    /// Fields that depend on feature gates.
    pub(in crate::kinds) gated: &'static [Gated],
    /// Sets or clears fields of a new object that the client may not set, such as status and phase. If it is `None`, the
    /// status is dropped if the kind has a status subresource.
    pub(in crate::kinds) prepare_create: Option<fn(&mut Value)>,
    /// Sets or clears such fields before an update of the main resource. The arguments are the new and the old object.
    /// If it is `None`, the status is taken from the old object if the kind has a status subresource.
    pub(in crate::kinds) prepare_update: Option<fn(&mut Value, &Value)>,
    /// Records facts about the request in the object and overrides the client. It runs after the preparation of the
    /// main resource, and before writes of subresources. The arguments are the new object, the old object on update,
    /// and the request.
    pub note: Option<fn(&mut Value, Option<&Value>, &Asking)>,
    pub generation: Generation,
    /// Sets `observedGeneration` after the generation is counted. While this gate is off, it removes the field.
    pub(in crate::kinds) observe: Option<(&'static str, Observe)>,
}

impl WriteRules {
    /// Makes older and newer forms of the same fields agree. The defaults are set already.
    pub fn agree(&self, object: &mut Value) {
        if let Some(agree) = self.agree {
            agree(object);
        }
    }

    /// Overwrites the fields of a new object that its creator may not set, such as the status.
    pub fn prepare_create(&self, new: &mut Value, has_status: bool) {
        match self.prepare_create {
            Some(prepare) => prepare(new),
            None if has_status => _ = meta::fields_mut(new).remove("status"),
            None => {}
        }
    }

    /// Restores the fields that an update of the object itself may not change.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, has_status: bool) {
        match self.prepare_update {
            Some(prepare) => prepare(new, old),
            None if has_status => keep_old(new, old, "status"),
            None => {}
        }
    }

    /// Writes the counted generation into the status, if the kind has a function for this. While the gate of the
    /// function is off, the generation is removed.
    pub fn observe(&self, new: &mut Document, gates_off: &BTreeSet<&'static str>) {
        if let Some((gate, observe)) = self.observe {
            let seen = metadata(new).get("generation").and_then(Value::as_i64);
            observe(new, seen.filter(|_| !gates_off.contains(gate)));
        }
    }
}

impl Kind {
    /// The fields that a write through a version, of the object itself or of a subresource, resets. Its manager does
    /// not become owner of these fields.
    pub fn reset_fields(&self, version: usize, subresource: Option<&str>) -> FieldPaths {
        match (subresource, self.writes.reset_fields) {
            (Some(part), _) => self.subresource(version, part).map_or(&[], |part| part.reset_fields),
            (None, Some(fields)) => fields,
            (None, None) if self.has_status(version) => &[&["status"]],
            (None, None) => &[],
        }
    }
}

/// The changes that `metadata.generation` counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// `metadata.generation` counts nothing: the creator's value stays.
    #[default]
    Nothing,
    /// Changes of the desired state and of these metadata fields. The count starts at 1.
    Changes { metadata: &'static [&'static str] },
    /// Like [`Generation::Changes`], but the count does not start when an object is created: the creator's value stays.
    LaterChanges,
}

impl Generation {
    /// The generation of a new object.
    pub fn first(self, new: &Document) -> Option<Value> {
        match self {
            Generation::Changes { .. } => Some(1.into()),
            // Zero is stored as an absent field.
            Generation::Nothing | Generation::LaterChanges => {
                metadata(new).get("generation").filter(|given| given.as_i64() != Some(0)).cloned()
            }
        }
    }

    /// The metadata fields whose changes are counted like changes of the desired state; `None` if no change is counted.
    pub fn counted_metadata(self, is_status_write: bool) -> Option<&'static [&'static str]> {
        match self {
            Generation::Nothing => None,
            // Metadata in a status write, such as a Deployment's revision, is not desired state.
            Generation::Changes { .. } if is_status_write => Some(&[]),
            Generation::Changes { metadata } => Some(metadata),
            Generation::LaterChanges => Some(&[]),
        }
    }
}

/// The user, time and version of a request.
pub struct Asking<'a> {
    pub user: &'a User,
    pub now: &'a str,
    pub version: &'a Version,
    pub subresource: &'a str,
}

//! An object of which a controller takes care: what is told about it, how others name it, how its status is written.

use holdfast_world::{Action, Note, Object, Resource, Seen, Verb, View};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// An object with its resource.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub resource: &'a Resource,
    pub object: &'a Arc<Object>,
}

impl<'a, V: View> From<Seen<'a, V>> for Subject<'a> {
    fn from(seen: Seen<'a, V>) -> Subject<'a> {
        Subject { resource: V::resource(), object: seen.object }
    }
}

impl Subject<'_> {
    pub fn normal(&self, reason: &'static str, message: String) -> Note {
        self.note(false, reason, message)
    }

    pub fn warning(&self, reason: &'static str, message: String) -> Note {
        self.note(true, reason, message)
    }

    fn note(&self, warning: bool, reason: &'static str, message: String) -> Note {
        let meta = &self.object.meta;
        Note {
            resource: self.resource.clone(),
            key: self.object.key(),
            uid: meta.uid.as_str().into(),
            version: meta.resource_version.as_str().into(),
            warning,
            reason,
            message,
        }
    }

    /// How what it manages names it among its owners.
    pub fn reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind(),
            "name": self.object.meta.name,
            "uid": self.object.meta.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// Brings the status to what `change` makes of it; nothing where it is that already.
    pub fn status(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Option<Action> {
        let old = part(self.object, &["status"]);
        let mut new = old.as_object().cloned().unwrap_or_default();
        change(&mut new);
        (old.as_object().unwrap_or(&Map::new()) != &new).then(|| {
            let mut document = self.object.document();
            document["status"] = Value::Object(new);
            self.update(document).subresource("status")
        })
    }

    /// Replaces the object; refused if there is a newer version than the one that `document` was made from.
    pub fn update(&self, document: Value) -> Action {
        Action::new(self.resource, self.object.key(), Verb::Update(document))
    }

    /// Changes some fields of this object, whatever others do to the rest of it.
    pub fn strategic_patch(&self, mut patch: Value) -> Action {
        patch["metadata"]["uid"] = self.object.meta.uid.as_str().into();
        Action::new(self.resource, self.object.key(), Verb::StrategicPatch(patch))
    }

    /// Deletes this object, and none that came after it under its name.
    pub fn delete(&self) -> Action {
        let uid = Some(self.object.meta.uid.as_str().into());
        let verb = Verb::Delete { uid, version: None, propagation: None, grace_seconds: None };
        Action::new(self.resource, self.object.key(), verb)
    }
}

/// One part of an object, read from its bytes without keeping the rest; null where there is none.
pub fn part(object: &Object, path: &[&str]) -> Value {
    let mut value = object.document();
    for step in path {
        value = value.get_mut(step).map(Value::take).unwrap_or_default();
    }
    value
}

/// Notes a number; zero is not written.
pub fn count(status: &mut Map<String, Value>, field: &str, number: i64) {
    if number == 0 {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), number.into());
    }
}

//! An object that a controller manages, with functions for Events about the object, references to it and writes to it.

use holdfast_value::{Map, Value, json};
use holdfast_world::{Action, Object, PlannedEvent, Resource, StatusUpdate, Verb, View, Viewed, work};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// An object with its resource.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub resource: &'a Resource,
    pub object: &'a Arc<Object>,
}

impl<'a, V: View> From<Viewed<'a, V>> for Subject<'a> {
    fn from(seen: Viewed<'a, V>) -> Subject<'a> {
        Subject { resource: V::resource(), object: seen.object }
    }
}

impl Subject<'_> {
    pub fn normal(&self, reason: &'static str, message: String) -> PlannedEvent {
        self.note(false, reason, message)
    }

    pub fn warning(&self, reason: &'static str, message: String) -> PlannedEvent {
        self.note(true, reason, message)
    }

    fn note(&self, warning: bool, reason: &'static str, message: String) -> PlannedEvent {
        let meta = &self.object.meta;
        PlannedEvent {
            resource: self.resource.clone(),
            key: self.object.key(),
            uid: meta.uid.as_str().into(),
            version: meta.resource_version.as_str().into(),
            warning,
            reason,
            message,
            part: String::new(),
            host: String::new(),
        }
    }

    /// An owner reference that makes this object the controller of another object.
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

    /// The write of a changed status; `None` if `change` changes nothing.
    pub fn status(&self, change: impl FnOnce(&mut Map)) -> Option<Action> {
        let old = part(self.object, &["status"]);
        let mut new = old.as_object().cloned().unwrap_or_default();
        change(&mut new);
        (old.as_object().unwrap_or(&Map::new()) != &new).then(|| {
            let restated = StatusUpdate { object: self.object.clone(), status: Value::Object(new) };
            Action::new(self.resource, self.object.key(), Verb::UpdateStatus(restated)).subresource("status")
        })
    }

    /// Replaces this object. The API server refuses the write if the object has changed since the version from which
    /// `document` was made.
    pub fn update(&self, document: Value) -> Action {
        Action::new(self.resource, self.object.key(), Verb::Update(document))
    }

    /// Patches some fields of this object, without a precondition on its version.
    pub fn strategic_patch(&self, mut patch: Value) -> Action {
        patch["metadata"]["uid"] = self.object.meta.uid.as_str().into();
        Action::new(self.resource, self.object.key(), Verb::StrategicPatch(patch))
    }

    /// Deletes this object. A later object of the same name is not deleted, because the request names this object's
    /// uid.
    pub fn delete(&self) -> Action {
        let uid = Some(self.object.meta.uid.as_str().into());
        let verb = Verb::Delete { uid, version: None, propagation: None, grace_seconds: None };
        Action::new(self.resource, self.object.key(), verb)
    }
}

/// A part of an object, decoded from its bytes without decoding the rest; null if the part is absent.
pub fn part(object: &Object, path: &[&str]) -> Value {
    let bytes = object.body.bytes();
    work::count_bytes(bytes.len());
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    PathValue(path).deserialize(&mut json).unwrap_or_default()
}

/// Decodes only the value at a path in a JSON document.
struct PathValue<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for PathValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0.is_empty() { Value::deserialize(deserializer) } else { deserializer.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for PathValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let (first, rest) = self.0.split_first().unwrap_or((&"", &[]));
        let mut found = Value::Null;
        while let Some(field) = fields.next_key::<Cow<'_, str>>()? {
            if field == *first {
                found = fields.next_value_seed(PathValue(rest))?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Sets a field to a number, or removes the field if the number is 0.
pub fn count(status: &mut Map, field: &str, number: i64) {
    if number == 0 {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), number.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::views::Pod;
    use holdfast_world::{Key, Time, World};

    #[test]
    fn a_part_is_read_alone() {
        let mut world = World::default();
        world.track::<Pod>();
        let json = r#"{"a": {"x": [1, {"b": 2}], "b": {"c\n": "d"}}, "b": 7}"#;
        let key = Key::new("n", "p");
        world.apply(Pod::resource(), key.clone(), Some(json.into()), 1, Time::from_second(0));
        let object = world.object(Pod::resource(), &key).expect("a pod");
        assert_eq!(part(object, &["a", "b"]), json!({"c\n": "d"}));
        assert_eq!(part(object, &["b"]), json!(7));
        assert_eq!(part(object, &["b", "c"]), Value::Null);
        assert_eq!(part(object, &["c"]), Value::Null);
        assert_eq!(part(object, &[]), object.document());
    }
}

//! Rules that apply to whole objects: embedded resources must be valid resources, and sets and keyed lists must not
//! have duplicates.

use super::{ListType, Structural};
use crate::object::at::At;
use crate::object::names;
use crate::object::validate::{NameRule, metadata};
use crate::refusal::{Cause, Causes};
use crate::schema::layout::object_meta;
use crate::schema::schema;
use holdfast_value::{Map, Value};
use std::collections::BTreeMap;

impl Structural {
    /// The violations in embedded resources of the rules that all resources must follow.
    pub(super) fn embedded_causes(&self, object: &Value, prefix: &str) -> Causes {
        let mut causes = Causes::default();
        walk(self, At::root(object), &mut |schema, at| {
            if schema.embedded_resource && at.value.is_object() {
                embedded(at, &mut causes);
            }
        });
        for cause in causes.iter_mut().filter(|_| !prefix.is_empty()) {
            cause.field = format!("{prefix}.{}", cause.field);
        }
        causes
    }

    /// The duplicate items of sets and keyed lists. Each item or key that occurs more than once is reported once.
    pub(super) fn duplicates(&self, object: &Value) -> Causes {
        let mut causes = Causes::default();
        walk(self, At::root(object), &mut |schema, list| {
            let keys = match &schema.list_type {
                Some(ListType::Map(keys)) => Some(keys.as_slice()),
                Some(ListType::Set) => None,
                Some(ListType::Atomic) | None => return,
            };
            let alien = |item: &At| keys.is_some() && item.is_set() && !item.value.is_object();
            if let Some(item) = list.items().find(alien) {
                causes.push_with(|| item.invalid("must be an object for an array of list-type map"));
                return;
            }
            let mut seen = BTreeMap::new();
            for item in list.items() {
                let key = keys.map(|keys| key_of(item.value, keys));
                let key = key.as_ref().unwrap_or(item.value);
                let count = seen.entry(key.to_string()).or_insert(0);
                *count += 1;
                if *count == 2 {
                    causes.push_with(|| item.holding(key).duplicate());
                }
            }
        });
        causes
    }
}

/// The violations of the rules that all resources must follow.
pub(super) fn resource_causes(object: &Value) -> Causes {
    let mut causes = Causes::default();
    embedded(At::root(object), &mut causes);
    causes
}

/// The values of the fields that identify an item in a keyed list, as far as the item has them.
pub(super) fn key_of(item: &Value, keys: &[String]) -> Value {
    keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect::<Map>().into()
}

/// Calls `visit` for each value in an object that the schema describes.
fn walk(schema: &Structural, at: At, visit: &mut impl FnMut(&Structural, At)) {
    visit(schema, at);
    for (name, value) in at.entries() {
        match (schema.properties.get(name), &schema.additional_properties) {
            (Some(property), _) => walk(property, at.get(name), visit),
            (None, Some(super::Additional::Like(schema))) => walk(schema, value, visit),
            _ => {}
        }
    }
    if let Some(schema) = schema.items.as_deref() {
        for item in at.items() {
            walk(schema, item, visit);
        }
    }
}

fn embedded(at: At, causes: &mut Causes) {
    for field in ["apiVersion", "kind"] {
        let at = at.get(field);
        let text = at.text();
        let messages = if field == "kind" { names::label_1035(&text.to_lowercase()) } else { Vec::new() };
        if at.is_set() && !at.value.is_string() {
            causes.push_with(|| at.invalid("must be a string"));
        } else if text.is_empty() {
            causes.push_with(|| at.required(""));
        } else if field == "apiVersion" && text.matches('/').count() > 1 {
            causes.push_with(|| Cause::from(at.invalid(&format!("unexpected GroupVersion string: {text}"))));
        } else if !messages.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", messages.join(","));
            causes.push_with(|| at.invalid(&detail));
        }
    }
    let meta = at.get("metadata");
    if !meta.is_set() {
        return;
    }
    let mut checked = meta.value.clone();
    if let Err(error) = crate::schema::check(schema(), object_meta(), &mut checked) {
        causes.push_with(|| Cause::from(meta.invalid(&error.to_string())));
        return;
    }
    let Value::Object(mut fields) = checked else { return };
    if fields.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        fields.insert("name", "fakename".into());
    }
    let namespaced = fields.get("namespace").and_then(Value::as_str).is_some_and(|namespace| !namespace.is_empty());
    let of_metadata = metadata(&fields, NameRule::PathSegment, namespaced);
    causes.add_more(of_metadata.more());
    for cause in &of_metadata {
        causes.push_with(|| {
            let path = at.path();
            let dot = if path.is_empty() { "" } else { "." };
            let mut cause = cause.clone();
            cause.field = format!("{path}{dot}{}", cause.field);
            cause
        });
    }
}

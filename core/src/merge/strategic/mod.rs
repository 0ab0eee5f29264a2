//! Strategic merge patch: a merge patch in which the schema decides which lists are merged, and by which key.
//!
//! A patch may contain directives: `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/<field>` and
//! `$setElementOrder/<field>`. Errors have Kubernetes' codes and messages, even odd ones. Fields that the schema does
//! not have are merged as plain JSON: maps are merged, lists are replaced.

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use holdfast_value::{CompactString, Map, Value};

use crate::Refusal;
use crate::refusal::{BadRequest, Merging, Unreasoned};
use crate::schema::{Field, Message, MessageId, Schema, Shape, Type};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// Applies `patch` to `original`, which is a document of `message`.
pub fn strategic_merge(original: &Value, patch: &Value, schema: &Schema, message: MessageId) -> Result<Value, Refusal> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(Refusal::BadRequest(BadRequest::NotAnObjectToMerge));
    };
    let place = Place::Struct(schema.message(message));
    Merge { schema }.maps(original.clone(), patch.clone(), place).map(Value::Object)
}

/// What the schema says about the values in a map.
#[derive(Clone, Copy)]
enum Place<'s> {
    Struct(&'s Message),
    /// A map with arbitrary keys, whose values have the type of this field.
    MapOf(&'s Field),
    Unknown,
}

/// What the schema says about one value of a map.
struct FieldSchema<'s> {
    /// The schema of the value if it is a map, or of the items if it is a list.
    place: Place<'s>,
    merges: bool,
    merge_key: Option<&'s str>,
}

struct Merge<'s> {
    schema: &'s Schema,
}

impl<'s> Merge<'s> {
    fn maps(&self, mut original: Map, mut patch: Map, place: Place<'s>) -> Result<Map, Refusal> {
        if let Some(directive) = patch.remove(PATCH) {
            return match directive.as_str() {
                Some("replace") => Ok(patch),
                Some("delete") => Ok(Map::new()),
                _ => {
                    patch.insert(PATCH, directive);
                    Err(unknown_directive(&patch))
                }
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.order_lists(&mut original, &mut patch, place)?;
        for (key, change) in patch {
            match key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
                Some(rest) => {
                    let name = rest.strip_prefix('/').ok_or_else(|| bad_directive("primitive list"))?;
                    self.value(&mut original, name, change, place, true)?;
                }
                None => self.value(&mut original, &key, change, place, false)?,
            }
        }
        Ok(original)
    }

    /// Merges one value of a patch into `original`, the map in which the value has its key.
    fn value(
        &self,
        original: &mut Map,
        key: &str,
        change: Value,
        place: Place<'s>,
        deletes: bool,
    ) -> Result<(), Refusal> {
        if change.is_null() {
            original.remove(key);
            return Ok(());
        }
        let Some(slot) = original.get_mut(key) else {
            if !deletes {
                original.insert(key, plain(change));
            }
            return Ok(());
        };
        let member = self.member(place, key);
        *slot = match (slot.take(), change) {
            (Value::Object(old), Value::Object(change)) => Value::Object(self.maps(old, change, member.place)?),
            (Value::Array(old), Value::Array(change)) if member.merges => {
                Value::Array(self.lists(old, change, &member, deletes)?)
            }
            (old, _) if deletes => old,
            (_, change) => plain(change),
        };
        Ok(())
    }

    fn lists(
        &self,
        mut original: Vec<Value>,
        patch: Vec<Value>,
        member: &FieldSchema<'s>,
        deletes: bool,
    ) -> Result<Vec<Value>, Refusal> {
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        if !elements_are_maps(&original, &patch)? {
            if deletes {
                let deleted: BTreeSet<String> = patch.iter().map(Value::to_string).collect();
                original.retain(|item| !deleted.contains(&item.to_string()));
                return Ok(original);
            }
            let mut merged = original.clone();
            merged.extend(patch.iter().cloned());
            return Ok(order::arrange(unique(merged), &patch, &patch, &original, None));
        }
        let Some(merge_key) = member.merge_key else {
            return Err(fault(Merging::ListsWithoutKey));
        };
        let (original, patch) = special_elements(original, patch, merge_key)?;
        let server_order = original.clone();
        let mut merged = original;
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (place, item) in merged.iter().enumerate() {
            if let Some(key) = item.get(merge_key) {
                places.entry(key.to_string()).or_insert(place);
            }
        }
        for element in &patch {
            let Value::Object(change) = element else { continue };
            let key = change.get(merge_key).ok_or_else(|| no_merge_key(change, merge_key))?;
            let place = *places.entry(key.to_string()).or_insert(merged.len());
            match merged.get_mut(place) {
                Some(slot) => {
                    if let Value::Object(old) = slot.take() {
                        *slot = Value::Object(self.maps(old, change.clone(), member.place)?);
                    }
                }
                None => merged.push(plain(element.clone())),
            }
        }
        require_keys(&merged, merge_key)?;
        Ok(order::arrange(merged, &patch, &patch, &server_order, Some(merge_key)))
    }

    /// Applies the directives `$setElementOrder/<field>` of a patch, each together with the patch of the list that it
    /// orders.
    fn order_lists(&self, original: &mut Map, patch: &mut Map, place: Place<'s>) -> Result<(), Refusal> {
        let directives: Vec<CompactString> =
            patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
        for directive in directives {
            let bad_format = || bad_directive("setElementOrder list");
            let wanted = match patch.remove(&directive) {
                Some(Value::Array(wanted)) => wanted,
                other => return Err(expected_list(&other.unwrap_or(Value::Null))),
            };
            let name = directive[SET_ELEMENT_ORDER.len()..].strip_prefix('/').ok_or_else(bad_format)?;
            let live = list_at(original.get(name))?;
            let changes = patch.remove(name);
            let changes = list_at(changes.as_ref())?;
            let member = self.member(place, name);
            order::check(changes.map_or(&[], Vec::as_slice), &wanted, member.merge_key)?;
            let merged = match (live, changes) {
                (None, None) => continue,
                (Some(live), None) => live.clone(),
                (None, Some(changes)) => changes.iter().cloned().map(plain).collect(),
                (Some(live), Some(changes)) if member.merges => {
                    self.lists(live.clone(), changes.clone(), &member, false)?
                }
                (Some(_), Some(changes)) => changes.iter().cloned().map(plain).collect(),
            };
            if elements_are_maps(&merged, &[])? {
                let Some(merge_key) = member.merge_key else { return Err(bad_format()) };
                require_keys(&merged, merge_key)?;
            }
            let server_order = live.cloned().unwrap_or_default();
            let arranged = order::arrange(merged, &wanted, &wanted, &server_order, member.merge_key);
            original.insert(name, Value::Array(arranged));
        }
        Ok(())
    }

    fn member(&self, place: Place<'s>, key: &str) -> FieldSchema<'s> {
        match place {
            Place::Unknown => FieldSchema { place: Place::Unknown, merges: false, merge_key: None },
            Place::MapOf(field) => FieldSchema { place: self.inside(field.ty), merges: false, merge_key: None },
            Place::Struct(message) => match message.field(key) {
                None => FieldSchema { place: Place::Unknown, merges: false, merge_key: None },
                Some(field) => FieldSchema {
                    place: if field.shape == Shape::Map { Place::MapOf(field) } else { self.inside(field.ty) },
                    merges: field.patch_merge,
                    merge_key: field.patch_merge_key.as_deref(),
                },
            },
        }
    }

    fn inside(&self, ty: Type) -> Place<'s> {
        match ty {
            Type::Message(id) => Place::Struct(self.schema.message(id)),
            _ => Place::Unknown,
        }
    }
}

/// Applies `$retainKeys`: removes all keys that it does not name from the original. The patch may set only keys that it
/// names.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<(), Refusal> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad_format = || bad_directive("retainKeys");
    let Value::Array(kept) = directive else { return Err(bad_format()) };
    let kept: BTreeSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    let is_kept = |key: &str| kept.contains(key);
    for (key, value) in patch.iter() {
        let is_list_directive = key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
        if !value.is_null() && !is_list_directive && !is_kept(key) {
            return Err(bad_format());
        }
    }
    original.retain(|key, _| is_kept(key));
    Ok(())
}

/// Applies the elements with the directive `$patch` in the patch of a list. Returns the changed list and the patch's
/// other elements.
fn special_elements(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Refusal> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut replaces = false;
    let mut deleted = BTreeSet::new();
    for element in patch {
        let Some(directive) = element.get(PATCH) else {
            rest.push(element);
            continue;
        };
        let Value::Object(fields) = &element else { continue };
        match directive.as_str() {
            Some("delete") => {
                let key = fields.get(merge_key).ok_or_else(|| no_merge_key(fields, merge_key))?;
                deleted.insert(key.to_string());
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(fault(Merging::MergeDirective));
            }
            _ => return Err(unknown_directive(fields)),
        }
    }
    if !deleted.is_empty() {
        original.retain(|item| item.get(merge_key).is_none_or(|key| !deleted.contains(&key.to_string())));
    }
    if replaces { Ok((rest, Vec::new())) } else { Ok((original, rest)) }
}

/// A value of a patch without null fields and directives. It is used where there is no original value with which it
/// could be merged.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let is_directive = |key: &str| {
                key == PATCH
                    || key == RETAIN_KEYS
                    || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
                    || key.starts_with(SET_ELEMENT_ORDER)
            };
            let kept = map.into_iter().filter(|(key, value)| !value.is_null() && !is_directive(key));
            Value::Object(kept.map(|(key, value)| (key, plain(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        scalar => scalar,
    }
}

/// Checks that all elements of two lists have the same type and are not lists. Returns whether they are maps.
fn elements_are_maps(original: &[Value], patch: &[Value]) -> Result<bool, Refusal> {
    let mut types = original.iter().chain(patch).map(go_type);
    let Some(first) = types.next() else { return Ok(false) };
    if first == "[]interface {}" {
        return Err(super::json::does_not_apply());
    }
    match types.find(|other| *other != first) {
        Some(other) => Err(fault(Merging::MixedTypes { first, other })),
        None => Ok(first == "map[string]interface {}"),
    }
}

fn require_keys(items: &[Value], merge_key: &str) -> Result<(), Refusal> {
    for item in items {
        if let Value::Object(map) = item
            && !map.contains_key(merge_key)
        {
            return Err(no_merge_key(map, merge_key));
        }
    }
    Ok(())
}

fn list_at(value: Option<&Value>) -> Result<Option<&Vec<Value>>, Refusal> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(expected_list(other)),
    }
}

/// Removes duplicates. Of equal items the first one stays.
fn unique(items: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.to_string())).collect()
}

fn bad_directive(what: &'static str) -> Refusal {
    Refusal::BadRequest(BadRequest::Directive(what))
}

fn fault(fault: Merging) -> Refusal {
    Refusal::Unreasoned(Unreasoned::Merge(fault))
}

fn expected_list(found: &Value) -> Refusal {
    fault(Merging::NotAList { found: go_type(found) })
}

fn no_merge_key(map: &Map, merge_key: &str) -> Refusal {
    fault(Merging::NoMergeKey { map: go_map(map), key: merge_key.into() })
}

fn unknown_directive(map: &Map) -> Refusal {
    let directive = match map.get(PATCH) {
        Some(Value::String(text)) => text.to_string(),
        Some(other) => format!("%!s({}={})", go_type(other), go_value(other)),
        None => String::new(),
    };
    fault(Merging::UnknownDirective { directive, map: go_map(map) })
}

/// Prints a map as Go does: with sorted keys and strings without quotes.
pub fn go_map(map: &Map) -> String {
    let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
    format!("map[{}]", entries.join(" "))
}

pub(super) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.to_string(),
        Value::Object(map) => go_map(map),
        Value::Array(items) => {
            let mut shown = String::from("[");
            for (position, item) in items.iter().enumerate() {
                let gap = if position == 0 { "" } else { " " };
                let _ = write!(shown, "{gap}{}", go_value(item));
            }
            shown + "]"
        }
        scalar => scalar.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;

//! Finds the old value that corresponds to a new value, and compares the two values.

use super::{ListType, Structural, invariants};
use holdfast_value::{CompactString, Value};
use std::collections::BTreeMap;

/// The items of the old list, in which the old item for a new item is looked up.
pub(super) enum OldItems<'a> {
    None,
    ByKeys(BTreeMap<String, &'a Value>, &'a [String]),
}

impl<'a> OldItems<'a> {
    pub fn of(schema: &'a Structural, old: Option<&'a Value>) -> Self {
        let Some(Value::Array(items)) = old else { return OldItems::None };
        match &schema.list_type {
            Some(ListType::Map(keys)) => {
                OldItems::ByKeys(items.iter().map(|item| (key_text(item, keys), item)).collect(), keys)
            }
            // An item of such a list has no identity, so it is unknown which old item corresponds to it.
            None | Some(ListType::Atomic | ListType::Set) => OldItems::None,
        }
    }

    /// The old item that has the same keys as `item`.
    pub fn same(&self, item: &Value) -> Option<&'a Value> {
        match self {
            OldItems::None => None,
            OldItems::ByKeys(items, keys) => items.get(&key_text(item, keys)).copied(),
        }
    }
}

fn key_text(item: &Value, keys: &[String]) -> String {
    invariants::key_of(item, keys).to_string()
}

/// Whether a value equals the old value. The order of the items of a keyed list does not matter. As in Kubernetes, an
/// object with fields that its schema does not declare counts as changed.
pub(super) fn unchanged(schema: Option<&Structural>, value: &Value, old: &Value) -> bool {
    let Some(schema) = schema else { return value == old };
    match (value, old) {
        (Value::Array(items), Value::Array(olds)) => {
            let each = schema.items.as_deref();
            let pairs = match OldItems::of(schema, Some(old)) {
                OldItems::None => return items == olds,
                pairs => pairs,
            };
            let same = |item| pairs.same(item).is_some_and(|old| unchanged(each, item, old));
            items.len() == olds.len() && items.iter().all(same)
        }
        (Value::Object(fields), Value::Object(olds)) => {
            let same = |(name, value): (&CompactString, &Value)| match (schema.field(name), olds.get(name)) {
                (Some(field), Some(old)) => unchanged(Some(field), value, old),
                _ => false,
            };
            fields.len() == olds.len() && fields.iter().all(same)
        }
        _ => value == old,
    }
}

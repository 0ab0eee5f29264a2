//! Which old value a new one is compared with, and whether the two say the same.

use super::{ListType, Structural, invariants};
use serde_json::Value;
use std::collections::BTreeMap;

/// The items that an update's items are compared with.
pub(super) enum OldItems<'a> {
    None,
    InOrder(&'a [Value]),
    ByKeys(BTreeMap<String, &'a Value>, &'a [String]),
}

impl<'a> OldItems<'a> {
    pub fn of(schema: &'a Structural, old: Option<&'a Value>) -> Self {
        let Some(Value::Array(items)) = old else { return OldItems::None };
        match &schema.list_type {
            None => OldItems::InOrder(items),
            Some(ListType::Map(keys)) => {
                OldItems::ByKeys(items.iter().map(|item| (key_text(item, keys), item)).collect(), keys)
            }
            // Their items have no identity.
            Some(ListType::Atomic | ListType::Set) => OldItems::None,
        }
    }

    pub fn get(&self, index: usize, item: &Value) -> Option<&'a Value> {
        match self {
            OldItems::None => None,
            OldItems::InOrder(items) => items.get(index),
            OldItems::ByKeys(items, keys) => items.get(&key_text(item, keys)).copied(),
        }
    }

    /// The old item with the same keys: the only one that a rule can take for what the item was before.
    pub fn same(&self, item: &Value) -> Option<&'a Value> {
        match self {
            OldItems::ByKeys(..) => self.get(0, item),
            OldItems::None | OldItems::InOrder(_) => None,
        }
    }
}

fn key_text(item: &Value, keys: &[String]) -> String {
    invariants::key_of(item, keys).to_string()
}

/// Whether a value says the same as before: the order of items that have keys says nothing.
pub(super) fn unchanged(schema: Option<&Structural>, value: &Value, old: &Value) -> bool {
    let Some(schema) = schema else { return value == old };
    match (value, old) {
        (Value::Array(items), Value::Array(olds)) => {
            let each = schema.items.as_deref();
            let pairs = match OldItems::of(schema, Some(old)) {
                OldItems::None => return items == olds,
                pairs => pairs,
            };
            let same = |(index, item)| pairs.get(index, item).is_some_and(|old| unchanged(each, item, old));
            items.len() == olds.len() && items.iter().enumerate().all(same)
        }
        (Value::Object(fields), Value::Object(olds)) => {
            let same = |(name, value): (&String, &Value)| {
                olds.get(name).is_some_and(|old| unchanged(schema.field(name), value, old))
            };
            fields.len() == olds.len() && fields.iter().all(same)
        }
        _ => value == old,
    }
}

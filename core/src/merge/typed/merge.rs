//! Merges an applied configuration into a live document, and removes paths from a document.

use std::collections::BTreeMap;

use holdfast_value::{Map, Value};

use super::{Node, Typed, is_empty, items};
use crate::merge::field_set::FieldSet;

/// Whether a struct stays in the document even if it becomes empty. The metadata of a custom resource stays, because
/// some of its fields, such as the name, have no owner and are never removed.
fn stays(node: Node, key: &str) -> bool {
    super::always_written(node, key).is_some()
        || key == "metadata" && matches!(node, Node::Object { resource: true, .. })
}

/// The document `live` with the values of `config`. Nulls in `config` remove fields, except where null is a value.
pub(crate) fn merge(typed: Typed, live: &Value, config: &Value) -> Value {
    typed.merged(typed.root(), Some(live), Some(config)).unwrap_or_else(|| Value::Object(Map::new()))
}

/// The document without the paths in `set`. Containers that become empty are removed, unless `stays` keeps them.
pub(in crate::merge) fn remove(typed: Typed, document: &Value, set: &FieldSet) -> Value {
    typed.removed(typed.root(), document, set, false).unwrap_or_else(|| Value::Object(Map::new()))
}

/// Like [`remove`], but a field whose parts are all removed stays as null, because its own path is not in `set`.
pub(in crate::merge) fn hollow(typed: Typed, document: &Value, set: &FieldSet) -> Value {
    typed.removed(typed.root(), document, set, true).unwrap_or_else(|| Value::Object(Map::new()))
}

impl<'s> Typed<'s> {
    fn merged(self, node: Node<'s>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
        let Some(config) = config else { return live.cloned() };
        let is_entered = match node {
            _ if node.is_leaf() => false,
            Node::Unknown => config.is_object(),
            _ => true,
        };
        if !is_entered || (is_empty(live) && is_empty(Some(config))) {
            return Some(config.clone()).filter(|value| !value.is_null() || node.may_be_null());
        }
        let merged = match node {
            _ if node.is_list() => Value::Array(self.merged_lists(node, items(live), items(Some(config)))),
            _ => Value::Object(self.merged_maps(node, live.and_then(Value::as_object), config.as_object())),
        };
        Some(merged).filter(|value| !is_empty(Some(value)))
    }

    fn merged_maps(self, node: Node<'s>, live: Option<&Map>, config: Option<&Map>) -> Map {
        let mut merged = live.cloned().unwrap_or_default();
        for (key, value) in config.into_iter().flatten() {
            match self.merged(self.inside(node, key), merged.get(key), Some(value)) {
                Some(value) => _ = merged.insert(key.clone(), value),
                None => _ = merged.remove(key),
            }
        }
        merged
    }

    /// Merges two lists. Elements that both lists have follow the configuration's order. Elements that only one list
    /// has stay next to their neighbours in that list.
    fn merged_lists(self, node: Node<'s>, live: &[Value], config: &[Value]) -> Vec<Value> {
        let inner = self.element_node(node);
        let keyed = |items: &'_ [Value]| -> Vec<String> {
            items.iter().map(|item| self.element(node, item).unwrap_or_default()).collect()
        };
        let (live_keys, config_keys) = (keyed(live), keyed(config));
        let config_index: BTreeMap<&str, usize> =
            config_keys.iter().enumerate().map(|(at, key)| (key.as_str(), at)).collect();
        let mut live_index: BTreeMap<&str, Option<usize>> = BTreeMap::new();
        for (at, key) in live_keys.iter().enumerate() {
            // Duplicates cannot be distinguished, so the configuration's element replaces them.
            live_index.entry(key).and_modify(|place| *place = None).or_insert(Some(at));
        }
        let mut shared = config_keys.iter().map(String::as_str).filter(|key| live_index.contains_key(key)).peekable();
        let mut merged = Vec::with_capacity(live.len().max(config.len()));
        let mut done = vec![false; config.len()];
        let (mut left, mut right) = (0, 0);
        while left < live.len() || right < config.len() {
            if let Some(key) = live_keys.get(left).map(String::as_str) {
                match config_index.get(key) {
                    None => {
                        merged.push(live[left].clone());
                        left += 1;
                        continue;
                    }
                    Some(&at) if done[at] => left += 1,
                    // The configuration has this element later, and there it is merged.
                    Some(_) if right < config.len() && shared.peek().is_some_and(|next| *next != key) => {
                        left += 1;
                        continue;
                    }
                    Some(_) => {}
                }
            }
            let Some(key) = config_keys.get(right).map(String::as_str) else {
                left += 1;
                continue;
            };
            let old = live_index.get(key).copied().flatten().map(|at| &live[at]);
            merged.extend(self.merged(inner, old, Some(&config[right])));
            done[right] = true;
            if shared.peek() == Some(&key) {
                shared.next();
            }
            if live_keys.get(left).is_some_and(|live_key| live_key == key) {
                left += 1;
            }
            right += 1;
        }
        merged
    }

    /// The value without the fields in `set`; `None` if nothing remains.
    fn removed(self, node: Node<'s>, value: &Value, set: &FieldSet, hollow: bool) -> Option<Value> {
        let left = match (node, value) {
            (_, Value::Array(list)) if node.is_list() => {
                let inner = self.element_node(node);
                let mut left = Vec::with_capacity(list.len());
                for item in list {
                    let element = self.element(node, item).unwrap_or_default();
                    if set.contains(&element) {
                        continue;
                    }
                    match set.below(&element) {
                        Some(below) => left.extend(self.removed(inner, item, below, hollow)),
                        None => left.push(item.clone()),
                    }
                }
                Value::Array(left)
            }
            (Node::Struct(_) | Node::Map(_) | Node::Object { .. } | Node::Unknown, Value::Object(map)) => {
                let mut left = Map::new();
                for (key, value) in map {
                    let element = super::field_element(key);
                    let inner = self.inside(node, key);
                    let kept = match set.below(&element) {
                        _ if set.contains(&element) => None,
                        Some(below) => self.removed(inner, value, below, hollow).or(hollow.then_some(Value::Null)),
                        None => Some(value.clone()),
                    };
                    match kept {
                        Some(kept) => _ = left.insert(key.clone(), kept),
                        None if matches!(inner, Node::Struct(_)) && stays(node, key) => {
                            left.insert(key.clone(), Value::Object(Map::new()));
                        }
                        None => {}
                    }
                }
                Value::Object(left)
            }
            (_, whole) => whole.clone(),
        };
        if is_empty(Some(&left)) && !is_empty(Some(value)) { None } else { Some(left) }
    }
}

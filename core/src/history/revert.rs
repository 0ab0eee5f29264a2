//! Undoes one change: computes the object with all later changes and without this change.
//!
//! The algorithm is a three-way merge, field by field: it removes the change from `before` to `after` from `now`.
//! Fields that the change did not touch stay. A touched field gets its value from `before` if its value is still the
//! one from `after`. Otherwise the field was set later, and this is a conflict. List elements are matched by their keys
//! in the kind's schema. A list without keys is one field.

use super::difference::Shape;
use super::path::{Path, Step};
use crate::merge::typed::Node;
use crate::object::export::SERVER_METADATA;
use holdfast_value::{CompactString, Map, Value};
use std::collections::BTreeSet;

/// The document without the change, computed as if there were no conflicts, and the conflicts.
#[derive(Debug, Clone, PartialEq)]
pub struct Reverted {
    pub document: Value,
    pub conflicts: Vec<Conflict>,
}

/// A field that was set after the change. Each value is `None` if the field is absent in that document.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    pub path: Path,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub now: Option<Value>,
}

/// The document without the metadata that only the server sets.
pub fn settable(mut document: Value) -> Value {
    if let Some(Value::Object(metadata)) = document.get_mut("metadata") {
        metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
    }
    document
}

/// Removes the change from `before` to `after` from `now`.
pub fn revert(shape: Shape, before: &Value, after: &Value, now: &Value) -> Reverted {
    let mut merge = Merge { shape, conflicts: Vec::new() };
    let three = Three { before: Some(before), after: Some(after), now: Some(now) };
    let document = merge.value(shape.root(), Path::default(), three);
    Reverted { document: document.unwrap_or_else(|| Value::Object(Map::new())), conflicts: merge.conflicts }
}

struct Merge<'s> {
    shape: Shape<'s>,
    conflicts: Vec<Conflict>,
}

/// One field in the three documents.
#[derive(Clone, Copy)]
struct Three<'v> {
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    now: Option<&'v Value>,
}

/// The elements of a list with their keys, in order.
type Keyed<'v> = Vec<(String, &'v Value)>;

impl<'s> Merge<'s> {
    fn value(&mut self, node: Option<Node<'s>>, path: Path, three: Three) -> Option<Value> {
        let Three { before, after, now } = three;
        if before == after || now == before {
            return now.cloned();
        }
        if now == after {
            return before.cloned();
        }
        // An absent value counts as an empty map: a map that the change added may have other fields now.
        let empty = Map::new();
        if let Some([before, after, now]) = three.each(|value| value.map_or(Some(&empty), Value::as_object)) {
            let merged = self.map(node, &path, before, after, now);
            return three.unless_empty(merged.is_empty(), Value::Object(merged));
        }
        let lists = three.each(|value| {
            let items = value.map_or(Some(&[][..]), |value| value.as_array().map(Vec::as_slice))?;
            Some(self.shape.keys(node, items)?.into_iter().zip(items).collect::<Keyed>())
        });
        if let Some([before, after, now]) = lists {
            let merged = self.keyed(node, &path, before, after, now);
            return three.unless_empty(merged.is_empty(), Value::Array(merged));
        }
        self.conflict(path, three);
        before.cloned()
    }

    fn conflict(&mut self, path: Path, three: Three) {
        let Three { before, after, now } = three;
        let (before, after, now) = (before.cloned(), after.cloned(), now.cloned());
        self.conflicts.push(Conflict { path, before, after, now });
    }

    fn map(&mut self, node: Option<Node<'s>>, path: &Path, before: &Map, after: &Map, now: &Map) -> Map {
        let names: BTreeSet<&CompactString> = before.keys().chain(after.keys()).chain(now.keys()).collect();
        let mut merged = Map::new();
        for name in names {
            let three = Three { before: before.get(name), after: after.get(name), now: now.get(name) };
            let node = self.shape.inside(node, name);
            if let Some(value) = self.value(node, path.then(Step::Field(name.clone())), three) {
                merged.insert(name.clone(), value);
            }
        }
        merged
    }

    fn keyed(&mut self, node: Option<Node<'s>>, path: &Path, before: Keyed, after: Keyed, now: Keyed) -> Vec<Value> {
        let mut merged: Vec<(String, Value)> = Vec::new();
        // Existing elements keep their order. A restored element is inserted behind the element that it followed
        // before.
        for (key, _) in &now {
            merged.extend(self.element(node, path, key, [&before, &after, &now]).map(|value| (key.clone(), value)));
        }
        for (place, (key, _)) in before.iter().enumerate().filter(|(_, (key, _))| find(&now, key).is_none()) {
            if let Some(value) = self.element(node, path, key, [&before, &after, &now]) {
                let previous = before[..place].iter().rev();
                let behind = previous.filter_map(|(key, _)| merged.iter().position(|(other, _)| other == key)).next();
                merged.insert(behind.map_or(0, |place| place + 1), (key.clone(), value));
            }
        }
        self.reorder(path, &before, &after, &now, &mut merged);
        merged.into_iter().map(|(_, value)| value).collect()
    }

    fn element(&mut self, node: Option<Node<'s>>, path: &Path, key: &str, lists: [&Keyed; 3]) -> Option<Value> {
        let [before, after, now] = lists.map(|list| find(list, key));
        let three = Three { before, after, now };
        let path = path.then(Step::Key(key.to_owned()));
        let is_settled = before == after || now == before || now == after;
        // A single part of an element would lack the element's key, so the conflict covers the whole element.
        if !is_settled && three.each(|value| value).is_none() {
            self.conflict(path, three);
            return before.cloned();
        }
        self.value(self.shape.element(node), path, three)
    }

    /// Undoes a change of the order of elements that are in all three lists.
    fn reorder(&mut self, path: &Path, before: &Keyed, after: &Keyed, now: &Keyed, merged: &mut [(String, Value)]) {
        let stayed = |list: &Keyed| -> Vec<String> {
            let everywhere = |key: &str| [before, after, now].iter().all(|list| find(list, key).is_some());
            list.iter().map(|(key, _)| key.clone()).filter(|key| everywhere(key)).collect()
        };
        let [was, became, is] = [before, after, now].map(stayed);
        if was == became || is == was {
            return;
        }
        if is != became {
            let values = |list: &Keyed| Value::Array(list.iter().map(|(_, value)| Value::clone(value)).collect());
            let [before, after, now] = [before, after, now].map(values);
            self.conflict(path.clone(), Three { before: Some(&before), after: Some(&after), now: Some(&now) });
        }
        let mut places: Vec<usize> = (0..merged.len()).filter(|place| was.contains(&merged[*place].0)).collect();
        let mut elements: Vec<(String, Value)> = places.iter().map(|place| merged[*place].clone()).collect();
        elements.sort_by_key(|(key, _)| was.iter().position(|other| other == key));
        for (place, element) in places.drain(..).zip(elements) {
            merged[place] = element;
        }
    }
}

impl<'v> Three<'v> {
    fn each<T>(self, take: impl Fn(Option<&'v Value>) -> Option<T>) -> Option<[T; 3]> {
        Some([take(self.before)?, take(self.after)?, take(self.now)?])
    }

    /// A part that becomes empty stays if both `before` and `now` contain the part.
    fn unless_empty(self, is_empty: bool, value: Value) -> Option<Value> {
        let is_there = self.before.is_some() && self.now.is_some();
        (!is_empty || is_there).then_some(value)
    }
}

fn find<'v>(list: &Keyed<'v>, key: &str) -> Option<&'v Value> {
    list.iter().find(|(other, _)| other == key).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::super::difference::tests::{documents, with_kind};
    use super::*;
    use holdfast_value::json;
    use proptest::prelude::*;

    fn reverted(before: &Value, after: &Value, now: &Value) -> (Value, Vec<String>) {
        with_kind("", "v1", "pods", |shape| {
            let Reverted { document, conflicts } = revert(shape, before, after, now);
            (document, conflicts.iter().map(|conflict| conflict.path.to_string()).collect())
        })
    }

    #[test]
    fn a_change_is_taken_back_and_later_ones_stay() {
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        let containers = |items: &[Value]| json!({"spec": {"containers": items}});
        let container = |name: &str, image: &str| json!({"name": name, "image": image});
        let (a, b, c) = (container("a", "1"), container("b", "1"), container("c", "1"));
        let (a2, a3) = (container("a", "2"), container("a", "3"));
        let args = |args: Value| json!({"spec": {"containers": [{"name": "a", "args": args}]}});
        let image = "spec.containers[name=a].image";
        // Columns: before, after, now, expected, conflicts.
        for (before, after, now, expected, conflicts) in [
            // In the first row, the field is unchanged since the change. In the second row, another field was changed
            // later. In the third row, the change is already undone.
            (json!({"x": 1}), json!({"x": 2}), json!({"x": 2}), json!({"x": 1}), &[][..]),
            (json!({"x": 1}), json!({"x": 2}), json!({"x": 2, "y": 3}), json!({"x": 1, "y": 3}), &[]),
            (json!({"x": 1}), json!({"x": 2}), json!({"x": 1, "y": 3}), json!({"x": 1, "y": 3}), &[]),
            // The field was set after the change, which is a conflict. Only force restores the old value.
            (json!({"x": 1}), json!({"x": 2}), json!({"x": 3}), json!({"x": 1}), &["x"]),
            (json!({"x": 1}), json!({"x": 2}), json!({}), json!({"x": 1}), &["x"]),
            (json!({}), json!({"x": 2}), json!({"x": 3}), json!({}), &["x"]),
            (json!({"x": 1}), json!({}), json!({"x": 3}), json!({"x": 1}), &["x"]),
            (json!({"x": {"y": 1}}), json!({"x": 2}), json!({"x": {"z": 1}}), json!({"x": {"y": 1}}), &["x"]),
            // A map that the change added is removed, unless it contains other fields now.
            (
                json!({"metadata": {}}),
                labels(json!({"a": "1"})),
                labels(json!({"a": "1"})),
                json!({"metadata": {}}),
                &[],
            ),
            (
                json!({"metadata": {}}),
                labels(json!({"a": "1"})),
                labels(json!({"a": "1", "b": "2"})),
                labels(json!({"b": "2"})),
                &[],
            ),
            (
                labels(json!({"a": "1"})),
                json!({"metadata": {}}),
                labels(json!({"b": "2"})),
                labels(json!({"a": "1", "b": "2"})),
                &[],
            ),
            (labels(json!({"a": "1"})), labels(json!({})), labels(json!({})), labels(json!({"a": "1"})), &[]),
            (labels(json!({})), labels(json!({"a": "1"})), labels(json!({"a": "1"})), labels(json!({})), &[]),
            // The list elements have keys, so the change of each element is undone by itself.
            (
                containers(&[a.clone(), b.clone()]),
                containers(&[a2.clone(), b.clone()]),
                containers(&[c.clone(), b.clone(), a2.clone()]),
                containers(&[c.clone(), b.clone(), a.clone()]),
                &[],
            ),
            (
                containers(std::slice::from_ref(&a)),
                containers(std::slice::from_ref(&a2)),
                containers(&[a3.clone(), b.clone()]),
                containers(&[a.clone(), b.clone()]),
                &[image],
            ),
            (
                containers(&[a.clone(), b.clone(), c.clone()]),
                containers(&[a.clone(), c.clone()]),
                containers(&[a2.clone(), c.clone()]),
                containers(&[a2.clone(), b.clone(), c.clone()]),
                &[],
            ),
            (
                containers(std::slice::from_ref(&b)),
                containers(&[a.clone(), b.clone()]),
                containers(&[a.clone(), b.clone(), c.clone()]),
                containers(&[b.clone(), c.clone()]),
                &[],
            ),
            (
                containers(std::slice::from_ref(&b)),
                containers(&[a.clone(), b.clone()]),
                containers(&[a2.clone(), b.clone()]),
                containers(std::slice::from_ref(&b)),
                &["spec.containers[name=a]"],
            ),
            // The change reordered the elements of a keyed list.
            (
                containers(&[a.clone(), b.clone()]),
                containers(&[b.clone(), a.clone()]),
                containers(&[b.clone(), c.clone(), a2.clone()]),
                containers(&[a2.clone(), c.clone(), b.clone()]),
                &[],
            ),
            (
                containers(&[a.clone(), b.clone(), c.clone()]),
                containers(&[b.clone(), a.clone(), c.clone()]),
                containers(&[c.clone(), b.clone(), a.clone()]),
                containers(&[a.clone(), b.clone(), c.clone()]),
                &["spec.containers"],
            ),
            // A list without keys counts as one field and is restored as a whole.
            (args(json!(["x", "y"])), args(json!(["x"])), args(json!(["x"])), args(json!(["x", "y"])), &[]),
            (
                args(json!(["x", "y"])),
                args(json!(["x"])),
                args(json!(["x", "z"])),
                args(json!(["x", "y"])),
                &["spec.containers[name=a].args"],
            ),
            // Items of a set are compared by value.
            (
                json!({"metadata": {"finalizers": ["a/b"]}}),
                json!({"metadata": {"finalizers": ["a/b", "c/d"]}}),
                json!({"metadata": {"finalizers": ["a/b", "c/d", "e/f"]}}),
                json!({"metadata": {"finalizers": ["a/b", "e/f"]}}),
                &[],
            ),
        ] {
            let conflicts: Vec<String> = conflicts.iter().map(|path| path.to_string()).collect();
            assert_eq!(reverted(&before, &after, &now), (expected, conflicts), "{before} to {after}, now {now}");
        }
    }

    #[test]
    fn what_the_server_sets_is_left_to_it() {
        let document = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "2", "generation": 3,
            "creationTimestamp": "x", "deletionTimestamp": "y", "managedFields": [], "labels": {"uid": "kept"}},
            "spec": {"uid": "kept"}});
        let expected = json!({"metadata": {"name": "a", "labels": {"uid": "kept"}}, "spec": {"uid": "kept"}});
        assert_eq!(settable(document), expected);
    }

    proptest! {
        #[test]
        fn the_last_change_is_taken_back_whole(before in documents(), after in documents()) {
            if before.is_object() && after.is_object() {
                prop_assert_eq!(reverted(&before, &after, &after), (before.clone(), Vec::new()));
                prop_assert_eq!(reverted(&before, &after, &before), (before.clone(), Vec::new()));
                prop_assert_eq!(reverted(&before, &before, &after), (after, Vec::new()));
            }
        }

        /// With force, every field that the change touched returns to its old value, so undoing the change a second
        /// time has no effect.
        #[test]
        fn taking_back_twice_is_taking_back_once(before in documents(), after in documents(), now in documents()) {
            if before.is_object() && after.is_object() && now.is_object() {
                let (once, _) = reverted(&before, &after, &now);
                prop_assert_eq!(reverted(&before, &after, &once), (once.clone(), Vec::new()));
            }
        }
    }
}

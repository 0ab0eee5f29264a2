//! The differences between two documents of one kind, field by field.

use super::path::{Path, Step};
use crate::merge::typed::{Node, Typed};
use crate::schema::layout::Layout;
use holdfast_value::{CompactString, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The schema of the documents, if it is known.
#[derive(Clone, Copy)]
pub struct Shape<'s>(Option<Typed<'s>>);

#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    pub path: Path,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Added(Value),
    Removed(Value),
    Changed {
        old: Value,
        new: Value,
    },
    /// The elements that a keyed list has before and after the change are in another order.
    Reordered {
        old: Vec<String>,
        new: Vec<String>,
    },
}

impl<'s> Shape<'s> {
    /// Without a layout, the elements of all lists are compared by index.
    pub fn new(layout: Option<Layout<'s>>) -> Self {
        Shape(layout.map(Typed::new))
    }

    pub(super) fn root(self) -> Option<Node<'s>> {
        self.0.map(Typed::root)
    }

    pub(super) fn inside(self, node: Option<Node<'s>>, key: &str) -> Option<Node<'s>> {
        Some(self.0?.inside(node?, key))
    }

    pub(super) fn element(self, node: Option<Node<'s>>) -> Option<Node<'s>> {
        Some(self.0?.element_node(node?))
    }

    /// The keys of a list's elements, in order; `None` if an element has no key or if two elements have the same key.
    pub(super) fn keys(self, node: Option<Node<'s>>, items: &[Value]) -> Option<Vec<String>> {
        let (typed, node) = (self.0?, node?);
        if !node.is_list() {
            return None;
        }
        let keys: Vec<String> = items.iter().map(|item| typed.element(node, item)).collect::<Result<_, _>>().ok()?;
        let distinct: BTreeSet<&String> = keys.iter().collect();
        (distinct.len() == keys.len()).then_some(keys)
    }
}

impl FieldChange {
    /// The number of changed fields. Each field of an added or removed part counts.
    pub fn fields(&self) -> usize {
        match &self.what {
            What::Added(value) | What::Removed(value) => leaf_count(value),
            What::Changed { .. } | What::Reordered { .. } => 1,
        }
    }
}

impl What {
    /// The values before and after; `None` if absent.
    pub fn sides(self) -> (Option<Value>, Option<Value>) {
        match self {
            What::Added(new) => (None, Some(new)),
            What::Removed(old) => (Some(old), None),
            What::Changed { old, new } => (Some(old), Some(new)),
            What::Reordered { old, new } => (Some(old.into()), Some(new.into())),
        }
    }
}

/// The changes from `old` to `new`, ordered by field name.
pub fn difference(shape: Shape, old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(shape, shape.root(), &Path::default(), old, new, &mut changes);
    changes
}

/// The document without its resourceVersion and managed fields: every write changes them, and no user sets them.
pub fn without_bookkeeping(mut document: Value) -> Value {
    if let Some(Value::Object(metadata)) = document.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    document
}

/// Each leaf field with its value. Leaves are scalars, empty maps and empty lists.
pub fn leaves<'v>(shape: Shape, document: &'v Value) -> BTreeMap<Path, &'v Value> {
    let mut found = BTreeMap::new();
    collect(shape, shape.root(), Path::default(), document, &mut found);
    found
}

fn compare<'s>(
    shape: Shape<'s>,
    node: Option<Node<'s>>,
    path: &Path,
    old: &Value,
    new: &Value,
    out: &mut Vec<FieldChange>,
) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let names: BTreeSet<&CompactString> = old.keys().chain(new.keys()).collect();
            for name in names {
                let path = path.then(Step::Field(name.clone()));
                either(shape, shape.inside(node, name), path, old.get(name), new.get(name), out);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            match shape.keys(node, old).zip(shape.keys(node, new)) {
                Some(keys) => compare_keyed(shape, node, path, (old, &keys.0), (new, &keys.1), out),
                None => {
                    for index in 0..old.len().max(new.len()) {
                        let path = path.then(Step::Index(index));
                        either(shape, shape.element(node), path, old.get(index), new.get(index), out);
                    }
                }
            };
        }
        (old, new) => {
            let what = What::Changed { old: old.clone(), new: new.clone() };
            out.push(FieldChange { path: path.clone(), what });
        }
    }
}

fn either<'s>(
    shape: Shape<'s>,
    node: Option<Node<'s>>,
    path: Path,
    old: Option<&Value>,
    new: Option<&Value>,
    out: &mut Vec<FieldChange>,
) {
    let what = match (old, new) {
        (Some(old), Some(new)) => return compare(shape, node, &path, old, new, out),
        (None, Some(new)) => What::Added(new.clone()),
        (Some(old), None) => What::Removed(old.clone()),
        (None, None) => return,
    };
    out.push(FieldChange { path, what });
}

type KeyedList<'a> = (&'a [Value], &'a [String]);

fn compare_keyed<'s>(
    shape: Shape<'s>,
    node: Option<Node<'s>>,
    path: &Path,
    (old, old_keys): KeyedList,
    (new, new_keys): KeyedList,
    out: &mut Vec<FieldChange>,
) {
    let olds: BTreeMap<&String, &Value> = old_keys.iter().zip(old).collect();
    let news: BTreeMap<&String, &Value> = new_keys.iter().zip(new).collect();
    let stayed = |keys: &[String]| -> Vec<String> {
        keys.iter().filter(|key| olds.contains_key(key) && news.contains_key(key)).cloned().collect()
    };
    let (before, after) = (stayed(old_keys), stayed(new_keys));
    if before != after {
        out.push(FieldChange { path: path.clone(), what: What::Reordered { old: before, new: after } });
    }
    let gone = old_keys.iter().filter(|key| !news.contains_key(key));
    for key in gone.chain(new_keys) {
        let path = path.then(Step::Key(key.clone()));
        either(shape, shape.element(node), path, olds.get(key).copied(), news.get(key).copied(), out);
    }
}

fn collect<'s, 'v>(
    shape: Shape<'s>,
    node: Option<Node<'s>>,
    path: Path,
    value: &'v Value,
    out: &mut BTreeMap<Path, &'v Value>,
) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                collect(shape, shape.inside(node, name), path.then(Step::Field(name.clone())), value, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let mut keys = shape.keys(node, items).map(Vec::into_iter);
            for (index, item) in items.iter().enumerate() {
                let key = keys.as_mut().and_then(Iterator::next);
                let step = key.map_or(Step::Index(index), Step::Key);
                collect(shape, shape.element(node), path.then(step), item, out);
            }
        }
        _ => _ = out.insert(path, value),
    }
}

fn leaf_count(value: &Value) -> usize {
    match value {
        Value::Object(fields) if !fields.is_empty() => fields.values().map(leaf_count).sum(),
        Value::Array(items) if !items.is_empty() => items.iter().map(leaf_count).sum(),
        _ => 1,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kinds::registry;
    use holdfast_value::json;
    use proptest::prelude::*;

    /// Calls `work` with the shape of a built-in kind.
    pub(crate) fn with_kind<T>(group: &str, version: &str, resource: &str, work: impl FnOnce(Shape) -> T) -> T {
        let (id, version) = registry().find(group, version, resource).expect("a built-in kind");
        work(Shape::new(registry().get(id).layout(version)))
    }

    fn told(old: Value, new: Value) -> Vec<String> {
        with_kind("", "v1", "pods", |shape| {
            let line = |change: FieldChange| match change.what {
                What::Added(value) => format!("+ {} {value}", change.path),
                What::Removed(value) => format!("- {} {value}", change.path),
                What::Changed { old, new } => format!("~ {} {old} {new}", change.path),
                What::Reordered { new, .. } => format!("^ {} {}", change.path, new.join(" ")),
            };
            difference(shape, &old, &new).into_iter().map(line).collect()
        })
    }

    #[test]
    fn documents_differ_field_by_field() {
        let containers = |items: Value| json!({"spec": {"containers": items}});
        let (a, b) = (json!({"name": "a", "image": "a:1"}), json!({"name": "b", "image": "b:1"}));
        let a2 = json!({"name": "a", "image": "a:2"});
        for (old, new, expected) in [
            (json!({}), json!({}), vec![]),
            (json!({"a": 1}), json!({"a": 2}), vec!["~ a 1 2"]),
            (json!({"a": 1}), json!({"a": "1"}), vec!["~ a 1 \"1\""]),
            (json!({"a": {"b": 1}}), json!({"a": {}}), vec!["- a.b 1"]),
            (json!({"a": null}), json!({}), vec!["- a null"]),
            (json!({}), json!({"a": {"b": 1, "c": 2}}), vec!["+ a {\"b\":1,\"c\":2}"]),
            (json!({"a": {"b": 1}}), json!({"a": [1]}), vec!["~ a {\"b\":1} [1]"]),
            // Elements are compared by key: another order is one change, and an inserted element does not move other
            // elements.
            (
                containers(json!([a, b])),
                containers(json!([b, a])),
                vec!["^ spec.containers k:{\"name\":\"b\"} k:{\"name\":\"a\"}"],
            ),
            (
                containers(json!([a])),
                containers(json!([b, a2])),
                vec![
                    "+ spec.containers[name=b] {\"image\":\"b:1\",\"name\":\"b\"}",
                    "~ spec.containers[name=a].image \"a:1\" \"a:2\"",
                ],
            ),
            (
                containers(json!([a, b])),
                containers(json!([b])),
                vec!["- spec.containers[name=a] {\"image\":\"a:1\",\"name\":\"a\"}"],
            ),
            // Duplicate or missing keys cannot identify elements.
            (containers(json!([a, a])), containers(json!([a, a2])), vec!["~ spec.containers[1].image \"a:1\" \"a:2\""]),
            (
                containers(json!([{"image": "x"}])),
                containers(json!([{"image": "y"}])),
                vec!["~ spec.containers[name=].image \"x\" \"y\""],
            ),
            // The items of a set are compared by value; the items of an atomic list are compared by position.
            (
                json!({"metadata": {"finalizers": ["a/b", "c/d"]}}),
                json!({"metadata": {"finalizers": ["c/d"]}}),
                vec!["- metadata.finalizers[\"a/b\"] \"a/b\""],
            ),
            (
                containers(json!([{"name": "a", "args": ["x", "y"]}])),
                containers(json!([{"name": "a", "args": ["y"]}])),
                vec!["~ spec.containers[name=a].args[0] \"x\" \"y\"", "- spec.containers[name=a].args[1] \"y\""],
            ),
            // Key fields with defaults identify an element even if they are not written.
            (
                containers(json!([{"name": "a", "ports": [{"containerPort": 1}]}])),
                containers(json!([{"name": "a", "ports": [{"containerPort": 1, "protocol": "TCP"}]}])),
                vec!["+ spec.containers[name=a].ports[containerPort=1,protocol=TCP].protocol \"TCP\""],
            ),
        ] {
            assert_eq!(told(old.clone(), new.clone()), expected, "{old} to {new}");
        }
    }

    #[test]
    fn bookkeeping_is_left_out_where_it_stands() {
        let document = json!({"metadata": {"name": "a", "managedFields": [], "resourceVersion": "1"},
            "data": {"resourceVersion": "kept"}});
        assert_eq!(
            without_bookkeeping(document),
            json!({"metadata": {"name": "a"}, "data": {"resourceVersion": "kept"}})
        );
    }

    #[test]
    fn parts_are_counted_by_their_fields() {
        let change = |what| FieldChange { path: Path::default(), what }.fields();
        assert_eq!(change(What::Added(json!({"a": 1, "b": [1, 2], "c": {}, "d": []}))), 5);
        assert_eq!(change(What::Removed(json!("x"))), 1);
        assert_eq!(change(What::Changed { old: json!({"a": 1, "b": 2}), new: json!(1) }), 1);
    }

    pub(crate) fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), (0..3i64).prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
        let name = || prop_oneof![Just("spec"), Just("containers"), Just("name"), Just("ports"), Just("x")];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(name().prop_map(String::from), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn there_is_a_difference_exactly_where_documents_differ(old in documents(), new in documents()) {
            with_kind("", "v1", "pods", |shape| {
                let there = difference(shape, &old, &new);
                prop_assert_eq!(there.is_empty(), old == new);
                let back = difference(shape, &new, &old);
                let mut paths: Vec<&Path> = there.iter().map(|change| &change.path).collect();
                let mut mirrored: Vec<&Path> = back.iter().map(|change| &change.path).collect();
                paths.sort();
                mirrored.sort();
                prop_assert_eq!(paths, mirrored);
                prop_assert_eq!(leaves(shape, &old).len(), leaf_count(&old));
                Ok(())
            })?;
        }
    }
}

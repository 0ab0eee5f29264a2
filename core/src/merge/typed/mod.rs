//! Documents and their schema: the paths of a document, the difference of two documents, merging an applied
//! configuration into a live document, and removing paths.
//!
//! Each part of a document is a [`Node`]. A node is either a leaf, which is compared and owned as a whole, or a struct,
//! map, set or keyed list, whose parts are compared and owned separately. The parts of maps in fields that the schema
//! does not have are also compared and owned separately.

mod atomic;
mod check;
mod merge;

use holdfast_value::{Map, Value};

pub(crate) use atomic::atomic_parts;
pub(crate) use check::check;
pub(crate) use merge::merge;
pub(super) use merge::{hollow, remove};

use super::field_set::{FieldSet, field_element, key_element, shown, value_element};
use crate::schema::layout::{Layout, object_meta};
use crate::schema::structural::{self, Structural};
use crate::schema::{Field, ListType, Message, Schema, Shape, Type, schema};

/// A schema, and the schema node of the whole document.
#[derive(Clone, Copy)]
pub(crate) struct Typed<'s> {
    schema: &'s Schema,
    root: Node<'s>,
    /// Whether fields that are not in the schema are allowed.
    open: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Node<'s> {
    Scalar(Type),
    /// A list, map or struct that is compared and owned as a whole.
    Atomic(&'s Field),
    /// A struct of a type that is marked as atomic, so that it is compared and owned as a whole.
    AtomicStruct(&'s Message),
    Struct(&'s Message),
    /// A map with arbitrary keys, whose values are compared and owned separately.
    Map(&'s Field),
    /// A list of scalars. Each scalar is its own key.
    Set(&'s Field),
    /// A list of structs that have key fields, which identify an element.
    Keyed(&'s Field),
    Unknown,
    /// An object of a custom resource, with declared fields and arbitrary keys. A `resource` also has apiVersion, kind
    /// and metadata.
    Object {
        schema: &'s Structural,
        resource: bool,
    },
    /// A list of a custom resource whose items have key fields.
    KeyedItems(&'s Structural),
    /// A list of scalars of a custom resource.
    SetOf(&'s Structural),
    /// A part of a custom resource that is compared and owned as a whole.
    Whole(&'s Structural),
}

/// The difference between a document and an older document.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The paths that were added, and the paths whose value changed.
    pub(super) changed: FieldSet,
    pub(super) removed: FieldSet,
    /// Whether a changed list has an element without its keys, so that ownership cannot be determined.
    pub(super) keyless: bool,
}

/// The difference between an old and a new part of a document: whether the part's own path differs, and the differing
/// paths below the part.
#[derive(Default)]
struct Part {
    changed: bool,
    removed: bool,
    below: Difference,
}

impl<'s> Node<'s> {
    /// Whether the node is compared and owned as a whole.
    fn is_leaf(self) -> bool {
        matches!(self, Node::Scalar(_) | Node::Atomic(_) | Node::AtomicStruct(_) | Node::Whole(_))
    }

    /// Whether null is a value and not an absent field. For custom resources validation decides about nulls.
    fn may_be_null(self) -> bool {
        match self {
            Node::Object { .. } | Node::KeyedItems(_) | Node::SetOf(_) | Node::Whole(_) | Node::Unknown => true,
            Node::Scalar(_)
            | Node::Atomic(_)
            | Node::AtomicStruct(_)
            | Node::Struct(_)
            | Node::Map(_)
            | Node::Set(_)
            | Node::Keyed(_) => false,
        }
    }

    pub(crate) fn is_list(self) -> bool {
        matches!(self, Node::Set(_) | Node::SetOf(_) | Node::Keyed(_) | Node::KeyedItems(_))
    }

    /// Whether the schema declares a field with this name.
    fn has_field(self, key: &str) -> bool {
        match self {
            Node::Struct(message) => has_field(message, key),
            Node::Object { schema, resource } => schema.properties.contains_key(key) || (resource && is_meta(key)),
            _ => false,
        }
    }
}

impl<'s> Typed<'s> {
    pub(crate) fn new(layout: Layout<'s>) -> Self {
        match layout {
            Layout::Table(schema, message) => Self { schema, root: Node::Struct(schema.message(message)), open: false },
            Layout::Custom(custom) => {
                let root = Node::Object { schema: custom.schema, resource: true };
                Self { schema: schema(), root, open: !custom.prunes }
            }
        }
    }

    pub(crate) fn root(self) -> Node<'s> {
        self.root
    }

    /// The node of the value that has this key in a struct or map.
    pub(crate) fn inside(self, node: Node<'s>, key: &str) -> Node<'s> {
        match node {
            Node::Struct(message) => match message.field(key) {
                Some(field) => self.of_field(field),
                None if is_envelope(message, key) => Node::Scalar(Type::String),
                None => Node::Unknown,
            },
            Node::Map(field) => self.of_type(field.ty),
            Node::Object { resource: true, .. } if key == "metadata" => {
                Node::Struct(self.schema.message(object_meta()))
            }
            Node::Object { resource: true, .. } if is_meta(key) => Node::Scalar(Type::String),
            Node::Object { schema, .. } => schema.field(key).map_or(Node::Unknown, of_structural),
            _ => Node::Unknown,
        }
    }

    fn of_field(self, field: &'s Field) -> Node<'s> {
        match (field.shape, field.list_type) {
            _ if field.atomic => Node::Atomic(field),
            (Shape::Single, _) => match field.ty {
                Type::Message(id) if field.granular => Node::Struct(self.schema.message(id)),
                ty => self.of_type(ty),
            },
            (Shape::Map, _) => Node::Map(field),
            (Shape::List, ListType::Set) => Node::Set(field),
            (Shape::List, ListType::Map) if matches!(field.ty, Type::Message(_)) => Node::Keyed(field),
            (Shape::List, _) => Node::Atomic(field),
        }
    }

    fn of_type(self, ty: Type) -> Node<'s> {
        match ty {
            Type::Message(id) => {
                let message = self.schema.message(id);
                if message.atomic { Node::AtomicStruct(message) } else { Node::Struct(message) }
            }
            scalar => Node::Scalar(scalar),
        }
    }

    /// The identity of a list element, as `fieldsV1` writes it.
    pub(crate) fn element(self, node: Node<'s>, item: &Value) -> Result<String, String> {
        let keys = match node {
            Node::Keyed(field) => field.list_map_keys.as_slice(),
            Node::KeyedItems(list) => list_map_keys(list),
            _ => {
                return match item {
                    Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                    Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                    Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                    scalar => Ok(value_element(scalar)),
                };
            }
        };
        let Value::Object(map) = item else {
            let kind = if item.is_null() { "a null element" } else { "non-map elements" };
            return Err(format!("associative list with keys may not have {kind}"));
        };
        let defaults: Vec<Option<Value>> =
            keys.iter().map(|key| if map.contains_key(key) { None } else { self.default_of(node, key) }).collect();
        // An element is identified if it has at least one of the key fields.
        let mut found = Vec::with_capacity(defaults.len());
        for (key, default) in keys.iter().zip(&defaults) {
            found.extend(map.get(key).or(default.as_ref()).map(|value| (key.as_str(), value)));
        }
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                keys.join(" ")
            ));
        }
        Ok(key_element(found.into_iter()))
    }

    fn default_of(self, list: Node<'s>, key: &str) -> Option<Value> {
        match list {
            Node::Keyed(Field { ty: Type::Message(id), .. }) => {
                let field = self.schema.message(*id).field(key)?;
                match &field.default {
                    Some(default) => serde_json::from_str(default).ok(),
                    None => field.always(),
                }
            }
            Node::KeyedItems(list) => list.items.as_ref()?.properties.get(key)?.default.clone(),
            _ => None,
        }
    }

    /// The set of the paths of a document that managers can own.
    pub(super) fn paths(self, document: &Value) -> FieldSet {
        self.paths_below(self.root(), document).1
    }

    /// Returns whether the node's own path is in the set, and the set of the paths below the node.
    fn paths_below(self, node: Node<'s>, value: &Value) -> (bool, FieldSet) {
        let mut set = FieldSet::default();
        match (node, value) {
            (Node::Struct(_) | Node::Map(_) | Node::Object { .. } | Node::Unknown, Value::Object(map)) => {
                for (key, value) in map {
                    let is_field = node.has_field(key);
                    let (own, below) = self.paths_below(self.inside(node, key), value);
                    let is_bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                    set.add(field_element(key), own || is_bare || !is_field, below);
                }
            }
            (list, Value::Array(items)) if list.is_list() => {
                let inner = self.element_node(node);
                let elements = items.iter().filter_map(|item| {
                    let element = self.element(node, item).ok()?;
                    Some((element, true, self.paths_below(inner, item).1))
                });
                set = FieldSet::from_unsorted(elements.collect());
            }
            (Node::Unknown, _) => return (true, set),
            _ if node.is_leaf() => return (true, set),
            _ => {}
        }
        (false, set)
    }

    pub(crate) fn element_node(self, list: Node<'s>) -> Node<'s> {
        match list {
            Node::Keyed(field) | Node::Set(field) => self.of_type(field.ty),
            Node::KeyedItems(list) | Node::SetOf(list) => list.items.as_deref().map_or(Node::Unknown, of_structural),
            _ => Node::Unknown,
        }
    }

    /// The difference between `new` and `old`. An absent `old` counts as an empty document.
    pub(super) fn difference(self, old: Option<&Value>, new: &Value) -> Difference {
        let nothing = Value::Object(Map::new());
        self.compare(self.root(), Some(old.unwrap_or(&nothing)), Some(new)).below
    }

    fn compare(self, node: Node<'s>, old: Option<&Value>, new: Option<&Value>) -> Part {
        let is_entered = match node {
            _ if node.is_leaf() => false,
            Node::Unknown => matches!((old, new), (Some(Value::Object(_)), _) | (_, Some(Value::Object(_)))),
            _ => true,
        };
        if is_same(old, new) {
            return Part::default();
        }
        if !is_entered || (is_empty(old) && is_empty(new)) {
            return Part { changed: new.is_some() && old != new, removed: new.is_none(), ..Part::default() };
        }
        let below = match node {
            _ if node.is_list() => self.compare_lists(node, items(old), items(new)),
            _ => self.compare_maps(node, old, new),
        };
        Part { changed: old.is_none(), removed: new.is_none(), below }
    }

    fn compare_maps<'v>(self, node: Node<'s>, old: Option<&'v Value>, new: Option<&'v Value>) -> Difference {
        let mut difference = Difference::default();
        let mut visit = |key: &str, mut old_value: Option<&Value>, mut new_value: Option<&Value>| {
            if is_same(old_value, new_value) {
                return;
            }
            // A field that Kubernetes always writes, even if empty, counts as present if its struct is present.
            if (old_value.is_none() || new_value.is_none())
                && let Some(field) = always_written(node, key)
            {
                if old_value.or(new_value).is_some_and(|value| is_zero(field, value)) && old.is_some() && new.is_some()
                {
                    return;
                }
                old_value = old_value.or(old.map(|_| &Value::Null));
                new_value = new_value.or(new.map(|_| &Value::Null));
            }
            let part = self.compare(self.inside(node, key), old_value, new_value);
            difference.take(part, || field_element(key));
        };
        let fields = |value: Option<&'v Value>| value.and_then(Value::as_object).into_iter().flatten().peekable();
        let (mut olds, mut news) = (fields(old), fields(new));
        loop {
            match (olds.peek(), news.peek()) {
                (None, None) => return difference,
                (Some((old, _)), Some((new, _))) if old == new => {
                    if let (Some((key, old)), Some((_, new))) = (olds.next(), news.next()) {
                        visit(key, Some(old), Some(new));
                    }
                }
                (Some((old, _)), new) if new.is_none_or(|(new, _)| old < new) => {
                    if let Some((key, old)) = olds.next() {
                        visit(key, Some(old), None);
                    }
                }
                _ => {
                    if let Some((key, new)) = news.next() {
                        visit(key, None, Some(new));
                    }
                }
            }
        }
    }

    fn compare_lists(self, node: Node<'s>, old: &[Value], new: &[Value]) -> Difference {
        let mut difference = Difference::default();
        // Comparing elements by identity is costly, and most writes do not change most lists.
        if old == new {
            return difference;
        }
        let inner = self.element_node(node);
        let (old_items, new_items) = (old.len(), new.len());
        let old = self.indexed(node, old);
        let new = self.indexed(node, new);
        difference.keyless = old.len() < old_items || new.len() < new_items;
        let (mut olds, mut news) =
            (old.chunk_by(|a, b| a.0 == b.0).peekable(), new.chunk_by(|a, b| a.0 == b.0).peekable());
        loop {
            let (left, right) = match (olds.peek(), news.peek()) {
                (None, None) => return difference,
                (Some(_), None) => (olds.next(), None),
                (None, Some(_)) => (None, news.next()),
                (Some(left), Some(right)) => match left[0].0.cmp(&right[0].0) {
                    std::cmp::Ordering::Less => (olds.next(), None),
                    std::cmp::Ordering::Greater => (None, news.next()),
                    std::cmp::Ordering::Equal => (olds.next(), news.next()),
                },
            };
            let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
            let Some((element, _)) = left.first().or(right.first()) else { return difference };
            let part = match (left, right) {
                ([] | [_], [] | [_]) => self.compare(inner, left.first().map(|e| e.1), right.first().map(|e| e.1)),
                // Duplicate elements are compared together, because a manager cannot own a single one of them.
                ([_, _, ..], [_, _, ..]) => {
                    let same = left.iter().map(|e| e.1).eq(right.iter().map(|e| e.1));
                    Part { changed: !same, ..Part::default() }
                }
                ([_, _, ..], _) => {
                    let mut part = right.first().map_or_else(Part::default, |e| self.compare(inner, None, Some(e.1)));
                    part.removed = true;
                    part
                }
                (_, _) => {
                    let mut part = left.first().map_or_else(Part::default, |e| self.compare(inner, Some(e.1), None));
                    part.changed = true;
                    part
                }
            };
            difference.take(part, || element.clone());
        }
    }

    /// The elements of a list with their identities, sorted by identity.
    fn indexed<'v>(self, node: Node<'s>, items: &'v [Value]) -> Vec<(String, &'v Value)> {
        let mut indexed: Vec<_> =
            items.iter().filter_map(|item| Some((self.element(node, item).ok()?, item))).collect();
        indexed.sort_by(|left, right| left.0.cmp(&right.0));
        indexed
    }

    /// A copy of the set that also contains the path of every struct that is on the path to a member.
    pub(super) fn with_structs(self, set: &FieldSet) -> FieldSet {
        let is_struct_field =
            |node: Node<'s>, element: &str| element.strip_prefix("f:").is_some_and(|name| node.has_field(name));
        let enter = |node: Node<'s>, element: &str| match element.strip_prefix("f:") {
            Some(name) => self.inside(node, name),
            None => match node {
                Node::Keyed(_) | Node::KeyedItems(_) => self.element_node(node),
                _ => Node::Unknown,
            },
        };
        set.with_members(self.root(), &is_struct_field, &enter)
    }
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    fn take(&mut self, part: Part, element: impl Fn() -> String) {
        self.keyless |= part.below.keyless;
        if part.changed || !part.below.changed.is_empty() {
            self.changed.add(element(), part.changed, part.below.changed);
        }
        if part.removed || !part.below.removed.is_empty() {
            self.removed.add(element(), part.removed, part.below.removed);
        }
    }
}

/// The node for a part of a custom resource, chosen by the schema of the part.
fn of_structural(schema: &Structural) -> Node<'_> {
    match schema.ty {
        _ if schema.embedded_resource => Node::Object { schema, resource: true },
        _ if schema.int_or_string => Node::Whole(schema),
        Some(structural::Type::Object) if schema.atomic_map => Node::Whole(schema),
        Some(structural::Type::Object) => Node::Object { schema, resource: false },
        Some(structural::Type::Array) => match &schema.list_type {
            Some(structural::ListType::Set) => Node::SetOf(schema),
            Some(structural::ListType::Map(_)) => Node::KeyedItems(schema),
            Some(structural::ListType::Atomic) | None => Node::Whole(schema),
        },
        Some(_) => Node::Whole(schema),
        None => Node::Unknown,
    }
}

fn list_map_keys(list: &Structural) -> &[String] {
    match &list.list_type {
        Some(structural::ListType::Map(keys)) => keys,
        _ => &[],
    }
}

/// Whether `key` is a field that every resource has, whatever its schema.
fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

fn has_field(message: &Message, key: &str) -> bool {
    message.field(key).is_some() || is_envelope(message, key)
}

/// Whether the key is one of the two fields that JSON has and that the schema table omits, because Protobuf has them in
/// the envelope.
fn is_envelope(message: &Message, key: &str) -> bool {
    message.typed && (key == "apiVersion" || key == "kind")
}

fn always_written<'s>(node: Node<'s>, key: &str) -> Option<&'s Field> {
    match node {
        Node::Struct(message) => message.field(key).filter(|field| field.zero.is_shown()),
        _ => None,
    }
}

/// Whether two values are the same, by a quick test. Unchanged parts are usually one shared object in both documents,
/// so objects are compared by identity.
fn is_same(old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => old.is_same(new),
        (Some(Value::Array(_)), _) => false,
        (Some(old), Some(new)) => old == new,
        _ => false,
    }
}

/// Whether the value is absent, null or an empty container.
fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Whether `value` equals the value that is shown for an unset field. An empty list does not equal it, because an unset
/// list is shown as null.
fn is_zero(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) => false,
        Value::Object(map) => field.shape == Shape::Single && map.is_empty(),
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;

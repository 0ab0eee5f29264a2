//! Sets of paths into a document, in the form of `fieldsV1` of a managed-fields entry.
//!
//! A path element is stored as `fieldsV1` writes it: `f:name` for a field, `k:{"name":"x"}` for an element of a keyed
//! list, `v:"x"` for an element of a set, `i:0` for an index. So elements can be compared as text.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::refusal::Texts;
use holdfast_value::{Map, Value};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Invariant: the nodes are ordered by element, without duplicates. Each node is a member or has members below it.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    element: String,
    /// Whether the path to this node is itself in the set, in addition to any paths below it.
    member: bool,
    below: FieldSet,
}

impl FieldSet {
    /// Parses `fieldsV1`; `None` if they cannot be parsed. Elements of unknown kinds are skipped.
    pub fn parse(fields: &Value) -> Option<Self> {
        Self::parse_noting(fields).map(|(set, _)| set)
    }

    /// Like [`Self::parse`]. Also returns whether every element was in canonical form.
    pub(super) fn parse_noting(fields: &Value) -> Option<(Self, bool)> {
        let map = fields.as_object()?;
        let mut nodes = Vec::with_capacity(map.len());
        let mut is_canonical = true;
        for (key, value) in map {
            if key == "." {
                continue;
            }
            let (below, is_canonical_below) = Self::parse_noting(value)?;
            is_canonical &= is_canonical_below;
            let member = is_member(value);
            match canonical(key)? {
                Some(element) => {
                    is_canonical &= element == *key;
                    nodes.push((element, member, below));
                }
                None => is_canonical = false,
            }
        }
        Some((Self::from_unsorted(nodes), is_canonical))
    }

    /// Whether these `fieldsV1` contain any member. They are searched without parsing, because most have a member on
    /// the first path that is searched.
    pub(super) fn names_any(written: &Value) -> bool {
        let Some(written) = written.as_object() else { return false };
        written.iter().any(|(key, inner)| is_element(key) && (is_member(inner) || Self::names_any(inner)))
    }

    /// Whether any member of this set is also in `written`, which has the form of `fieldsV1` and is searched without
    /// parsing.
    pub(super) fn meets(&self, written: &Value) -> bool {
        let Some(written) = written.as_object() else { return false };
        self.nodes.iter().any(|node| {
            written.get(&node.element).is_some_and(|inner| node.member && is_member(inner) || node.below.meets(inner))
        })
    }

    /// Whether all members of this set are in `written`, which has the form of `fieldsV1` and is searched without
    /// parsing.
    pub(super) fn is_within(&self, written: &Value) -> bool {
        let Some(written) = written.as_object() else { return self.is_empty() };
        self.nodes.iter().all(|node| {
            written
                .get(&node.element)
                .is_some_and(|inner| (!node.member || is_member(inner)) && node.below.is_within(inner))
        })
    }

    /// Makes a set from elements in any order. Each item has the element, whether the path that ends in the element is
    /// a member, and the set of the paths below it.
    ///
    /// Sorting avoids the cost of single insertions, in which each node out of order would shift other nodes.
    pub(super) fn from_unsorted(mut nodes: Vec<(String, bool, Self)>) -> Self {
        nodes.sort_by(|left, right| left.0.cmp(&right.0));
        let mut set = Self::default();
        for (element, member, below) in nodes {
            set.add(element, member, below);
        }
        set
    }

    /// Writes the set as `fieldsV1`.
    pub fn into_value(self) -> Value {
        let mut map = Map::new();
        for node in self.nodes {
            let mut inner = node.below.into_value();
            if let Value::Object(below) = &mut inner
                && node.member
                && !below.is_empty()
            {
                below.insert(".", Value::Object(Map::new()));
            }
            map.insert(node.element, inner);
        }
        Value::Object(map)
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds an element with the set of the paths below it. Usually the element is ordered after all elements of this
    /// set.
    pub(super) fn add(&mut self, element: String, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        match self.nodes.last_mut() {
            Some(last) if last.element == element => {
                last.member |= member;
                last.below.union(below);
                return;
            }
            Some(last) if last.element > element => {}
            _ => {
                self.nodes.push(Node { element, member, below });
                return;
            }
        }
        match self.place(&element) {
            Ok(at) => {
                self.nodes[at].member |= member;
                self.nodes[at].below.union(below);
            }
            Err(at) => self.nodes.insert(at, Node { element, member, below }),
        }
    }

    pub fn union(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let ours = std::mem::take(&mut self.nodes);
        self.nodes.reserve(ours.len().max(other.nodes.len()));
        let (mut ours, mut theirs) = (ours.into_iter().peekable(), other.nodes.into_iter().peekable());
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            let (ours_next, theirs_next) = match our.element.cmp(&their.element) {
                Ordering::Less => (ours.next(), None),
                Ordering::Greater => (None, theirs.next()),
                Ordering::Equal => (ours.next(), theirs.next()),
            };
            let node = match (ours_next, theirs_next) {
                (Some(mut our), Some(their)) => {
                    our.member |= their.member;
                    our.below.union(their.below);
                    Some(our)
                }
                (our, their) => our.or(their),
            };
            self.nodes.extend(node);
        }
        self.nodes.extend(ours);
        self.nodes.extend(theirs);
    }

    /// The union of many sets. The sets are merged in pairs: merging one set after another into a growing union would
    /// go through the whole union for each set.
    pub(super) fn union_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut pairs = sets.into_iter();
            sets = std::iter::from_fn(|| {
                let mut set = pairs.next()?;
                set.union(pairs.next().unwrap_or_default());
                Some(set)
            })
            .collect();
        }
        sets.pop().unwrap_or_default()
    }

    /// Removes the members of `other`. Returns whether any of them was present.
    pub fn subtract(&mut self, other: &Self) -> bool {
        let mut changed = false;
        self.pair(other, |node, theirs| {
            changed |= node.member && theirs.member;
            node.member &= !theirs.member;
            changed |= node.below.subtract(&theirs.below);
        });
        changed
    }

    /// The members that both sets have.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut shared = Self::default();
        if self.is_far_smaller_than(other) {
            for our in &self.nodes {
                let Ok(at) = other.place(&our.element) else { continue };
                let their = &other.nodes[at];
                shared.add(our.element.clone(), our.member && their.member, our.below.intersection(&their.below));
            }
            return shared;
        }
        if other.is_far_smaller_than(self) {
            return other.intersection(self);
        }
        let (mut ours, mut theirs) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            match our.element.cmp(&their.element) {
                Ordering::Less => _ = ours.next(),
                Ordering::Greater => _ = theirs.next(),
                Ordering::Equal => {
                    let below = our.below.intersection(&their.below);
                    shared.add(our.element.clone(), our.member && their.member, below);
                    ours.next();
                    theirs.next();
                }
            }
        }
        shared
    }

    /// Removes the path itself from the set, and keeps the paths below it.
    pub(super) fn remove_member(&mut self, fields: &[&str]) {
        self.remove(fields, false);
    }

    /// Like [`Self::remove_member`], for several members of one field at once.
    pub(super) fn remove_members(&mut self, field: &str, names: &[&str]) {
        let Ok(at) = self.field_place(field) else { return };
        let below = &mut self.nodes[at].below;
        for node in &mut below.nodes {
            node.member &= node.element.strip_prefix("f:").is_none_or(|name| !names.contains(&name));
        }
        below.nodes.retain(|node| node.member || !node.below.is_empty());
        if !self.nodes[at].member && self.nodes[at].below.is_empty() {
            self.nodes.remove(at);
        }
    }

    /// Removes the path and all paths below it.
    pub(super) fn remove_tree(&mut self, fields: &[&str]) {
        self.remove(fields, true);
    }

    /// A set whose only member is this path.
    pub(super) fn of_fields(fields: &[&str]) -> Self {
        let mut set = Self::default();
        if let Some((first, rest)) = fields.split_first() {
            set.add(field_element(first), rest.is_empty(), Self::of_fields(rest));
        }
        set
    }

    pub(super) fn contains_fields(&self, fields: &[&str]) -> bool {
        match fields {
            [] => false,
            [last] => self.contains(&field_element(last)),
            [first, rest @ ..] => self.below(&field_element(first)).is_some_and(|below| below.contains_fields(rest)),
        }
    }

    pub(super) fn contains(&self, element: &str) -> bool {
        self.place(element).is_ok_and(|at| self.nodes[at].member)
    }

    /// The set of the paths below an element; `None` if it is empty.
    pub(super) fn below(&self, element: &str) -> Option<&Self> {
        self.place(element).ok().map(|at| &self.nodes[at].below).filter(|below| !below.is_empty())
    }

    /// A copy of the set with more members: each element that has members below it and for which `adds` is true.
    /// `enter` returns the context for the element's subtree.
    pub(super) fn with_members<C: Copy>(
        &self,
        context: C,
        adds: &impl Fn(C, &str) -> bool,
        enter: &impl Fn(C, &str) -> C,
    ) -> Self {
        let widened = self.nodes.iter().map(|node| Node {
            member: node.member || (!node.below.is_empty() && adds(context, &node.element)),
            below: node.below.with_members(enter(context, &node.element), adds, enter),
            element: node.element.clone(),
        });
        Self { nodes: widened.collect() }
    }

    /// Each path as messages show it: `.spec.containers[name="x"].image`.
    pub fn paths(&self) -> Texts {
        let mut paths = Texts::default();
        self.collect_paths(&mut String::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut String, paths: &mut Texts) {
        for node in self.nodes.iter().filter(|node| node.member) {
            paths.push_with(|| format!("{prefix}{}", shown(&node.element)));
        }
        for node in self.nodes.iter().filter(|node| !node.below.is_empty()) {
            let length = prefix.len();
            prefix.push_str(&shown(&node.element));
            node.below.collect_paths(prefix, paths);
            prefix.truncate(length);
        }
    }

    /// Calls `change` for each node that both sets have, and then removes empty nodes.
    fn pair(&mut self, other: &Self, mut change: impl FnMut(&mut Node, &Node)) {
        if other.is_empty() {
            return;
        }
        if self.is_far_smaller_than(other) {
            self.nodes.retain_mut(|node| {
                if let Ok(at) = other.place(&node.element) {
                    change(node, &other.nodes[at]);
                }
                node.member || !node.below.is_empty()
            });
            return;
        }
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while theirs.peek().is_some_and(|their| their.element < node.element) {
                theirs.next();
            }
            if let Some(their) = theirs.peek().filter(|their| their.element == node.element) {
                change(node, their);
            }
            node.member || !node.below.is_empty()
        });
    }

    fn remove(&mut self, fields: &[&str], whole: bool) {
        let Some((first, rest)) = fields.split_first() else { return };
        let Ok(at) = self.field_place(first) else { return };
        let node = &mut self.nodes[at];
        if !rest.is_empty() {
            node.below.remove(rest, whole);
        } else {
            node.member = false;
            if whole {
                node.below = Self::default();
            }
        }
        if !node.member && node.below.is_empty() {
            self.nodes.remove(at);
        }
    }

    /// Whether looking up each element in the other set is cheaper than going through the other set.
    fn is_far_smaller_than(&self, other: &Self) -> bool {
        self.nodes.len() < other.nodes.len() / 16
    }

    fn field_place(&self, field: &str) -> Result<usize, usize> {
        let wanted = |node: &Node| node.element.strip_prefix("f:").map_or(Ordering::Greater, |name| name.cmp(field));
        self.nodes.binary_search_by(wanted)
    }

    fn place(&self, element: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.as_str().cmp(element))
    }
}

/// Whether a key is a path element of a known kind.
fn is_element(key: &str) -> bool {
    ["f:", "k:", "v:", "i:"].iter().any(|kind| key.starts_with(kind))
}

/// Whether the path that leads to these `fieldsV1` is itself a member of the set.
fn is_member(written: &Value) -> bool {
    written.as_object().is_some_and(|inner| inner.is_empty() || inner.contains_key("."))
}

pub(super) fn field_element(name: &str) -> String {
    let mut element = String::with_capacity(2 + name.len());
    element.push_str("f:");
    element.push_str(name);
    element
}

pub(super) fn value_element(value: &Value) -> String {
    format!("v:{value}")
}

/// The element for a list item with these keys, which may be in any order.
pub(super) fn key_element<'v>(keys: impl Iterator<Item = (&'v str, &'v Value)>) -> String {
    let mut element = String::from("k:{");
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by(|left, right| left.0.cmp(right.0));
    for (position, (name, value)) in keys.iter().enumerate() {
        let comma = if position == 0 { "" } else { "," };
        let _ = write!(element, "{comma}{}:{value}", Value::from(*name));
    }
    element.push('}');
    element
}

/// The canonical form of an element. `Some(None)` if the element is of an unknown kind, `None` if it cannot be parsed.
fn canonical(element: &str) -> Option<Option<String>> {
    let (kind, content) = element.split_once(':')?;
    Some(Some(match kind {
        "f" => element.into(),
        "i" => format!("i:{}", content.parse::<i64>().ok()?),
        "v" => value_element(&serde_json::from_str(content).ok()?),
        "k" => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(content).ok()?;
            key_element(keys.iter().map(|(name, value)| (name.as_str(), value)))
        }
        _ if kind.len() == 1 => return Some(None),
        _ => return None,
    }))
}

pub(super) fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("k", keys)) => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some((_, position)) => format!("[{position}]"),
        None => element.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_value::json;
    use proptest::prelude::*;

    use super::*;

    type Paths = BTreeSet<Vec<String>>;

    fn set_of(paths: &Paths) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            let mut tree = FieldSet::default();
            for (at, element) in path.iter().rev().enumerate() {
                let below = std::mem::take(&mut tree);
                tree.add(element.clone(), at == 0, below);
            }
            set.union(tree);
        }
        set
    }

    fn any_paths() -> impl Strategy<Value = Paths> {
        let element = prop_oneof![
            "f:[a-c]",
            "i:[0-2]",
            "[x-y]".prop_map(|text| value_element(&json!(text))),
            (80..82_i32).prop_map(|port| key_element([("port", &json!(port)), ("name", &json!("x"))].into_iter())),
        ];
        prop::collection::btree_set(prop::collection::vec(element, 1..4), 0..8)
    }

    #[test]
    fn what_is_not_canonical_is_noticed() {
        for (fields, is_canonical) in [
            (json!({"f:a": {".": {}, "k:{\"name\":\"x\",\"port\":80}": {}}, "i:1": {}, "v:\"x\"": {}}), true),
            (json!({"f:a": {"k:{\"port\":80,\"name\":\"x\"}": {}}}), false),
            (json!({"f:a": {"k:{\"name\": \"x\"}": {}}}), false),
            (json!({"i:01": {}}), false),
            (json!({"f:a": {}, "x:later": {}}), false),
        ] {
            assert_eq!(FieldSet::parse_noting(&fields).unwrap().1, is_canonical, "{fields}");
        }
        assert!(FieldSet::parse_noting(&json!({"f:a": {"f:b": 1}})).is_none());
    }

    #[test]
    fn members_are_known_without_reading_them() {
        for (fields, has_any) in [
            (json!({"f:a": {}}), true),
            (json!({"f:a": {"k:{\"name\":\"x\"}": {"f:b": {"v:\"x\"": {}}}}}), true),
            (json!({"f:a": {"f:b": {".": {}, "f:c": {}}}}), true),
            (json!({}), false),
            (json!({".": {}}), false),
            (json!({"x:later": {}}), false),
        ] {
            assert_eq!(FieldSet::names_any(&fields), has_any, "{fields}");
            assert_eq!(FieldSet::parse(&fields).unwrap().is_empty(), !has_any, "{fields}");
        }
    }

    #[test]
    fn reads_and_writes_as_kubernetes_does() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {".": {}, "v:\"a\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:list": {"i:0": {}}},
        });
        let set = FieldSet::parse(&fields).unwrap();
        assert_eq!(
            &*set.paths(),
            [
                ".metadata.finalizers",
                ".metadata.labels",
                ".metadata.finalizers[=\"a\"]",
                ".metadata.labels.app",
                ".spec.list[0]",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
            ]
        );
        assert_eq!(set.into_value(), fields);
    }

    #[test]
    fn equal_elements_read_alike_and_broken_ones_not_at_all() {
        let one = FieldSet::parse(&json!({"k:{\"b\": 1,\"a\":2}": {}})).unwrap();
        assert_eq!(one, FieldSet::parse(&json!({"k:{\"a\":2,\"b\":1}": {}})).unwrap());
        assert_eq!(FieldSet::parse(&json!({"z:later": {}})), Some(FieldSet::default()));
        for broken in
            [json!([]), json!({"x": {}}), json!({"f:a": 1}), json!({"k:1": {}}), json!({"i:x": {}}), json!({"v:{": {}})]
        {
            assert_eq!(FieldSet::parse(&broken), None, "{broken}");
        }
    }

    #[test]
    fn removing_one_path_or_a_whole_tree() {
        let fields = json!({"f:a": {".": {}, "f:b": {"f:c": {}}}, "v:1": {}});
        let mut set = FieldSet::parse(&fields).unwrap();
        set.remove_member(&["a"]);
        assert_eq!(set.clone().into_value(), json!({"f:a": {"f:b": {"f:c": {}}}, "v:1": {}}));
        set.remove_tree(&["a", "b"]);
        assert_eq!(set.into_value(), json!({"v:1": {}}));
    }

    /// If one set is far smaller than the other, they are compared by another algorithm than sets of similar size.
    #[test]
    fn few_and_many_elements() {
        let set = |range: std::ops::Range<u32>| {
            let nodes = range.rev().map(|n| (format!("f:{n:03}"), true, FieldSet::default()));
            FieldSet::from_unsorted(nodes.collect())
        };
        let (few, many) = (set(98..102), set(0..100));
        assert_eq!(few.intersection(&many), set(98..100));
        assert_eq!(many.intersection(&few), set(98..100));
        let mut left = few.clone();
        assert!(left.subtract(&many));
        assert_eq!(left, set(100..102));
        assert!(!left.subtract(&many));
        let parts = (0..102).step_by(3).map(|n| set(n..n + 3)).collect();
        assert_eq!(FieldSet::union_all(parts), set(0..102));
        assert_eq!(FieldSet::union_all(Vec::new()), FieldSet::default());
    }

    proptest! {
        #[test]
        fn parse_undoes_write(paths in any_paths()) {
            let set = set_of(&paths);
            prop_assert_eq!(FieldSet::parse(&set.clone().into_value()), Some(set));
        }

        #[test]
        fn operations_agree_with_plain_sets(left in any_paths(), right in any_paths()) {
            let (ours, theirs) = (set_of(&left), set_of(&right));
            let mut union = ours.clone();
            union.union(theirs.clone());
            prop_assert_eq!(union, set_of(&left.union(&right).cloned().collect()));
            let mut difference = ours.clone();
            let changed = difference.subtract(&theirs);
            prop_assert_eq!(difference, set_of(&left.difference(&right).cloned().collect()));
            prop_assert_eq!(changed, left.intersection(&right).next().is_some());
            prop_assert_eq!(ours.intersection(&theirs), set_of(&left.intersection(&right).cloned().collect()));
            let written = theirs.into_value();
            prop_assert_eq!(ours.meets(&written), changed);
            prop_assert_eq!(ours.is_within(&written), left.is_subset(&right));
        }
    }
}

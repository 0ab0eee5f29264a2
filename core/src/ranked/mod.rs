//! A persistent ordered map that can count the keys before any point quickly.
//!
//! The map is a B+ tree, and maps share its nodes. A clone copies a pointer. A change copies only those nodes on the
//! way to the changed key that other maps share. Each branch counts the entries below each child, so that counting a
//! range costs only as much as finding its two ends. (`imbl::OrdMap` would have to visit each entry of the range.)

use std::borrow::Borrow;
use std::iter::FusedIterator;
use std::sync::Arc;

/// The maximum number of entries in a leaf, and of children in a branch. A write copies one leaf and touches every
/// value in it, so nodes must not be wide. Each level of a read is a cache miss, so nodes must not be narrow.
const WIDTH: usize = 24;
/// The number of entries by which the capacity of a full node grows. Doubling the capacity would leave half of the node
/// empty.
const ROOM: usize = 4;

/// Keys in order, each with a value. A clone shares all nodes.
pub struct RankedMap<K, V, const WIDE: usize = WIDTH> {
    /// Invariant: a root that is a branch has two children or more.
    root: Arc<Node<K, V, WIDE>>,
}

/// Invariant: only the root may be empty, and no node is wider than `WIDE`.
enum Node<K, V, const WIDE: usize> {
    Leaf(Vec<(K, V)>),
    Branch(Vec<Child<K, V, WIDE>>),
}

struct Child<K, V, const WIDE: usize> {
    /// Invariant: every key below this child is at least `lowest`, and every key below the child before it is less than
    /// `lowest`.
    lowest: K,
    /// The number of entries below this child node.
    count: usize,
    node: Arc<Node<K, V, WIDE>>,
}

impl<K: Ord + Clone, V: Clone, const WIDE: usize> RankedMap<K, V, WIDE> {
    pub fn new() -> Self {
        RankedMap { root: Arc::new(Node::Leaf(Vec::new())) }
    }

    pub fn len(&self) -> usize {
        self.root.count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Branch(children) => node = &children.get(place(children, key))?.node,
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|(other, _)| other.borrow().cmp(key)).ok()?;
                    return entries.get(at).map(|(_, value)| value);
                }
            }
        }
    }

    /// Inserts a value, or replaces the value that the key has. Returns the replaced value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (before, split) = insert(&mut self.root, key, value, true);
        if let Some(right) = split {
            let left = Child::of(self.root.clone());
            self.root = Arc::new(Node::Branch(left.into_iter().chain([right]).collect()));
        }
        before
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // The key is looked up first: if it is absent, no node on the way to it must be copied.
        self.get(key)?;
        let before = remove(&mut self.root, key);
        while let Node::Branch(children) = &*self.root
            && let [only] = &children[..]
        {
            self.root = only.node.clone();
        }
        before
    }

    /// The number of keys for which `before` is true. `before` must be true for all keys up to some key, and false for
    /// all keys after it.
    pub fn rank(&self, before: impl Fn(&K) -> bool) -> usize {
        let (mut node, mut rank) = (&self.root, 0);
        loop {
            match &**node {
                Node::Leaf(entries) => return rank + entries.partition_point(|(key, _)| before(key)),
                Node::Branch(children) => {
                    let below = children.partition_point(|child| before(&child.lowest));
                    // The point at which `before` becomes false is in the last child whose lowest key is before that
                    // point.
                    let Some((last, whole)) = children[..below].split_last() else { return rank };
                    rank += whole.iter().map(|child| child.count).sum::<usize>();
                    node = &last.node;
                }
            }
        }
    }

    /// All entries in key order.
    pub fn iter(&self) -> Entries<'_, K, V, WIDE> {
        self.iter_from(|_| false)
    }

    /// The entries in key order, beginning with the first key for which `before` is false. `before` must be true for
    /// all keys up to some key, and false for all keys after it.
    pub fn iter_from(&self, before: impl Fn(&K) -> bool) -> Entries<'_, K, V, WIDE> {
        let (mut node, mut branches) = (&self.root, Vec::new());
        loop {
            match &**node {
                Node::Leaf(entries) => {
                    let from = entries.partition_point(|(key, _)| before(key));
                    return Entries { branches, leaf: entries[from..].iter() };
                }
                Node::Branch(children) => {
                    let from = children.partition_point(|child| before(&child.lowest)).saturating_sub(1);
                    let mut rest = children[from..].iter();
                    let Some(child) = rest.next() else { return Entries { branches, leaf: [].iter() } };
                    branches.push(rest);
                    node = &child.node;
                }
            }
        }
    }
}

/// Iterates over the entries from some key on, in key order.
pub struct Entries<'a, K, V, const WIDE: usize = WIDTH> {
    /// For each branch on the way to the current leaf, the children that are still to be visited.
    branches: Vec<std::slice::Iter<'a, Child<K, V, WIDE>>>,
    leaf: std::slice::Iter<'a, (K, V)>,
}

impl<'a, K, V, const WIDE: usize> Iterator for Entries<'a, K, V, WIDE> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            let Some(child) = self.branches.last_mut()?.next() else {
                self.branches.pop();
                continue;
            };
            match &*child.node {
                Node::Leaf(entries) => self.leaf = entries.iter(),
                Node::Branch(children) => self.branches.push(children.iter()),
            }
        }
    }
}

impl<K, V, const WIDE: usize> FusedIterator for Entries<'_, K, V, WIDE> {}

impl<K, V, const WIDE: usize> Node<K, V, WIDE> {
    fn width(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.len(),
        }
    }

    fn count(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.iter().map(|child| child.count).sum(),
        }
    }
}

impl<K: Clone, V, const WIDE: usize> Child<K, V, WIDE> {
    /// A child for the node `node`; `None` if the node is empty.
    fn of(node: Arc<Node<K, V, WIDE>>) -> Option<Self> {
        let lowest = match &*node {
            Node::Leaf(entries) => entries.first()?.0.clone(),
            Node::Branch(children) => children.first()?.lowest.clone(),
        };
        Some(Child { lowest, count: node.count(), node })
    }
}

/// The index of the only child that can contain the key.
fn place<K: Borrow<Q>, V, Q: Ord + ?Sized, const WIDE: usize>(children: &[Child<K, V, WIDE>], key: &Q) -> usize {
    children.partition_point(|child| child.lowest.borrow() <= key).saturating_sub(1)
}

/// Inserts a key below this node. If the node was split, also returns its right half. `rightmost` means that no node of
/// the map is to the right of this node.
fn insert<K: Ord + Clone, V: Clone, const WIDE: usize>(
    node: &mut Arc<Node<K, V, WIDE>>,
    key: K,
    value: V,
    rightmost: bool,
) -> (Option<V>, Option<Child<K, V, WIDE>>) {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => match entries.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => (Some(std::mem::replace(&mut entries[at].1, value)), None),
            Err(at) => {
                let right = widen(entries, at, (key, value), WIDE, rightmost);
                (None, right.and_then(|right| Child::of(Arc::new(Node::Leaf(right)))))
            }
        },
        Node::Branch(children) => {
            let at = place(children, &key);
            let last = at + 1 == children.len();
            let child = &mut children[at];
            if key < child.lowest {
                child.lowest = key.clone();
            }
            let (before, split) = insert(&mut child.node, key, value, rightmost && last);
            child.count += usize::from(before.is_none());
            let Some(split) = split else { return (before, None) };
            child.count -= split.count;
            let right = widen(children, at + 1, split, WIDE, rightmost);
            (before, right.and_then(|right| Child::of(Arc::new(Node::Branch(right)))))
        }
    }
}

/// Inserts an item into a node. Returns the right half if the node was full and had to be split.
fn widen<T>(items: &mut Vec<T>, at: usize, item: T, wide: usize, rightmost: bool) -> Option<Vec<T>> {
    if items.len() < wide {
        if items.len() == items.capacity() {
            items.reserve_exact(ROOM.min(wide - items.len()));
        }
        items.insert(at, item);
        return None;
    }
    // At the end of the map a full node is not split in half: the new item begins a new node.
    let middle = if rightmost && at == wide { wide } else { wide / 2 };
    let mut right = Vec::with_capacity((items.len() - middle + ROOM).min(wide));
    right.extend(items.drain(middle..));
    if at > middle || right.is_empty() {
        right.insert(at - middle, item)
    } else {
        items.insert(at, item)
    }
    items.shrink_to(items.len() + ROOM);
    Some(right)
}

/// Removes a key, which must be below this node.
fn remove<K: Ord + Clone + Borrow<Q>, V: Clone, Q: Ord + ?Sized, const WIDE: usize>(
    node: &mut Arc<Node<K, V, WIDE>>,
    key: &Q,
) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let at = entries.binary_search_by(|(other, _)| other.borrow().cmp(key)).ok()?;
            let (_, before) = entries.remove(at);
            entries.shrink_to(entries.len() + 2 * ROOM);
            Some(before)
        }
        Node::Branch(children) => {
            let at = place(children, key);
            let before = remove(&mut children[at].node, key)?;
            children[at].count -= 1;
            if children[at].count == 0 {
                children.remove(at);
            } else {
                join(children, at);
                join(children, at.saturating_sub(1));
            }
            Some(before)
        }
    }
}

/// Merges the child at `at` with the next child, if the merged node still has room for insertions.
fn join<K: Clone, V: Clone, const WIDE: usize>(children: &mut Vec<Child<K, V, WIDE>>, at: usize) {
    let Some([left, right]) = children.get(at..at + 2) else { return };
    if left.node.width() + right.node.width() > WIDE * 3 / 4 {
        return;
    }
    let right = children.remove(at + 1);
    let left = &mut children[at];
    left.count += right.count;
    match (Arc::make_mut(&mut left.node), Arc::unwrap_or_clone(right.node)) {
        (Node::Leaf(entries), Node::Leaf(others)) => entries.extend(others),
        (Node::Branch(children), Node::Branch(others)) => children.extend(others),
        // A leaf is never beside a branch, because all leaves have the same depth.
        (Node::Leaf(_), Node::Branch(_)) | (Node::Branch(_), Node::Leaf(_)) => {}
    }
}

impl<K, V, const WIDE: usize> Clone for RankedMap<K, V, WIDE> {
    fn clone(&self) -> Self {
        RankedMap { root: self.root.clone() }
    }
}

impl<K: Clone, V: Clone, const WIDE: usize> Clone for Node<K, V, WIDE> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(entries) => Node::Leaf(entries.clone()),
            Node::Branch(children) => Node::Branch(children.clone()),
        }
    }
}

impl<K: Clone, V, const WIDE: usize> Clone for Child<K, V, WIDE> {
    fn clone(&self) -> Self {
        Child { lowest: self.lowest.clone(), count: self.count, node: self.node.clone() }
    }
}

impl<K: Ord + Clone, V: Clone, const WIDE: usize> Default for RankedMap<K, V, WIDE> {
    fn default() -> Self {
        RankedMap::new()
    }
}

impl<K: Ord + Clone, V: Clone, const WIDE: usize> FromIterator<(K, V)> for RankedMap<K, V, WIDE> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = RankedMap::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

#[cfg(test)]
mod tests;

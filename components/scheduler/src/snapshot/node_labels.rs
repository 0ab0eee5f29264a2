//! The label keys of nodes, and numbers for the values of a label. All plug-ins that count pods by topology domain
//! share these numbers.

use super::node_info::NodeId;
use super::nodes::Nodes;
use crate::object::Text;
use crate::object::labels::Labels;
use crate::object::node::Node;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The number for a node that does not have the label.
pub const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct NodeLabels {
    /// For each label key, how many nodes have a label with this key.
    counts: HashMap<Text, usize>,
    /// For each label key by which some plug-in counts pods, the numbers of the label's values.
    numbers: Mutex<HashMap<Text, LabelNumbers>>,
}

/// The values that nodes have for one label, numbered. When the last node loses a value, the value's number is used
/// again for another value. In that case the nodes that lost or got the value are in the snapshot's list of changes.
#[derive(Debug, Default)]
struct LabelNumbers {
    of_node: Vec<u32>,
    by_value: HashMap<Text, u32>,
    /// For each number, how many nodes have the value with this number.
    nodes: Vec<u32>,
    /// Numbers that are in use for no value at present.
    free: Vec<u32>,
}

impl LabelNumbers {
    fn new(nodes: &Nodes, key: &str) -> Self {
        let mut numbers = LabelNumbers::default();
        for node in nodes.iter() {
            numbers.replace(node.id, None, node.node.labels.get(key));
        }
        numbers
    }

    /// Records that a node's value for the label has changed.
    fn replace(&mut self, node: NodeId, before: Option<&Text>, after: Option<&Text>) {
        if before == after {
            return;
        }
        if let Some(before) = before
            && let Some(number) = self.by_value.get(before).copied()
        {
            let nodes = &mut self.nodes[number as usize];
            *nodes -= 1;
            if *nodes == 0 {
                self.by_value.remove(before);
                self.free.push(number);
            }
        }
        let number = after.map_or(NONE, |after| self.number(after));
        if node >= self.of_node.len() {
            self.of_node.resize(node + 1, NONE);
        }
        self.of_node[node] = number;
    }

    fn number(&mut self, value: &Text) -> u32 {
        let known = self.by_value.get(value).copied();
        let number = known.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.nodes.push(0);
            self.nodes.len() as u32 - 1
        });
        if known.is_none() {
            self.by_value.insert(value.clone(), number);
        }
        self.nodes[number as usize] += 1;
        number
    }
}

impl NodeLabels {
    /// Whether any node has a label of this key.
    pub fn has_key(&self, key: &Text) -> bool {
        self.counts.contains_key(key)
    }

    /// For each node, by the node's number, the number of its value for a label.
    pub fn numbers(&self, nodes: &Nodes, key: &Text) -> Vec<u32> {
        self.with_numbers(nodes, key, |numbers| numbers.of_node.clone()).unwrap_or_default()
    }

    /// The number of a node's value for a label.
    pub fn number(&self, nodes: &Nodes, key: &Text, node: NodeId) -> u32 {
        self.with_numbers(nodes, key, |numbers| numbers.of_node.get(node).copied()).flatten().unwrap_or(NONE)
    }

    /// Calls `read` with the numbers of a label's values. The first call for a label assigns the numbers. Returns
    /// `None` if no node has the label.
    fn with_numbers<T>(&self, nodes: &Nodes, key: &Text, read: impl FnOnce(&LabelNumbers) -> T) -> Option<T> {
        if !self.has_key(key) {
            return None;
        }
        let mut all = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(numbers) = all.get(key) {
            return Some(read(numbers));
        }
        let numbers = LabelNumbers::new(nodes, key);
        let result = read(&numbers);
        all.insert(key.clone(), numbers);
        Some(result)
    }

    /// Applies the change of a node's labels; `before` is `None` if the node is new, and `after` is `None` if it is
    /// removed.
    pub fn relabel(&mut self, id: NodeId, before: Option<&Node>, after: Option<&Node>) {
        let numbers = self.numbers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let none = Labels::default();
        let [before, after] = [before, after].map(|node| node.map_or(&none, |node| &node.labels));
        for (key, value) in after.iter() {
            *self.counts.entry(key.clone()).or_default() += 1;
            if let Some(numbers) = numbers.get_mut(key) {
                numbers.replace(id, before.get(key), Some(value));
            }
        }
        for (key, value) in before.iter() {
            if let Some(numbers) = numbers.get_mut(key).filter(|_| after.get(key).is_none()) {
                numbers.replace(id, Some(value), None);
            }
            if let Some(count) = self.counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(key);
                    numbers.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_of_nodes_are_numbered() {
        let [a, b]: [Text; 2] = ["a".into(), "b".into()];
        let mut numbers = LabelNumbers::default();
        for node in [3, 5] {
            numbers.replace(node, None, Some(&a));
        }
        numbers.replace(1, None, Some(&b));
        assert_eq!(numbers.of_node, [NONE, 1, NONE, 0, NONE, 0]);
        numbers.replace(3, Some(&a), Some(&b));
        numbers.replace(5, Some(&a), None);
        assert_eq!(numbers.of_node, [NONE, 1, NONE, 1, NONE, NONE]);
        numbers.replace(5, None, Some(&"c".into()));
        assert_eq!((numbers.of_node[5], numbers.by_value.len()), (0, 2), "the number of a value that is gone");
    }
}

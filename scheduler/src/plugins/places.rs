//! Nodes by the value of a label: the places that pods are counted in.

use crate::object::Text;
use crate::snapshot::Snapshot;
use crate::snapshot::node_info::NodeId;
use std::collections::HashMap;

/// The places that the values of one label make of the nodes, numbered.
#[derive(Debug, Clone)]
pub struct Places {
    /// The place of each node, by the node's number; [`Places::NOWHERE`] where it has no such label.
    of_node: Vec<u32>,
    count: usize,
    /// Whether no two nodes share a place.
    single: bool,
}

impl Places {
    pub const NOWHERE: u32 = u32::MAX;

    pub fn new(snapshot: &Snapshot, key: &Text) -> Self {
        if !snapshot.is_label_of_nodes(key) {
            return Places { of_node: Vec::new(), count: 0, single: true };
        }
        let mut of_node = vec![Places::NOWHERE; snapshot.node_bound()];
        let mut numbers: HashMap<&Text, u32> = HashMap::new();
        let mut nodes = 0;
        for node in snapshot.nodes() {
            if let Some(value) = node.node.labels.get(key) {
                let next = u32::try_from(numbers.len()).unwrap_or(Places::NOWHERE - 1);
                of_node[node.id] = *numbers.entry(value).or_insert(next);
                nodes += 1;
            }
        }
        Places { of_node, count: numbers.len(), single: numbers.len() == nodes }
    }

    /// The number of the place that a node is in.
    pub fn of(&self, node: NodeId) -> Option<usize> {
        let place = *self.of_node.get(node)?;
        (place != Places::NOWHERE).then_some(place as usize)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether no two nodes share a place.
    pub fn are_single(&self) -> bool {
        self.single
    }

    /// A number that two nodes share only if they are in one place, or in places of their own with equal counts.
    pub fn mark(&self, node: NodeId, counts: &[i64]) -> i64 {
        match self.of(node) {
            None => i64::MIN,
            Some(place) if self.single => counts[place],
            Some(place) => i64::try_from(place).unwrap_or(i64::MAX),
        }
    }
}

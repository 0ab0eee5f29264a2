//! Nodes by the value of a label: the places that pods are counted in.

use crate::object::Text;
use crate::snapshot::Snapshot;
use crate::snapshot::node_info::NodeId;
use crate::snapshot::numbers::NONE;

/// The places that the values of one label make of the nodes, numbered.
#[derive(Debug, Clone)]
pub struct Places {
    key: Text,
    /// The place of each node, by the node's number; [`NONE`] where it has no such label.
    of_node: Vec<u32>,
    places: Vec<Place>,
}

/// The nodes of a place: how many they are, and the sum of their numbers, which is that of the only one where it has one.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    nodes: usize,
    sum: NodeId,
}

impl Place {
    fn only_node(self) -> Option<NodeId> {
        (self.nodes == 1).then_some(self.sum)
    }
}

impl Places {
    pub fn new(snapshot: &Snapshot, key: &Text) -> Self {
        let of_node = snapshot.label_numbers(key);
        let mut places = Places { key: key.clone(), of_node: Vec::new(), places: Vec::new() };
        for (node, place) in of_node.iter().enumerate() {
            places.add(node, *place);
        }
        places.of_node = of_node;
        places
    }

    /// The label whose values the places are.
    pub fn key(&self) -> &Text {
        &self.key
    }

    /// The number of the place that a node is in.
    pub fn of(&self, node: NodeId) -> Option<usize> {
        let place = *self.of_node.get(node)?;
        (place != NONE).then_some(place as usize)
    }

    /// One more than the largest number of a place.
    pub fn bound(&self) -> usize {
        self.places.len()
    }

    /// Whether a place has no more than one node.
    pub fn is_single(&self, place: usize) -> bool {
        self.places[place].nodes <= 1
    }

    /// A number that two nodes share only if they are in one place, or in places of their own that count alike.
    pub fn mark(&self, node: NodeId, count: impl Fn(usize) -> i64) -> i64 {
        match self.of(node) {
            None => i64::MIN,
            Some(place) if self.is_single(place) => count(place) << 1,
            Some(place) => i64::try_from(place).unwrap_or(i64::MAX) << 1 | 1,
        }
    }

    /// Puts a node where its label has it by now. Another node that was alone in a place and is not any more, or is by
    /// now, is marked otherwise: it is among the touched.
    pub fn follow(&mut self, snapshot: &Snapshot, node: NodeId, touched: &mut Vec<NodeId>) {
        let place = snapshot.label_number(&self.key, node);
        if node >= self.of_node.len() {
            self.of_node.resize(node + 1, NONE);
        }
        let before = std::mem::replace(&mut self.of_node[node], place);
        if before == place {
            return;
        }
        if let Some(left) = self.places.get_mut(before as usize) {
            left.nodes -= 1;
            left.sum = left.sum.wrapping_sub(node);
            touched.extend(left.only_node());
        }
        touched.extend(self.places.get(place as usize).and_then(|place| place.only_node()));
        self.add(node, place);
    }

    fn add(&mut self, node: NodeId, place: u32) {
        if place == NONE {
            return;
        }
        let place = place as usize;
        if place >= self.places.len() {
            self.places.resize(place + 1, Place::default());
        }
        self.places[place].nodes += 1;
        self.places[place].sum = self.places[place].sum.wrapping_add(node);
    }
}

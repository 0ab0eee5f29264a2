//! Topology domains: the nodes with one value of a label, which pods are counted by.

use crate::object::Text;
use crate::snapshot::Snapshot;
use crate::snapshot::node_info::NodeId;
use crate::snapshot::numbers::NONE;

/// The topology domains of one label key, numbered.
#[derive(Debug, Clone, PartialEq)]
pub struct Places {
    key: Text,
    /// Whether each node with the label is a domain of its own.
    by_node: bool,
    /// The domain of each node, by the node's number; [`NONE`] for a node without the label.
    of_node: Vec<u32>,
    places: Vec<Place>,
}

/// The nodes of a domain: their count, and the sum of their numbers, which is the node's number if there is only one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
        Places::made_of(snapshot, key, false)
    }

    /// Each node with the label as a domain of its own, whatever the value.
    pub fn of_nodes(snapshot: &Snapshot, key: &Text) -> Self {
        Places::made_of(snapshot, key, true)
    }

    fn made_of(snapshot: &Snapshot, key: &Text, by_node: bool) -> Self {
        let mut places = Places { key: key.clone(), by_node, of_node: Vec::new(), places: Vec::new() };
        let numbers = snapshot.label_numbers(key).into_iter().enumerate();
        let of_node: Vec<u32> = numbers.map(|(node, number)| places.number(node, number)).collect();
        for (node, place) in of_node.iter().enumerate() {
            places.add(node, *place);
        }
        places.of_node = of_node;
        places
    }

    /// The label key.
    pub fn key(&self) -> &Text {
        &self.key
    }

    /// The number of a node's domain.
    pub fn of(&self, node: NodeId) -> Option<usize> {
        let place = *self.of_node.get(node)?;
        (place != NONE).then_some(place as usize)
    }

    /// One more than the largest number of a domain.
    pub fn bound(&self) -> usize {
        self.places.len()
    }

    /// Whether a domain has at most one node.
    pub fn is_single(&self, place: usize) -> bool {
        self.places[place].nodes <= 1
    }

    /// A number that two nodes share only if they are in one domain, or alone in domains with equal counts.
    pub fn mark(&self, node: NodeId, count: impl Fn(usize) -> i64) -> i64 {
        match self.of(node) {
            None => i64::MIN,
            Some(place) if self.is_single(place) => count(place) << 1,
            Some(place) => i64::try_from(place).unwrap_or(i64::MAX) << 1 | 1,
        }
    }

    /// Moves a node to the domain that its label names now. A node that is no longer alone in its domain, or is alone
    /// now, has another mark: it is added to `touched`.
    pub fn follow(&mut self, snapshot: &Snapshot, node: NodeId, touched: &mut Vec<NodeId>) {
        let place = self.number(node, snapshot.label_number(&self.key, node));
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

    /// The domain of a node whose label value has this number.
    fn number(&self, node: NodeId, of_label: u32) -> u32 {
        match u32::try_from(node) {
            Ok(node) if self.by_node && of_label != NONE => node,
            _ => of_label,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Kind};
    use holdfast_value::json;

    fn put(snapshot: &mut Snapshot, name: &str, zone: Option<&str>) -> NodeId {
        let labels = zone.map(|zone| json!({"zone": zone}));
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "9"}}});
        snapshot.apply(Kind::Node, &Key::cluster(name), Some(&node));
        snapshot.node_named(name).unwrap().id
    }

    #[test]
    fn who_is_alone_in_a_place_no_more_is_touched_and_who_is_alone_by_now() {
        let mut snapshot = Snapshot::new();
        let (a, b) = (put(&mut snapshot, "a", Some("x")), put(&mut snapshot, "b", Some("y")));
        let mut places = Places::new(&snapshot, &"zone".into());
        let marks = |places: &Places| [a, b].map(|node| places.mark(node, |_| 3));
        let alike = |places: &Places| marks(places)[0] == marks(places)[1];
        assert!(alike(&places), "each is alone in a place that counts as much");
        let c = put(&mut snapshot, "c", Some("x"));
        let mut follow = |snapshot: &Snapshot, node: NodeId| {
            let mut touched = Vec::new();
            places.follow(snapshot, node, &mut touched);
            (touched, alike(&places), places.of(node))
        };
        let (touched, is_alike, place) = follow(&snapshot, c);
        assert_eq!((touched, is_alike), (vec![a], false), "a shares its place now");
        assert!(place.is_some());
        assert_eq!(follow(&snapshot, c), (vec![], false, place), "nothing is new");
        put(&mut snapshot, "c", None);
        assert_eq!(follow(&snapshot, c), (vec![a], true, None), "a is alone again");
        put(&mut snapshot, "a", Some("y"));
        assert_eq!(follow(&snapshot, a).0, [b]);
        assert_eq!(places, Places::new(&snapshot, &"zone".into()), "as if it were made anew");
    }
}

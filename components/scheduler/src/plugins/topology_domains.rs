//! Topology domains: all nodes with one value of a label are a domain. Plug-ins count pods by domain.

use crate::object::Text;
use crate::snapshot::Snapshot;
use crate::snapshot::node_info::NodeId;
use crate::snapshot::node_labels::NONE;

/// The topology domains of one label key. Each domain has a number.
#[derive(Debug, Clone, PartialEq)]
pub struct TopologyDomains {
    key: Text,
    /// Whether each node with the label is a domain of its own, whatever the label's value is.
    by_node: bool,
    /// By the node's number, the number of the node's domain; [`NONE`] for a node without the label.
    of_node: Vec<u32>,
    domains: Vec<Domain>,
}

/// How many nodes a domain has, and the sum of their numbers. If the domain has one node, the sum is the number of that
/// node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Domain {
    nodes: usize,
    sum: NodeId,
}

impl Domain {
    fn only_node(self) -> Option<NodeId> {
        (self.nodes == 1).then_some(self.sum)
    }
}

impl TopologyDomains {
    pub fn new(snapshot: &Snapshot, key: &Text) -> Self {
        TopologyDomains::from_numbers(snapshot, key, false)
    }

    /// Domains in which each node with the label is a domain of its own, whatever the label's value is.
    pub fn one_per_node(snapshot: &Snapshot, key: &Text) -> Self {
        TopologyDomains::from_numbers(snapshot, key, true)
    }

    fn from_numbers(snapshot: &Snapshot, key: &Text, by_node: bool) -> Self {
        let mut domains = TopologyDomains { key: key.clone(), by_node, of_node: Vec::new(), domains: Vec::new() };
        let numbers = snapshot.label_numbers(key).into_iter().enumerate();
        let of_node: Vec<u32> = numbers.map(|(node, number)| domains.number(node, number)).collect();
        for (node, domain) in of_node.iter().enumerate() {
            domains.add(node, *domain);
        }
        domains.of_node = of_node;
        domains
    }

    /// The key of the label whose values are the domains.
    pub fn key(&self) -> &Text {
        &self.key
    }

    /// The number of the domain of a node; `None` if the node lacks the label.
    pub fn domain_of(&self, node: NodeId) -> Option<usize> {
        let domain = *self.of_node.get(node)?;
        (domain != NONE).then_some(domain as usize)
    }

    /// One more than the largest number that a domain has.
    pub fn bound(&self) -> usize {
        self.domains.len()
    }

    /// Whether a domain has at most one node.
    pub fn is_single(&self, domain: usize) -> bool {
        self.domains[domain].nodes <= 1
    }

    /// A number that is equal for two nodes only if they are in one domain, or if each of them is alone in its domain
    /// and the counts of the two domains are equal.
    pub fn mark(&self, node: NodeId, count: impl Fn(usize) -> i64) -> i64 {
        match self.domain_of(node) {
            None => i64::MIN,
            Some(domain) if self.is_single(domain) => count(domain) << 1,
            Some(domain) => i64::try_from(domain).unwrap_or(i64::MAX) << 1 | 1,
        }
    }

    /// Moves a node to the domain that its label names now. If another node is no longer alone in its domain, or is
    /// alone from now on, its mark changes, so that node is added to `touched`.
    pub fn move_node(&mut self, snapshot: &Snapshot, node: NodeId, touched: &mut Vec<NodeId>) {
        let domain = self.number(node, snapshot.label_number(&self.key, node));
        if node >= self.of_node.len() {
            self.of_node.resize(node + 1, NONE);
        }
        let before = std::mem::replace(&mut self.of_node[node], domain);
        if before == domain {
            return;
        }
        if let Some(left) = self.domains.get_mut(before as usize) {
            left.nodes -= 1;
            left.sum = left.sum.wrapping_sub(node);
            touched.extend(left.only_node());
        }
        touched.extend(self.domains.get(domain as usize).and_then(|domain| domain.only_node()));
        self.add(node, domain);
    }

    /// The number of the domain of a node whose label value has the number `of_label`.
    fn number(&self, node: NodeId, of_label: u32) -> u32 {
        match u32::try_from(node) {
            Ok(node) if self.by_node && of_label != NONE => node,
            _ => of_label,
        }
    }

    fn add(&mut self, node: NodeId, domain: u32) {
        if domain == NONE {
            return;
        }
        let domain = domain as usize;
        if domain >= self.domains.len() {
            self.domains.resize(domain + 1, Domain::default());
        }
        self.domains[domain].nodes += 1;
        self.domains[domain].sum = self.domains[domain].sum.wrapping_add(node);
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
    fn a_node_that_becomes_single_in_its_domain_or_stops_being_single_is_touched() {
        let mut snapshot = Snapshot::new();
        let (a, b) = (put(&mut snapshot, "a", Some("x")), put(&mut snapshot, "b", Some("y")));
        let mut domains = TopologyDomains::new(&snapshot, &"zone".into());
        let marks = |domains: &TopologyDomains| [a, b].map(|node| domains.mark(node, |_| 3));
        let alike = |domains: &TopologyDomains| marks(domains)[0] == marks(domains)[1];
        assert!(alike(&domains), "each is alone in a place that counts as much");
        let c = put(&mut snapshot, "c", Some("x"));
        let mut move_node = |snapshot: &Snapshot, node: NodeId| {
            let mut touched = Vec::new();
            domains.move_node(snapshot, node, &mut touched);
            (touched, alike(&domains), domains.domain_of(node))
        };
        let (touched, is_alike, domain) = move_node(&snapshot, c);
        assert_eq!((touched, is_alike), (vec![a], false), "a shares its place now");
        assert!(domain.is_some());
        assert_eq!(move_node(&snapshot, c), (vec![], false, domain), "nothing is new");
        put(&mut snapshot, "c", None);
        assert_eq!(move_node(&snapshot, c), (vec![a], true, None), "a is alone again");
        put(&mut snapshot, "a", Some("y"));
        assert_eq!(move_node(&snapshot, a).0, [b]);
        assert_eq!(domains, TopologyDomains::new(&snapshot, &"zone".into()), "as if it were made anew");
    }
}

//! Allocates a range of pod addresses to each node, for each address family of the cluster.

use crate::Settings;
use crate::addresses::Range;
use crate::subject::Subject;
use holdfast_value::json;
use holdfast_world::views::Node;
use holdfast_world::{Change, Controller, Key, Keys, Plan, Refused, Resource, Stamp, View, World};
use std::collections::{BTreeMap, BTreeSet};

/// How many node ranges an IPv6 range of the cluster may have, as an exponent of two: 16 means 65,536 ranges.
const DOUBLINGS_MAX_V6: u32 = 16;

/// Each plan is for one node.
pub struct NodeRanges {
    pools: Vec<FamilyRange>,
    /// The ranges that each node has, including ranges that are not written into the node yet.
    given: BTreeMap<Key, Vec<Range>>,
}

/// The cluster's range of one address family. The range is divided into parts of equal size, and each node gets one
/// part.
struct FamilyRange {
    range: Range,
    /// The length of a part's prefix, in bits.
    bits: u32,
    /// The number of parts, as an exponent of two.
    doublings: u32,
    /// The indexes of the parts that nodes have.
    taken: BTreeSet<u128>,
    /// Ranges of nodes that are larger than one part, each as an interval of part indexes without its end.
    wide: BTreeSet<(u128, u128)>,
    /// The intervals of parts that overlap the ranges of Services, so no node gets them.
    kept: Vec<(u128, u128)>,
    /// The index of the part at which the search for a free part starts next.
    next: u128,
}

impl NodeRanges {
    /// Returns `Ok(None)` if the settings say that nodes get no ranges, and `Err` if the settings are invalid.
    pub fn new(settings: &Settings) -> Result<Option<NodeRanges>, String> {
        if !settings.allocate_node_ranges {
            return Ok(None);
        }
        let mut pools = Vec::new();
        for text in &settings.cluster_ranges {
            let range = Range::parse(text).ok_or_else(|| format!("invalid CIDR address: {text}"))?;
            let bits = if range.is_v6 { settings.node_bits_v6 } else { settings.node_bits_v4 };
            let doublings = range.doublings(bits).filter(|doublings| !range.is_v6 || *doublings <= DOUBLINGS_MAX_V6);
            let doublings =
                doublings.ok_or_else(|| format!("a range of /{bits} for each node does not fit in {range}"))?;
            let (taken, wide, kept) = Default::default();
            let mut pool = FamilyRange { range, bits, doublings, taken, wide, kept, next: 0 };
            let services = settings.service_ranges.iter().filter_map(|text| Range::parse(text));
            pool.kept = services.filter_map(|range| pool.parts(&range)).collect();
            pools.push(pool);
        }
        Ok(Some(NodeRanges { pools, given: BTreeMap::new() }))
    }
}

impl FamilyRange {
    /// The parts that overlap a range: the index of the first such part, and the index after the last such part.
    fn parts(&self, range: &Range) -> Option<(u128, u128)> {
        if !self.range.overlaps(range) {
            return None;
        }
        if range.covers(&self.range) {
            return Some((0, 1 << self.doublings));
        }
        let first = self.range.index_of(self.bits, range);
        Some((first, first + range.doublings(self.bits).map_or(1, |doublings| 1 << doublings)))
    }

    fn take(&mut self, range: &Range) {
        match self.parts(range) {
            Some((first, end)) if end - first == 1 => _ = self.taken.insert(first),
            Some(parts) => _ = self.wide.insert(parts),
            None => {}
        }
    }

    fn release(&mut self, range: &Range) {
        match self.parts(range) {
            Some((first, end)) if end - first == 1 => _ = self.taken.remove(&first),
            Some(parts) => _ = self.wide.remove(&parts),
            None => {}
        }
    }

    /// If the part at `index` is taken, the next index at which a free part may be; `None` if the part is free.
    fn after_taken(&self, index: u128) -> Option<u128> {
        let ranges = self.wide.iter().chain(&self.kept).filter(|(first, end)| (*first..*end).contains(&index));
        ranges.map(|(_, end)| *end).max().or_else(|| self.taken.contains(&index).then_some(index + 1))
    }

    fn allocate(&mut self) -> Option<Range> {
        let size = 1u128 << self.doublings;
        let (mut index, mut left) = (self.next, size);
        while left > 0 {
            let Some(next) = self.after_taken(index) else {
                self.taken.insert(index);
                self.next = (index + 1) % size;
                return Some(self.range.nth(self.bits, index));
            };
            left = left.saturating_sub(next - index);
            index = next % size;
        }
        None
    }
}

impl Controller for NodeRanges {
    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    fn account(&self) -> &'static str {
        "node-controller"
    }

    fn component(&self) -> &'static str {
        "cidrAllocator"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone()]
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if let Some(node) = change.after::<Node>() {
            let ranges: Vec<Range> = node.spec.pod_cidrs.iter().filter_map(|text| Range::parse(text)).collect();
            if !ranges.is_empty() {
                for pool in &mut self.pools {
                    ranges.iter().for_each(|range| pool.take(range));
                }
                self.given.insert(change.key.clone(), ranges);
            }
            return keys.add(change.key.clone());
        }
        for range in self.given.remove(&change.key).unwrap_or_default() {
            self.pools.iter_mut().for_each(|pool| pool.release(&range));
        }
        // The deleted node's range is free again, and other nodes may wait for a range.
        let waiting = world.all::<Node>().filter(|node| node.spec.pod_cidrs.is_empty());
        waiting.for_each(|node| keys.add(node.object.key()));
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(node) = world.get::<Node>(key) else { return plan };
        if !node.spec.pod_cidrs.is_empty() || node.meta().is_deleting() {
            return plan;
        }
        if !self.given.contains_key(key) {
            let mut ranges = Vec::new();
            for pool in &mut self.pools {
                ranges.extend(pool.allocate());
            }
            if ranges.len() < self.pools.len() {
                for range in ranges {
                    self.pools.iter_mut().for_each(|pool| pool.release(&range));
                }
                let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
                plan.events.push(Subject::from(node).normal("CIDRNotAvailable", message));
                return plan;
            }
            self.given.insert(key.clone(), ranges);
        }
        let ranges: Vec<String> = self.given.get(key).into_iter().flatten().map(Range::to_string).collect();
        if let Some(first) = ranges.first() {
            let patch = json!({"spec": {"podCIDR": first, "podCIDRs": ranges}});
            plan.then(Subject::from(node).strategic_patch(patch));
        }
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let node = world.get::<Node>(key).filter(|_| refused.iter().any(|refused| !refused.refusal.is_stale()));
        let message = format!("Node {} status is now: CIDRAssignmentFailed", key.name);
        let note = node.map(|node| Subject::from(node).normal("CIDRAssignmentFailed", message));
        Plan { events: note.into_iter().collect(), ..Plan::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::Value;
    use holdfast_world::Trial;

    fn settings(ranges: &[&str]) -> Settings {
        Settings {
            allocate_node_ranges: true,
            cluster_ranges: ranges.iter().map(|text| (*text).to_owned()).collect(),
            service_ranges: vec!["10.1.1.0/24".into()],
            ..Settings::default()
        }
    }

    fn trial(ranges: &[&str]) -> Trial {
        Trial::new().with(NodeRanges::new(&settings(ranges)).expect("good settings").expect("it runs"))
    }

    fn node(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    }

    #[test]
    fn each_node_gets_a_range_of_each_family() {
        let mut trial = trial(&["10.1.0.0/22", "fd00::/56"]);
        for name in ["a", "b"] {
            trial.create(node(name));
            trial.run();
        }
        assert_eq!(trial.get("nodes", "a")["spec"]["podCIDRs"], json!(["10.1.0.0/24", "fd00::/64"]));
        assert_eq!(trial.get("nodes", "b")["spec"]["podCIDR"], "10.1.2.0/24", "services have the second");
    }

    #[test]
    fn ranges_are_given_once_and_come_back() {
        let mut trial = trial(&["10.1.0.0/23"]);
        let mut first = node("a");
        first["spec"] = json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]});
        trial.create(first);
        trial.create(node("b"));
        trial.run();
        assert_eq!(trial.get("nodes", "b")["spec"]["podCIDR"], Value::Null);
        assert_eq!(trial.take_event_texts(), ["Normal CIDRNotAvailable Node b status is now: CIDRNotAvailable"]);
        trial.delete("nodes", "a");
        trial.run();
        assert_eq!(trial.get("nodes", "b")["spec"]["podCIDR"], "10.1.0.0/24");
    }

    #[test]
    fn very_many_small_ranges_are_as_good_as_few_large_ones() {
        let mut settings = settings(&["10.0.0.0/8"]);
        settings.node_bits_v4 = 30;
        settings.service_ranges = vec!["10.0.0.0/9".into()];
        let ranges = NodeRanges::new(&settings).expect("good settings").expect("it runs");
        let mut trial = Trial::new().with(ranges);
        let mut first = node("a");
        first["spec"] = json!({"podCIDR": "10.128.0.0/10", "podCIDRs": ["10.128.0.0/10"]});
        trial.create(first);
        for name in ["b", "c"] {
            trial.create(node(name));
            trial.run();
        }
        assert_eq!(trial.get("nodes", "b")["spec"]["podCIDR"], "10.192.0.0/30");
        assert_eq!(trial.get("nodes", "c")["spec"]["podCIDR"], "10.192.0.4/30");
        trial.delete("nodes", "a");
        trial.run();
    }

    #[test]
    fn settings_that_do_not_fit() {
        for ranges in ["10.1.0.0/25", "fd00::/47", "x"] {
            assert!(NodeRanges::new(&settings(&[ranges])).is_err(), "{ranges}");
        }
        assert!(NodeRanges::new(&Settings::default()).expect("nothing is asked for").is_none());
    }
}

//! PodTopologySpread: pods lie evenly over zones, hosts, or whatever else a label makes of the nodes.

use super::default_selector::{self, default_selector};
use super::places::Places;
use crate::object::pod::{Pod, Template};
use crate::object::terms::{Spread, untolerated};
use crate::object::{Key, Kind, Text};
use crate::plugin::{Alike, Cycle, Filter, Hint, MAX_SCORE, Plugin, PreFilter, Score, extremes, replace_each};
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{Event, Seen};
use crate::status::Refusal;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub const NAME: &str = "PodTopologySpread";

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Debug)]
pub struct PodTopologySpread {
    /// Constraints of pods that have none of their own; their selectors come from what owns and serves the pod.
    pub defaults: Vec<Spread>,
    /// Whether the defaults are those that every cluster has. They bear nodes without labels.
    pub system: bool,
}

/// What every cluster has: hosts as evenly as can be, zones too.
pub fn system_defaults() -> Vec<Spread> {
    let soft = |key: &str, max_skew| default_constraint(key.into(), max_skew, false);
    vec![soft(HOSTNAME, 3), soft(ZONE, 5)]
}

pub fn default_constraint(topology_key: Text, max_skew: i64, hard: bool) -> Spread {
    let selector = crate::object::selector::Selector::nothing();
    Spread { max_skew, topology_key, hard, selector, min_domains: 1, honor_affinity: true, honor_taints: false }
}

impl Default for PodTopologySpread {
    fn default() -> Self {
        PodTopologySpread { defaults: system_defaults(), system: true }
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        let constraints = self.constraints(cycle, true);
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::judge(Skews::new(cycle, constraints))
    }

    fn score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        let constraints = self.constraints(cycle, false);
        let all_keys = !cycle.pod.template.spread.is_empty() || !self.system;
        (!constraints.is_empty()).then(|| Box::new(Evenness::new(cycle, constraints, all_keys)) as Box<dyn Score>)
    }

    fn rests_on(&self, cycle: Cycle<'_>, kind: Kind, key: &Key) -> bool {
        cycle.pod.template.spread.is_empty() && default_selector::rests_on(&cycle.pod.template, kind, key)
    }

    fn hint(&self, cycle: Cycle<'_>, event: &Event) -> Hint {
        let constraints = self.constraints(cycle, true);
        Hint::queue_if(match &event.seen {
            Seen::Pod(before, Some(after)) if after.uid == cycle.pod.uid => before.as_ref().is_some_and(|before| {
                before.template.labels != after.template.labels
                    || (before.template.tolerations != after.template.tolerations
                        && constraints.iter().any(|one| one.honor_taints))
            }),
            Seen::Pod(before, after) => {
                let counts = |pod: &Option<Arc<Pod>>, one: &Spread| {
                    pod.as_ref().is_some_and(|pod| {
                        pod.node_name.is_some()
                            && !pod.deleting
                            && pod.namespace() == cycle.pod.namespace()
                            && one.selector.matches(&pod.template.labels)
                    })
                };
                constraints.iter().any(|one| counts(before, one) != counts(after, one))
            }
            Seen::Node(before, after) => {
                let values = |labels: &crate::object::labels::Labels| -> Option<Vec<Text>> {
                    constraints.iter().map(|one| labels.get(&one.topology_key).cloned()).collect()
                };
                let of =
                    |node: &Option<Arc<crate::object::node::Node>>| node.as_ref().and_then(|node| values(&node.labels));
                let taints =
                    |node: &Option<Arc<crate::object::node::Node>>| node.as_ref().map(|node| node.taints.clone());
                of(before) != of(after) || (of(after).is_some() && taints(before) != taints(after))
            }
            _ => false,
        })
    }
}

impl PodTopologySpread {
    /// The pod's own constraints that must hold, or should; the defaults where it has none at all.
    fn constraints(&self, cycle: Cycle<'_>, hard: bool) -> Vec<Spread> {
        let template = &cycle.pod.template;
        if !template.spread.is_empty() {
            return template.spread.iter().filter(|one| one.hard == hard).cloned().collect();
        }
        let wanted = || self.defaults.iter().filter(|one| one.hard == hard);
        if wanted().next().is_none() {
            return Vec::new();
        }
        let selector = default_selector(cycle.snapshot, template);
        if selector.is_everything() {
            return Vec::new();
        }
        wanted().map(|one| Spread { selector: selector.clone(), ..one.clone() }).collect()
    }
}

/// Whether a constraint counts the pods on a node.
fn counted(one: &Spread, template: &Template, node: &NodeInfo) -> bool {
    let node = &node.node;
    (!one.honor_affinity || template.allows(&node.name, &node.labels))
        && (!one.honor_taints || untolerated(&node.taints, &template.tolerations).is_none())
}

/// Whether a pod is one of those that a constraint counts.
fn is_counted(one: &Spread, template: &Template, pod: &Pod) -> bool {
    !pod.deleting
        && *pod.namespace() == template.namespace
        && !one.selector.is_everything()
        && one.selector.matches(&pod.template.labels)
}

/// One constraint with what is counted for it.
#[derive(Clone)]
struct Count {
    spread: Arc<Spread>,
    places: Arc<Places>,
    /// Which nodes are counted, by number.
    nodes: Arc<Vec<bool>>,
    counts: Vec<i64>,
    /// One, if the pod that is to be placed is one of those that are counted.
    itself: i64,
}

impl Count {
    fn new(cycle: Cycle<'_>, spread: Spread, keys: &[Arc<Places>], place: usize) -> Self {
        let template = &cycle.pod.template;
        let mut nodes = vec![false; cycle.snapshot.node_bound()];
        let mut counts = vec![0; keys[place].count()];
        for node in cycle.snapshot.nodes() {
            if keys.iter().all(|key| key.of(node.id).is_some()) && counted(&spread, template, node) {
                nodes[node.id] = true;
                if let Some(place) = keys[place].of(node.id) {
                    counts[place] += pods_counted(&spread, template, node);
                }
            }
        }
        let itself = i64::from(spread.selector.matches(&template.labels));
        Count { itself, spread: Arc::new(spread), places: keys[place].clone(), nodes: Arc::new(nodes), counts }
    }

    /// The place that a pod on a node counts in.
    fn place(&self, template: &Template, pod: &Pod, node: NodeId) -> Option<usize> {
        (*self.nodes.get(node)? && is_counted(&self.spread, template, pod)).then(|| self.places.of(node)).flatten()
    }
}

fn pods_counted(spread: &Spread, template: &Template, node: &NodeInfo) -> i64 {
    let count = node.pods.iter().filter(|pod| is_counted(spread, template, pod)).count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What must be: no place may have many more than the one that has fewest.
#[derive(Clone)]
struct Skews {
    counts: Vec<Count>,
    /// For each constraint, how many places that are counted have how many pods.
    levels: Vec<BTreeMap<i64, usize>>,
    places_counted: Vec<i64>,
    /// For each constraint, the smallest count; nought where there are fewer places than there must be.
    fewest: Vec<i64>,
}

impl Skews {
    fn new(cycle: Cycle<'_>, constraints: Vec<Spread>) -> Self {
        let keys: Vec<_> =
            constraints.iter().map(|one| Arc::new(Places::new(cycle.snapshot, &one.topology_key))).collect();
        let counts: Vec<_> =
            constraints.into_iter().enumerate().map(|(index, one)| Count::new(cycle, one, &keys, index)).collect();
        let mut skews = Skews { counts, levels: Vec::new(), places_counted: Vec::new(), fewest: Vec::new() };
        for one in &skews.counts {
            // A place without any node that counts is none.
            let nodes = cycle.snapshot.nodes().filter(|node| one.nodes[node.id]);
            let places: HashSet<usize> = nodes.filter_map(|node| one.places.of(node.id)).collect();
            let mut levels = BTreeMap::new();
            for place in &places {
                *levels.entry(one.counts[*place]).or_insert(0) += 1;
            }
            skews.levels.push(levels);
            skews.places_counted.push(i64::try_from(places.len()).unwrap_or(i64::MAX));
        }
        skews.find_fewest();
        skews
    }

    fn find_fewest(&mut self) {
        let constraints = self.counts.iter().zip(&self.levels).zip(&self.places_counted);
        let fewest = constraints.map(|((one, levels), places)| {
            let enough_places = *places >= one.spread.min_domains;
            levels.keys().next().copied().filter(|_| enough_places).unwrap_or(0)
        });
        self.fewest = fewest.collect();
    }

    fn count(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId, by: i64) {
        for (one, levels) in self.counts.iter_mut().zip(&mut self.levels) {
            let Some(place) = one.place(&cycle.pod.template, pod, node) else { continue };
            let count = &mut one.counts[place];
            if let Some(places) = levels.get_mut(count) {
                *places -= 1;
                if *places == 0 {
                    levels.remove(count);
                }
            }
            *count += by;
            *levels.entry(*count).or_insert(0) += 1;
        }
        self.find_fewest();
    }
}

enum Broken {
    NoPlace,
    Skew,
}

impl Skews {
    /// What is wrong with a node by the first constraint that is broken there.
    fn broken(&self, node: NodeId) -> Option<Broken> {
        self.counts.iter().enumerate().find_map(|(index, one)| {
            let Some(place) = one.places.of(node) else { return Some(Broken::NoPlace) };
            let skew = one.counts[place] + one.itself - self.fewest[index];
            (skew > one.spread.max_skew).then_some(Broken::Skew)
        })
    }
}

impl Filter for Skews {
    fn check(&self, _: Cycle<'_>, node: &NodeInfo) -> Result<(), Refusal> {
        match self.broken(node.id) {
            None => Ok(()),
            Some(Broken::NoPlace) => {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                Err(Refusal::hard(NAME, reason))
            }
            Some(Broken::Skew) => Err(Refusal::soft(NAME, "node(s) didn't match pod topology spread constraints")),
        }
    }

    fn passes(&self, _: Cycle<'_>, node: NodeId) -> bool {
        self.broken(node).is_none()
    }

    fn is_local(&self) -> bool {
        false
    }

    fn placed(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, 1);
    }

    fn left(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, -1);
    }

    fn mark_count(&self) -> usize {
        self.counts.len()
    }

    fn mark(&self, node: NodeId, marks: &mut Vec<i64>) {
        marks.extend(self.counts.iter().map(|one| one.places.mark(node, &one.counts)));
    }

    fn copy(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// What had better be: fewer pods in the same places.
struct Evenness {
    counts: Vec<Count>,
    /// Which nodes stay out of it because they lack a label; none where that is borne.
    out: Vec<bool>,
}

impl Evenness {
    fn new(cycle: Cycle<'_>, constraints: Vec<Spread>, all_keys: bool) -> Self {
        let keys: Vec<_> =
            constraints.iter().map(|one| Arc::new(Places::new(cycle.snapshot, &one.topology_key))).collect();
        let lacks_a_key = |node: NodeId| all_keys && keys.iter().any(|key| key.of(node).is_none());
        let out = (0..cycle.snapshot.node_bound()).map(lacks_a_key).collect();
        let counts = constraints.into_iter().enumerate().map(|(index, one)| {
            if &*one.topology_key == HOSTNAME {
                // Every host is asked for its own pods, whether it would be counted or not.
                let everywhere = Spread { honor_affinity: false, honor_taints: false, ..one };
                Count::new(cycle, everywhere, &keys[index..=index], 0)
            } else if all_keys {
                Count::new(cycle, one, &keys, index)
            } else {
                Count::new(cycle, one, &keys[index..=index], 0)
            }
        });
        Evenness { counts: counts.collect(), out }
    }

    fn is_out(&self, node: NodeId) -> bool {
        self.out.get(node).copied().unwrap_or(true)
    }

    /// How much a pod in a place weighs under a constraint: the more places there are, the more.
    fn weight(&self, one: &Count, nodes: &[Alike]) -> f64 {
        let (mut single, mut shared, mut nowhere) = (0, HashSet::new(), false);
        let is_host = &*one.spread.topology_key == HOSTNAME;
        for alike in nodes.iter().filter(|alike| !self.is_out(alike.node)) {
            match one.places.of(alike.node) {
                _ if is_host => single += alike.count,
                Some(_) if one.places.are_single() => single += alike.count,
                Some(place) => _ = shared.insert(place),
                None => nowhere = true,
            }
        }
        ((single + shared.len() + usize::from(nowhere) + 2) as f64).ln()
    }
}

impl Score for Evenness {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        self.scores(cycle, &[Alike::alone(node.id)])[0]
    }

    fn scores(&self, _: Cycle<'_>, nodes: &[Alike]) -> Vec<i64> {
        let mut sums = vec![0.0; nodes.len()];
        for one in &self.counts {
            let weight = self.weight(one, nodes);
            let skew = (one.spread.max_skew - 1) as f64;
            for (sum, alike) in sums.iter_mut().zip(nodes) {
                if let Some(place) = one.places.of(alike.node) {
                    *sum += one.counts[place] as f64 * weight + skew;
                }
            }
        }
        let rounded = |(sum, alike): (f64, &Alike)| if self.is_out(alike.node) { 0 } else { sum.round() as i64 };
        sums.into_iter().zip(nodes).map(rounded).collect()
    }

    fn normalize(&self, _: Cycle<'_>, nodes: &[Alike], scores: &mut [i64]) {
        let judged = nodes.iter().zip(scores.iter()).filter(|(alike, _)| !self.is_out(alike.node));
        let (least, most) = extremes(judged.map(|(_, score)| *score)).unwrap_or((0, 0));
        replace_each(scores, least, most, |score| match most {
            0 => MAX_SCORE,
            _ => MAX_SCORE * (most + least - score) / most,
        });
        for (alike, score) in nodes.iter().zip(scores) {
            if self.is_out(alike.node) {
                *score = 0;
            }
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn placed(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, 1);
    }

    fn left(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, -1);
    }

    fn mark_count(&self) -> usize {
        self.counts.len()
    }

    fn mark(&self, node: NodeId, marks: &mut Vec<i64>) {
        marks.extend(self.counts.iter().map(|one| one.places.mark(node, &one.counts)));
    }
}

impl Evenness {
    fn count(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId, by: i64) {
        for one in &mut self.counts {
            if let Some(place) = one.place(&cycle.pod.template, pod, node) {
                one.counts[place] += by;
            }
        }
    }
}

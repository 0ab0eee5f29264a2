//! PodTopologySpread: spreads pods evenly over the topology domains of a label, such as zones or hosts.

use super::default_selector::{self, default_selector};
use super::topology_domains::TopologyDomains;
use crate::object::pod::{Pod, Template};
use crate::object::terms::{SpreadConstraint, untolerated};
use crate::object::{Key, Kind, Text};
use crate::plugin::{
    EqualNodes, Filter, MAX_SCORE, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score, extremes,
    replace_each,
};
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub const NAME: &str = "PodTopologySpread";

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Debug)]
pub struct PodTopologySpread {
    /// Constraints for pods that have none of their own. The selectors of these constraints come from the pod's
    /// Services and owner.
    pub defaults: Vec<SpreadConstraint>,
    /// Whether `defaults` are the system defaults, which also score nodes that lack some of the constraints' labels.
    pub system: bool,
}

/// The system defaults: two constraints that are preferences, for spreading pods over hosts and over zones.
pub fn system_defaults() -> Vec<SpreadConstraint> {
    let soft = |key: &str, max_skew| default_constraint(key.into(), max_skew, false);
    vec![soft(HOSTNAME, 3), soft(ZONE, 5)]
}

pub fn default_constraint(topology_key: Text, max_skew: i64, hard: bool) -> SpreadConstraint {
    let selector = crate::object::selector::Selector::nothing();
    SpreadConstraint {
        max_skew,
        topology_key,
        hard,
        selector,
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
    }
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

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        let constraints = self.constraints(cycle, true);
        if constraints.is_empty() {
            return PreFilterResult::Skip;
        }
        PreFilterResult::filter(SpreadFilter::new(cycle, constraints))
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let constraints = self.constraints(cycle, false);
        let all_keys = !cycle.pod.template.spread.is_empty() || !self.system;
        (!constraints.is_empty()).then(|| Box::new(SpreadScore::new(cycle, constraints, all_keys)) as Box<dyn Score>)
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, key: &Key) -> bool {
        cycle.pod.template.spread.is_empty() && default_selector::depends_on(&cycle.pod.template, kind, key)
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let constraints = self.constraints(cycle, true);
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(before, Some(after)) if after.uid == cycle.pod.uid => {
                before.as_ref().is_some_and(|before| {
                    let (was, is) = (&before.template, &after.template);
                    let is_counted_differently =
                        |one: &SpreadConstraint| one.selector.matches(&was.labels) != one.selector.matches(&is.labels);
                    constraints.iter().any(is_counted_differently)
                        || (was.tolerations != is.tolerations && constraints.iter().any(|one| one.honor_taints))
                })
            }
            ObjectChange::Pod(before, after) => {
                let counts = |pod: &Option<Arc<Pod>>, one: &SpreadConstraint| {
                    pod.as_ref().is_some_and(|pod| {
                        pod.node_name.is_some()
                            && !pod.deleting
                            && pod.namespace() == cycle.pod.namespace()
                            && one.selector.matches(&pod.template.labels)
                    })
                };
                constraints.iter().any(|one| counts(before, one) != counts(after, one))
            }
            ObjectChange::Node(before, after) => {
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
    /// The pod's own constraints that must hold (`hard`) or that are preferences; if the pod has no constraints of its
    /// own, the default constraints.
    fn constraints(&self, cycle: SchedulingCycle<'_>, hard: bool) -> Vec<SpreadConstraint> {
        let template = &cycle.pod.template;
        if !template.spread.is_empty() {
            return template.spread.iter().filter(|one| one.hard == hard).cloned().collect();
        }
        let wanted = || self.defaults.iter().filter(|one| one.hard == hard);
        if wanted().next().is_none() {
            return Vec::new();
        }
        let selector = default_selector(cycle.snapshot.selectors(), template);
        if selector.is_everything() {
            return Vec::new();
        }
        wanted().map(|one| SpreadConstraint { selector: selector.clone(), ..one.clone() }).collect()
    }
}

/// Whether the pods on a node count for a constraint, by the node's labels and taints.
fn counts_pods_on(one: &SpreadConstraint, template: &Template, node: &NodeInfo) -> bool {
    let node = &node.node;
    (!one.honor_affinity || template.allows(&node.name, &node.labels))
        && (!one.honor_taints || untolerated(&node.taints, &template.tolerations).is_none())
}

/// Whether a pod counts for a constraint, wherever it is.
fn counts_pod(one: &SpreadConstraint, template: &Template, pod: &Pod) -> bool {
    !pod.deleting
        && *pod.namespace() == template.namespace
        && !one.selector.is_everything()
        && one.selector.matches(&pod.template.labels)
}

/// A constraint, and how many pods it counts in each topology domain.
#[derive(Clone)]
struct ConstraintCounts {
    spread: Arc<SpreadConstraint>,
    domains: Arc<TopologyDomains>,
    /// The pods on a node count only if the node has all of these labels.
    keys: Arc<[Text]>,
    /// For each node, by its number, whether the pods on it count.
    nodes: Arc<Vec<bool>>,
    tallies: Vec<DomainTally>,
    /// 1 if the constraint's selector selects the pod to be scheduled itself, otherwise 0.
    self_match: i64,
}

/// How many nodes of a topology domain count, and how many pods on them.
#[derive(Debug, Clone, Copy, Default)]
struct DomainTally {
    nodes: usize,
    pods: i64,
}

/// How the counts of a topology domain change when a node is added to it or removed from it.
struct DomainShift {
    domain: usize,
    pods: i64,
    is_added: bool,
}

impl ConstraintCounts {
    fn new(cycle: SchedulingCycle<'_>, spread: SpreadConstraint, keys: &Arc<[Text]>) -> Self {
        let domains = TopologyDomains::new(cycle.snapshot, &spread.topology_key);
        ConstraintCounts::in_domains(cycle, spread, keys, domains)
    }

    fn in_domains(
        cycle: SchedulingCycle<'_>,
        spread: SpreadConstraint,
        keys: &Arc<[Text]>,
        domains: TopologyDomains,
    ) -> Self {
        let self_match = i64::from(spread.selector.matches(&cycle.pod.template.labels));
        let mut count = ConstraintCounts {
            self_match,
            spread: Arc::new(spread),
            keys: keys.clone(),
            nodes: Arc::default(),
            tallies: vec![DomainTally::default(); domains.bound()],
            domains: Arc::new(domains),
        };
        let mut nodes = vec![false; cycle.snapshot.node_bound()];
        for node in cycle.snapshot.nodes() {
            if !count.counts(cycle, node) {
                continue;
            }
            nodes[node.id] = true;
            if let Some(domain) = count.domains.domain_of(node.id) {
                let pods = count_pods(&count.spread, &cycle.pod.template, node);
                count.shift(&DomainShift { domain, pods, is_added: true });
            }
        }
        count.nodes = Arc::new(nodes);
        count
    }

    /// Whether the pods on a node are counted.
    fn counts(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> bool {
        self.keys.iter().all(|key| node.node.labels.get(key).is_some())
            && counts_pods_on(&self.spread, &cycle.pod.template, node)
    }

    /// The topology domain in which a pod on a node counts; `None` if the pod does not count.
    fn domain_for(&self, template: &Template, pod: &Pod, node: NodeId) -> Option<usize> {
        (self.counts_node(node) && counts_pod(&self.spread, template, pod))
            .then(|| self.domains.domain_of(node))
            .flatten()
    }

    fn counts_node(&self, node: NodeId) -> bool {
        self.nodes.get(node).copied().unwrap_or(false)
    }

    /// Moves a node to the topology domain that its labels name now. Returns how the counts of the old domain and of
    /// the new domain change.
    fn update_topology(
        &mut self,
        cycle: SchedulingCycle<'_>,
        id: NodeId,
        touched: &mut Vec<NodeId>,
    ) -> [Option<DomainShift>; 2] {
        let node = cycle.snapshot.node(id);
        // For all changes of the node's pods, `add_pod` and `remove_pod` were called before. So the pods that count on
        // the node are its present pods.
        let pods = node.map_or(0, |node| count_pods(&self.spread, &cycle.pod.template, node));
        let shift = |one: &Self, is_added: bool| {
            let domain = one.domains.domain_of(id).filter(|_| one.counts_node(id))?;
            Some(DomainShift { domain, pods: if is_added { pods } else { -pods }, is_added })
        };
        let leaves = shift(self, false);
        Arc::make_mut(&mut self.domains).move_node(cycle.snapshot, id, touched);
        self.tallies.resize(self.domains.bound(), DomainTally::default());
        let counts = node.is_some_and(|node| self.counts(cycle, node));
        let nodes = Arc::make_mut(&mut self.nodes);
        if id >= nodes.len() {
            nodes.resize(id + 1, false);
        }
        nodes[id] = counts;
        [leaves, shift(self, true)]
    }

    fn shift(&mut self, shift: &DomainShift) {
        let tally = &mut self.tallies[shift.domain];
        tally.pods += shift.pods;
        tally.nodes = if shift.is_added { tally.nodes + 1 } else { tally.nodes - 1 };
    }

    fn mark(&self, node: NodeId, marks: &mut Vec<i64>) {
        marks.push(self.domains.mark(node, |domain| self.tallies[domain].pods));
    }
}

fn count_pods(spread: &SpreadConstraint, template: &Template, node: &NodeInfo) -> i64 {
    let count = node.pods.iter().filter(|pod| counts_pod(spread, template, pod)).count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The topology keys of all constraints.
fn keys(constraints: &[SpreadConstraint]) -> Arc<[Text]> {
    constraints.iter().map(|one| one.topology_key.clone()).collect()
}

/// The filter by the constraints that must hold: with the pod, no topology domain may have more than `maxSkew` pods
/// more than the domain with the fewest pods.
#[derive(Clone)]
struct SpreadFilter {
    counts: Vec<ConstraintCounts>,
    levels: Vec<PodLevels>,
    /// For each constraint, the number of pods in the topology domain with the fewest pods; 0 if there are fewer
    /// domains than `minDomains`.
    fewest: Vec<i64>,
}

/// For each number of pods, how many topology domains have this number of pods. Only domains with a node that counts
/// are included.
#[derive(Debug, Clone, Default)]
struct PodLevels {
    by_pods: BTreeMap<i64, usize>,
    domains: i64,
}

impl PodLevels {
    fn add(&mut self, tally: DomainTally) {
        if tally.nodes > 0 {
            *self.by_pods.entry(tally.pods).or_insert(0) += 1;
            self.domains += 1;
        }
    }

    fn remove(&mut self, tally: DomainTally) {
        if tally.nodes == 0 {
            return;
        }
        self.domains -= 1;
        if let Some(domains) = self.by_pods.get_mut(&tally.pods) {
            *domains -= 1;
            if *domains == 0 {
                self.by_pods.remove(&tally.pods);
            }
        }
    }
}

impl SpreadFilter {
    fn new(cycle: SchedulingCycle<'_>, constraints: Vec<SpreadConstraint>) -> Self {
        let keys = keys(&constraints);
        let counts: Vec<_> = constraints.into_iter().map(|one| ConstraintCounts::new(cycle, one, &keys)).collect();
        let mut spread_filter = SpreadFilter { counts, levels: Vec::new(), fewest: Vec::new() };
        for one in &spread_filter.counts {
            let mut levels = PodLevels::default();
            one.tallies.iter().for_each(|tally| levels.add(*tally));
            spread_filter.levels.push(levels);
        }
        spread_filter.find_fewest();
        spread_filter
    }

    fn find_fewest(&mut self) {
        let fewest = self.counts.iter().zip(&self.levels).map(|(one, levels)| {
            let enough_domains = levels.domains >= one.spread.min_domains;
            levels.by_pods.keys().next().copied().filter(|_| enough_domains).unwrap_or(0)
        });
        self.fewest = fewest.collect();
    }

    fn count(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId, by: i64) {
        for (one, levels) in self.counts.iter_mut().zip(&mut self.levels) {
            let Some(domain) = one.domain_for(&cycle.pod.template, pod, node) else { continue };
            levels.remove(one.tallies[domain]);
            one.tallies[domain].pods += by;
            levels.add(one.tallies[domain]);
        }
        self.find_fewest();
    }
}

enum Violation {
    MissingLabel,
    Skew,
}

impl SpreadFilter {
    /// How the node violates the first violated constraint; `None` if it violates none.
    fn violation(&self, node: NodeId) -> Option<Violation> {
        self.counts.iter().enumerate().find_map(|(index, one)| {
            let Some(domain) = one.domains.domain_of(node) else { return Some(Violation::MissingLabel) };
            let skew = one.tallies[domain].pods + one.self_match - self.fewest[index];
            (skew > one.spread.max_skew).then_some(Violation::Skew)
        })
    }
}

impl Filter for SpreadFilter {
    fn check(&self, _: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        match self.violation(node.id) {
            None => Ok(()),
            Some(Violation::MissingLabel) => {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                Err(Rejection::unresolvable(NAME, reason))
            }
            Some(Violation::Skew) => {
                Err(Rejection::unschedulable(NAME, "node(s) didn't match pod topology spread constraints"))
            }
        }
    }

    fn passes(&self, _: SchedulingCycle<'_>, node: NodeId) -> bool {
        self.violation(node).is_none()
    }

    fn is_local(&self) -> bool {
        false
    }

    fn add_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, 1);
    }

    fn remove_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, -1);
    }

    fn update_topology(&mut self, cycle: SchedulingCycle<'_>, node: NodeId, touched: &mut Vec<NodeId>) -> bool {
        for (one, levels) in self.counts.iter_mut().zip(&mut self.levels) {
            for shift in one.update_topology(cycle, node, touched).iter().flatten() {
                levels.remove(one.tallies[shift.domain]);
                one.shift(shift);
                levels.add(one.tallies[shift.domain]);
            }
        }
        self.find_fewest();
        true
    }

    fn mark_count(&self) -> usize {
        self.counts.len()
    }

    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        self.counts.iter().for_each(|one| one.mark(node.id, marks));
    }

    fn mark_nominated(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo, pods: &[&Arc<Pod>], marks: &mut Vec<i64>) {
        for (index, one) in (0..).zip(&self.counts) {
            let counted = pods.iter().filter(|pod| one.domain_for(&cycle.pod.template, pod, node.id).is_some()).count();
            if counted > 0 {
                marks.extend([index, counted as i64]);
            }
        }
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// The score by the constraints that are preferences: a node is better if fewer pods are in its topology domains.
struct SpreadScore {
    counts: Vec<ConstraintCounts>,
    /// Only nodes with all of these labels are scored. The list is empty with the system defaults, which score all
    /// nodes.
    keys: Arc<[Text]>,
}

impl SpreadScore {
    fn new(cycle: SchedulingCycle<'_>, constraints: Vec<SpreadConstraint>, all_keys: bool) -> Self {
        let keys = if all_keys { keys(&constraints) } else { Arc::default() };
        let counts = constraints.into_iter().map(|one| {
            let own: Arc<[Text]> = Arc::new([one.topology_key.clone()]);
            if &*one.topology_key == HOSTNAME {
                // For the topology key of hosts, the pods of each host are counted even if its affinity or taints would
                // exclude the host.
                let everywhere = SpreadConstraint { honor_affinity: false, honor_taints: false, ..one };
                let hosts = TopologyDomains::one_per_node(cycle.snapshot, &everywhere.topology_key);
                ConstraintCounts::in_domains(cycle, everywhere, &own, hosts)
            } else if all_keys {
                ConstraintCounts::new(cycle, one, &keys)
            } else {
                ConstraintCounts::new(cycle, one, &own)
            }
        });
        SpreadScore { counts: counts.collect(), keys }
    }

    fn lacks_keys(&self, cycle: SchedulingCycle<'_>, node: NodeId) -> bool {
        let has_all = |node: &NodeInfo| self.keys.iter().all(|key| node.node.labels.get(key).is_some());
        !cycle.snapshot.node(node).is_some_and(has_all)
    }

    /// How much one pod in a topology domain weighs under a constraint; the weight grows with the number of domains.
    fn weight(&self, one: &ConstraintCounts, nodes: &[(EqualNodes, bool)]) -> f64 {
        let (mut single, mut shared, mut nowhere) = (0, HashSet::new(), false);
        let is_host = &*one.spread.topology_key == HOSTNAME;
        for (group, _) in nodes.iter().filter(|(_, lacking)| !lacking) {
            match one.domains.domain_of(group.node) {
                _ if is_host => single += group.count,
                Some(domain) if one.domains.is_single(domain) => single += group.count,
                Some(domain) => _ = shared.insert(domain),
                None => nowhere = true,
            }
        }
        ((single + shared.len() + usize::from(nowhere) + 2) as f64).ln()
    }
}

impl Score for SpreadScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        self.scores(cycle, &[EqualNodes::single(node.id)])[0]
    }

    fn scores(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes]) -> Vec<i64> {
        let nodes: Vec<_> = nodes.iter().map(|group| (*group, self.lacks_keys(cycle, group.node))).collect();
        let mut sums = vec![0.0; nodes.len()];
        for one in &self.counts {
            let weight = self.weight(one, &nodes);
            let skew = (one.spread.max_skew - 1) as f64;
            for (sum, (group, _)) in sums.iter_mut().zip(&nodes) {
                if let Some(domain) = one.domains.domain_of(group.node) {
                    *sum += one.tallies[domain].pods as f64 * weight + skew;
                }
            }
        }
        let rounded = |(sum, (_, lacking)): (f64, &(EqualNodes, bool))| if *lacking { 0 } else { sum.round() as i64 };
        sums.into_iter().zip(&nodes).map(rounded).collect()
    }

    fn normalize(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes], scores: &mut [i64]) {
        let lacking: Vec<_> = nodes.iter().map(|group| self.lacks_keys(cycle, group.node)).collect();
        let scored = lacking.iter().zip(scores.iter()).filter(|(lacking, _)| !**lacking);
        let (least, most) = extremes(scored.map(|(_, score)| *score)).unwrap_or((0, 0));
        replace_each(scores, least, most, |score| match most {
            0 => MAX_SCORE,
            _ => MAX_SCORE * (most + least - score) / most,
        });
        for (score, _) in scores.iter_mut().zip(lacking).filter(|(_, lacking)| *lacking) {
            *score = 0;
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn add_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, 1);
    }

    fn remove_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle, pod, node, -1);
    }

    fn update_topology(&mut self, cycle: SchedulingCycle<'_>, node: NodeId, touched: &mut Vec<NodeId>) -> bool {
        for one in &mut self.counts {
            one.update_topology(cycle, node, touched).iter().flatten().for_each(|shift| one.shift(shift));
        }
        true
    }

    fn mark_count(&self) -> usize {
        self.counts.len()
    }

    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        self.counts.iter().for_each(|one| one.mark(node.id, marks));
    }
}

impl SpreadScore {
    fn count(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId, by: i64) {
        for one in &mut self.counts {
            if let Some(domain) = one.domain_for(&cycle.pod.template, pod, node) {
                one.tallies[domain].pods += by;
            }
        }
    }
}

//! ServiceAffinity, which only old configurations may name: the pods of a Service must be on nodes that have equal
//! values for some labels, or should be on nodes that have different values for other labels.

use crate::object::labels::Labels;
use crate::object::pod::{Pod, Template};
use crate::object::{Key, Kind, Text};
use crate::plugin::{EqualNodes, Filter, MAX_SCORE, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score};
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub const NAME: &str = "ServiceAffinity";

#[derive(Debug, Default)]
pub struct ServiceAffinity {
    /// Labels that must have equal values on the nodes of all pods of a Service.
    pub same: Arc<[Text]>,
    /// Labels over whose values on nodes the pods of a Service are spread.
    pub different: Arc<[Text]>,
}

impl Plugin for ServiceAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        match self.same.is_empty() {
            true => PreFilterResult::Skip,
            false => PreFilterResult::filter(SameValueFilter::new(cycle, self.same.clone())),
        }
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let different = DifferentValueScore { labels: self.different.clone(), selector: service_of(cycle).cloned() };
        (!self.different.is_empty()).then(|| Box::new(different) as Box<dyn Score>)
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, key: &Key) -> bool {
        kind == Kind::Service && key.namespace == *cycle.pod.namespace()
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let own = cycle.pod;
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(Some(before), Some(after)) if after.uid == own.uid => {
                before.template.labels != after.template.labels
            }
            ObjectChange::Pod(before, after) => {
                let is_peer_of = |pod: &Arc<Pod>| is_peer(&own.template, pod);
                before.as_ref().is_some_and(is_peer_of) != after.as_ref().is_some_and(is_peer_of)
            }
            ObjectChange::Node(Some(before), Some(after)) => {
                self.same.iter().any(|label| before.labels.get(label) != after.labels.get(label))
            }
            // A new node may be feasible. If a node was deleted, the pods on it no longer restrict the waiting pod to
            // nodes with equal labels.
            ObjectChange::Node(..) => true,
            // A new Service only adds restrictions, so only a change or deletion of a Service may help.
            ObjectChange::Other { before, .. } => *before && self.depends_on(cycle, event.kind, &event.key),
            _ => false,
        })
    }
}

/// The selector of the first Service, by name, that selects the pod. Kubernetes takes any Service that selects the pod.
fn service_of(cycle: SchedulingCycle<'_>) -> Option<&Labels> {
    let Template { namespace, labels, .. } = &*cycle.pod.template;
    let mut selectors = cycle.snapshot.selectors().services(namespace).filter_map(|service| service.labels.as_ref());
    // To Kubernetes' scheduler an empty selector looks like an absent selector, which selects no pod.
    selectors.find(|selector| !selector.is_empty() && selector.is_subset_of(labels))
}

/// Whether a pod is a peer of a template's pods: it is on a node and has all labels of these pods.
fn is_peer(template: &Template, pod: &Pod) -> bool {
    pod.node_name.is_some()
        && *pod.namespace() == template.namespace
        && template.labels.is_subset_of(&pod.template.labels)
}

/// For each of `labels`, a node must have the value that the pod's node selector requires. If the node selector does
/// not name the label, the node must have the same value as the node of a peer. A peer is another pod that has all labels
/// of the pod.
#[derive(Clone)]
struct SameValueFilter {
    labels: Arc<[Text]>,
    /// Whether the pod's node selector names any of `labels`.
    names_some: bool,
    /// Whether the nodes of peers matter: a Service selects the pod, and its node selector does not name all of
    /// `labels`.
    follows_peers: bool,
    /// The peers of the pod, and their nodes. Kubernetes reads the labels of the node of any peer; this scheduler reads
    /// the labels of the node of the first peer by name.
    peers: BTreeMap<Key, NodeId>,
}

impl SameValueFilter {
    fn new(cycle: SchedulingCycle<'_>, labels: Arc<[Text]>) -> Self {
        let is_named = |label: &Text| cycle.pod.template.node_selector.get(label).is_some();
        let follows_peers = !labels.iter().all(is_named) && service_of(cycle).is_some();
        let names_some = labels.iter().any(is_named);
        let mut same = SameValueFilter { labels, names_some, follows_peers, peers: BTreeMap::new() };
        for node in cycle.snapshot.nodes().filter(|_| follows_peers) {
            node.pods.iter().for_each(|pod| same.add_pod(cycle, pod, node.id));
        }
        same
    }
}

impl Filter for SameValueFilter {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let own = &cycle.pod.template.node_selector;
        let peer_node = self.peers.first_key_value().and_then(|(_, node)| cycle.snapshot.node(*node));
        let wanted = |label: &Text| own.get(label).or_else(|| peer_node?.node.labels.get(label));
        let is_right = |label: &Text| wanted(label).is_none_or(|value| node.node.labels.get(label) == Some(value));
        match self.labels.iter().all(is_right) {
            true => Ok(()),
            false => Err(Rejection::unschedulable(NAME, "node(s) didn't match service affinity")),
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        self.peers.is_empty() && !self.names_some
    }

    /// A pod that is only nominated to a node is not on the node yet, so it is no peer.
    fn add_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        if self.follows_peers && is_peer(&cycle.pod.template, pod) {
            self.peers.insert(pod.key.clone(), node);
        }
    }

    fn remove_pod(&mut self, _: SchedulingCycle<'_>, pod: &Pod, _: NodeId) {
        if pod.node_name.is_some() {
            self.peers.remove(&pod.key);
        }
    }

    fn mark_nominated(&self, _: SchedulingCycle<'_>, _: &NodeInfo, _: &[&Arc<Pod>], _: &mut Vec<i64>) {}

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// A node is better if fewer pods of the pod's Service are on nodes with the same value of a label. All labels in
/// `labels` count equally.
struct DifferentValueScore {
    labels: Arc<[Text]>,
    selector: Option<Labels>,
}

impl Score for DifferentValueScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let Some(selector) = &self.selector else { return 0 };
        let counts = node.pods.iter().filter(|pod| {
            pod.namespace() == cycle.pod.namespace() && !pod.deleting && selector.is_subset_of(&pod.template.labels)
        });
        i64::try_from(counts.count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes], scores: &mut [i64]) {
        let all: i64 = scores.iter().sum();
        let part = |own: i64| if all > 0 { (all - own) as f64 / all as f64 } else { 1.0 };
        let mut sums = vec![0.0; scores.len()];
        for label in self.labels.iter() {
            let value = |one: &EqualNodes| cycle.snapshot.node(one.node).and_then(|node| node.node.labels.get(label));
            let mut counts: HashMap<&Text, i64> = HashMap::new();
            for (node, score) in nodes.iter().zip(scores.iter()) {
                value(node).into_iter().for_each(|value| *counts.entry(value).or_default() += score);
            }
            for (sum, node) in sums.iter_mut().zip(nodes) {
                let best = MAX_SCORE as f64;
                *sum += value(node).map_or(0.0, |value| best * part(counts[value]) / self.labels.len() as f64);
            }
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = sum as i64;
        }
    }

    fn is_local(&self) -> bool {
        false
    }
}

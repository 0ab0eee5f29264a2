//! A plug-in is a value with a method for each point in the scheduling of a pod.
//!
//! At the beginning of a cycle a plug-in looks at the pod and makes a [`Filter`] and a [`Score`], which contain
//! everything that can be computed before any node is checked. The planner may use the filter and the score again for
//! the next pod of the same template: filters and scores that count pods over many nodes are updated when pods are
//! added and removed. Preemption uses the same calls to check a node without some of its pods.

use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::snapshot::assume::Reservation;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{ClusterEvent, ObjectChange, Snapshot};
use crate::status::Rejection;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// What a plug-in is asked about: the pod for which a node is sought, and the snapshot of the cluster.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingCycle<'a> {
    pub snapshot: &'a Snapshot,
    pub pod: &'a Pod,
}

/// The points of scheduling at which plug-ins can be enabled, in the order of a pod's scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtensionPoint {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

/// All points, each with its name in configurations and its name in error messages.
pub const POINTS: [(ExtensionPoint, &str, &str); 12] = [
    (ExtensionPoint::PreEnqueue, "preEnqueue", "PreEnqueuePlugin"),
    (ExtensionPoint::QueueSort, "queueSort", "QueueSortPlugin"),
    (ExtensionPoint::PreFilter, "preFilter", "PreFilterPlugin"),
    (ExtensionPoint::Filter, "filter", "FilterPlugin"),
    (ExtensionPoint::PostFilter, "postFilter", "PostFilterPlugin"),
    (ExtensionPoint::PreScore, "preScore", "PreScorePlugin"),
    (ExtensionPoint::Score, "score", "ScorePlugin"),
    (ExtensionPoint::Reserve, "reserve", "ReservePlugin"),
    (ExtensionPoint::Permit, "permit", "PermitPlugin"),
    (ExtensionPoint::PreBind, "preBind", "PreBindPlugin"),
    (ExtensionPoint::Bind, "bind", "BindPlugin"),
    (ExtensionPoint::PostBind, "postBind", "PostBindPlugin"),
];

/// The answer of a plug-in's `pre_filter`, before any node is checked.
pub enum PreFilterResult {
    /// The plug-in has nothing to check for this pod, however nodes and other pods change.
    Skip,
    /// No node is feasible for the pod.
    Reject(Rejection),
    /// The filter that checks nodes. If the plug-in can name the only nodes that may be feasible, also the names of
    /// these nodes.
    Filter(Box<dyn Filter>, Option<BTreeSet<Text>>),
}

impl PreFilterResult {
    pub fn filter(filter: impl Filter + 'static) -> Self {
        PreFilterResult::Filter(Box::new(filter), None)
    }
}

pub trait Plugin: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// Why the pod must stay out of the active queue; `None` if it may enter the active queue.
    fn pre_enqueue(&self, _: SchedulingCycle<'_>) -> Option<Rejection> {
        None
    }

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::Skip
    }

    /// Why nodes cannot be scored for the pod; `None` if they can.
    fn pre_score(&self, _: SchedulingCycle<'_>) -> Option<Rejection> {
        None
    }

    /// How the plug-in scores nodes for the pod; `None` if all nodes have the same score.
    fn score(&self, _: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        None
    }

    /// Whether a change of this object may invalidate the filter and the score that were made for the pods of this
    /// pod's template.
    fn depends_on(&self, _: SchedulingCycle<'_>, _: Kind, _: &Key) -> bool {
        false
    }

    /// The plug-in without its checks of these resources, which extenders check instead. Returns `None` if the plug-in
    /// checks no resources.
    fn leave_to_extenders(&self, _resources: &[Text]) -> Option<Arc<dyn Plugin>> {
        None
    }

    /// How many seconds a pod waits for its volumes or devices to become ready before it is bound; `None` if the
    /// plug-in makes no pod wait.
    fn pre_bind_timeout_seconds(&self) -> Option<i64> {
        None
    }

    /// Whether an event may help other pods than the pod that the event is about. Thousands of different pods may wait:
    /// if a plug-in answers `false` here, `queueing_hint` is called for none of the pods that it rejected.
    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        !matches!(event.change, ObjectChange::Pod(..))
    }

    /// Whether this pod, which the plug-in rejected, may be schedulable after the event.
    fn queueing_hint(&self, _: SchedulingCycle<'_>, _: &ClusterEvent) -> QueueingHint {
        QueueingHint::Skip
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueingHint {
    Skip,
    Queue,
}

impl QueueingHint {
    pub fn queue_if(condition: bool) -> Self {
        if condition { QueueingHint::Queue } else { QueueingHint::Skip }
    }
}

/// Decides whether a node is feasible, for one pod, or for all pods of the pod's template.
pub trait Filter: Send {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection>;

    /// Whether a node of the snapshot passes the filter; the reason of a rejection is not computed.
    fn passes(&self, cycle: SchedulingCycle<'_>, node: NodeId) -> bool {
        cycle.snapshot.node(node).is_some_and(|node| self.check(cycle, node).is_ok())
    }

    /// Whether the result of `check` depends only on the pod and the node, and not on other nodes.
    fn is_local(&self) -> bool {
        true
    }

    /// Whether all nodes pass the filter in the present snapshot, so that `check` need not be called.
    fn is_idle(&self) -> bool {
        false
    }

    fn add_pod(&mut self, _: SchedulingCycle<'_>, _: &Pod, _: NodeId) {}

    fn remove_pod(&mut self, _: SchedulingCycle<'_>, _: &Pod, _: NodeId) {}

    /// Called after a node was added or removed, or its labels or taints changed, and after `add_pod` and `remove_pod`
    /// were called for all pods that were added to the node or removed from it. Moves the counts of the node's present
    /// pods to its new topology domains, and adds other nodes whose marks change to `touched`. Returns `false` if the
    /// filter must be rebuilt.
    fn update_topology(&mut self, _: SchedulingCycle<'_>, _: NodeId, _touched: &mut Vec<NodeId>) -> bool {
        true
    }

    /// How many marks the filter gives each node in [`Filter::mark`], if it looks at more than one node. If the number
    /// changes, the marks of all nodes are computed again.
    fn mark_count(&self) -> usize {
        1
    }

    /// Appends the node's marks: numbers that are equal for nodes that the filter does not distinguish. Adding a pod to
    /// a node, or removing it, may change the marks of that node, but not of other nodes.
    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        marks.push(unique_mark(node.id));
    }

    /// Appends marks for the pods that are nominated to a node: what the filter counts for these pods, if it counts
    /// pods.
    fn mark_nominated(&self, _: SchedulingCycle<'_>, node: &NodeInfo, _pods: &[&Arc<Pod>], marks: &mut Vec<i64>) {
        marks.push(unique_mark(node.id));
    }

    /// Chooses the volumes and devices that the pod gets on this node, and adds them to the reservation.
    fn reserve(&self, _: SchedulingCycle<'_>, _: &NodeInfo, _: &mut Reservation) -> Result<(), Rejection> {
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn Filter>;
}

/// A group of nodes with equal marks: one node of the group, and how many nodes the group has. Plug-ins that look at
/// more than one node have equal answers for all nodes of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EqualNodes {
    pub node: NodeId,
    pub count: usize,
}

impl EqualNodes {
    pub fn single(node: NodeId) -> Self {
        EqualNodes { node, count: 1 }
    }
}

/// A mark that no other node has: the node's number.
pub fn unique_mark(node: NodeId) -> i64 {
    i64::try_from(node).unwrap_or(i64::MAX)
}

pub const MAX_SCORE: i64 = 100;

/// Scores nodes, for one pod, or for all pods of the pod's template.
pub trait Score: Send {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64;

    /// The raw score of each group of feasible nodes.
    fn scores(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes]) -> Vec<i64> {
        let score = |group: &EqualNodes| cycle.snapshot.node(group.node).map_or(0, |node| self.score(cycle, node));
        nodes.iter().map(score).collect()
    }

    fn normalization(&self) -> Normalization {
        Normalization::None
    }

    /// Changes the raw scores of all groups to scores from 0 to 100.
    fn normalize(&self, _: SchedulingCycle<'_>, _: &[EqualNodes], scores: &mut [i64]) {
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            *score = self.normalization().apply(*score, most);
        }
    }

    /// Whether the result of `score` depends only on the pod and the node, and [`Score::normalization`] alone tells how
    /// raw scores become scores from 0 to 100.
    fn is_local(&self) -> bool {
        true
    }

    /// Whether all nodes have the same score in the present snapshot, so that `score` need not be called.
    fn is_idle(&self) -> bool {
        false
    }

    fn add_pod(&mut self, _: SchedulingCycle<'_>, _: &Pod, _: NodeId) {}

    fn remove_pod(&mut self, _: SchedulingCycle<'_>, _: &Pod, _: NodeId) {}

    /// Like [`Filter::update_topology`].
    fn update_topology(&mut self, _: SchedulingCycle<'_>, _: NodeId, _touched: &mut Vec<NodeId>) -> bool {
        true
    }

    /// Like [`Filter::mark_count`].
    fn mark_count(&self) -> usize {
        1
    }

    /// Like [`Filter::mark`].
    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        marks.push(unique_mark(node.id));
    }
}

/// How raw scores become scores from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    None,
    /// A score is scaled in proportion to the highest raw score, which becomes 100.
    ByHighest,
    /// A score is scaled in proportion to the highest raw score and reversed: the highest raw score becomes 0, and the
    /// raw score 0 becomes 100.
    ByHighestReversed,
}

impl Normalization {
    pub fn apply(self, score: i64, highest: i64) -> i64 {
        match self {
            Normalization::None => score,
            Normalization::ByHighest if highest == 0 => score,
            Normalization::ByHighest => MAX_SCORE.saturating_mul(score) / highest,
            Normalization::ByHighestReversed if highest == 0 => MAX_SCORE,
            Normalization::ByHighestReversed => MAX_SCORE - MAX_SCORE.saturating_mul(score) / highest,
        }
    }
}

/// Replaces each score by the result of `make` for it. If all scores are in a small range between `least` and `most`,
/// `make` is called once for each different score.
pub fn replace_each(scores: &mut [i64], least: i64, most: i64, make: impl Fn(i64) -> i64) {
    const CLOSE: i64 = 4096;
    if !(0..CLOSE).contains(&most.saturating_sub(least)) {
        return scores.iter_mut().for_each(|score| *score = make(*score));
    }
    let mut made = vec![None; usize::try_from(most - least + 1).unwrap_or(0)];
    for score in scores {
        let slot = usize::try_from(*score - least).ok().and_then(|at| made.get_mut(at));
        *score = match slot {
            Some(slot) => *slot.get_or_insert_with(|| make(*score)),
            None => make(*score),
        };
    }
}

/// The lowest and the highest of the scores; `None` if there are no scores.
pub fn extremes(scores: impl Iterator<Item = i64>) -> Option<(i64, i64)> {
    scores.fold(None, |found, score| match found {
        None => Some((score, score)),
        Some((least, most)) => Some((score.min(least), score.max(most))),
    })
}

/// A filter that is a function of the pod and the node, without state of its own.
#[derive(Clone, Copy)]
pub struct FilterFn(pub fn(SchedulingCycle<'_>, &NodeInfo) -> Result<(), Rejection>);

impl Filter for FilterFn {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        (self.0)(cycle, node)
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(*self)
    }
}

//! A plug-in is a small value with a method for each point of the scheduling of a pod.
//!
//! At the beginning of a cycle a plug-in looks at the pod and makes a [`Filter`] and a [`Score`], which contain
//! everything that can be computed before any node is checked. The planner may use them again for the next pod of the
//! same template: filters and scores that count pods over many nodes are updated when pods are added and removed.
//! Preemption uses the same calls to check a node without some of its pods.

use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::snapshot::assume::Reservation;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{ClusterEvent, ObjectChange, Snapshot};
use crate::status::Rejection;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// A pod for which a node is sought.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingCycle<'a> {
    pub snapshot: &'a Snapshot,
    pub pod: &'a Pod,
}

/// The points at which plug-ins can be enabled.
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

/// All points, with their names in configurations and in messages.
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

/// The answer of a plug-in before any node is checked.
pub enum PreFilterResult {
    /// The plug-in has nothing to check for this pod, however nodes and other pods change.
    Skip,
    /// No node is feasible.
    Reject(Rejection),
    /// The filter that checks nodes, and, if the plug-in can name them, the only nodes that may be feasible.
    Filter(Box<dyn Filter>, Option<BTreeSet<Text>>),
}

impl PreFilterResult {
    pub fn filter(filter: impl Filter + 'static) -> Self {
        PreFilterResult::Filter(Box::new(filter), None)
    }
}

pub trait Plugin: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// Why the pod must stay out of the active queue.
    fn pre_enqueue(&self, _: SchedulingCycle<'_>) -> Option<Rejection> {
        None
    }

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::Skip
    }

    /// Why the pod cannot be scored.
    fn pre_score(&self, _: SchedulingCycle<'_>) -> Option<Rejection> {
        None
    }

    /// The score of nodes; `None` if all nodes are equal to this plug-in.
    fn score(&self, _: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        None
    }

    /// Whether the filter and the score that were made for pods of this pod's template may be wrong after this object
    /// changed.
    fn depends_on(&self, _: SchedulingCycle<'_>, _: Kind, _: &Key) -> bool {
        false
    }

    /// The plug-in without its checks of these resources, because extenders manage them. Returns `None` if the plug-in
    /// checks no resources.
    fn leave_to_extenders(&self, _resources: &[Text]) -> Option<Arc<dyn Plugin>> {
        None
    }

    /// How many seconds a pod waits, before it is bound, for its volumes or devices to become ready.
    fn pre_bind_timeout_seconds(&self) -> Option<i64> {
        None
    }

    /// Whether an event may help pods other than the event's own pod. Thousands of different pods may wait: if a
    /// plug-in answers `false` here, `queueing_hint` is called for none of the pods that it rejected.
    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        !matches!(event.change, ObjectChange::Pod(..))
    }

    /// Whether an event may make a pod schedulable that this plug-in rejected.
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

/// How a plug-in filters nodes for one pod, or for all pods of its template.
pub trait Filter: Send {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection>;

    /// Whether a node of the snapshot is feasible, without the reason.
    fn passes(&self, cycle: SchedulingCycle<'_>, node: NodeId) -> bool {
        cycle.snapshot.node(node).is_some_and(|node| self.check(cycle, node).is_ok())
    }

    /// Whether `check` reads only the pod and the node.
    fn is_local(&self) -> bool {
        true
    }

    /// Whether all nodes pass in the present snapshot.
    fn is_idle(&self) -> bool {
        false
    }

    fn add_pod(&mut self, _: SchedulingCycle<'_>, _: &Pod, _: NodeId) {}

    fn remove_pod(&mut self, _: SchedulingCycle<'_>, _: &Pod, _: NodeId) {}

    /// Called after a node was added or removed, or its labels or taints changed, and after `add_pod` and `remove_pod`
    /// were called for all pods that were added to the node or removed from it. Counts the node's present pods in its
    /// new topology domains, and adds other nodes whose marks change to `touched`. Returns `false` if the filter must
    /// be rebuilt.
    fn update_topology(&mut self, _: SchedulingCycle<'_>, _: NodeId, _touched: &mut Vec<NodeId>) -> bool {
        true
    }

    /// The number of properties by which the filter distinguishes nodes, if it looks at more than one node. When the
    /// number changes, the marks of all nodes are recomputed.
    fn mark_count(&self) -> usize {
        1
    }

    /// Appends the node's marks: numbers that are equal for nodes that the filter does not distinguish. A pod that is
    /// added to a node or removed from it may change the marks of that node, but of no other.
    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        marks.push(unique_mark(node.id));
    }

    /// Appends marks for the pods that are nominated to a node: their counts, if the filter counts them.
    fn mark_nominated(&self, _: SchedulingCycle<'_>, node: &NodeInfo, _pods: &[&Arc<Pod>], marks: &mut Vec<i64>) {
        marks.push(unique_mark(node.id));
    }

    /// Chooses the volumes and devices that the pod gets with the node, and adds them to the reservation.
    fn reserve(&self, _: SchedulingCycle<'_>, _: &NodeInfo, _: &mut Reservation) -> Result<(), Rejection> {
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn Filter>;
}

/// A group of nodes with equal marks: one node of the group, and the number of its nodes. Plug-ins that look at more
/// than one node do not distinguish these nodes.
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

/// A mark that no other node has.
pub fn unique_mark(node: NodeId) -> i64 {
    i64::try_from(node).unwrap_or(i64::MAX)
}

pub const MAX_SCORE: i64 = 100;

/// How a plug-in scores nodes for one pod, or for all pods of its template.
pub trait Score: Send {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64;

    /// The scores of all feasible nodes.
    fn scores(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes]) -> Vec<i64> {
        let score = |group: &EqualNodes| cycle.snapshot.node(group.node).map_or(0, |node| self.score(cycle, node));
        nodes.iter().map(score).collect()
    }

    fn normalization(&self) -> Normalization {
        Normalization::None
    }

    /// Brings scores into the range from 0 to 100.
    fn normalize(&self, _: SchedulingCycle<'_>, _: &[EqualNodes], scores: &mut [i64]) {
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            *score = self.normalization().apply(*score, most);
        }
    }

    /// Whether `score` reads only the pod and the node, and [`Score::normalization`] alone brings scores into range.
    fn is_local(&self) -> bool {
        true
    }

    /// Whether all nodes have the same score in the present snapshot.
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

/// How scores are brought into the range from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    None,
    /// Scores are scaled in proportion to the highest score.
    ByHighest,
    /// Scores are scaled in proportion to the highest score, and reversed: the highest score becomes 0.
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

/// Replaces each score by the result of `make` for it. If the scores are within a small range, `make` is called once
/// for equal scores.
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

/// The lowest and the highest score.
pub fn extremes(scores: impl Iterator<Item = i64>) -> Option<(i64, i64)> {
    scores.fold(None, |found, score| match found {
        None => Some((score, score)),
        Some((least, most)) => Some((score.min(least), score.max(most))),
    })
}

/// A filter that is a plain function of pod and node.
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

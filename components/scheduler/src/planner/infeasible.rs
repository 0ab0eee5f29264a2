//! Caches, for the pods of a template, why each node is infeasible and how good a candidate for preemption it is. Both
//! facts are computed once, and again for nodes that changed.

use crate::filters::Filters;
use crate::plan::{PostFilterResult, Unschedulable};
use crate::plugin::{ExtensionPoint, SchedulingCycle};
use crate::plugins::default_preemption::{self, CandidateRank, DefaultPreemption, NOT_HELPFUL, Preemption, dry_run};
use crate::plugins::dynamic_resources;
use crate::profile::Profile;
use crate::snapshot::node_info::NodeId;
use crate::status::{Code, Nomination, Rejection, message};
use std::collections::HashMap;

/// The index of a rejection in [`InfeasibleNodes::rejections`].
type RejectionId = u32;

#[derive(Default)]
pub(super) struct InfeasibleNodes {
    /// The known state of each node.
    nodes: Vec<NodeState>,
    /// Nodes that changed since they were checked.
    stale_nodes: Vec<NodeId>,
    rejections: Vec<CountedRejection>,
    numbers: HashMap<Rejection, RejectionId>,
    /// The number of nodes that preemption might make feasible.
    preemptible: usize,
    /// The number of nodes, among the nodes that `preemptible` counts, on which preemption was tried without success.
    useless: usize,
    /// Whether a trial of preemption failed with an error.
    failed: bool,
}

#[derive(Clone, Copy, Default)]
enum NodeState {
    #[default]
    Unknown,
    /// No node has this number.
    NoNode,
    /// Why the node is infeasible.
    Rejected(RejectionId),
    /// Why the node is infeasible, and why it would still be infeasible without all pods of lower priority.
    PreemptionUseless(RejectionId, RejectionId),
    /// Why the node is infeasible, and the rank of the node as a candidate for preemption.
    Candidate(RejectionId, CandidateRank),
}

/// A pod that is nominated to a node and waits for its victims to leave. All other nodes have the cached answers for
/// pods of its template.
pub(super) struct NominatedPod {
    pub node: NodeId,
    /// Why the node is not feasible yet.
    pub rejection: Rejection,
    /// Why the pod may not preempt more pods.
    pub why: &'static str,
}

struct CountedRejection {
    rejection: Rejection,
    /// How many nodes have this rejection.
    nodes: usize,
    /// The number of nodes on which preemption was tried without success because of this rejection.
    useless: usize,
}

impl InfeasibleNodes {
    /// Forgets everything about a node that changed.
    pub fn node_changed(&mut self, node: NodeId) {
        // A node beyond the end of the list is already unknown.
        let Some(state) = self.nodes.get_mut(node).map(std::mem::take) else { return };
        self.uncount_useless(state);
        if let Some(number) = state.rejection() {
            self.rejections[number as usize].nodes -= 1;
            self.preemptible -= usize::from(self.is_preemptible(number));
        }
        if !matches!(state, NodeState::Unknown) {
            self.stale_nodes.push(node);
        }
    }

    /// Forgets the victims on all nodes: they depend on disruption budgets.
    pub fn budgets_changed(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.pods_changed(node));
    }

    /// Forgets the victims on a node.
    pub fn pods_changed(&mut self, node: NodeId) {
        let Some(state) = self.nodes.get(node).copied() else { return };
        self.uncount_useless(state);
        if let Some(number) = state.rejection() {
            self.nodes[node] = NodeState::Rejected(number);
        }
    }

    /// How many nodes the cache has entries for.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Why no node is feasible, and what can be done about it, if the local filters reject every node. Returns `None`
    /// if only the uncached plan can determine this.
    pub fn explain(
        &mut self,
        cycle: SchedulingCycle<'_>,
        profile: &Profile,
        mut filters: Filters,
        nominated: Option<NominatedPod>,
    ) -> Option<Unschedulable> {
        let runs_devices = profile.has(ExtensionPoint::PostFilter, dynamic_resources::NAME);
        if runs_devices && dynamic_resources::uses_devices(cycle) {
            return None;
        }
        self.check_stale_nodes(cycle, &mut filters)?;
        let mut result = PostFilterResult::default();
        for enabled in profile.at(ExtensionPoint::PostFilter) {
            match enabled.plugin.name() {
                dynamic_resources::NAME => result.reasons.push(dynamic_resources::NO_NEW_CLAIMS.into()),
                default_preemption::NAME => {
                    if let Some(preemption) = &profile.preemption {
                        result.add_preemption(match &nominated {
                            Some(nominated) => Preemption::ineligible(nominated.why),
                            None => self.preempt(cycle, preemption, &mut filters),
                        });
                    }
                }
                _ => {}
            }
            if std::mem::take(&mut self.failed) {
                return None;
            }
            if result.stop {
                break;
            }
        }
        let replaced_rejection = match nominated {
            Some(nominated) => {
                Some((self.nodes.get(nominated.node)?.rejection()?, self.rejection_id(nominated.rejection)))
            }
            None => None,
        };
        Some(self.unschedulable(cycle, &result, replaced_rejection))
    }

    /// The message and the rejectors for all nodes. With `replaced_rejection`, one node counts with the second
    /// rejection of the pair instead of the first.
    fn unschedulable(
        &self,
        cycle: SchedulingCycle<'_>,
        result: &PostFilterResult,
        replaced_rejection: Option<(RejectionId, RejectionId)>,
    ) -> Unschedulable {
        let nodes = |at: usize, one: &CountedRejection| {
            let is = |number: RejectionId| usize::from(number as usize == at);
            let (less, more) = replaced_rejection.map_or((0, 0), |(instead, number)| (is(instead), is(number)));
            one.nodes + more - less
        };
        let all = self.rejections.iter().enumerate().map(|(at, one)| (&one.rejection, nodes(at, one)));
        let rejections: Vec<_> = all.filter(|(_, nodes)| *nodes > 0).collect();
        let mut rejectors: Vec<_> = rejections.iter().map(|(rejection, _)| rejection.plugin).collect();
        rejectors.retain(|name| !name.is_empty());
        rejectors.sort_unstable();
        rejectors.dedup();
        let text = message(cycle.snapshot.node_count(), rejections.into_iter(), &result.reasons.join(", "));
        result.unschedulable(text, rejectors)
    }

    /// Checks the nodes whose rejection is unknown. Returns `None` if a node is feasible after all, or its check
    /// failed.
    fn check_stale_nodes(&mut self, cycle: SchedulingCycle<'_>, filters: &mut Filters) -> Option<()> {
        let bound = cycle.snapshot.node_bound();
        if self.rejections.len() > 2 * bound + 64 {
            // Most rejections then belong to earlier states of nodes.
            *self = InfeasibleNodes::default();
        }
        self.stale_nodes.extend(self.nodes.len()..bound);
        self.nodes.resize(self.nodes.len().max(bound), NodeState::Unknown);
        while let Some(id) = self.stale_nodes.last().copied() {
            self.nodes[id] = match cycle.snapshot.node(id) {
                None => NodeState::NoNode,
                Some(node) => {
                    let rejection =
                        filters.check(cycle, node).err().filter(|rejection| rejection.code != Code::Error)?;
                    let number = self.rejection_id(rejection);
                    self.rejections[number as usize].nodes += 1;
                    self.preemptible += usize::from(self.is_preemptible(number));
                    NodeState::Rejected(number)
                }
            };
            self.stale_nodes.pop();
        }
        Some(())
    }

    fn preempt(
        &mut self,
        cycle: SchedulingCycle<'_>,
        preemption: &DefaultPreemption,
        filters: &mut Filters,
    ) -> Preemption {
        if let Some(never) = default_preemption::ineligible_reason(cycle, None) {
            return Preemption::ineligible(never);
        }
        let Some(best) = self.best_candidate(cycle, preemption, filters) else {
            let absent = Rejection::unresolvable("", NOT_HELPFUL);
            let nodes = cycle.snapshot.node_count();
            let tried = self.rejections.iter().map(|one| (&one.rejection, one.useless));
            let message = message(nodes, tried.chain([(&absent, nodes.saturating_sub(self.useless))]), "");
            return Preemption { message, nomination: Nomination::Clear, ..Preemption::default() };
        };
        // The victims are computed again for the one chosen node: the cache stores only the ranks of candidates.
        let node = cycle.snapshot.node(best);
        let candidate = node.and_then(|node| dry_run(cycle, node, filters).ok());
        let victims = candidate.map(|candidate| default_preemption::victims(cycle, &candidate));
        let nomination = victims.as_ref().map_or(Nomination::Clear, |victims| Nomination::Set(victims.node.clone()));
        Preemption { nomination, victims, ..Preemption::default() }
    }

    /// The best candidate, as soon as enough candidates are found. The search starts at a node that differs from pod to
    /// pod.
    fn best_candidate(
        &mut self,
        cycle: SchedulingCycle<'_>,
        preemption: &DefaultPreemption,
        filters: &mut Filters,
    ) -> Option<NodeId> {
        if self.useless == self.preemptible {
            return None;
        }
        let candidates_wanted = preemption.candidates_wanted(self.preemptible);
        let bound = self.nodes.len();
        let start = default_preemption::first_candidate_node(cycle);
        let (mut candidates, mut harmless) = (0, false);
        let mut best: Option<(CandidateRank, NodeId)> = None;
        for id in (start..bound).chain(0..start) {
            let Some(rank) = self.candidate_rank(cycle, id, filters) else { continue };
            candidates += 1;
            harmless |= rank.0 == 0;
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, id));
            }
            if harmless && candidates >= candidates_wanted {
                break;
            }
        }
        best.map(|(_, id)| id)
    }

    /// The rank of a node as a candidate; `None` if the node is no candidate.
    fn candidate_rank(
        &mut self,
        cycle: SchedulingCycle<'_>,
        id: NodeId,
        filters: &mut Filters,
    ) -> Option<CandidateRank> {
        let number = match self.nodes[id] {
            NodeState::Candidate(_, rank) => return Some(rank),
            NodeState::Rejected(number) if self.is_preemptible(number) => number,
            _ => return None,
        };
        match dry_run(cycle, cycle.snapshot.node(id)?, filters) {
            Ok(candidate) => {
                let rank = candidate.rank();
                self.nodes[id] = NodeState::Candidate(number, rank);
                Some(rank)
            }
            Err(rejection) if rejection.code == Code::Error => {
                self.failed = true;
                None
            }
            Err(rejection) => {
                let why = self.rejection_id(rejection);
                self.nodes[id] = NodeState::PreemptionUseless(number, why);
                self.rejections[why as usize].useless += 1;
                self.useless += 1;
                None
            }
        }
    }

    fn uncount_useless(&mut self, state: NodeState) {
        if let NodeState::PreemptionUseless(_, why) = state {
            self.rejections[why as usize].useless -= 1;
            self.useless -= 1;
        }
    }

    fn is_preemptible(&self, number: RejectionId) -> bool {
        self.rejections[number as usize].rejection.code == Code::Unschedulable
    }

    fn rejection_id(&mut self, rejection: Rejection) -> RejectionId {
        if let Some(number) = self.numbers.get(&rejection) {
            return *number;
        }
        let number = self.rejections.len() as RejectionId;
        self.numbers.insert(rejection.clone(), number);
        self.rejections.push(CountedRejection { rejection, nodes: 0, useless: 0 });
        number
    }
}

impl NodeState {
    fn rejection(self) -> Option<RejectionId> {
        match self {
            NodeState::Unknown | NodeState::NoNode => None,
            NodeState::Rejected(number) | NodeState::PreemptionUseless(number, _) | NodeState::Candidate(number, _) => {
                Some(number)
            }
        }
    }
}

//! Caches, for the pods of a template, why each node is infeasible and how good a candidate for preemption it is. Both
//! are computed once for each node, and again when the node changes.

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
    /// For each node, what is known about why it is infeasible.
    nodes: Vec<NodeState>,
    /// Nodes that have changed since they were last checked.
    stale_nodes: Vec<NodeId>,
    rejections: Vec<CountedRejection>,
    numbers: HashMap<Rejection, RejectionId>,
    /// The number of nodes that might become feasible if pods were evicted.
    preemptible: usize,
    /// How many of the nodes that `preemptible` counts would not become feasible even without all pods of lower
    /// priority.
    useless: usize,
    /// Whether looking for victims on a node has failed with an error.
    failed: bool,
}

#[derive(Clone, Copy, Default)]
enum NodeState {
    #[default]
    Unknown,
    /// The snapshot has no node with this number.
    NoNode,
    /// The rejection of the node.
    Rejected(RejectionId),
    /// The rejection of the node, and its rejection without all pods of lower priority.
    PreemptionUseless(RejectionId, RejectionId),
    /// The rejection of the node, and its rank as a candidate for preemption.
    Candidate(RejectionId, CandidateRank),
}

/// A pod that is nominated to a node and waits for its victims to leave. All other nodes have the cached answers for
/// pods of its template.
pub(super) struct NominatedPod {
    pub node: NodeId,
    /// Why this node is not feasible yet.
    pub rejection: Rejection,
    /// Why no more pods may be evicted for this pod.
    pub why: &'static str,
}

struct CountedRejection {
    rejection: Rejection,
    /// The number of nodes with this rejection.
    nodes: usize,
    /// The number of nodes for which preemption is useless: even if all pods of lower priority were removed, the node
    /// would be rejected with this rejection. The node's present rejection may be another one.
    useless: usize,
}

impl InfeasibleNodes {
    /// Drops everything that is known about a node, because the node changed.
    pub fn node_changed(&mut self, node: NodeId) {
        // About a node beyond the end of the list nothing is known anyway.
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

    /// Drops the ranks of all candidates, because the victims on a node depend on disruption budgets.
    pub fn budgets_changed(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.pods_changed(node));
    }

    /// Drops the rank of a node as a candidate, because a change of its pods may change the victims.
    pub fn pods_changed(&mut self, node: NodeId) {
        let Some(state) = self.nodes.get(node).copied() else { return };
        self.uncount_useless(state);
        if let Some(number) = state.rejection() {
            self.nodes[node] = NodeState::Rejected(number);
        }
    }

    /// The length of the list of node states, which shows how much memory the cache takes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Why no node is feasible, and which pods to evict, if filters that look at single nodes reject every node.
    /// Returns `None` if only the plan without the cache can determine this.
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

    /// The message and the rejectors for all nodes. `replaced_rejection` is a pair of rejections: one node that has the
    /// first rejection counts with the second rejection instead.
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

    /// Checks the nodes that have changed. Returns `None` if one of them is feasible, or its check failed with an
    /// error.
    fn check_stale_nodes(&mut self, cycle: SchedulingCycle<'_>, filters: &mut Filters) -> Option<()> {
        let bound = cycle.snapshot.node_bound();
        if self.rejections.len() > 2 * bound + 64 {
            // When there are so many rejections, most of them belong to earlier states of nodes, so the cache is
            // emptied.
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
        // The cache has only the ranks of candidates, so the victims on the one chosen node are computed again.
        let node = cycle.snapshot.node(best);
        let candidate = node.and_then(|node| dry_run(cycle, node, filters).ok());
        let victims = candidate.map(|candidate| default_preemption::victims(cycle, &candidate));
        let nomination = victims.as_ref().map_or(Nomination::Clear, |victims| Nomination::Set(victims.node.clone()));
        Preemption { nomination, victims, ..Preemption::default() }
    }

    /// The best candidate among the candidates found so far; the search ends when enough candidates are found.
    /// Different pods begin the search at different nodes.
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

//! The cache of why no node is feasible for the pods of a template, and of the victims on each node. Computed once, and
//! again for the nodes that changed.

use crate::plan::{Filters, Nomination, Said, Unschedulable};
use crate::plugin::{Cycle, Point};
use crate::plugins::default_preemption::{self, DefaultPreemption, NOT_HELPFUL, Preemption, Rank, dry_run};
use crate::plugins::dynamic_resources;
use crate::profile::Profile;
use crate::snapshot::node_info::NodeId;
use crate::status::{Code, Refusal, message};
use std::collections::HashMap;

/// The index of a refusal in [`NoPlace::refusals`].
type RefusalId = u32;

#[derive(Default)]
pub(super) struct NoPlace {
    /// What is known of each node.
    nodes: Vec<Known>,
    /// Nodes that changed since they were checked.
    unknown: Vec<NodeId>,
    refusals: Vec<Counted>,
    numbers: HashMap<Refusal, RefusalId>,
    /// How many nodes preemption might make feasible.
    hopeful: usize,
    /// On how many of them preemption was tried without success.
    vain: usize,
    /// Whether a trial of preemption failed with an error.
    failed: bool,
}

#[derive(Clone, Copy, Default)]
enum Known {
    #[default]
    Nothing,
    /// No node has this number.
    NoNode,
    /// Why the node is infeasible.
    Refused(RefusalId),
    /// Why the node is infeasible, and why it would be without all pods of lower priority, too.
    InVain(RefusalId, RefusalId),
    /// Why the node is infeasible, and the rank of the node as a candidate for preemption.
    Candidate(RefusalId, Rank),
}

/// A pod that is nominated to a node and waits for its victims to leave. For all other nodes the answers are those for
/// pods of its template.
pub(super) struct Waits {
    pub node: NodeId,
    /// Why the node is not feasible yet.
    pub refusal: Refusal,
    /// Why the pod may not preempt more pods.
    pub why: &'static str,
}

struct Counted {
    refusal: Refusal,
    /// How many nodes have this refusal.
    nodes: usize,
    /// On how many nodes preemption was tried without success because of this refusal.
    in_vain: usize,
}

impl NoPlace {
    /// Forgets everything about a node that changed.
    pub fn changed(&mut self, node: NodeId) {
        // A node beyond the end of the list is unknown anyway.
        let Some(known) = self.nodes.get_mut(node).map(std::mem::take) else { return };
        self.uncount_trial(known);
        if let Some(number) = known.refusal() {
            self.refusals[number as usize].nodes -= 1;
            self.hopeful -= usize::from(self.is_hopeful(number));
        }
        if !matches!(known, Known::Nothing) {
            self.unknown.push(node);
        }
    }

    /// Forgets the victims on all nodes: they depend on disruption budgets.
    pub fn budgets_changed(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.pods_changed(node));
    }

    /// Forgets the victims on a node.
    pub fn pods_changed(&mut self, node: NodeId) {
        let Some(known) = self.nodes.get(node).copied() else { return };
        self.uncount_trial(known);
        if let Some(number) = known.refusal() {
            self.nodes[node] = Known::Refused(number);
        }
    }

    /// How many nodes the cache has entries for.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Why no node is feasible, and what can be done about it, if the local filters refuse every node. `None`: only the
    /// plain search can tell.
    pub fn tell(
        &mut self,
        cycle: Cycle<'_>,
        profile: &Profile,
        mut filters: Filters,
        waits: Option<Waits>,
    ) -> Option<Unschedulable> {
        let is_asked = profile.has(Point::PostFilter, dynamic_resources::NAME);
        if is_asked && dynamic_resources::is_concerned(cycle) {
            return None;
        }
        self.learn(cycle, &mut filters)?;
        let mut said = Said::default();
        for enabled in profile.at(Point::PostFilter) {
            match enabled.plugin.name() {
                dynamic_resources::NAME => said.reasons.push(dynamic_resources::NO_NEW_CLAIMS.into()),
                default_preemption::NAME => {
                    if let Some(preemption) = &profile.preemption {
                        said.preempted(match &waits {
                            Some(waits) => Preemption::ineligible(waits.why),
                            None => self.preempt(cycle, preemption, &mut filters),
                        });
                    }
                }
                _ => {}
            }
            if std::mem::take(&mut self.failed) {
                return None;
            }
            if said.done {
                break;
            }
        }
        let otherwise = match waits {
            Some(waits) => Some((self.nodes.get(waits.node)?.refusal()?, self.number(waits.refusal))),
            None => None,
        };
        Some(self.told(cycle, &said, otherwise))
    }

    /// The message and the rejectors for all nodes. `otherwise`: one node counts with the second refusal instead of the
    /// first.
    fn told(&self, cycle: Cycle<'_>, said: &Said, otherwise: Option<(RefusalId, RefusalId)>) -> Unschedulable {
        let nodes = |at: usize, one: &Counted| {
            let is = |number: RefusalId| usize::from(number as usize == at);
            let (less, more) = otherwise.map_or((0, 0), |(instead, number)| (is(instead), is(number)));
            one.nodes + more - less
        };
        let all = self.refusals.iter().enumerate().map(|(at, one)| (&one.refusal, nodes(at, one)));
        let refusals: Vec<_> = all.filter(|(_, nodes)| *nodes > 0).collect();
        let mut rejectors: Vec<_> = refusals.iter().map(|(refusal, _)| refusal.plugin).collect();
        rejectors.retain(|name| !name.is_empty());
        rejectors.sort_unstable();
        rejectors.dedup();
        let text = message(cycle.snapshot.node_count(), refusals.into_iter(), &said.reasons.join(", "));
        said.unschedulable(text, rejectors)
    }

    /// Checks the nodes whose refusal is unknown. `None`: a node is feasible after all, or its check failed.
    fn learn(&mut self, cycle: Cycle<'_>, filters: &mut Filters) -> Option<()> {
        let bound = cycle.snapshot.node_bound();
        if self.refusals.len() > 2 * bound + 64 {
            // Most refusals are then of earlier states of nodes.
            *self = NoPlace::default();
        }
        self.unknown.extend(self.nodes.len()..bound);
        self.nodes.resize(self.nodes.len().max(bound), Known::Nothing);
        while let Some(id) = self.unknown.last().copied() {
            self.nodes[id] = match cycle.snapshot.node(id) {
                None => Known::NoNode,
                Some(node) => {
                    let refusal = filters.check(cycle, node).err().filter(|refusal| refusal.code != Code::Error)?;
                    let number = self.number(refusal);
                    self.refusals[number as usize].nodes += 1;
                    self.hopeful += usize::from(self.is_hopeful(number));
                    Known::Refused(number)
                }
            };
            self.unknown.pop();
        }
        Some(())
    }

    fn preempt(&mut self, cycle: Cycle<'_>, preemption: &DefaultPreemption, filters: &mut Filters) -> Preemption {
        if let Some(never) = default_preemption::may_not(cycle, None) {
            return Preemption::ineligible(never);
        }
        let Some(best) = self.best(cycle, preemption, filters) else {
            let absent = Refusal::hard("", NOT_HELPFUL);
            let nodes = cycle.snapshot.node_count();
            let tried = self.refusals.iter().map(|one| (&one.refusal, one.in_vain));
            let message = message(nodes, tried.chain([(&absent, nodes.saturating_sub(self.vain))]), "");
            return Preemption { message, nomination: Nomination::Clear, ..Preemption::default() };
        };
        // The victims are computed again for the one chosen node, rather than kept for all.
        let node = cycle.snapshot.node(best);
        let candidate = node.and_then(|node| dry_run(cycle, node, filters).ok());
        let victims = candidate.map(|candidate| default_preemption::victims(cycle, &candidate));
        let nomination = victims.as_ref().map_or(Nomination::Clear, |victims| Nomination::Set(victims.node.clone()));
        Preemption { nomination, victims, ..Preemption::default() }
    }

    /// The best of enough candidates. The search starts at the node that this pod begins with.
    fn best(&mut self, cycle: Cycle<'_>, preemption: &DefaultPreemption, filters: &mut Filters) -> Option<NodeId> {
        if self.vain == self.hopeful {
            return None;
        }
        let enough = preemption.enough(self.hopeful);
        let bound = self.nodes.len();
        let start = default_preemption::first_node(cycle);
        let (mut candidates, mut harmless) = (0, false);
        let mut best: Option<(Rank, NodeId)> = None;
        for id in (start..bound).chain(0..start) {
            let Some(rank) = self.trial(cycle, id, filters) else { continue };
            candidates += 1;
            harmless |= rank.0 == 0;
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, id));
            }
            if harmless && candidates >= enough {
                break;
            }
        }
        best.map(|(_, id)| id)
    }

    /// The rank of a node as a candidate; `None`: it is none.
    fn trial(&mut self, cycle: Cycle<'_>, id: NodeId, filters: &mut Filters) -> Option<Rank> {
        let number = match self.nodes[id] {
            Known::Candidate(_, rank) => return Some(rank),
            Known::Refused(number) if self.is_hopeful(number) => number,
            _ => return None,
        };
        match dry_run(cycle, cycle.snapshot.node(id)?, filters) {
            Ok(candidate) => {
                let rank = candidate.rank();
                self.nodes[id] = Known::Candidate(number, rank);
                Some(rank)
            }
            Err(refusal) if refusal.code == Code::Error => {
                self.failed = true;
                None
            }
            Err(refusal) => {
                let why = self.number(refusal);
                self.nodes[id] = Known::InVain(number, why);
                self.refusals[why as usize].in_vain += 1;
                self.vain += 1;
                None
            }
        }
    }

    fn uncount_trial(&mut self, known: Known) {
        if let Known::InVain(_, why) = known {
            self.refusals[why as usize].in_vain -= 1;
            self.vain -= 1;
        }
    }

    fn is_hopeful(&self, number: RefusalId) -> bool {
        self.refusals[number as usize].refusal.code == Code::Unschedulable
    }

    fn number(&mut self, refusal: Refusal) -> RefusalId {
        if let Some(number) = self.numbers.get(&refusal) {
            return *number;
        }
        let number = self.refusals.len() as RefusalId;
        self.numbers.insert(refusal.clone(), number);
        self.refusals.push(Counted { refusal, nodes: 0, in_vain: 0 });
        number
    }
}

impl Known {
    fn refusal(self) -> Option<RefusalId> {
        match self {
            Known::Nothing | Known::NoNode => None,
            Known::Refused(number) | Known::InVain(number, _) | Known::Candidate(number, _) => Some(number),
        }
    }
}

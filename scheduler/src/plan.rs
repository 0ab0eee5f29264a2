//! The plain search: which node a pod goes to, or why none is feasible. Pure and without memory: it checks all nodes
//! one after the other. [`crate::planner`] comes to the same decisions faster.

use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plugin::{Alike, Cycle, Filter, Point, PreFilter};
use crate::plugins::default_preemption::{self, Candidate, Preemption, Victims};
use crate::plugins::dynamic_resources;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::snapshot::assume::Promise;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::status::{Code, Diagnosis, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Plan {
    pub outcome: Outcome,
    pub explanation: Explanation,
}

#[derive(Debug, Clone)]
pub enum Outcome {
    /// The pod goes to a node. `promise`: the volumes and devices that were chosen with the node.
    Bind { node: Text, promise: Promise },
    /// No node is feasible now.
    Unschedulable(Unschedulable),
}

#[derive(Debug, Clone)]
pub struct Unschedulable {
    /// The reason of the condition `PodScheduled`: `Unschedulable`, or `SchedulerError` if the search failed.
    pub reason: &'static str,
    /// The message of the condition and of the event `FailedScheduling`.
    pub message: String,
    /// Plug-ins that refused nodes. An event wakes the pod when one of them hopes for something from the event; without
    /// rejectors the pod is tried again after a back-off.
    pub rejectors: Vec<&'static str>,
    /// What becomes of `status.nominatedNodeName`.
    pub nomination: Nomination,
    /// Whether preemption looked for victims.
    pub preemption_tried: bool,
    /// Pods that must be evicted first.
    pub victims: Option<Victims>,
    /// A ResourceClaim whose devices are to be released, so that the next attempt may find others; a claim that was
    /// made for extended resources is deleted instead.
    pub deallocate: Option<Key>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Nomination {
    #[default]
    Keep,
    Clear,
    Set(Text),
}

/// The reasons of a decision, for people.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// Plug-ins that had nothing to check for this pod.
    pub skipped: Vec<&'static str>,
    pub diagnosis: Diagnosis,
    /// Feasible nodes.
    pub feasible: Vec<Text>,
    /// Empty if fewer than two nodes are feasible.
    pub scores: Vec<Scores>,
    /// The sums of the scores of the feasible nodes, in their order; empty if fewer than two nodes are feasible.
    pub totals: Vec<i64>,
    pub preemption: Option<Preemption>,
}

/// One plug-in's scores of the feasible nodes, in their order.
#[derive(Debug, Clone)]
pub struct Scores {
    pub plugin: &'static str,
    pub weight: i64,
    pub raw: Vec<i64>,
    pub normalized: Vec<i64>,
}

pub const UNSCHEDULABLE: &str = "Unschedulable";
pub const SCHEDULER_ERROR: &str = "SchedulerError";

/// What extenders, which are called over HTTP, said about nodes for one pod.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// Whether extenders refused the nominated node when it was tried alone: it is now filtered like all others.
    pub nomination_failed: bool,
    /// The only nodes that extenders left feasible; `None`: they were not called yet.
    pub left: Option<BTreeSet<Text>>,
    /// Nodes that extenders refused with a reason.
    pub refused: BTreeMap<Text, Refusal>,
    /// What extenders add to the scores of nodes.
    pub scores: BTreeMap<Text, i64>,
    /// The only candidates for preemption that extenders left; `None`: they were not called yet.
    pub candidates: Option<Vec<Candidate>>,
}

/// Chooses a node for the pod, or says why none is feasible and what can be done about it.
pub fn plan(snapshot: &Snapshot, profile: &Profile, pod: &Pod) -> Plan {
    plan_with(snapshot, profile, pod, &Outside::default())
}

/// As [`plan`], with the answers of extenders.
pub fn plan_with(snapshot: &Snapshot, profile: &Profile, pod: &Pod, outside: &Outside) -> Plan {
    let cycle = Cycle { snapshot, pod };
    if snapshot.node_count() == 0 {
        return Plan::failed(UNSCHEDULABLE, "no nodes available to schedule pods".into());
    }
    let mut search = Search::begin(cycle, profile, outside);
    if search.diagnosis.before.is_none() && search.error.is_none() {
        search.filter();
    }
    if let Some(error) = search.error.take() {
        return Plan::failed(SCHEDULER_ERROR, error);
    }
    if search.feasible.is_empty() { search.give_up() } else { search.choose() }
}

impl Plan {
    fn failed(reason: &'static str, message: String) -> Self {
        let unschedulable = Unschedulable {
            reason,
            message,
            rejectors: Vec::new(),
            nomination: Nomination::Clear,
            preemption_tried: false,
            victims: None,
            deallocate: None,
        };
        Plan { outcome: Outcome::Unschedulable(unschedulable), explanation: Explanation::default() }
    }

    /// The node that the pod goes to.
    pub fn node(&self) -> Option<&Text> {
        match &self.outcome {
            Outcome::Bind { node, .. } => Some(node),
            Outcome::Unschedulable(_) => None,
        }
    }

    /// The nodes that share the highest sum of scores.
    pub fn best(&self) -> Vec<&Text> {
        let explanation = &self.explanation;
        let most = explanation.totals.iter().max();
        let nodes = explanation.feasible.iter().enumerate();
        nodes.filter(|(at, _)| explanation.totals.get(*at) == most).map(|(_, node)| node).collect()
    }
}

/// A search for a node, under way.
pub struct Search<'a> {
    pub cycle: Cycle<'a>,
    pub profile: &'a Profile,
    pub outside: &'a Outside,
    /// Plug-ins whose `pre_filter` was called.
    pub asked: Vec<&'static str>,
    pub filters: Filters,
    pub skipped: Vec<&'static str>,
    /// The only nodes that may be feasible, because plug-ins named them in `pre_filter`.
    only: Option<BTreeSet<Text>>,
    pub feasible: Vec<&'a NodeInfo>,
    pub diagnosis: Diagnosis,
    error: Option<String>,
}

impl<'a> Search<'a> {
    /// Calls `pre_filter` of all plug-ins.
    pub fn begin(cycle: Cycle<'a>, profile: &'a Profile, outside: &'a Outside) -> Self {
        let mut search = Search {
            cycle,
            profile,
            outside,
            asked: Vec::new(),
            filters: Filters { list: Vec::new(), all: profile.check_all },
            skipped: Vec::new(),
            only: None,
            feasible: Vec::new(),
            diagnosis: Diagnosis { nodes: cycle.snapshot.node_count(), ..Diagnosis::default() },
            error: None,
        };
        search.pre_filter();
        search
    }

    fn pre_filter(&mut self) {
        let mut made: Vec<(&'static str, Option<Box<dyn Filter>>)> = Vec::new();
        let mut narrowing: BTreeSet<&'static str> = BTreeSet::new();
        for enabled in self.profile.at(Point::PreFilter) {
            let name = enabled.plugin.name();
            self.asked.push(name);
            match enabled.plugin.pre_filter(self.cycle) {
                PreFilter::Refuse(refusal) => return self.refuse_all(refusal),
                PreFilter::Skip => made.push((name, None)),
                PreFilter::Judge(filter, only) => {
                    if let Some(only) = only {
                        narrowing.insert(name);
                        self.only = Some(self.only.take().map_or(only.clone(), |own| &own & &only));
                    }
                    let idle = filter.is_idle();
                    made.push((name, (!idle).then_some(filter)));
                }
            }
        }
        self.skipped = made.iter().filter(|(_, filter)| filter.is_none()).map(|(name, _)| *name).collect();
        self.skipped.sort_unstable();
        self.narrow(&narrowing);
        for enabled in self.profile.at(Point::Filter) {
            let name = enabled.plugin.name();
            match made.iter_mut().find(|(own, _)| *own == name) {
                Some((_, filter)) => self.filters.list.extend(filter.take()),
                None => match enabled.plugin.pre_filter(self.cycle) {
                    PreFilter::Judge(filter, _) => self.filters.list.push(filter),
                    PreFilter::Refuse(refusal) => return self.refuse_all(refusal),
                    PreFilter::Skip => {}
                },
            }
        }
    }

    /// Records why nodes outside of the named ones are infeasible. `by`: the plug-ins that named nodes.
    fn narrow(&mut self, by: &BTreeSet<&'static str>) {
        let Some(only) = &self.only else { return };
        let names: Vec<_> = by.iter().copied().collect();
        if only.is_empty() {
            let reason = match &names[..] {
                [one] => format!("node(s) didn't satisfy plugin {one}"),
                more => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", more.join(" ")),
            };
            return self.refuse_all(Refusal::hard("", reason));
        }
        let reason = format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
        self.diagnosis.absent = Some(Refusal::hard("", reason));
        self.diagnosis.narrowed_by = names;
    }

    fn refuse_all(&mut self, refusal: Refusal) {
        if refusal.code == Code::Error {
            self.error = Some(format!("running PreFilter plugin \"{}\": {}", refusal.plugin, refusal.message()));
        }
        self.diagnosis.before = Some(refusal.message());
        self.diagnosis.absent = Some(refusal);
    }

    /// Filters nodes: the nominated node alone if it is feasible, otherwise all.
    fn filter(&mut self) {
        let snapshot = self.cycle.snapshot;
        let nominated = self.cycle.pod.nominated.as_ref().filter(|_| !self.outside.nomination_failed);
        if let Some(node) = nominated.and_then(|name| snapshot.node_named(name))
            && self.check(node).is_ok_and(|left| left)
        {
            return self.feasible.push(node);
        }
        let nodes: Vec<&NodeInfo> = match &self.only {
            Some(only) => only.iter().filter_map(|name| snapshot.node_named(name)).collect(),
            None => snapshot.nodes().collect(),
        };
        for node in nodes {
            match self.check(node) {
                Ok(true) => self.feasible.push(node),
                Ok(false) => self.diagnosis.left_out = true,
                Err(refusal) if refusal.code == Code::Error => {
                    let message = refusal.message();
                    return self.error = Some(format!("running \"{}\" filter plugin: {message}", refusal.plugin));
                }
                Err(refusal) => self.diagnosis.refused.push((node.node.name.clone(), refusal)),
            }
        }
    }

    /// Whether a node is feasible; `Ok(false)`: an extender left it out without a reason.
    fn check(&mut self, node: &NodeInfo) -> Result<bool, Refusal> {
        self.filters.check(self.cycle, node)?;
        match self.outside.refused.get(&node.node.name) {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(self.outside.left.as_ref().is_none_or(|left| left.contains(&node.node.name))),
        }
    }

    fn explanation(self, scores: Vec<Scores>, totals: Vec<i64>, preemption: Option<Preemption>) -> Explanation {
        Explanation {
            skipped: self.skipped,
            diagnosis: self.diagnosis,
            feasible: self.feasible.iter().map(|node| node.node.name.clone()).collect(),
            scores,
            totals,
            preemption,
        }
    }

    /// Chooses the feasible node with the highest score.
    fn choose(self) -> Plan {
        let several = self.feasible.len() > 1;
        let before = self.profile.at(Point::PreScore).iter().filter(|_| several);
        if let Some(refusal) = before.filter_map(|enabled| enabled.plugin.pre_score(self.cycle)).next() {
            let message = format!("running PreScore plugin \"{}\": {}", refusal.plugin, refusal.message());
            return Plan::failed(SCHEDULER_ERROR, message);
        }
        let (scores, totals) = if several { self.score() } else { Default::default() };
        let most = totals.iter().copied().max();
        let at = totals.iter().position(|total| Some(*total) == most).unwrap_or(0);
        let node = self.feasible[at];
        let mut promise = Promise::default();
        for filter in &self.filters.list {
            if let Err(refusal) = filter.reserve(self.cycle, node, &mut promise) {
                return self.reservation_failed(refusal);
            }
        }
        let outcome = Outcome::Bind { node: node.node.name.clone(), promise };
        Plan { outcome, explanation: self.explanation(scores, totals, None) }
    }

    /// A refusal at the point `reserve` is reported as if the chosen node were the only one, as in Kubernetes.
    fn reservation_failed(self, refusal: Refusal) -> Plan {
        let mut plan = Plan::failed(UNSCHEDULABLE, format!("0/1 nodes are available: 1 {}.", refusal.message()));
        if let Outcome::Unschedulable(unschedulable) = &mut plan.outcome {
            if refusal.code == Code::Error {
                unschedulable.reason = SCHEDULER_ERROR;
                unschedulable.message = refusal.message();
            }
            unschedulable.rejectors = vec![refusal.plugin];
        }
        plan.explanation = self.explanation(Vec::new(), Vec::new(), None);
        plan
    }

    fn score(&self) -> (Vec<Scores>, Vec<i64>) {
        let nodes: Vec<Alike> = self.feasible.iter().map(|node| Alike::alone(node.id)).collect();
        let mut totals = vec![0i64; nodes.len()];
        let mut all = Vec::new();
        for enabled in self.profile.at(Point::Score) {
            let Some(score) = enabled.plugin.score(self.cycle).filter(|score| !score.is_idle()) else { continue };
            let raw = score.scores(self.cycle, &nodes);
            let mut normalized = raw.clone();
            score.normalize(self.cycle, &nodes, &mut normalized);
            for (total, score) in totals.iter_mut().zip(&normalized) {
                *total = total.saturating_add(score.saturating_mul(enabled.weight));
            }
            all.push(Scores { plugin: enabled.plugin.name(), weight: enabled.weight, raw, normalized });
        }
        for (total, node) in totals.iter_mut().zip(&self.feasible) {
            *total = total.saturating_add(self.outside.scores.get(&node.node.name).copied().unwrap_or(0));
        }
        (all, totals)
    }

    /// Says why no node is feasible, and runs the plug-ins of the point `postFilter`, which may make room.
    fn give_up(self) -> Plan {
        let mut said = Said::default();
        for enabled in self.profile.at(Point::PostFilter) {
            match enabled.plugin.name() {
                dynamic_resources::NAME => self.free_devices(&mut said),
                default_preemption::NAME => self.preempt(&mut said),
                _ => {}
            }
            if said.done {
                break;
            }
        }
        let waits_for_time = dynamic_resources::passes_with_time(&self.diagnosis);
        let rejectors = if waits_for_time { Vec::new() } else { self.diagnosis.rejectors() };
        let unschedulable = said.unschedulable(self.diagnosis.message(&said.reasons.join(", ")), rejectors);
        let explanation = self.explanation(Vec::new(), Vec::new(), said.preemption);
        Plan { outcome: Outcome::Unschedulable(unschedulable), explanation }
    }

    fn free_devices(&self, said: &mut Said) {
        if !self.asked.contains(&dynamic_resources::NAME) && self.profile.has(Point::PreFilter, dynamic_resources::NAME)
        {
            // In Kubernetes the plug-in looks for the state that its `PreFilter` writes. It was not called, because
            // another plug-in refused the pod before it, so there is none.
            said.reasons = vec!["not found".into()];
            said.done = true;
            return;
        }
        let has_claims = dynamic_resources::is_concerned(self.cycle);
        let stale = self.cycle.snapshot.extended_claim(&self.cycle.pod.uid).filter(|_| has_claims);
        let refused_itself =
            self.diagnosis.absent.as_ref().is_some_and(|refusal| refusal.plugin == dynamic_resources::NAME);
        said.reasons.push(if !has_claims || refused_itself {
            dynamic_resources::NO_NEW_CLAIMS.into()
        } else if let Some(claim) = stale {
            said.deallocate = Some(claim.clone());
            "deletion of ResourceClaim completed".into()
        } else if let Some(claim) = dynamic_resources::claim_in_the_way(self.cycle, &self.diagnosis) {
            said.deallocate = Some(claim);
            "deallocation of ResourceClaim completed".into()
        } else {
            "still not schedulable".into()
        });
    }

    fn preempt(&self, said: &mut Said) {
        let Some(preemption) = &self.profile.preemption else { return };
        said.preempted(preemption.find(self));
    }
}

/// What the plug-ins of the point `postFilter` said.
#[derive(Default)]
pub(crate) struct Said {
    pub reasons: Vec<String>,
    deallocate: Option<Key>,
    preemption: Option<Preemption>,
    /// Whether the remaining plug-ins are not called.
    pub done: bool,
}

impl Said {
    pub fn preempted(&mut self, found: Preemption) {
        // With victims, or after an error, the reasons of plug-ins before this one are left out.
        self.done = found.victims.is_some() || found.failed;
        if self.done {
            self.reasons.clear();
        }
        if found.victims.is_none() {
            self.reasons.push(format!("preemption: {}", found.message));
        }
        self.preemption = Some(found);
    }

    pub fn unschedulable(&self, message: String, rejectors: Vec<&'static str>) -> Unschedulable {
        let found = self.preemption.as_ref();
        Unschedulable {
            reason: UNSCHEDULABLE,
            message,
            rejectors,
            nomination: found.map(|found| found.nomination.clone()).unwrap_or_default(),
            preemption_tried: found.is_some(),
            victims: found.and_then(|found| found.victims.clone()),
            deallocate: self.deallocate.clone(),
        }
    }
}

/// The filters of one search, in their order.
pub struct Filters {
    pub list: Vec<Box<dyn Filter>>,
    /// Whether every filter checks a node, even after one has refused it.
    pub all: bool,
}

impl Filters {
    pub fn copy(&self) -> Self {
        Filters { list: self.list.iter().map(|filter| filter.copy()).collect(), all: self.all }
    }

    pub fn placed(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId) {
        self.list.iter_mut().for_each(|filter| filter.placed(cycle, pod, node));
    }

    pub fn left(&mut self, cycle: Cycle<'_>, pod: &Pod, node: NodeId) {
        self.list.iter_mut().for_each(|filter| filter.left(cycle, pod, node));
    }

    /// Whether a node is feasible, with and without the pods that are nominated to it and go before this one.
    pub fn check(&mut self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Refusal> {
        if let Some(fuller) = with_nominated(cycle, node) {
            let nominated = &fuller.pods[node.pods.len()..];
            nominated.iter().for_each(|pod| self.placed(cycle, pod, node.id));
            let checked = self.check_alone(cycle, &fuller);
            nominated.iter().for_each(|pod| self.left(cycle, pod, node.id));
            checked?;
        }
        self.check_alone(cycle, node)
    }

    fn check_alone(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Refusal> {
        if !self.all {
            return self.list.iter().try_for_each(|filter| filter.check(cycle, node));
        }
        let refusals = self.list.iter().filter_map(|filter| filter.check(cycle, node).err());
        let merged = refusals.reduce(|one, other| Refusal {
            code: one.code.max(other.code),
            plugin: one.plugin,
            reasons: one.reasons.into_iter().chain(other.reasons).collect(),
        });
        merged.map_or(Ok(()), Err)
    }
}

/// Pods nominated to a node that this pod must respect: their priority is at least its own. At most as many as the node
/// may hold: the node is full with that many.
pub fn nominated_before<'a>(cycle: Cycle<'a>, node: &NodeInfo) -> impl Iterator<Item = &'a Arc<Pod>> {
    let most = usize::try_from(node.node.allocatable.pods).unwrap_or(0).max(1);
    let Cycle { snapshot, pod } = cycle;
    snapshot.nominated_to(&node.node.name, pod.priority).filter(|one| one.uid != pod.uid).take(most)
}

/// The node with those pods on it; `None`: there are none.
pub fn with_nominated(cycle: Cycle<'_>, node: &NodeInfo) -> Option<NodeInfo> {
    let mut nominated = nominated_before(cycle, node).peekable();
    nominated.peek()?;
    let mut fuller = node.clone();
    nominated.for_each(|pod| fuller.add(pod.clone()));
    Some(fuller)
}

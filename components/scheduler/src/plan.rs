//! One scheduling cycle: chooses a node for a pod, or determines why no node is feasible. The cycle depends only on its
//! inputs and has no cache: it checks all nodes one after the other. [`crate::planner`] makes the same decisions
//! faster.

use crate::filters::Filters;
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plugin::{EqualNodes, ExtensionPoint, Filter, PreFilterResult, SchedulingCycle};
use crate::plugins::default_preemption::{self, Candidate, FailedSearch, Preemption, Victims};
use crate::plugins::dynamic_resources;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::snapshot::assume::Reservation;
use crate::snapshot::node_info::NodeInfo;
use crate::status::{Code, Diagnosis, Nomination, Rejection};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
pub struct Plan {
    pub outcome: PlanOutcome,
    pub explanation: Explanation,
}

#[derive(Debug, Clone)]
pub enum PlanOutcome {
    /// The pod is to be bound to this node. `reservation` contains the volumes and devices that were chosen with the
    /// node.
    Bind { node: Text, reservation: Reservation },
    /// No node is feasible at present.
    Unschedulable(Unschedulable),
}

#[derive(Debug, Clone)]
pub struct Unschedulable {
    /// The reason of the condition `PodScheduled`: `Unschedulable`, or `SchedulerError` if the search failed.
    pub reason: &'static str,
    /// The message of the condition and of the event `FailedScheduling`.
    pub message: String,
    /// Plug-ins that rejected nodes or the pod. An event makes the pod active again if the queueing hint of one of
    /// these plug-ins is `Queue`. Without rejectors the pod is tried again after a back-off.
    pub rejectors: Vec<&'static str>,
    /// How the pod's `status.nominatedNodeName` changes.
    pub nomination: Nomination,
    /// Whether preemption looked for victims.
    pub preemption_tried: bool,
    /// The pods that must be evicted before the pod can be scheduled; `None` if evicting pods does not help.
    pub victims: Option<Victims>,
    /// A ResourceClaim of the pod whose devices are to be released, so that the next attempt can find other devices. If
    /// the claim was made for extended resources, it is deleted instead.
    pub deallocate: Option<Key>,
}

/// Why a decision was made, for people.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// Plug-ins that had nothing to check for this pod, so their filters were not called.
    pub skipped: Vec<&'static str>,
    pub diagnosis: Diagnosis,
    /// The names of the feasible nodes.
    pub feasible: Vec<Text>,
    /// Each plug-in's scores of the feasible nodes; empty if fewer than two nodes are feasible.
    pub scores: Vec<Scores>,
    /// For each feasible node, the weighted sum of its scores, in the order of `feasible`; empty if fewer than two
    /// nodes are feasible.
    pub totals: Vec<i64>,
    pub preemption: Option<Preemption>,
}

/// One plug-in's scores, one for each feasible node, in the order of [`Explanation::feasible`].
#[derive(Debug, Clone)]
pub struct Scores {
    pub plugin: &'static str,
    pub weight: i64,
    pub raw: Vec<i64>,
    pub normalized: Vec<i64>,
}

pub const UNSCHEDULABLE: &str = "Unschedulable";
pub const SCHEDULER_ERROR: &str = "SchedulerError";

/// What extenders, which are called over HTTP, have answered for one pod.
#[derive(Debug, Clone, Default)]
pub struct ExtenderResults {
    /// Whether extenders rejected the nominated node when it was the only node to be filtered. Then the nominated node
    /// is filtered together with all other nodes.
    pub nomination_failed: bool,
    /// The nodes that extenders left feasible: no other node is feasible. `None` if the extenders were not called yet.
    pub remaining: Option<BTreeSet<Text>>,
    /// The nodes that extenders rejected with a reason, and the rejections.
    pub rejected: BTreeMap<Text, Rejection>,
    /// For each node, the score that extenders give it, which is added to the scores of plug-ins.
    pub scores: BTreeMap<Text, i64>,
    /// The candidates for preemption that extenders left: no other candidate may be chosen. `None` if the extenders
    /// were not called yet.
    pub candidates: Option<Vec<Candidate>>,
}

/// Chooses a node for the pod, or returns why no node is feasible and which pods to evict.
pub fn plan(snapshot: &Snapshot, profile: &Profile, pod: &Pod) -> Plan {
    plan_with_extenders(snapshot, profile, pod, &ExtenderResults::default())
}

/// Like [`plan`], with the answers of extenders.
pub fn plan_with_extenders(
    snapshot: &Snapshot,
    profile: &Profile,
    pod: &Pod,
    extender_results: &ExtenderResults,
) -> Plan {
    let cycle = SchedulingCycle { snapshot, pod };
    if snapshot.node_count() == 0 {
        return Plan::failed(UNSCHEDULABLE, "no nodes available to schedule pods".into());
    }
    let mut search = NodeSearch::begin(cycle, profile, extender_results);
    if search.diagnosis.pre_filter_message.is_none() && search.error.is_none() {
        search.filter();
    }
    if let Some(error) = search.error.take() {
        return Plan::failed(SCHEDULER_ERROR, error);
    }
    if search.feasible.is_empty() { search.run_post_filter() } else { search.select_node() }
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
        Plan { outcome: PlanOutcome::Unschedulable(unschedulable), explanation: Explanation::default() }
    }

    /// The node to which the pod is to be bound; `None` if no node is feasible.
    pub fn node(&self) -> Option<&Text> {
        match &self.outcome {
            PlanOutcome::Bind { node, .. } => Some(node),
            PlanOutcome::Unschedulable(_) => None,
        }
    }

    /// The feasible nodes with the highest sum of scores; there are several if their sums are equal.
    pub fn best(&self) -> Vec<&Text> {
        let explanation = &self.explanation;
        let most = explanation.totals.iter().max();
        let nodes = explanation.feasible.iter().enumerate();
        nodes.filter(|(at, _)| explanation.totals.get(*at) == most).map(|(_, node)| node).collect()
    }
}

/// The search for the node of one pod, while it runs.
pub struct NodeSearch<'a> {
    pub cycle: SchedulingCycle<'a>,
    pub profile: &'a Profile,
    pub extender_results: &'a ExtenderResults,
    /// Plug-ins whose `pre_filter` was called in this search.
    pub pre_filtered: Vec<&'static str>,
    pub filters: Filters,
    pub skipped: Vec<&'static str>,
    /// If plug-ins named nodes in `pre_filter`: the nodes that may be feasible. No other node is checked.
    only: Option<BTreeSet<Text>>,
    pub feasible: Vec<&'a NodeInfo>,
    pub diagnosis: Diagnosis,
    error: Option<String>,
}

impl<'a> NodeSearch<'a> {
    /// Begins a search: calls `pre_filter` of all plug-ins.
    pub fn begin(cycle: SchedulingCycle<'a>, profile: &'a Profile, extender_results: &'a ExtenderResults) -> Self {
        let mut search = NodeSearch {
            cycle,
            profile,
            extender_results,
            pre_filtered: Vec::new(),
            filters: Filters { list: Vec::new(), check_all: profile.check_all },
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
        let mut filters: Vec<(&'static str, Option<Box<dyn Filter>>)> = Vec::new();
        let mut narrowed_by: BTreeSet<&'static str> = BTreeSet::new();
        for enabled in self.profile.at(ExtensionPoint::PreFilter) {
            let name = enabled.plugin.name();
            self.pre_filtered.push(name);
            match enabled.plugin.pre_filter(self.cycle) {
                PreFilterResult::Reject(rejection) => return self.reject_all(rejection),
                PreFilterResult::Skip => filters.push((name, None)),
                PreFilterResult::Filter(filter, only) => {
                    if let Some(only) = only {
                        narrowed_by.insert(name);
                        self.only = Some(self.only.take().map_or(only.clone(), |own| &own & &only));
                    }
                    let idle = filter.is_idle();
                    filters.push((name, (!idle).then_some(filter)));
                }
            }
        }
        self.skipped = filters.iter().filter(|(_, filter)| filter.is_none()).map(|(name, _)| *name).collect();
        self.skipped.sort_unstable();
        self.restrict_nodes(&narrowed_by);
        for enabled in self.profile.at(ExtensionPoint::Filter) {
            let name = enabled.plugin.name();
            match filters.iter_mut().find(|(own, _)| *own == name) {
                Some((_, filter)) => self.filters.list.extend(filter.take()),
                None => match enabled.plugin.pre_filter(self.cycle) {
                    PreFilterResult::Filter(filter, _) => self.filters.list.push(filter),
                    PreFilterResult::Reject(rejection) => return self.reject_all(rejection),
                    PreFilterResult::Skip => {}
                },
            }
        }
    }

    /// Records that the nodes outside of `self.only` are infeasible. `by` contains the plug-ins that named the nodes in
    /// `self.only`.
    fn restrict_nodes(&mut self, by: &BTreeSet<&'static str>) {
        let Some(only) = &self.only else { return };
        let names: Vec<_> = by.iter().copied().collect();
        if only.is_empty() {
            let reason = match &names[..] {
                [one] => format!("node(s) didn't satisfy plugin {one}"),
                more => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", more.join(" ")),
            };
            return self.reject_all(Rejection::unresolvable("", reason));
        }
        let reason = format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
        self.diagnosis.absent = Some(Rejection::unresolvable("", reason));
        self.diagnosis.narrowed_by = names;
    }

    fn reject_all(&mut self, rejection: Rejection) {
        if rejection.code == Code::Error {
            self.error = Some(format!("running PreFilter plugin \"{}\": {}", rejection.plugin, rejection.message()));
        }
        self.diagnosis.pre_filter_message = Some(rejection.message());
        self.diagnosis.absent = Some(rejection);
    }

    /// Filters the nodes. If the pod's nominated node is feasible, no other node is checked.
    fn filter(&mut self) {
        let snapshot = self.cycle.snapshot;
        let nominated = self.cycle.pod.nominated.as_ref().filter(|_| !self.extender_results.nomination_failed);
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
                Ok(false) => self.diagnosis.extender_excluded = true,
                Err(rejection) if rejection.code == Code::Error => {
                    let message = rejection.message();
                    return self.error = Some(format!("running \"{}\" filter plugin: {message}", rejection.plugin));
                }
                Err(rejection) => self.diagnosis.rejected.push((node.node.name.clone(), rejection)),
            }
        }
    }

    /// Whether a node is feasible; `Ok(false)` if extenders left the node out of their answer without a reason.
    fn check(&mut self, node: &NodeInfo) -> Result<bool, Rejection> {
        self.filters.check(self.cycle, node)?;
        match self.extender_results.rejected.get(&node.node.name) {
            Some(rejection) => Err(rejection.clone()),
            None => Ok(self.extender_results.remaining.as_ref().is_none_or(|left| left.contains(&node.node.name))),
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

    /// Chooses the feasible node with the highest sum of scores.
    fn select_node(self) -> Plan {
        let several = self.feasible.len() > 1;
        let before = self.profile.at(ExtensionPoint::PreScore).iter().filter(|_| several);
        if let Some(rejection) = before.filter_map(|enabled| enabled.plugin.pre_score(self.cycle)).next() {
            let message = format!("running PreScore plugin \"{}\": {}", rejection.plugin, rejection.message());
            return Plan::failed(SCHEDULER_ERROR, message);
        }
        let (scores, totals) = if several { self.score() } else { Default::default() };
        let most = totals.iter().copied().max();
        let at = totals.iter().position(|total| Some(*total) == most).unwrap_or(0);
        let node = self.feasible[at];
        let mut reservation = Reservation::default();
        for filter in &self.filters.list {
            if let Err(rejection) = filter.reserve(self.cycle, node, &mut reservation) {
                return self.reservation_failed(rejection);
            }
        }
        let outcome = PlanOutcome::Bind { node: node.node.name.clone(), reservation };
        Plan { outcome, explanation: self.explanation(scores, totals, None) }
    }

    /// A rejection at the point `reserve` is reported as if the chosen node were the only one, as in Kubernetes.
    fn reservation_failed(self, rejection: Rejection) -> Plan {
        let mut plan = Plan::failed(UNSCHEDULABLE, format!("0/1 nodes are available: 1 {}.", rejection.message()));
        if let PlanOutcome::Unschedulable(unschedulable) = &mut plan.outcome {
            if rejection.code == Code::Error {
                unschedulable.reason = SCHEDULER_ERROR;
                unschedulable.message = rejection.message();
            }
            unschedulable.rejectors = vec![rejection.plugin];
        }
        plan.explanation = self.explanation(Vec::new(), Vec::new(), None);
        plan
    }

    fn score(&self) -> (Vec<Scores>, Vec<i64>) {
        let nodes: Vec<EqualNodes> = self.feasible.iter().map(|node| EqualNodes::single(node.id)).collect();
        let mut totals = vec![0i64; nodes.len()];
        let mut all = Vec::new();
        for enabled in self.profile.at(ExtensionPoint::Score) {
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
            *total = total.saturating_add(self.extender_results.scores.get(&node.node.name).copied().unwrap_or(0));
        }
        (all, totals)
    }

    /// Determines why no node is feasible, and runs the plug-ins of the point `postFilter`, which may find pods to
    /// evict.
    fn run_post_filter(self) -> Plan {
        let mut result = PostFilterResult::default();
        for enabled in self.profile.at(ExtensionPoint::PostFilter) {
            match enabled.plugin.name() {
                dynamic_resources::NAME => self.post_filter_devices(&mut result),
                default_preemption::NAME => self.post_filter_preemption(&mut result),
                _ => {}
            }
            if result.stop {
                break;
            }
        }
        let is_over_budget = dynamic_resources::is_over_budget(&self.diagnosis);
        let rejectors = if is_over_budget { Vec::new() } else { self.diagnosis.rejectors() };
        let unschedulable = result.unschedulable(self.diagnosis.message(&result.reasons.join(", ")), rejectors);
        let explanation = self.explanation(Vec::new(), Vec::new(), result.preemption);
        Plan { outcome: PlanOutcome::Unschedulable(unschedulable), explanation }
    }

    fn post_filter_devices(&self, result: &mut PostFilterResult) {
        if !self.pre_filtered.contains(&dynamic_resources::NAME)
            && self.profile.has(ExtensionPoint::PreFilter, dynamic_resources::NAME)
        {
            // In Kubernetes the plug-in fails here: it reads state that its `PreFilter` writes. That `PreFilter` was
            // not called, because another plug-in rejected the pod before, so the state is not found.
            result.reasons = vec!["not found".into()];
            result.stop = true;
            return;
        }
        let has_claims = dynamic_resources::uses_devices(self.cycle);
        let stale_claim = self.cycle.snapshot.devices().extended_claim(&self.cycle.pod.uid).filter(|_| has_claims);
        let rejected_by_devices =
            self.diagnosis.absent.as_ref().is_some_and(|rejection| rejection.plugin == dynamic_resources::NAME);
        result.reasons.push(if !has_claims || rejected_by_devices {
            dynamic_resources::NO_NEW_CLAIMS.into()
        } else if let Some(claim) = stale_claim {
            result.deallocate = Some(claim.clone());
            "deletion of ResourceClaim completed".into()
        } else if let Some(claim) = dynamic_resources::claim_to_deallocate(self.cycle, &self.diagnosis) {
            result.deallocate = Some(claim);
            "deallocation of ResourceClaim completed".into()
        } else {
            "still not schedulable".into()
        });
    }

    fn post_filter_preemption(&self, result: &mut PostFilterResult) {
        let Some(preemption) = &self.profile.preemption else { return };
        result.add_preemption(preemption.find(&FailedSearch {
            cycle: self.cycle,
            filters: &self.filters,
            diagnosis: &self.diagnosis,
            candidates: self.extender_results.candidates.as_deref(),
        }));
    }
}

/// What the plug-ins of the point `postFilter` have found so far.
#[derive(Default)]
pub(crate) struct PostFilterResult {
    pub reasons: Vec<String>,
    deallocate: Option<Key>,
    preemption: Option<Preemption>,
    /// Whether the plug-ins that follow are not called.
    pub stop: bool,
}

impl PostFilterResult {
    pub fn add_preemption(&mut self, found: Preemption) {
        // If this plug-in found victims or failed with an error, the reasons of the plug-ins before it are left out of
        // the message.
        self.stop = found.victims.is_some() || found.failed;
        if self.stop {
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

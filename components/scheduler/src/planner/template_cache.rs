//! The cache of the pods of one template: filters, scores and groups of feasible nodes, updated by changes of the
//! snapshot.

use super::evaluations::EvaluationTally;
use super::groups::NodeGroups;
use super::infeasible::{InfeasibleNodes, NominatedPod};
use super::{CachedResults, depends_on};
use crate::filters::{Filters, nominated_pods_ahead, with_nominated_pods};
use crate::object::Kind;
use crate::plan::Unschedulable;
use crate::plugin::{EqualNodes, ExtensionPoint, Filter, Normalization, PreFilterResult, SchedulingCycle, Score};
use crate::profile::Profile;
use crate::snapshot::changes::SnapshotChange;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::status::Rejection;
use std::cmp::Reverse;

pub(super) struct TemplateCache {
    /// The number of the plan that used this cache last.
    pub last_used: u64,
    /// How many times the filters and scores were rebuilt since the planner last read and reset this count.
    pub rebuilds: u64,
    /// How many groups of nodes were compared since the planner last read and reset this count.
    pub groups_compared: u64,
    /// The number of the first change of the snapshot that is not applied to this cache yet.
    next_change: u64,
    pub filters: Filters,
    pub tally: EvaluationTally,
    scores: Vec<CachedScore>,
    /// The nodes that pass all local filters, each with the sum of those local scores that are not scaled by the
    /// highest score.
    groups: NodeGroups,
    /// How many marks each node has, from the plug-ins that look at more than one node.
    mark_count: usize,
    /// Nodes that must be checked and scored again.
    dirty: Vec<NodeId>,
    is_dirty: Vec<bool>,
    /// A buffer in which the marks of one node are collected.
    marks: Vec<i64>,
    /// Whether the cache has no groups, because a plug-in rejected the pods in `pre_filter`, or named the only nodes
    /// that may be feasible.
    rejected: bool,
    /// Why no node was feasible for the last pod, and the number that the next change of the snapshot had then.
    failure: Option<(u64, Unschedulable)>,
    infeasible: InfeasibleNodes,
}

/// A plug-in's score, with those of its properties that never change.
struct CachedScore {
    score: Box<dyn Score>,
    weight: i64,
    normalization: Normalization,
    local: bool,
}

impl CachedScore {
    fn new(score: Box<dyn Score>, weight: i64) -> Self {
        let (normalization, local) = (score.normalization(), score.is_local());
        CachedScore { score, weight, normalization, local }
    }

    /// Whether a node's raw score is one of the node's marks. A local score that is normalized is such a mark: the
    /// final score of a node then depends on the highest raw score among the feasible nodes, so it cannot be added to
    /// the node's sum in advance.
    fn is_scaled(&self) -> bool {
        self.local && self.normalization != Normalization::None
    }

    fn is_global(&self) -> bool {
        !self.local
    }
}

impl TemplateCache {
    pub fn new(cycle: SchedulingCycle<'_>, profile: &Profile) -> Self {
        let mut cache = TemplateCache {
            last_used: 0,
            rebuilds: 0,
            groups_compared: 0,
            next_change: 0,
            filters: Filters { list: Vec::new(), check_all: false },
            tally: EvaluationTally::default(),
            scores: Vec::new(),
            groups: NodeGroups::default(),
            mark_count: 0,
            dirty: Vec::new(),
            is_dirty: Vec::new(),
            marks: Vec::new(),
            rejected: false,
            failure: None,
            infeasible: InfeasibleNodes::default(),
        };
        cache.rebuild(cycle, profile);
        cache
    }

    /// Why no node was feasible for the last pod of this template; `None` if the snapshot has changed since, or a node
    /// was feasible.
    pub fn cached_failure(&self, cycle: SchedulingCycle<'_>) -> Option<Unschedulable> {
        let (at, failure) = self.failure.as_ref()?;
        (*at == cycle.snapshot.changes().next()).then(|| failure.clone())
    }

    /// Why no node is feasible, from the rejections of the single nodes; `None` if only the plan without the cache can
    /// determine this.
    pub fn explain(
        &mut self,
        cycle: SchedulingCycle<'_>,
        profile: &Profile,
        nominated: Option<NominatedPod>,
    ) -> Option<Unschedulable> {
        if self.rejected || cycle.snapshot.node_count() == 0 || !self.is_local() {
            return None;
        }
        let local = self.filters.list.iter().filter(|filter| filter.is_local()).map(|filter| filter.clone_box());
        self.infeasible.explain(cycle, profile, Filters { list: local.collect(), check_all: false }, nominated)
    }

    /// Checks the node to which a pod is nominated. The cached answer for this node cannot be used, because it counts
    /// the pod itself as nominated to the node.
    pub fn check(&mut self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        // A filter that passes all nodes in the present snapshot also passes them with the nominated pods added, so it
        // is skipped.
        let mut active: Vec<_> = self.filters.list.iter_mut().filter(|filter| !filter.is_idle()).collect();
        if let Some(full_node) = with_nominated_pods(cycle, node) {
            let nominated = &full_node.pods[node.pods.len()..];
            active.iter_mut().for_each(|filter| nominated.iter().for_each(|pod| filter.add_pod(cycle, pod, node.id)));
            let checked = active.iter().try_for_each(|filter| filter.check(cycle, &full_node));
            active
                .iter_mut()
                .for_each(|filter| nominated.iter().for_each(|pod| filter.remove_pod(cycle, pod, node.id)));
            checked?;
        }
        active.iter().try_for_each(|filter| filter.check(cycle, node))
    }

    /// Keeps the reason why no node is feasible, unless the plan evicts pods or releases devices, which changes the
    /// answer for the next pod.
    pub fn cache_failure(&mut self, cycle: SchedulingCycle<'_>, failure: &Unschedulable) {
        let nothing_to_do = failure.victims.is_none() && failure.deallocate.is_none();
        self.failure = nothing_to_do.then(|| (cycle.snapshot.changes().next(), failure.clone()));
    }

    /// How much memory the cache takes, as a multiple of the memory of a cache without infeasible nodes.
    pub fn weight(&self) -> usize {
        1 + 4 * usize::from(self.infeasible.len() > 0)
    }

    /// Whether the cache has groups of nodes. There are none if a plug-in rejected the pods in `pre_filter`, or named
    /// the only nodes that may be feasible.
    pub fn has_groups(&self) -> bool {
        !self.rejected
    }

    pub fn is_feasible(&self, node: NodeId) -> bool {
        self.groups.contains(node)
    }

    /// The cached rejections of nodes, and the cached scores of the nodes in `scored`, for tests.
    pub fn cached_results(&self, cycle: SchedulingCycle<'_>, scored: &[NodeId]) -> Option<CachedResults> {
        if self.rejected {
            return None;
        }
        let mut filters = Filters { list: Vec::new(), check_all: false };
        filters.list =
            self.filters.list.iter().filter(|filter| !filter.is_idle()).map(|filter| filter.clone_box()).collect();
        let rejected = cycle.snapshot.nodes().filter_map(|node| Some((node.id, filters.check(cycle, node).err()?)));
        let rejected = rejected.collect();
        let nodes: Vec<_> = scored.iter().map(|node| EqualNodes::single(*node)).collect();
        let scores = self.scores.iter().filter(|cached| !cached.score.is_idle()).map(|cached| {
            let mut scores = cached.score.scores(cycle, &nodes);
            cached.score.normalize(cycle, &nodes, &mut scores);
            scores
        });
        Some((rejected, scores.collect()))
    }

    fn rebuild(&mut self, cycle: SchedulingCycle<'_>, profile: &Profile) {
        let snapshot = cycle.snapshot;
        self.rebuilds += 1;
        self.next_change = snapshot.changes().next();
        self.make_plugins(cycle, profile);
        self.groups = NodeGroups::default();
        self.mark_count = self.current_mark_count();
        self.is_dirty = vec![false; snapshot.node_bound()];
        self.dirty.clear();
        self.infeasible = InfeasibleNodes::default();
        if !self.rejected {
            for node in snapshot.nodes() {
                self.evaluate_node(cycle, node.id);
            }
        }
    }

    fn make_plugins(&mut self, cycle: SchedulingCycle<'_>, profile: &Profile) {
        self.filters.list.clear();
        self.rejected = false;
        let (mut filters, mut scoring) = (Vec::new(), Vec::new());
        // A plug-in may reject a pod in `pre_filter` without being enabled as a filter.
        for enabled in profile.at(ExtensionPoint::PreFilter) {
            if !profile.has(ExtensionPoint::Filter, enabled.plugin.name())
                && matches!(enabled.plugin.pre_filter(cycle), PreFilterResult::Reject(_))
            {
                self.rejected = true;
            }
        }
        for enabled in profile.at(ExtensionPoint::Filter) {
            match enabled.plugin.pre_filter(cycle) {
                PreFilterResult::Skip => {}
                PreFilterResult::Reject(_) => self.rejected = true,
                PreFilterResult::Filter(filter, only) => {
                    self.rejected |= only.is_some();
                    self.filters.list.push(filter);
                    filters.push(enabled.plugin.name());
                }
            }
        }
        self.scores.clear();
        for enabled in profile.at(ExtensionPoint::Score) {
            if let Some(score) = enabled.plugin.score(cycle) {
                self.scores.push(CachedScore::new(score, enabled.weight));
                scoring.push(enabled.plugin.name());
            }
        }
        self.tally.replace_plugins(EvaluationTally::new(profile, &filters, &scoring));
    }

    /// Rebuilds the filters and scores that count pods over many nodes.
    fn rebuild_counts(&mut self, cycle: SchedulingCycle<'_>, profile: &Profile) {
        self.rebuilds += 1;
        let plugins = |point: ExtensionPoint| profile.at(point).iter();
        let mut filters =
            plugins(ExtensionPoint::Filter).filter_map(|enabled| match enabled.plugin.pre_filter(cycle) {
                PreFilterResult::Filter(filter, _) => Some(filter),
                _ => None,
            });
        for filter in &mut self.filters.list {
            let Some(new) = filters.next() else { break };
            if !filter.is_local() || !new.is_local() {
                *filter = new;
            }
        }
        let mut scores = plugins(ExtensionPoint::Score).filter_map(|enabled| enabled.plugin.score(cycle));
        for cached in &mut self.scores {
            let Some(new) = scores.next() else { break };
            if !cached.local {
                cached.score = new;
            }
        }
    }

    /// Whether every filter looks at single nodes only, or passes all nodes.
    fn is_local(&self) -> bool {
        self.filters.list.iter().all(|filter| filter.is_local() || filter.is_idle())
    }

    /// Applies the changes of the snapshot since the last call.
    pub fn catch_up(&mut self, cycle: SchedulingCycle<'_>, profile: &Profile) {
        let changes = cycle.snapshot.changes();
        let Some(since) = changes.since(self.next_change) else { return self.rebuild(cycle, profile) };
        let mut changed_topology = Vec::new();
        for change in since {
            match change {
                SnapshotChange::PodAdded(node, pod) => {
                    self.mark_dirty(*node);
                    self.filters.list.iter_mut().for_each(|filter| filter.add_pod(cycle, pod, *node));
                    self.scores.iter_mut().for_each(|cached| cached.score.add_pod(cycle, pod, *node));
                }
                SnapshotChange::PodRemoved(node, pod) => {
                    self.mark_dirty(*node);
                    self.filters.list.iter_mut().for_each(|filter| filter.remove_pod(cycle, pod, *node));
                    self.scores.iter_mut().for_each(|cached| cached.score.remove_pod(cycle, pod, *node));
                }
                SnapshotChange::NodeUpdated(node) => self.mark_dirty(*node),
                SnapshotChange::TopologyChanged(node) => {
                    self.mark_dirty(*node);
                    changed_topology.push(*node);
                }
                SnapshotChange::PodStarted(node) => self.infeasible.pods_changed(*node),
                SnapshotChange::Object(Kind::PodDisruptionBudget, _) => self.infeasible.budgets_changed(),
                SnapshotChange::Object(kind, key) => {
                    if depends_on(profile, cycle, *kind, key) {
                        return self.rebuild(cycle, profile);
                    }
                }
            }
        }
        self.next_change = changes.next();
        let is_updated = self.update_topologies(cycle, changed_topology);
        if !is_updated {
            self.rebuild_counts(cycle, profile);
        }
        self.remark_nodes(cycle, !is_updated);
        let dirty = std::mem::take(&mut self.dirty);
        for node in &dirty {
            self.is_dirty[*node] = false;
            self.evaluate_node(cycle, *node);
        }
        self.dirty = dirty;
        self.dirty.clear();
    }

    /// For each node whose labels or taints changed, moves the counts of its pods to the node's new topology domains.
    /// Returns `false` if the counts must be rebuilt.
    fn update_topologies(&mut self, cycle: SchedulingCycle<'_>, mut changed_topology: Vec<NodeId>) -> bool {
        changed_topology.sort_unstable();
        changed_topology.dedup();
        let (mut is_updated, mut touched) = (true, Vec::new());
        for node in changed_topology {
            for filter in &mut self.filters.list {
                is_updated &= filter.update_topology(cycle, node, &mut touched);
            }
            for cached in &mut self.scores {
                is_updated &= cached.score.update_topology(cycle, node, &mut touched);
            }
        }
        touched.into_iter().for_each(|node| self.mark_dirty(node));
        is_updated
    }

    fn mark_dirty(&mut self, node: NodeId) {
        if node >= self.is_dirty.len() {
            self.is_dirty.resize(node + 1, false);
        }
        if !std::mem::replace(&mut self.is_dirty[node], true) {
            self.dirty.push(node);
        }
    }

    /// Checks and scores one node again with the local plug-ins.
    fn evaluate_node(&mut self, cycle: SchedulingCycle<'_>, id: NodeId) {
        self.infeasible.node_changed(id);
        let Some(node) = cycle.snapshot.node(id).filter(|node| self.passes_local_filters(cycle, node)) else {
            return self.groups.remove(id);
        };
        let (mut sum, mut marks) = (0i64, std::mem::take(&mut self.marks));
        marks.clear();
        for cached in self.scores.iter().filter(|cached| cached.local) {
            let raw = cached.score.score(cycle, node);
            if cached.is_scaled() {
                marks.push(raw);
            } else {
                sum = sum.saturating_add(raw.saturating_mul(cached.weight));
            }
        }
        self.mark(cycle, node, &mut marks);
        self.groups.put(id, sum, &marks);
        self.marks = marks;
    }

    /// Appends the marks of a node, by which plug-ins that look at more than one node distinguish it: first the number
    /// of marks for its nominated pods, then these marks, and then each plug-in's marks for the node.
    fn mark(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo, marks: &mut Vec<i64>) {
        let (start, mut nominated) = (marks.len(), nominated_pods_ahead(cycle, node).peekable());
        marks.push(NONE_NOMINATED);
        if nominated.peek().is_some() {
            let pods: Vec<_> = nominated.collect();
            for filter in self.filters.list.iter().filter(|filter| !filter.is_local()) {
                filter.mark_nominated(cycle, node, &pods, marks);
            }
            marks[start] = (marks.len() - start - 1) as i64;
        }
        for filter in self.filters.list.iter().filter(|filter| !filter.is_local()) {
            filter.mark(node, marks);
        }
        for cached in self.scores.iter().filter(|cached| cached.is_global()) {
            cached.score.mark(node, marks);
        }
    }

    fn current_mark_count(&self) -> usize {
        let filters = self.filters.list.iter().filter(|filter| !filter.is_local()).map(|filter| filter.mark_count());
        let scores = self.scores.iter().filter(|cached| cached.is_global()).map(|cached| cached.score.mark_count());
        filters.chain(scores).sum()
    }

    /// Computes the marks of all nodes again if the number of marks changed, or the counts from which the marks are
    /// made were rebuilt.
    fn remark_nodes(&mut self, cycle: SchedulingCycle<'_>, counts_rebuilt: bool) {
        let count = self.current_mark_count();
        let before = std::mem::replace(&mut self.mark_count, count);
        if before == count && !(counts_rebuilt && count > 0) {
            return;
        }
        let scaled = self.scores.iter().filter(|cached| cached.is_scaled()).count();
        for node in cycle.snapshot.nodes() {
            let Some((score, known)) = self.groups.score_and_marks(node.id) else { continue };
            let mut marks = known[..scaled].to_vec();
            self.mark(cycle, node, &mut marks);
            self.groups.put(node.id, score, &marks);
        }
    }

    fn passes_local_filters(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> bool {
        let passes = |node: &NodeInfo| {
            let mut local = self.filters.list.iter().enumerate().filter(|(_, filter)| filter.is_local());
            local.all(|(at, filter)| {
                self.tally.count_check(at);
                filter.check(cycle, node).is_ok()
            })
        };
        passes(node) && with_nominated_pods(cycle, node).is_none_or(|full_node| passes(&full_node))
    }

    /// The feasible node with the highest score; if several nodes have it, the node with the smallest number. Returns
    /// `None` if no node is feasible. The plug-ins that look at more than one node have equal answers for all nodes of a
    /// group, so only the first node of each group is compared.
    pub fn best(&mut self, cycle: SchedulingCycle<'_>) -> Option<NodeId> {
        if self.rejected {
            return None;
        }
        let scaled = self.scores.iter().filter(|cached| cached.is_scaled()).count();
        let (mut nodes, mut totals, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        let is_global = |filter: &dyn Filter| !filter.is_local() && !filter.is_idle();
        let filters = self.filters.list.iter_mut().enumerate();
        let mut filters: Vec<_> = filters.filter(|(_, filter)| is_global(&***filter)).collect();
        for group in self.groups.iter() {
            self.groups_compared += 1;
            let Some((sum, node)) = group.best() else { continue };
            let passes = filters.iter_mut().all(|(at, filter)| {
                self.tally.count_check(*at);
                filter.passes(cycle, node)
                    && (group.marks[scaled] == NONE_NOMINATED || passes_with_nominated(cycle, &mut ***filter, node))
            });
            if passes {
                nodes.push(EqualNodes { node, count: group.len() });
                totals.push(sum);
                raw.push(&group.marks[..scaled]);
            }
        }
        if nodes.len() > 1 {
            self.add_by_group(cycle, &nodes, &raw, &mut totals);
        }
        let best = totals.iter().zip(&nodes).map(|(total, group)| (Reverse(*total), group.node)).min();
        best.map(|(_, node)| node)
    }

    /// Adds to `totals` the scores that are equal for all nodes of a group.
    fn add_by_group(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes], raw: &[&[i64]], totals: &mut [i64]) {
        let mut add = |scores: &mut dyn Iterator<Item = i64>, weight: i64| {
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.saturating_mul(weight));
            }
        };
        for (at, cached) in self.scores.iter().filter(|cached| cached.is_scaled()).enumerate() {
            let most = raw.iter().map(|raw| raw[at]).max().unwrap_or(0);
            add(&mut raw.iter().map(|raw| cached.normalization.apply(raw[at], most)), cached.weight);
        }
        for cached in self.scores.iter().filter(|cached| cached.is_global() && !cached.score.is_idle()) {
            let mut scores = cached.score.scores(cycle, nodes);
            cached.score.normalize(cycle, nodes, &mut scores);
            add(&mut scores.into_iter(), cached.weight);
        }
    }
}

/// The first mark of a node whose nominated pods give no marks: their number is 0.
const NONE_NOMINATED: i64 = 0;

/// Whether a node passes a filter if the pods that are nominated to it are counted as on the node.
fn passes_with_nominated(cycle: SchedulingCycle<'_>, filter: &mut dyn Filter, node: NodeId) -> bool {
    let Some(info) = cycle.snapshot.node(node) else { return false };
    let nominated: Vec<_> = nominated_pods_ahead(cycle, info).collect();
    nominated.iter().for_each(|pod| filter.add_pod(cycle, pod, node));
    let passes = filter.passes(cycle, node);
    nominated.iter().for_each(|pod| filter.remove_pod(cycle, pod, node));
    passes
}

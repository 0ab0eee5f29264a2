//! The cache of the pods of one template: filters, scores and groups of feasible nodes, updated by what changed.

use super::evaluations::Tally;
use super::groups::Groups;
use super::no_place::{NoPlace, Waits};
use super::{Recalled, rests_on};
use crate::object::Kind;
use crate::plan::{Filters, Unschedulable, nominated_before, with_nominated};
use crate::plugin::{Alike, Cycle, Filter, Point, PreFilter, Scale, Score};
use crate::profile::Profile;
use crate::snapshot::changes::Change;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::status::Refusal;
use std::cmp::Reverse;

pub(super) struct Memory {
    /// The planner's turn in which the cache was last used.
    pub used: u64,
    /// How often the cache was rebuilt since this was last read.
    pub begun: u64,
    /// How many groups of nodes were compared since this was last read.
    pub compared: u64,
    /// The number of the first change that is not applied yet.
    seen: u64,
    pub filters: Filters,
    pub tally: Tally,
    scores: Vec<Kept>,
    /// The nodes that pass all local filters, each with the sum of the local scores that need no scaling.
    groups: Groups,
    /// How many marks the plug-ins that look beyond single nodes give each node.
    mark_count: usize,
    dirty: Vec<NodeId>,
    is_dirty: Vec<bool>,
    /// A buffer for the marks of one node.
    marks: Vec<i64>,
    /// Whether a plug-in refused the pods in `pre_filter`, or named the only nodes that may be feasible: there are no
    /// groups then.
    refused: bool,
    /// Why no node was feasible, and the number of the next change at that time.
    why: Option<(u64, Unschedulable)>,
    no_place: NoPlace,
}

/// A score, with its constant properties.
struct Kept {
    score: Box<dyn Score>,
    weight: i64,
    scale: Scale,
    local: bool,
}

impl Kept {
    fn new(score: Box<dyn Score>, weight: i64) -> Self {
        let (scale, local) = (score.scale(), score.is_local());
        Kept { score, weight, scale, local }
    }

    /// Whether the raw scores are marks of nodes. The final score depends on the highest raw score among the feasible
    /// nodes, so it cannot be added up in advance.
    fn is_scaled(&self) -> bool {
        self.local && self.scale != Scale::AsItIs
    }

    fn looks_beyond(&self) -> bool {
        !self.local
    }
}

impl Memory {
    pub fn new(cycle: Cycle<'_>, profile: &Profile) -> Self {
        let mut memory = Memory {
            used: 0,
            begun: 0,
            compared: 0,
            seen: 0,
            filters: Filters { list: Vec::new(), all: false },
            tally: Tally::default(),
            scores: Vec::new(),
            groups: Groups::default(),
            mark_count: 0,
            dirty: Vec::new(),
            is_dirty: Vec::new(),
            marks: Vec::new(),
            refused: false,
            why: None,
            no_place: NoPlace::default(),
        };
        memory.begin_anew(cycle, profile);
        memory
    }

    /// Why no node was feasible for the last such pod, if nothing has changed since.
    pub fn told_before(&self, cycle: Cycle<'_>) -> Option<Unschedulable> {
        let (at, why) = self.why.as_ref()?;
        (*at == cycle.snapshot.changes().next()).then(|| why.clone())
    }

    /// Why no node is feasible, from the refusals of single nodes; `None`: only the plain search can tell.
    pub fn tell(&mut self, cycle: Cycle<'_>, profile: &Profile, waits: Option<Waits>) -> Option<Unschedulable> {
        if self.refused || cycle.snapshot.node_count() == 0 || !self.is_local() {
            return None;
        }
        let local = self.filters.list.iter().filter(|filter| filter.is_local()).map(|filter| filter.copy());
        self.no_place.tell(cycle, profile, Filters { list: local.collect(), all: false }, waits)
    }

    /// Checks the node that a pod is nominated to. The cache of its template cannot tell: there the node is judged with
    /// this pod nominated to it, but the pod itself is not in its own way.
    pub fn check(&mut self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Refusal> {
        // A filter that lets all nodes pass as things are also lets them pass with the nominated pods.
        let mut active: Vec<_> = self.filters.list.iter_mut().filter(|filter| !filter.is_idle()).collect();
        if let Some(fuller) = with_nominated(cycle, node) {
            let nominated = &fuller.pods[node.pods.len()..];
            active.iter_mut().for_each(|filter| nominated.iter().for_each(|pod| filter.placed(cycle, pod, node.id)));
            let checked = active.iter().try_for_each(|filter| filter.check(cycle, &fuller));
            active.iter_mut().for_each(|filter| nominated.iter().for_each(|pod| filter.left(cycle, pod, node.id)));
            checked?;
        }
        active.iter().try_for_each(|filter| filter.check(cycle, node))
    }

    /// Remembers why no node is feasible, unless the plan changes something (victims, deallocation).
    pub fn remember_why(&mut self, cycle: Cycle<'_>, why: &Unschedulable) {
        let nothing_to_do = why.victims.is_none() && why.deallocate.is_none();
        self.why = nothing_to_do.then(|| (cycle.snapshot.changes().next(), why.clone()));
    }

    /// How much memory the cache takes, in multiples of the smallest cache.
    pub fn weight(&self) -> usize {
        1 + 4 * usize::from(self.no_place.len() > 0)
    }

    /// Whether the cache has groups of nodes: no plug-in refused the pods in `pre_filter`.
    pub fn is_of_use(&self) -> bool {
        !self.refused
    }

    pub fn will_do(&self, node: NodeId) -> bool {
        self.groups.contains(node)
    }

    /// The cached refusals and scores of nodes, for tests.
    pub fn recall(&self, cycle: Cycle<'_>, scored: &[NodeId]) -> Option<Recalled> {
        if self.refused {
            return None;
        }
        let mut filters = Filters { list: Vec::new(), all: false };
        filters.list =
            self.filters.list.iter().filter(|filter| !filter.is_idle()).map(|filter| filter.copy()).collect();
        let refused = cycle.snapshot.nodes().filter_map(|node| Some((node.id, filters.check(cycle, node).err()?)));
        let refused = refused.collect();
        let nodes: Vec<_> = scored.iter().map(|node| Alike::alone(*node)).collect();
        let scores = self.scores.iter().filter(|kept| !kept.score.is_idle()).map(|kept| {
            let mut scores = kept.score.scores(cycle, &nodes);
            kept.score.normalize(cycle, &nodes, &mut scores);
            scores
        });
        Some((refused, scores.collect()))
    }

    fn begin_anew(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        let snapshot = cycle.snapshot;
        self.begun += 1;
        self.seen = snapshot.changes().next();
        self.make_plugins(cycle, profile);
        self.groups = Groups::default();
        self.mark_count = self.marks_now();
        self.is_dirty = vec![false; snapshot.node_bound()];
        self.dirty.clear();
        self.no_place = NoPlace::default();
        if !self.refused {
            for node in snapshot.nodes() {
                self.judge(cycle, node.id);
            }
        }
    }

    fn make_plugins(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        self.filters.list.clear();
        self.refused = false;
        let (mut filters, mut scoring) = (Vec::new(), Vec::new());
        // A plug-in may refuse a pod in `pre_filter` without being enabled as a filter.
        for enabled in profile.at(Point::PreFilter) {
            if !profile.has(Point::Filter, enabled.plugin.name())
                && matches!(enabled.plugin.pre_filter(cycle), PreFilter::Refuse(_))
            {
                self.refused = true;
            }
        }
        for enabled in profile.at(Point::Filter) {
            match enabled.plugin.pre_filter(cycle) {
                PreFilter::Skip => {}
                PreFilter::Refuse(_) => self.refused = true,
                PreFilter::Judge(filter, only) => {
                    self.refused |= only.is_some();
                    self.filters.list.push(filter);
                    filters.push(enabled.plugin.name());
                }
            }
        }
        self.scores.clear();
        for enabled in profile.at(Point::Score) {
            if let Some(score) = enabled.plugin.score(cycle) {
                self.scores.push(Kept::new(score, enabled.weight));
                scoring.push(enabled.plugin.name());
            }
        }
        self.tally.renew(Tally::new(profile, &filters, &scoring));
    }

    /// Rebuilds the filters and scores that count pods over many nodes.
    fn count_anew(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        self.begun += 1;
        let plugins = |point: Point| profile.at(point).iter();
        let mut filters = plugins(Point::Filter).filter_map(|enabled| match enabled.plugin.pre_filter(cycle) {
            PreFilter::Judge(filter, _) => Some(filter),
            _ => None,
        });
        for own in &mut self.filters.list {
            let Some(made) = filters.next() else { break };
            if !own.is_local() || !made.is_local() {
                *own = made;
            }
        }
        let mut scores = plugins(Point::Score).filter_map(|enabled| enabled.plugin.score(cycle));
        for own in &mut self.scores {
            let Some(made) = scores.next() else { break };
            if !own.local {
                own.score = made;
            }
        }
    }

    /// Whether all filters that are not idle look at single nodes only.
    fn is_local(&self) -> bool {
        self.filters.list.iter().all(|filter| filter.is_local() || filter.is_idle())
    }

    /// Applies the changes since the last call.
    pub fn catch_up(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        let changes = cycle.snapshot.changes();
        let Some(since) = changes.since(self.seen) else { return self.begin_anew(cycle, profile) };
        let mut reshaped = Vec::new();
        for change in since {
            match change {
                Change::Placed(node, pod) => {
                    self.touch(*node);
                    self.filters.list.iter_mut().for_each(|filter| filter.placed(cycle, pod, *node));
                    self.scores.iter_mut().for_each(|kept| kept.score.placed(cycle, pod, *node));
                }
                Change::Left(node, pod) => {
                    self.touch(*node);
                    self.filters.list.iter_mut().for_each(|filter| filter.left(cycle, pod, *node));
                    self.scores.iter_mut().for_each(|kept| kept.score.left(cycle, pod, *node));
                }
                Change::Node(node) => self.touch(*node),
                Change::Reshaped(node) => {
                    self.touch(*node);
                    reshaped.push(*node);
                }
                Change::Pods(node) => self.no_place.pods_changed(*node),
                Change::Object(Kind::PodDisruptionBudget, _) => self.no_place.budgets_changed(),
                Change::Object(kind, key) => {
                    if rests_on(profile, cycle, *kind, key) {
                        return self.begin_anew(cycle, profile);
                    }
                }
            }
        }
        self.seen = changes.next();
        let follows = self.follow(cycle, reshaped);
        if !follows {
            self.count_anew(cycle, profile);
        }
        self.reshape(cycle, !follows);
        let dirty = std::mem::take(&mut self.dirty);
        for node in &dirty {
            self.is_dirty[*node] = false;
            self.judge(cycle, *node);
        }
        self.dirty = dirty;
        self.dirty.clear();
    }

    /// Moves the counts of nodes whose labels or taints changed to their new topology domains. `false`: the counts must
    /// be rebuilt.
    fn follow(&mut self, cycle: Cycle<'_>, mut reshaped: Vec<NodeId>) -> bool {
        reshaped.sort_unstable();
        reshaped.dedup();
        let (mut follows, mut touched) = (true, Vec::new());
        for node in reshaped {
            for filter in &mut self.filters.list {
                follows &= filter.reshaped(cycle, node, &mut touched);
            }
            for kept in &mut self.scores {
                follows &= kept.score.reshaped(cycle, node, &mut touched);
            }
        }
        touched.into_iter().for_each(|node| self.touch(node));
        follows
    }

    fn touch(&mut self, node: NodeId) {
        if node >= self.is_dirty.len() {
            self.is_dirty.resize(node + 1, false);
        }
        if !std::mem::replace(&mut self.is_dirty[node], true) {
            self.dirty.push(node);
        }
    }

    /// Checks and scores one node anew with the local plug-ins.
    fn judge(&mut self, cycle: Cycle<'_>, id: NodeId) {
        self.no_place.changed(id);
        let Some(node) = cycle.snapshot.node(id).filter(|node| self.passes_alone(cycle, node)) else {
            return self.groups.remove(id);
        };
        let (mut sum, mut marks) = (0i64, std::mem::take(&mut self.marks));
        marks.clear();
        for kept in self.scores.iter().filter(|kept| kept.local) {
            let raw = kept.score.score(cycle, node);
            if kept.is_scaled() {
                marks.push(raw);
            } else {
                sum = sum.saturating_add(raw.saturating_mul(kept.weight));
            }
        }
        self.mark(cycle, node, &mut marks);
        self.groups.put(id, sum, &marks);
        self.marks = marks;
    }

    /// Appends the marks of a node for plug-ins that look at more than one node: the number of marks that its nominated
    /// pods give, these marks, then the marks of each plug-in.
    fn mark(&self, cycle: Cycle<'_>, node: &NodeInfo, marks: &mut Vec<i64>) {
        let (own, mut nominated) = (marks.len(), nominated_before(cycle, node).peekable());
        marks.push(NONE_NOMINATED);
        if nominated.peek().is_some() {
            let pods: Vec<_> = nominated.collect();
            for filter in self.filters.list.iter().filter(|filter| !filter.is_local()) {
                filter.mark_nominated(cycle, node, &pods, marks);
            }
            marks[own] = (marks.len() - own - 1) as i64;
        }
        for filter in self.filters.list.iter().filter(|filter| !filter.is_local()) {
            filter.mark(node, marks);
        }
        for kept in self.scores.iter().filter(|kept| kept.looks_beyond()) {
            kept.score.mark(node, marks);
        }
    }

    fn marks_now(&self) -> usize {
        let filters = self.filters.list.iter().filter(|filter| !filter.is_local()).map(|filter| filter.mark_count());
        let scores = self.scores.iter().filter(|kept| kept.looks_beyond()).map(|kept| kept.score.mark_count());
        filters.chain(scores).sum()
    }

    /// Marks all nodes anew if the number of marks changed, or the counts behind the marks were rebuilt.
    fn reshape(&mut self, cycle: Cycle<'_>, counted_anew: bool) {
        let count = self.marks_now();
        let before = std::mem::replace(&mut self.mark_count, count);
        if before == count && !(counted_anew && count > 0) {
            return;
        }
        let own = self.scores.iter().filter(|kept| kept.is_scaled()).count();
        for node in cycle.snapshot.nodes() {
            let Some((score, known)) = self.groups.known(node.id) else { continue };
            let mut marks = known[..own].to_vec();
            self.mark(cycle, node, &mut marks);
            self.groups.put(node.id, score, &marks);
        }
    }

    fn passes_alone(&self, cycle: Cycle<'_>, node: &NodeInfo) -> bool {
        let passes = |node: &NodeInfo| {
            let mut local = self.filters.list.iter().enumerate().filter(|(_, filter)| filter.is_local());
            local.all(|(at, filter)| {
                self.tally.asked(at);
                filter.check(cycle, node).is_ok()
            })
        };
        passes(node) && with_nominated(cycle, node).is_none_or(|fuller| passes(&fuller))
    }

    /// The best of the first nodes of all groups; of several equal ones the node with the smallest number. `None`: no
    /// node is feasible.
    pub fn best(&mut self, cycle: Cycle<'_>) -> Option<NodeId> {
        if self.refused {
            return None;
        }
        let own = self.scores.iter().filter(|kept| kept.is_scaled()).count();
        let (mut nodes, mut totals, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        let looks_beyond = |filter: &dyn Filter| !filter.is_local() && !filter.is_idle();
        let filters = self.filters.list.iter_mut().enumerate();
        let mut filters: Vec<_> = filters.filter(|(_, filter)| looks_beyond(&***filter)).collect();
        for group in self.groups.iter() {
            self.compared += 1;
            let Some((sum, node)) = group.best() else { continue };
            let passes = filters.iter_mut().all(|(at, filter)| {
                self.tally.asked(*at);
                filter.passes(cycle, node)
                    && (group.marks[own] == NONE_NOMINATED || passes_with_nominated(cycle, &mut ***filter, node))
            });
            if passes {
                nodes.push(Alike { node, count: group.len() });
                totals.push(sum);
                raw.push(&group.marks[..own]);
            }
        }
        if nodes.len() > 1 {
            self.add_by_group(cycle, &nodes, &raw, &mut totals);
        }
        let best = totals.iter().zip(&nodes).map(|(total, alike)| (Reverse(*total), alike.node)).min();
        best.map(|(_, node)| node)
    }

    /// Adds the scores that are equal for all nodes of a group.
    fn add_by_group(&self, cycle: Cycle<'_>, nodes: &[Alike], raw: &[&[i64]], totals: &mut [i64]) {
        let mut add = |scores: &mut dyn Iterator<Item = i64>, weight: i64| {
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.saturating_mul(weight));
            }
        };
        for (at, kept) in self.scores.iter().filter(|kept| kept.is_scaled()).enumerate() {
            let most = raw.iter().map(|raw| raw[at]).max().unwrap_or(0);
            add(&mut raw.iter().map(|raw| kept.scale.apply(raw[at], most)), kept.weight);
        }
        for kept in self.scores.iter().filter(|kept| kept.looks_beyond() && !kept.score.is_idle()) {
            let mut scores = kept.score.scores(cycle, nodes);
            kept.score.normalize(cycle, nodes, &mut scores);
            add(&mut scores.into_iter(), kept.weight);
        }
    }
}

/// The mark of nodes without nominated pods that count for anything.
const NONE_NOMINATED: i64 = 0;

/// Whether a node passes a filter with the pods that are nominated to it.
fn passes_with_nominated(cycle: Cycle<'_>, filter: &mut dyn Filter, node: NodeId) -> bool {
    let Some(info) = cycle.snapshot.node(node) else { return false };
    let nominated: Vec<_> = nominated_before(cycle, info).collect();
    nominated.iter().for_each(|pod| filter.placed(cycle, pod, node));
    let passes = filter.passes(cycle, node);
    nominated.iter().for_each(|pod| filter.left(cycle, pod, node));
    passes
}

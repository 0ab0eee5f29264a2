//! What is remembered for the pods of one template.

use super::evaluations::Tally;
use super::groups::Groups;
use super::no_place::NoPlace;
use super::rests_on;
use crate::object::Kind;
use crate::plan::{Filters, Unschedulable};
use crate::plugin::{Alike, Cycle, Filter, Point, PreFilter, Scale, Score, unlike_all};
use crate::profile::Profile;
use crate::snapshot::changes::Change;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use std::cmp::Reverse;

pub(super) struct Memory {
    /// The turn in which it was last of use.
    pub used: u64,
    /// How many times it began anew since that was last asked.
    pub begun: u64,
    /// The number of the first change that it does not know of.
    seen: u64,
    node_count: usize,
    pub filters: Filters,
    pub tally: Tally,
    scores: Vec<Kept>,
    /// The nodes that will do by what plug-ins say about each alone, each with the sum of those scores that are its own.
    groups: Groups,
    /// How many marks nodes have, and whether those are set apart to which pods are nominated.
    shape: (usize, bool),
    dirty: Vec<NodeId>,
    is_dirty: Vec<bool>,
    /// Room for the marks of one node.
    marks: Vec<i64>,
    /// A plug-in refused the pod as such.
    refused: bool,
    /// Why there was no place, and after how many changes that was.
    why: Option<(u64, Unschedulable)>,
    no_place: NoPlace,
}

/// A score, with what is asked of it again and again.
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

    /// Whether its raw scores are marks of nodes: what they come to rests on the highest of those that will do.
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
            seen: 0,
            node_count: 0,
            filters: Filters { list: Vec::new(), all: false },
            tally: Tally::default(),
            scores: Vec::new(),
            groups: Groups::default(),
            shape: (0, false),
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

    /// Why a pod like this one found no place, if nothing has changed since.
    pub fn told_before(&self, cycle: Cycle<'_>) -> Option<Unschedulable> {
        let (at, why) = self.why.as_ref()?;
        (*at == cycle.snapshot.changes().next()).then(|| why.clone())
    }

    /// Why there is no place, from what is known of each node; `None`: only the plain search can tell.
    pub fn tell(&mut self, cycle: Cycle<'_>, profile: &Profile) -> Option<Unschedulable> {
        if self.refused || cycle.snapshot.node_count() == 0 || !self.is_local() {
            return None;
        }
        let local = self.filters.list.iter().filter(|filter| filter.is_local()).map(|filter| filter.copy());
        self.no_place.tell(cycle, profile, &Filters { list: local.collect(), all: false })
    }

    /// Remembers why there is no place, unless something is to be done about it.
    pub fn remember_why(&mut self, cycle: Cycle<'_>, why: &Unschedulable) {
        let nothing_to_do = why.victims.is_none() && why.deallocate.is_none();
        self.why = nothing_to_do.then(|| (cycle.snapshot.changes().next(), why.clone()));
    }

    /// How many numbers of nodes it holds, in terms of what it holds at least.
    pub fn weight(&self) -> usize {
        1 + 4 * usize::from(self.no_place.len() > 0)
    }

    /// How many groups are compared to find the best node.
    pub fn compared(&self) -> usize {
        self.groups.iter().count()
    }

    pub fn will_do(&self, node: NodeId) -> bool {
        self.groups.contains(node)
    }

    fn begin_anew(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        let snapshot = cycle.snapshot;
        self.begun += 1;
        self.seen = snapshot.changes().next();
        self.node_count = snapshot.node_count();
        self.make_plugins(cycle, profile);
        self.groups = Groups::default();
        self.shape = self.shape_now(cycle);
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
        // A plug-in may refuse a pod before nodes are looked at, and be no filter.
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

    /// Makes anew what counts pods by place.
    fn count_anew(&mut self, cycle: Cycle<'_>, profile: &Profile) {
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

    /// Learns what has changed, and says which node is best; `None`: none will do.
    pub fn best(&mut self, cycle: Cycle<'_>, profile: &Profile) -> Option<NodeId> {
        self.catch_up(cycle, profile);
        if self.refused {
            return None;
        }
        self.best_of_all(cycle)
    }

    /// Whether nodes will do by what filters say about each alone.
    fn is_local(&self) -> bool {
        self.filters.list.iter().all(|filter| filter.is_local() || filter.is_idle())
    }

    fn catch_up(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        let changes = cycle.snapshot.changes();
        let Some(since) = changes.since(self.seen) else { return self.begin_anew(cycle, profile) };
        let (mut count_anew, mut all_dirty) = (false, false);
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
                    count_anew = true;
                }
                Change::Image(image) => {
                    all_dirty |= self.scores.iter().any(|kept| kept.score.rests_on_image(image));
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
        if self.node_count != cycle.snapshot.node_count() {
            self.node_count = cycle.snapshot.node_count();
            all_dirty |= self.scores.iter().any(|kept| kept.score.rests_on_node_count(cycle));
        }
        if count_anew {
            self.count_anew(cycle, profile);
        }
        if all_dirty {
            (0..cycle.snapshot.node_bound()).for_each(|node| self.touch(node));
        }
        self.reshape(cycle, count_anew);
        let dirty = std::mem::take(&mut self.dirty);
        for node in &dirty {
            self.is_dirty[*node] = false;
            self.judge(cycle, *node);
        }
        self.dirty = dirty;
        self.dirty.clear();
    }

    fn touch(&mut self, node: NodeId) {
        if node >= self.is_dirty.len() {
            self.is_dirty.resize(node + 1, false);
        }
        if !std::mem::replace(&mut self.is_dirty[node], true) {
            self.dirty.push(node);
        }
    }

    /// Works out anew what plug-ins say about one node alone.
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

    /// Marks a node for those who look beyond single nodes.
    fn mark(&self, cycle: Cycle<'_>, node: &NodeInfo, marks: &mut Vec<i64>) {
        let apart = self.shape.1 && !cycle.snapshot.nominated_to(&node.node.name).is_empty();
        marks.push(if apart { unlike_all(node.id) } else { ALIKE });
        for filter in self.filters.list.iter().filter(|filter| !filter.is_local()) {
            filter.mark(node.id, marks);
        }
        for kept in self.scores.iter().filter(|kept| kept.looks_beyond()) {
            kept.score.mark(node.id, marks);
        }
    }

    fn shape_now(&self, cycle: Cycle<'_>) -> (usize, bool) {
        let filters = || self.filters.list.iter().filter(|filter| !filter.is_local());
        let scores = self.scores.iter().filter(|kept| kept.looks_beyond());
        let marks = filters().map(|filter| filter.mark_count()).sum::<usize>()
            + scores.map(|kept| kept.score.mark_count()).sum::<usize>();
        (marks, filters().any(|filter| !filter.is_idle()) && cycle.snapshot.nominations().next().is_some())
    }

    /// Marks those nodes anew whose marks are not what they would be now.
    fn reshape(&mut self, cycle: Cycle<'_>, counted_anew: bool) {
        let shape = self.shape_now(cycle);
        let before = std::mem::replace(&mut self.shape, shape);
        if before.1 != self.shape.1 {
            for name in cycle.snapshot.nominations() {
                if let Some(node) = cycle.snapshot.node_named(name) {
                    self.touch(node.id);
                }
            }
        }
        if before.0 == self.shape.0 && !(counted_anew && self.shape.0 > 0) {
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
        passes(node) && self.filters.nominated(cycle, node).is_none_or(|fuller| passes(&fuller))
    }

    /// The best of the best nodes of all groups; the first of them where several are.
    fn best_of_all(&self, cycle: Cycle<'_>) -> Option<NodeId> {
        let looks_beyond = |filter: &dyn Filter| !filter.is_local() && !filter.is_idle();
        let filters = self.filters.list.iter().map(|filter| &**filter).enumerate();
        let filters: Vec<(usize, &dyn Filter)> = filters.filter(|(_, filter)| looks_beyond(*filter)).collect();
        let passes = |node: NodeId| {
            filters.iter().all(|(at, filter)| {
                self.tally.asked(*at);
                filter.passes(cycle, node)
            })
        };
        // A filter that has nothing to say about the cluster as it is has nothing to say about nominated pods either.
        let active = self.filters.list.iter().filter(|filter| !filter.is_idle());
        let active = self.shape.1.then(|| Filters { list: active.map(|filter| filter.copy()).collect(), all: false });
        let own = self.scores.iter().filter(|kept| kept.is_scaled()).count();
        let (mut nodes, mut totals, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        for group in self.groups.iter() {
            let Some((sum, node)) = group.best() else { continue };
            let is_apart = group.marks[own] != ALIKE;
            let with_nominated =
                |active: &Filters| cycle.snapshot.node(node).is_some_and(|node| active.check(cycle, node).is_ok());
            if passes(node) && (!is_apart || active.as_ref().is_none_or(with_nominated)) {
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

    /// Adds those scores that are the same for all nodes of a group.
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

/// The mark of nodes to which no pod is nominated.
const ALIKE: i64 = -1;

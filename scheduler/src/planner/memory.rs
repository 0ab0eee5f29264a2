//! What is remembered for the pods of one template.

use super::no_place::NoPlace;
use super::rests_on;
use super::tournament::Tournament;
use crate::object::Kind;
use crate::plan::{Filters, Unschedulable};
use crate::plugin::{Cycle, Filter, Point, PreFilter, Scale, Score};
use crate::profile::Profile;
use crate::snapshot::changes::Change;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use std::collections::BTreeMap;

pub(super) struct Memory {
    /// The turn in which it was last of use.
    pub used: u64,
    /// How many times it began anew since that was last asked.
    pub begun: u64,
    /// The number of the first change that it does not know of.
    seen: u64,
    node_count: usize,
    pub filters: Filters,
    scores: Vec<Kept>,
    /// Which nodes will do by what plug-ins say about each alone.
    will_do: Vec<bool>,
    /// For each node, the sum of those scores that are its own.
    sums: Vec<i64>,
    /// The sums of all scores, in order of the nodes; kept while all scores are the nodes' own.
    totals: Option<Tournament>,
    dirty: Vec<NodeId>,
    is_dirty: Vec<bool>,
    /// A plug-in refused the pod as such.
    refused: bool,
    /// Why there was no place, and after how many changes that was.
    why: Option<(u64, Unschedulable)>,
    no_place: NoPlace,
}

/// A score with what it gave to each node.
struct Kept {
    score: Box<dyn Score>,
    weight: i64,
    scale: Scale,
    local: bool,
    /// The raw scores; kept where they must be scaled.
    raw: Vec<i64>,
    /// How many nodes that will do have which raw score; kept where scores are scaled by the highest.
    counts: BTreeMap<i64, usize>,
    /// The highest raw score with which `totals` were made.
    highest: i64,
}

impl Kept {
    fn new(score: Box<dyn Score>, weight: i64) -> Self {
        let (scale, local) = (score.scale(), score.is_local());
        Kept { score, weight, scale, local, raw: Vec::new(), counts: BTreeMap::new(), highest: 0 }
    }

    fn is_scaled(&self) -> bool {
        self.local && self.scale != Scale::AsItIs
    }

    fn now_highest(&self) -> i64 {
        self.counts.last_key_value().map_or(0, |(score, _)| *score)
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
            scores: Vec::new(),
            will_do: Vec::new(),
            sums: Vec::new(),
            totals: None,
            dirty: Vec::new(),
            is_dirty: Vec::new(),
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

    pub fn will_do(&self, node: NodeId) -> bool {
        self.will_do.get(node).copied().unwrap_or(false)
    }

    fn begin_anew(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        let snapshot = cycle.snapshot;
        self.begun += 1;
        self.seen = snapshot.changes().next();
        self.node_count = snapshot.node_count();
        self.make_plugins(cycle, profile);
        let bound = snapshot.node_bound();
        self.will_do = vec![false; bound];
        self.sums = vec![0; bound];
        self.is_dirty = vec![false; bound];
        self.dirty.clear();
        self.no_place = NoPlace::default();
        self.totals = None;
        for kept in &mut self.scores {
            kept.raw = if kept.is_scaled() { vec![0; bound] } else { Vec::new() };
            kept.counts.clear();
        }
        if !self.refused {
            for node in snapshot.nodes() {
                self.judge(cycle, node.id);
            }
        }
    }

    fn make_plugins(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        self.filters.list.clear();
        self.refused = false;
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
                }
            }
        }
        let scores = profile.at(Point::Score).iter();
        let scores = scores.filter_map(|enabled| Some(Kept::new(enabled.plugin.score(cycle)?, enabled.weight)));
        self.scores = scores.collect();
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
        let local = self.is_local() && self.scores.iter().all(|kept| kept.local || kept.score.is_idle());
        if local { self.best_by_totals() } else { self.best_of_all(cycle) }
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
                    self.mark(*node);
                    self.filters.list.iter_mut().for_each(|filter| filter.placed(cycle, pod, *node));
                    self.scores.iter_mut().for_each(|kept| kept.score.placed(cycle, pod, *node));
                }
                Change::Left(node, pod) => {
                    self.mark(*node);
                    self.filters.list.iter_mut().for_each(|filter| filter.left(cycle, pod, *node));
                    self.scores.iter_mut().for_each(|kept| kept.score.left(cycle, pod, *node));
                }
                Change::Node(node) => self.mark(*node),
                Change::Reshaped(node) => {
                    self.mark(*node);
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
            (0..cycle.snapshot.node_bound()).for_each(|node| self.mark(node));
        }
        let dirty = std::mem::take(&mut self.dirty);
        for node in &dirty {
            self.is_dirty[*node] = false;
            self.judge(cycle, *node);
        }
        self.dirty = dirty;
        self.dirty.clear();
    }

    fn mark(&mut self, node: NodeId) {
        if node >= self.is_dirty.len() {
            let bound = node + 1;
            self.is_dirty.resize(bound, false);
            self.will_do.resize(bound, false);
            self.sums.resize(bound, 0);
            for kept in self.scores.iter_mut().filter(|kept| kept.is_scaled()) {
                kept.raw.resize(bound, 0);
            }
            if self.totals.as_ref().is_some_and(|totals| totals.len() < bound) {
                self.totals = None;
            }
        }
        if !std::mem::replace(&mut self.is_dirty[node], true) {
            self.dirty.push(node);
        }
    }

    /// Works out anew what plug-ins say about one node alone.
    fn judge(&mut self, cycle: Cycle<'_>, id: NodeId) {
        self.no_place.changed(id);
        if self.will_do[id] {
            for kept in self.scores.iter_mut().filter(|kept| kept.is_scaled()) {
                uncount(&mut kept.counts, kept.raw[id]);
            }
        }
        let node = cycle.snapshot.node(id).filter(|node| self.passes_alone(cycle, node));
        self.will_do[id] = node.is_some();
        if let Some(node) = node {
            let mut sum = 0i64;
            for kept in self.scores.iter_mut().filter(|kept| kept.local) {
                let raw = kept.score.score(cycle, node);
                if kept.is_scaled() {
                    kept.raw[id] = raw;
                    *kept.counts.entry(raw).or_default() += 1;
                } else {
                    sum = sum.saturating_add(raw.saturating_mul(kept.weight));
                }
            }
            self.sums[id] = sum;
        }
        if self.totals.is_some() {
            let total = self.total(id);
            if let Some(totals) = &mut self.totals {
                totals.set(id, total);
            }
        }
    }

    fn passes_alone(&self, cycle: Cycle<'_>, node: &NodeInfo) -> bool {
        let passes = |node: &NodeInfo| {
            let mut local = self.filters.list.iter().filter(|filter| filter.is_local());
            local.all(|filter| filter.check(cycle, node).is_ok())
        };
        passes(node) && self.filters.nominated(cycle, node).is_none_or(|fuller| passes(&fuller))
    }

    /// The sum of a node's own scores, scaled by the highest that were known when `totals` were made.
    fn total(&self, node: NodeId) -> i64 {
        if !self.will_do[node] {
            return Tournament::OUT;
        }
        let scaled = self.scores.iter().filter(|kept| kept.is_scaled());
        scaled.fold(self.sums[node], |sum, kept| {
            sum.saturating_add(kept.scale.apply(kept.raw[node], kept.highest).saturating_mul(kept.weight))
        })
    }

    fn best_by_totals(&mut self) -> Option<NodeId> {
        let stale = self.scores.iter().any(|kept| kept.is_scaled() && kept.highest != kept.now_highest());
        if stale || self.totals.is_none() {
            for kept in &mut self.scores {
                kept.highest = kept.now_highest();
            }
            let totals: Vec<i64> = (0..self.will_do.len()).map(|node| self.total(node)).collect();
            self.totals = Some(Tournament::new(totals.into_iter()));
        }
        self.totals.as_ref()?.best()
    }

    /// Looks at all nodes that will do by themselves.
    fn best_of_all(&mut self, cycle: Cycle<'_>) -> Option<NodeId> {
        let filters: Vec<&dyn Filter> =
            self.filters.list.iter().map(|filter| &**filter).filter(|one| !one.is_local() && !one.is_idle()).collect();
        let mut nominated: Vec<NodeId> = Vec::new();
        for name in cycle.snapshot.nominations() {
            nominated.extend(cycle.snapshot.node_named(name).map(|node| node.id));
        }
        let mut nodes: Vec<NodeId> = Vec::with_capacity(self.will_do.len());
        for (id, _) in self.will_do.iter().enumerate().filter(|(_, will_do)| **will_do) {
            if filters.iter().all(|filter| filter.passes(cycle, id)) {
                nodes.push(id);
            }
        }
        if !nominated.is_empty() {
            // A filter that has nothing to say about the cluster as it is has nothing to say about nominated pods either.
            let active = self.filters.list.iter().filter(|filter| !filter.is_idle()).map(|filter| filter.copy());
            let active = Filters { list: active.collect(), all: false };
            let checked = |id: &NodeId| cycle.snapshot.node(*id).is_some_and(|node| active.check(cycle, node).is_ok());
            nodes.retain(|id| !nominated.contains(id) || checked(id));
        }
        if nodes.len() < 2 {
            return nodes.first().copied();
        }
        let mut totals: Vec<i64> = nodes.iter().map(|node| self.sums[*node]).collect();
        let mut add = |scores: &mut dyn Iterator<Item = i64>, weight: i64| {
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.saturating_mul(weight));
            }
        };
        for kept in &self.scores {
            if kept.is_scaled() {
                let most = nodes.iter().map(|node| kept.raw[*node]).max().unwrap_or(0);
                add(&mut nodes.iter().map(|node| kept.scale.apply(kept.raw[*node], most)), kept.weight);
            } else if !kept.local && !kept.score.is_idle() {
                let mut scores = kept.score.scores(cycle, &nodes);
                kept.score.normalize(cycle, &nodes, &mut scores);
                add(&mut scores.into_iter(), kept.weight);
            }
        }
        let mut best = 0;
        for (at, total) in totals.iter().enumerate() {
            if *total > totals[best] {
                best = at;
            }
        }
        Some(nodes[best])
    }
}

fn uncount(counts: &mut BTreeMap<i64, usize>, score: i64) {
    if let Some(count) = counts.get_mut(&score) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&score);
        }
    }
}

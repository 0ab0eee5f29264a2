//! Counts how often plug-ins are called.

use crate::plan::Plan;
use crate::plugin::Point;
use crate::profile::Profile;
use std::cell::Cell;
use std::collections::BTreeMap;

/// How often each plug-in was called at a point, by the number of the profile.
pub(super) type Evaluations = BTreeMap<(usize, Point, &'static str), u64>;

/// The counts for the pods of one template.
#[derive(Default)]
pub(super) struct Tally {
    /// How many pods were planned.
    pub plans: u64,
    /// Plug-ins that are called once for each planned pod, with the point.
    each: Vec<(Point, &'static str)>,
    /// Each filter, with how often it checked a node.
    filters: Vec<(&'static str, Cell<u64>)>,
    /// The counts from before the plug-ins changed.
    before: Vec<((Point, &'static str), u64)>,
}

impl Tally {
    /// A tally of these filters and scores that starts at 0.
    pub fn new(profile: &Profile, filters: &[&'static str], scores: &[&'static str]) -> Tally {
        let mut each: Vec<_> =
            profile.at(Point::PreFilter).iter().map(|enabled| (Point::PreFilter, enabled.plugin.name())).collect();
        each.extend(scores.iter().map(|name| (Point::Score, *name)));
        let prepares = |name: &&&str| profile.has(Point::PreScore, name);
        each.extend(scores.iter().filter(prepares).map(|name| (Point::PreScore, *name)));
        Tally {
            plans: 0,
            each,
            filters: filters.iter().map(|name| (*name, Cell::new(0))).collect(),
            before: Vec::new(),
        }
    }

    /// Changes to other plug-ins and keeps the counts so far.
    pub fn renew(&mut self, tally: Tally) {
        let mut evaluations = Evaluations::new();
        self.settle(0, &mut evaluations);
        *self = tally;
        self.before = evaluations.into_iter().map(|((_, point, name), count)| ((point, name), count)).collect();
    }

    /// Counts a filter's check of one node, or of a group of nodes with equal marks.
    pub fn asked(&self, filter: usize) {
        if let Some((_, count)) = self.filters.get(filter) {
            count.set(count.get().saturating_add(1));
        }
    }

    /// Moves the counts into `evaluations`, and starts again at 0.
    pub fn settle(&mut self, profile: usize, evaluations: &mut Evaluations) {
        for ((point, name), count) in self.before.drain(..) {
            *evaluations.entry((profile, point, name)).or_default() += count;
        }
        let plans = std::mem::take(&mut self.plans);
        for (point, name) in self.each.iter().filter(|_| plans > 0) {
            *evaluations.entry((profile, *point, name)).or_default() += plans;
        }
        for (name, count) in &self.filters {
            let count = count.take();
            if count > 0 {
                *evaluations.entry((profile, Point::Filter, name)).or_default() += count;
            }
        }
    }
}

/// Counts the calls of a plan that was made without the cache.
pub(super) fn count_plain(number: usize, profile: &Profile, plan: &Plan, evaluations: &mut Evaluations) {
    let mut count = |point: Point, name: &'static str, by: usize| {
        if by > 0 {
            *evaluations.entry((number, point, name)).or_default() += by as u64;
        }
    };
    let explanation = &plan.explanation;
    for enabled in profile.at(Point::PreFilter) {
        count(Point::PreFilter, enabled.plugin.name(), 1);
    }
    // A filter was called only for nodes that the filters before it let pass.
    let mut nodes = explanation.feasible.len() + explanation.diagnosis.refused.len();
    for enabled in profile.at(Point::Filter) {
        let name = enabled.plugin.name();
        if !explanation.skipped.contains(&name) {
            count(Point::Filter, name, nodes);
        }
        nodes -= explanation.diagnosis.refused.iter().filter(|(_, refusal)| refusal.plugin == name).count().min(nodes);
    }
    for scores in &explanation.scores {
        count(Point::Score, scores.plugin, 1);
        if profile.has(Point::PreScore, scores.plugin) {
            count(Point::PreScore, scores.plugin, 1);
        }
    }
}

//! Counts the calls of plug-ins, for metrics.

use crate::plan::Plan;
use crate::plugin::ExtensionPoint;
use crate::profile::Profile;
use std::cell::Cell;
use std::collections::BTreeMap;

/// How many times each plug-in was called: by the profile's number, the point and the plug-in's name.
pub(super) type Evaluations = BTreeMap<(usize, ExtensionPoint, &'static str), u64>;

/// The counts of calls for the pods of one template.
#[derive(Default)]
pub(super) struct EvaluationTally {
    /// How many pods of the template were planned.
    pub plans: u64,
    /// The plug-ins that are called once for each planned pod, each with the point at which it is called.
    each: Vec<(ExtensionPoint, &'static str)>,
    /// Each filter, and how many times it checked a node.
    filters: Vec<(&'static str, Cell<u64>)>,
    /// The counts of the plug-ins that were used before [`EvaluationTally::replace_plugins`].
    before: Vec<((ExtensionPoint, &'static str), u64)>,
}

impl EvaluationTally {
    /// A tally for a profile with these filters and scores, with all counts at 0.
    pub fn new(profile: &Profile, filters: &[&'static str], scores: &[&'static str]) -> EvaluationTally {
        let mut each: Vec<_> = profile
            .at(ExtensionPoint::PreFilter)
            .iter()
            .map(|enabled| (ExtensionPoint::PreFilter, enabled.plugin.name()))
            .collect();
        each.extend(scores.iter().map(|name| (ExtensionPoint::Score, *name)));
        let pre_scores = |name: &&&str| profile.has(ExtensionPoint::PreScore, name);
        each.extend(scores.iter().filter(pre_scores).map(|name| (ExtensionPoint::PreScore, *name)));
        EvaluationTally {
            plans: 0,
            each,
            filters: filters.iter().map(|name| (*name, Cell::new(0))).collect(),
            before: Vec::new(),
        }
    }

    /// Counts the plug-ins of `tally` from now on, and keeps the counts so far.
    pub fn replace_plugins(&mut self, tally: EvaluationTally) {
        let mut evaluations = Evaluations::new();
        self.flush_into(0, &mut evaluations);
        *self = tally;
        self.before = evaluations.into_iter().map(|((_, point, name), count)| ((point, name), count)).collect();
    }

    /// Counts that a filter checked one node, or a group of nodes with equal marks.
    pub fn count_check(&self, filter: usize) {
        if let Some((_, count)) = self.filters.get(filter) {
            count.set(count.get().saturating_add(1));
        }
    }

    /// Moves all counts into `evaluations` and sets them to 0.
    pub fn flush_into(&mut self, profile: usize, evaluations: &mut Evaluations) {
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
                *evaluations.entry((profile, ExtensionPoint::Filter, name)).or_default() += count;
            }
        }
    }
}

/// Counts the calls of plug-ins for a plan that was made without the cache.
pub(super) fn count_uncached(number: usize, profile: &Profile, plan: &Plan, evaluations: &mut Evaluations) {
    let mut count = |point: ExtensionPoint, name: &'static str, by: usize| {
        if by > 0 {
            *evaluations.entry((number, point, name)).or_default() += by as u64;
        }
    };
    let explanation = &plan.explanation;
    for enabled in profile.at(ExtensionPoint::PreFilter) {
        count(ExtensionPoint::PreFilter, enabled.plugin.name(), 1);
    }
    // A filter was called only for nodes that the filters before it did not reject.
    let mut nodes = explanation.feasible.len() + explanation.diagnosis.rejected.len();
    for enabled in profile.at(ExtensionPoint::Filter) {
        let name = enabled.plugin.name();
        if !explanation.skipped.contains(&name) {
            count(ExtensionPoint::Filter, name, nodes);
        }
        nodes -=
            explanation.diagnosis.rejected.iter().filter(|(_, rejection)| rejection.plugin == name).count().min(nodes);
    }
    for scores in &explanation.scores {
        count(ExtensionPoint::Score, scores.plugin, 1);
        if profile.has(ExtensionPoint::PreScore, scores.plugin) {
            count(ExtensionPoint::PreScore, scores.plugin, 1);
        }
    }
}

//! Plug-ins that only configurations of earlier versions and Policies can name.

use super::allocation::{self, ResourceWeight, ScoredResource, Strategy};
use super::default_selector::{self, default_selector};
use crate::object::labels::Labels;
use crate::object::selector::Selector;
use crate::object::{Key, Kind, Text};
use crate::plugin::{EqualNodes, Filter, FilterFn, MAX_SCORE, Plugin, PreFilterResult, SchedulingCycle, Score};
use crate::snapshot::node_info::NodeInfo;
use crate::status::Rejection;
use std::collections::HashMap;

pub const SELECTOR_SPREAD: &str = "SelectorSpread";
pub const NODE_PREFER_AVOID_PODS: &str = "NodePreferAvoidPods";
pub const NODE_LABEL: &str = "NodeLabel";

/// SelectorSpread: spreads the pods of one Service or owner over nodes, and with more weight over zones.
#[derive(Debug)]
pub struct SelectorSpread;

impl Plugin for SelectorSpread {
    fn name(&self) -> &'static str {
        SELECTOR_SPREAD
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let template = &cycle.pod.template;
        let selector = default_selector(cycle.snapshot.selectors(), template);
        template.spread.is_empty().then(|| Box::new(SelectorSpreadScore(selector)) as Box<dyn Score>)
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, key: &Key) -> bool {
        cycle.pod.template.spread.is_empty() && default_selector::depends_on(&cycle.pod.template, kind, key)
    }
}

struct SelectorSpreadScore(Selector);

/// The region and the zone of a node, by the present labels, or else by the labels of earlier versions.
fn zone(labels: &Labels) -> Option<(Option<&Text>, Option<&Text>)> {
    let of = |today: &str, old: &str| labels.get(today).or_else(|| labels.get(old));
    let region = of("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region");
    let zone = of("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    (region.is_some() || zone.is_some()).then_some((region, zone))
}

impl Score for SelectorSpreadScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        if self.0.is_everything() {
            return 0;
        }
        let counts = node.pods.iter().filter(|pod| {
            pod.namespace() == cycle.pod.namespace() && !pod.deleting && self.0.matches(&pod.template.labels)
        });
        i64::try_from(counts.count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, cycle: SchedulingCycle<'_>, nodes: &[EqualNodes], scores: &mut [i64]) {
        let zone = |group: &EqualNodes| cycle.snapshot.node(group.node).and_then(|node| zone(&node.node.labels));
        let most = scores.iter().copied().max().unwrap_or(0);
        let mut zones: HashMap<_, i64> = HashMap::new();
        for (node, score) in nodes.iter().zip(scores.iter()) {
            if let Some(zone) = zone(node) {
                *zones.entry(zone).or_default() += score;
            }
        }
        let most_of_zone = zones.values().copied().max().unwrap_or(0);
        let part = |most: i64, own: i64| if most > 0 { 100.0 * ((most - own) as f64 / most as f64) } else { 100.0 };
        for (node, score) in nodes.iter().zip(scores) {
            let of_node = part(most, *score);
            let of_zone = zone(node).map(|zone| part(most_of_zone, zones[&zone]));
            *score = of_zone.map_or(of_node, |of_zone| of_node / 3.0 + of_zone * (2.0 / 3.0)) as i64;
        }
    }

    fn is_local(&self) -> bool {
        false
    }
}

/// NodePreferAvoidPods: prefers nodes whose annotation does not list the pod's controller among the controllers whose
/// pods should avoid the node.
#[derive(Debug)]
pub struct NodePreferAvoidPods;

impl Plugin for NodePreferAvoidPods {
    fn name(&self) -> &'static str {
        NODE_PREFER_AVOID_PODS
    }

    fn score(&self, _: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(AvoidPodsScore))
    }
}

struct AvoidPodsScore;

impl Score for AvoidPodsScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let avoided = cycle.pod.template.controller.as_ref().is_some_and(|owner| {
            matches!(&*owner.kind, "ReplicationController" | "ReplicaSet")
                && node.node.avoided.iter().any(|(kind, uid)| *kind == owner.kind && *uid == owner.uid)
        });
        if avoided { 0 } else { MAX_SCORE }
    }
}

/// NodeLabel: labels that a node must have or must not have, and labels that a node should have or should not have.
#[derive(Debug, Default, Clone)]
pub struct NodeLabel {
    pub present: Vec<Text>,
    pub absent: Vec<Text>,
    pub present_preferred: Vec<Text>,
    pub absent_preferred: Vec<Text>,
}

impl Plugin for NodeLabel {
    fn name(&self) -> &'static str {
        NODE_LABEL
    }

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        if self.present.is_empty() && self.absent.is_empty() {
            return PreFilterResult::filter(FilterFn(|_, _| Ok(())));
        }
        PreFilterResult::filter(self.clone())
    }

    fn score(&self, _: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(self.clone()))
    }
}

impl Filter for NodeLabel {
    fn check(&self, _: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let has = |label: &Text| node.node.labels.get(label).is_some();
        if self.present.iter().all(has) && !self.absent.iter().any(has) {
            return Ok(());
        }
        Err(Rejection::unresolvable(NODE_LABEL, "node(s) didn't have the requested labels"))
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

impl Score for NodeLabel {
    fn score(&self, _: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let has = |label: &&Text| node.node.labels.get(label).is_some();
        let right = self.present_preferred.iter().filter(has).count()
            + self.absent_preferred.iter().filter(|label| !has(label)).count();
        let all = self.present_preferred.len() + self.absent_preferred.len();
        i64::try_from(100 * right / all.max(1)).unwrap_or(0)
    }
}

pub const RESOURCE_LIMITS: &str = "NodeResourceLimits";

/// ResourceLimits: gives one point to a node whose allocatable CPU covers the pod's CPU limit, or whose allocatable
/// memory covers the pod's memory limit.
#[derive(Debug)]
pub struct ResourceLimits;

impl Plugin for ResourceLimits {
    fn name(&self) -> &'static str {
        RESOURCE_LIMITS
    }

    fn score(&self, _: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(LimitsScore))
    }
}

struct LimitsScore;

impl Score for LimitsScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let (limits, there) = (&cycle.pod.template.limits, &node.node.allocatable);
        let fits = |limit: i64, there: i64| limit != 0 && limit <= there;
        i64::from(fits(limits.milli_cpu, there.milli_cpu) || fits(limits.memory, there.memory))
    }
}

pub const LEAST_ALLOCATED: &str = "NodeResourcesLeastAllocated";
pub const MOST_ALLOCATED: &str = "NodeResourcesMostAllocated";
pub const REQUESTED_TO_CAPACITY_RATIO: &str = "RequestedToCapacityRatio";

/// One of the scores by allocation under the name that earlier configurations use for it. In version v1 it is a
/// strategy of NodeResourcesFit.
#[derive(Debug)]
pub struct AllocationPlugin {
    pub name: &'static str,
    pub strategy: Strategy,
    pub resources: Vec<ResourceWeight>,
}

impl Plugin for AllocationPlugin {
    fn name(&self) -> &'static str {
        self.name
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let resources = ScoredResource::for_pod(cycle, &self.resources, &cycle.pod.template.non_zero_requests);
        Some(Box::new(AllocationScore { strategy: self.strategy.clone(), resources }))
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        allocation::depends_on(cycle, &self.resources, kind)
    }
}

struct AllocationScore {
    strategy: Strategy,
    resources: Vec<ScoredResource>,
}

impl Score for AllocationScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        self.strategy.score(cycle, &self.resources, node, &cycle.pod.template.non_zero_requests)
    }
}

//! Makes the same decisions as [`crate::plan::plan`], but keeps results in a cache from one pod to the next.
//!
//! Pods of one template get equal answers, so the feasible nodes and their scores are computed once, and updated by
//! later changes. The answers of local plug-ins, which look at a node and the pod alone, are cached for each node, so
//! an event on one node costs the work of one node. Plug-ins that count pods over many nodes keep counts by topology
//! domain; the counts are adjusted when a node is added, removed or relabelled. Such a plug-in is asked once for each
//! group of nodes with equal marks.

mod evaluations;
mod groups;
mod infeasible;
mod template_cache;

use crate::object::pod::Pod;
use crate::object::{Key, Kind};
use crate::plan::{Explanation, Plan, PlanOutcome, Unschedulable, plan};
use crate::plugin::{ExtensionPoint, Plugin, SchedulingCycle};
use crate::plugins::default_preemption;
use crate::plugins::node_affinity::named_nodes;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::snapshot::assume::Reservation;
use crate::snapshot::node_info::NodeId;
use crate::status::Rejection;
use evaluations::{Evaluations, count_uncached};
use infeasible::NominatedPod;
use std::collections::{BTreeMap, HashMap};
use template_cache::TemplateCache;

/// The key of the cache. Pods with equal keys get equal answers: they have one profile, template, priority and
/// preemption policy. The priority matters because a pod respects nominated pods of at least its own priority, and
/// preempts pods of lower priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CacheKey {
    profile: usize,
    template: u64,
    priority: i64,
    never_preempts: bool,
}

impl CacheKey {
    fn of(profile: usize, pod: &Pod) -> Self {
        let Pod { template_id: template, priority, never_preempts, .. } = *pod;
        CacheKey { profile, template, priority, never_preempts }
    }
}

/// The results in the cache of a template: the rejected nodes with their rejections, and, plug-in by plug-in, the
/// scores of the requested nodes.
pub type CachedResults = (Vec<(NodeId, Rejection)>, Vec<Vec<i64>>);

#[derive(Default)]
pub struct Planner {
    caches: HashMap<CacheKey, TemplateCache>,
    plans_made: u64,
    /// How many times all nodes were checked for the pods of a template.
    full_evaluations: u64,
    /// How many groups of nodes were compared to find the best node.
    groups_compared: u64,
    evaluations: Evaluations,
}

/// How many entries the caches of all templates may have together. One entry is the state of one node for one template.
const CACHE_ENTRIES_MAX: usize = 8 << 20;

impl Planner {
    pub fn new() -> Self {
        Planner::default()
    }

    /// Chooses a node for a pod, or returns why no node is feasible and which pods to evict. `profile` is the profile
    /// with its number; in every call, a number must stand for the same profile.
    pub fn plan(&mut self, snapshot: &Snapshot, profile: (usize, &Profile), pod: &Pod) -> Plan {
        let (number, profile) = profile;
        let names_nodes = pod.template.node_affinity.as_ref().is_some_and(|terms| named_nodes(terms).is_some());
        // Plan without the cache where its result would not be reused: affinity or the pod itself names nodes, the pod
        // uses ResourceClaims (each allocation changes what is left), its preferences do not parse, or the profile runs
        // every filter on a node, even after one has rejected it.
        let uses_devices = !pod.template.claims.is_empty() || snapshot.devices().extended_claim(&pod.uid).is_some();
        let has_invalid_preferences = !pod.template.preference_errors.is_empty();
        if names_nodes || uses_devices || has_invalid_preferences || pod.node_name.is_some() || profile.check_all {
            return self.plan_uncached(snapshot, (number, profile), pod);
        }
        if pod.nominated.is_some() {
            return self.plan_nominated(snapshot, (number, profile), pod);
        }
        let cycle = SchedulingCycle { snapshot, pod };
        let cached = self.with_cache(cycle, (number, profile), |cache| {
            let best = cache.best(cycle);
            if let Some(plan) = best.and_then(|node| bind_plan(cycle, cache, node)) {
                return Some(plan);
            }
            if let Some(unschedulable) = cache.cached_failure(cycle) {
                return Some(unschedulable_plan(unschedulable));
            }
            let unschedulable = if best.is_none() { cache.explain(cycle, profile, None)? } else { return None };
            cache.cache_failure(cycle, &unschedulable);
            Some(unschedulable_plan(unschedulable))
        });
        cached.unwrap_or_else(|| {
            let plan = self.plan_uncached(snapshot, (number, profile), pod);
            if let (PlanOutcome::Unschedulable(why), Some(cache)) =
                (&plan.outcome, self.caches.get_mut(&CacheKey::of(number, pod)))
            {
                cache.cache_failure(cycle, why);
            }
            plan
        })
    }

    /// Like [`Planner::plan`], for a pod that is nominated to a node: that node is tried first. In the cache of the
    /// pod's template the pod itself counts as a pod that is nominated to the node, so the node is checked without the
    /// cache.
    fn plan_nominated(&mut self, snapshot: &Snapshot, (number, profile): (usize, &Profile), pod: &Pod) -> Plan {
        let template_pod = Pod { uid: "".into(), nominated: None, ..pod.clone() };
        let (cycle, template_cycle) =
            (SchedulingCycle { snapshot, pod }, SchedulingCycle { snapshot, pod: &template_pod });
        let node = pod.nominated.as_ref().and_then(|name| snapshot.node_named(name));
        let cached = self.with_cache(template_cycle, (number, profile), |cache| {
            let node = node.filter(|_| cache.has_groups())?;
            let Err(rejection) = cache.check(cycle, node) else { return bind_plan(cycle, cache, node.id) };
            if let Some(best) = cache.best(template_cycle) {
                return bind_plan(cycle, cache, best).filter(|_| best != node.id);
            }
            let why = default_preemption::ineligible_reason(cycle, Some(rejection.code))?;
            cache
                .explain(template_cycle, profile, Some(NominatedPod { node: node.id, rejection, why }))
                .map(unschedulable_plan)
        });
        cached.unwrap_or_else(|| self.plan_uncached(snapshot, (number, profile), pod))
    }

    /// Brings the cache for the [`CacheKey`] of this pod up to date, and calls `use_cache` with it.
    fn with_cache<T>(
        &mut self,
        cycle: SchedulingCycle<'_>,
        (number, profile): (usize, &Profile),
        use_cache: impl FnOnce(&mut TemplateCache) -> T,
    ) -> T {
        self.plans_made += 1;
        self.evict_caches(cycle.snapshot);
        let key = CacheKey::of(number, cycle.pod);
        let cache = self.caches.entry(key).or_insert_with(|| TemplateCache::new(cycle, profile));
        cache.last_used = self.plans_made;
        cache.tally.plans += 1;
        cache.catch_up(cycle, profile);
        let result = use_cache(cache);
        self.full_evaluations += std::mem::take(&mut cache.rebuilds);
        self.groups_compared += std::mem::take(&mut cache.groups_compared);
        result
    }

    fn plan_uncached(&mut self, snapshot: &Snapshot, (number, profile): (usize, &Profile), pod: &Pod) -> Plan {
        let plan = plan(snapshot, profile, pod);
        count_uncached(number, profile, &plan, &mut self.evaluations);
        plan
    }

    /// How many times each plug-in was called: by the profile's number, the point and the plug-in's name. A filter is
    /// called once for each changed node, or once for a group of nodes; any other plug-in once for each pod.
    pub fn evaluations(&mut self) -> &BTreeMap<(usize, ExtensionPoint, &'static str), u64> {
        for (key, cache) in &mut self.caches {
            cache.tally.flush_into(key.profile, &mut self.evaluations);
        }
        &self.evaluations
    }

    /// Whether a node is feasible for a pod according to the cache, for tests that compare the cache with the plain
    /// search.
    pub fn is_cached_feasible(&self, profile: usize, pod: &Pod, node: NodeId) -> Option<bool> {
        Some(self.caches.get(&CacheKey::of(profile, pod))?.is_feasible(node))
    }

    /// The cached rejections of nodes for a pod, and each scoring plug-in's scores of the nodes in `scored`, for tests
    /// that compare the cache with the plain search. Returns `None` if nothing is cached.
    pub fn cached_results(
        &self,
        profile: usize,
        cycle: SchedulingCycle<'_>,
        scored: &[NodeId],
    ) -> Option<CachedResults> {
        self.caches.get(&CacheKey::of(profile, cycle.pod))?.cached_results(cycle, scored)
    }

    fn weight_exceeds(&self, most: usize) -> bool {
        self.caches.len() > (most / CACHE_WEIGHT_MAX).max(8)
            && self.caches.values().map(TemplateCache::weight).sum::<usize>() > most
    }

    /// How many times all nodes and their pods were checked for a template: once when the template is first planned,
    /// and again after each change that cannot be applied to the cache step by step.
    pub fn full_evaluations(&self) -> u64 {
        self.full_evaluations
    }

    /// How many groups of nodes were compared. For each planned pod the number grows by the groups that exist for its
    /// template: there are more groups if there are more topology domains and more different counts, but not if there
    /// are more nodes.
    pub fn groups_compared(&self) -> u64 {
        self.groups_compared
    }

    /// Drops the least recently used caches, if there are too many.
    fn evict_caches(&mut self, snapshot: &Snapshot) {
        let most = (CACHE_ENTRIES_MAX / snapshot.node_bound().max(1)).clamp(8, 256);
        while self.caches.len() > most || self.weight_exceeds(most) {
            let oldest = self.caches.iter().min_by_key(|(_, cache)| cache.last_used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            if let Some(mut cache) = self.caches.remove(&oldest) {
                cache.tally.flush_into(oldest.profile, &mut self.evaluations);
            }
        }
    }
}

/// The largest value that [`TemplateCache::weight`] returns.
const CACHE_WEIGHT_MAX: usize = 5;

/// The plan to bind the pod to a node; `None` if a plug-in cannot reserve the volumes or devices that the pod needs
/// there.
fn bind_plan(cycle: SchedulingCycle<'_>, cache: &TemplateCache, node: NodeId) -> Option<Plan> {
    let node = cycle.snapshot.node(node)?;
    let mut reservation = Reservation::default();
    for filter in &cache.filters.list {
        filter.reserve(cycle, node, &mut reservation).ok()?;
    }
    let outcome = PlanOutcome::Bind { node: node.node.name.clone(), reservation };
    Some(Plan { outcome, explanation: Explanation::default() })
}

fn unschedulable_plan(why: Unschedulable) -> Plan {
    Plan { outcome: PlanOutcome::Unschedulable(why), explanation: Explanation::default() }
}

/// Whether the cached answers of a profile's plug-ins for pods of this template depend on this object.
fn depends_on(profile: &Profile, cycle: SchedulingCycle<'_>, kind: Kind, key: &Key) -> bool {
    let reads = |plugin: &dyn Plugin| plugin.depends_on(cycle, kind, key);
    profile.points.values().flatten().any(|enabled| reads(&*enabled.plugin))
}

//! The decisions of [`crate::plan::plan`], made from a cache that is kept from pod to pod.
//!
//! Pods of one template get equal answers: which nodes are feasible, and how well each scores, is computed once and
//! updated by the changes since. The answers of local plug-ins, which look at a node and the pod alone, are cached for
//! each node, so an event on one node costs the work of one node. Plug-ins that count pods over many nodes keep counts
//! by topology domain; these are adjusted when a node is added, removed or relabelled, and evaluated once for each
//! group of nodes with equal marks.

mod evaluations;
mod groups;
mod memory;
mod no_place;

use crate::object::pod::Pod;
use crate::object::{Key, Kind};
use crate::plan::{Explanation, Outcome, Plan, Unschedulable, plan};
use crate::plugin::{Cycle, Plugin, Point};
use crate::plugins::default_preemption;
use crate::plugins::node_affinity::named_nodes;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::snapshot::assume::Promise;
use crate::snapshot::node_info::NodeId;
use crate::status::Refusal;
use evaluations::{Evaluations, count_plain};
use memory::Memory;
use no_place::Waits;
use std::collections::{BTreeMap, HashMap};

/// The key of the cache. Pods with equal keys get equal answers: they have one profile, template, priority and
/// preemption policy. The priority matters because a pod respects nominated pods of at least its own priority, and
/// preempts pods of lower priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Likeness {
    profile: usize,
    template: u64,
    priority: i64,
    never_preempts: bool,
}

impl Likeness {
    fn of(profile: usize, pod: &Pod) -> Self {
        let Pod { template_id: template, priority, never_preempts, .. } = *pod;
        Likeness { profile, template, priority, never_preempts }
    }
}

/// What the cache holds: the refused nodes with their refusals, and each scoring plug-in's scores of the nodes in
/// question.
pub type Recalled = (Vec<(NodeId, Refusal)>, Vec<Vec<i64>>);

#[derive(Default)]
pub struct Planner {
    memories: HashMap<Likeness, Memory>,
    turn: u64,
    /// How often all nodes were checked for a template.
    judged_all: u64,
    /// How many groups of nodes were compared.
    compared: u64,
    evaluations: Evaluations,
}

/// The bound of the cache: entries of one node for one template.
const MAX_CELLS: usize = 8 << 20;

impl Planner {
    pub fn new() -> Self {
        Planner::default()
    }

    /// Chooses a node for a pod, or says why none is feasible and what can be done about it. `profile` is the profile
    /// with its number; a number must mean the same profile in every call.
    pub fn plan(&mut self, snapshot: &Snapshot, profile: (usize, &Profile), pod: &Pod) -> Plan {
        let (number, profile) = profile;
        let by_name = pod.template.node_affinity.as_ref().is_some_and(|terms| named_nodes(terms).is_some());
        // Plan without the cache where its result would not be reused: affinity or the pod itself names nodes, the pod
        // uses ResourceClaims (each allocation changes what is left), its preferences do not parse, or the profile
        // checks all nodes.
        let is_alone = !pod.template.claims.is_empty() || snapshot.extended_claim(&pod.uid).is_some();
        let is_wrong = !pod.template.preference_faults.is_empty();
        if by_name || is_alone || is_wrong || pod.node_name.is_some() || profile.check_all {
            return self.plain(snapshot, (number, profile), pod);
        }
        if pod.nominated.is_some() {
            return self.plan_nominated(snapshot, (number, profile), pod);
        }
        let cycle = Cycle { snapshot, pod };
        let found = self.remembered(cycle, (number, profile), |memory| {
            let best = memory.best(cycle);
            if let Some(plan) = best.and_then(|node| bind(cycle, memory, node)) {
                return Some(plan);
            }
            if let Some(told) = memory.told_before(cycle) {
                return Some(unschedulable(told));
            }
            let told = if best.is_none() { memory.tell(cycle, profile, None)? } else { return None };
            memory.remember_why(cycle, &told);
            Some(unschedulable(told))
        });
        found.unwrap_or_else(|| {
            let plan = self.plain(snapshot, (number, profile), pod);
            if let (Outcome::Unschedulable(why), Some(memory)) =
                (&plan.outcome, self.memories.get_mut(&Likeness::of(number, pod)))
            {
                memory.remember_why(cycle, why);
            }
            plan
        })
    }

    /// As [`Planner::plan`], for a pod that is nominated to a node, which is tried first. In the cache of the pod's
    /// template the pod's own nomination counts against the node, so that node is checked apart from the cache.
    fn plan_nominated(&mut self, snapshot: &Snapshot, (number, profile): (usize, &Profile), pod: &Pod) -> Plan {
        let like_it = Pod { uid: "".into(), nominated: None, ..pod.clone() };
        let (cycle, alike) = (Cycle { snapshot, pod }, Cycle { snapshot, pod: &like_it });
        let node = pod.nominated.as_ref().and_then(|name| snapshot.node_named(name));
        let found = self.remembered(alike, (number, profile), |memory| {
            let node = node.filter(|_| memory.is_of_use())?;
            let Err(refusal) = memory.check(cycle, node) else { return bind(cycle, memory, node.id) };
            if let Some(best) = memory.best(alike) {
                return bind(cycle, memory, best).filter(|_| best != node.id);
            }
            let why = default_preemption::may_not(cycle, Some(refusal.code))?;
            memory.tell(alike, profile, Some(Waits { node: node.id, refusal, why })).map(unschedulable)
        });
        found.unwrap_or_else(|| self.plain(snapshot, (number, profile), pod))
    }

    /// Calls `show` with the up-to-date cache for pods like this one.
    fn remembered<T>(
        &mut self,
        cycle: Cycle<'_>,
        (number, profile): (usize, &Profile),
        show: impl FnOnce(&mut Memory) -> T,
    ) -> T {
        self.turn += 1;
        self.make_room(cycle.snapshot);
        let likeness = Likeness::of(number, cycle.pod);
        let memory = self.memories.entry(likeness).or_insert_with(|| Memory::new(cycle, profile));
        memory.used = self.turn;
        memory.tally.plans += 1;
        memory.catch_up(cycle, profile);
        let shown = show(memory);
        self.judged_all += std::mem::take(&mut memory.begun);
        self.compared += std::mem::take(&mut memory.compared);
        shown
    }

    fn plain(&mut self, snapshot: &Snapshot, (number, profile): (usize, &Profile), pod: &Pod) -> Plan {
        let plan = plan(snapshot, profile, pod);
        count_plain(number, profile, &plan, &mut self.evaluations);
        plan
    }

    /// How often each plug-in was called at a point, by the number of the profile. Filters are called once for each
    /// changed node, or once for a group of nodes; the others once for each pod.
    pub fn evaluations(&mut self) -> &BTreeMap<(usize, Point, &'static str), u64> {
        for (likeness, memory) in &mut self.memories {
            memory.tally.settle(likeness.profile, &mut self.evaluations);
        }
        &self.evaluations
    }

    /// Whether the cache says that a node is feasible for a pod, for tests that compare the cache with the plain
    /// search.
    pub fn remembers(&self, profile: usize, pod: &Pod, node: NodeId) -> Option<bool> {
        Some(self.memories.get(&Likeness::of(profile, pod))?.will_do(node))
    }

    /// The cached refusals of nodes for a pod, and each scoring plug-in's scores of the nodes in `scored`, for tests
    /// that compare the cache with the plain search. `None`: nothing is cached.
    pub fn recalls(&self, profile: usize, cycle: Cycle<'_>, scored: &[NodeId]) -> Option<Recalled> {
        self.memories.get(&Likeness::of(profile, cycle.pod))?.recall(cycle, scored)
    }

    fn weight_exceeds(&self, most: usize) -> bool {
        self.memories.len() > (most / MAX_WEIGHT).max(8)
            && self.memories.values().map(Memory::weight).sum::<usize>() > most
    }

    /// How often all nodes and their pods were looked at for a template: once for each template, and again after each
    /// change that cannot be applied step by step.
    pub fn judged_all(&self) -> u64 {
        self.judged_all
    }

    /// How many groups of nodes were compared. For each pod the number follows the topology domains that its template
    /// tells apart, or the different counts, and not the nodes.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Drops the caches that were not used for the longest time.
    fn make_room(&mut self, snapshot: &Snapshot) {
        let most = (MAX_CELLS / snapshot.node_bound().max(1)).clamp(8, 256);
        while self.memories.len() > most || self.weight_exceeds(most) {
            let oldest = self.memories.iter().min_by_key(|(_, memory)| memory.used).map(|(likeness, _)| *likeness);
            let Some(oldest) = oldest else { return };
            if let Some(mut memory) = self.memories.remove(&oldest) {
                memory.tally.settle(oldest.profile, &mut self.evaluations);
            }
        }
    }
}

/// The largest [`Memory::weight`] of a cache.
const MAX_WEIGHT: usize = 5;

/// The plan to bind to a node; `None`: a plug-in cannot reserve what the pod needs there.
fn bind(cycle: Cycle<'_>, memory: &Memory, node: NodeId) -> Option<Plan> {
    let node = cycle.snapshot.node(node)?;
    let mut promise = Promise::default();
    for filter in &memory.filters.list {
        filter.reserve(cycle, node, &mut promise).ok()?;
    }
    let outcome = Outcome::Bind { node: node.node.name.clone(), promise };
    Some(Plan { outcome, explanation: Explanation::default() })
}

fn unschedulable(why: Unschedulable) -> Plan {
    Plan { outcome: Outcome::Unschedulable(why), explanation: Explanation::default() }
}

/// Whether the cached answers of a profile for this template depend on this object.
fn rests_on(profile: &Profile, cycle: Cycle<'_>, kind: Kind, key: &Key) -> bool {
    let rests = |plugin: &dyn Plugin| plugin.rests_on(cycle, kind, key);
    profile.points.values().flatten().any(|enabled| rests(&*enabled.plugin))
}

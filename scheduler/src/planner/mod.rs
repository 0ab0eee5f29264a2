//! The same decisions as [`crate::plan::plan`], made with what is remembered from pod to pod.
//!
//! Pods of one template are alike: which nodes will do, and how good each is, is worked out once and brought up to date
//! by what has changed since. What a plug-in says by node and pod alone is remembered for each node, so that an event on
//! one node costs the work of one node. What counts pods over many nodes is kept as counts by place, which
//! follow a node that comes, goes or is relabelled, and is evaluated once for all nodes that are alike to it.

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

/// Which pods are alike: those of one profile and template, and of one priority, because a pod respects pods that are
/// nominated to a node and matter at least as much, and makes those go that matter less, if it may.
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

/// What is remembered of nodes: those that are refused with why, and for each plug-in that scores what it makes of those
/// that are asked about.
pub type Recalled = (Vec<(NodeId, Refusal)>, Vec<Vec<i64>>);

#[derive(Default)]
pub struct Planner {
    memories: HashMap<Likeness, Memory>,
    turn: u64,
    /// How many times all nodes were judged for a template.
    judged_all: u64,
    /// How many groups of nodes were compared.
    compared: u64,
    evaluations: Evaluations,
}

/// How many numbers, each of a node for a template, are remembered at most.
const MAX_CELLS: usize = 8 << 20;

impl Planner {
    pub fn new() -> Self {
        Planner::default()
    }

    /// Where a pod shall lie, or why it lies nowhere and what can be done about it. `profile` is the number of its
    /// profile, which stands for the same profile with every call.
    pub fn plan(&mut self, snapshot: &Snapshot, profile: (usize, &Profile), pod: &Pod) -> Plan {
        let (number, profile) = profile;
        let by_name = pod.template.node_affinity.as_ref().is_some_and(|terms| named_nodes(terms).is_some());
        // Few nodes are in question, or one is to be tried alone, or the pod is like no other, as is one that claims
        // devices, since each claim that gets some changes what is left for others, or it asks for nonsense: nothing is
        // worth remembering.
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

    /// The same for a pod that is nominated to a node: that one is tried first. Pods like it mind the nomination, and
    /// itself does not.
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

    /// Shows what is remembered for pods like this one, brought up to date.
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

    /// How often each plug-in was asked at a point: filters once for each node that has changed, or once for all that
    /// are alike; the others once for each pod. By the number of the profile.
    pub fn evaluations(&mut self) -> &BTreeMap<(usize, Point, &'static str), u64> {
        for (likeness, memory) in &mut self.memories {
            memory.tally.settle(likeness.profile, &mut self.evaluations);
        }
        &self.evaluations
    }

    /// Whether a node will do for a pod by what is remembered, for tests that compare this with what is worked out.
    pub fn remembers(&self, profile: usize, pod: &Pod, node: NodeId) -> Option<bool> {
        Some(self.memories.get(&Likeness::of(profile, pod))?.will_do(node))
    }

    /// Why a node will not do for a pod by what is remembered, and what each plug-in that scores nodes thinks of some of
    /// them, for tests that compare this with what is worked out. `None`: nothing is remembered.
    pub fn recalls(&self, profile: usize, cycle: Cycle<'_>, scored: &[NodeId]) -> Option<Recalled> {
        self.memories.get(&Likeness::of(profile, cycle.pod))?.recall(cycle, scored)
    }

    fn weight_exceeds(&self, most: usize) -> bool {
        self.memories.len() > (most / MAX_WEIGHT).max(8)
            && self.memories.values().map(Memory::weight).sum::<usize>() > most
    }

    /// How many times all nodes and their pods were looked at for a template: once for each, and once more whenever
    /// something changes that it rests on.
    pub fn judged_all(&self) -> u64 {
        self.judged_all
    }

    /// How many groups of nodes were compared to find places: as many for a pod as there are places that its template
    /// tells apart, or counts that differ, but not as there are nodes.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Forgets what has not been of use for the longest time.
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

/// What a memory weighs at most.
const MAX_WEIGHT: usize = 5;

/// The decision for a node, unless a plug-in cannot keep what it promised there.
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

/// Whether anything of what a profile says about pods of a template rests on this object.
fn rests_on(profile: &Profile, cycle: Cycle<'_>, kind: Kind, key: &Key) -> bool {
    let rests = |plugin: &dyn Plugin| plugin.rests_on(cycle, kind, key);
    profile.points.values().flatten().any(|enabled| rests(&*enabled.plugin))
}

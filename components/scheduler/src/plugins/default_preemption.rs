//! DefaultPreemption: chooses the victims that must be evicted so that a pod of higher priority can be scheduled.

use crate::filters::Filters;
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plugin::SchedulingCycle;
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::status::{Code, Diagnosis, Nomination, Rejection};
use std::cmp::Reverse;
use std::sync::Arc;

pub const NAME: &str = "DefaultPreemption";

/// Chooses victims. The search for candidates ends when it has found as many as the larger of the two numbers below,
/// and at least one of them violates no disruption budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultPreemption {
    /// A number of candidates, as a percentage of the cluster's nodes.
    pub min_candidate_nodes_percentage: i64,
    /// A number of candidates.
    pub min_candidate_nodes_absolute: i64,
}

impl Default for DefaultPreemption {
    fn default() -> Self {
        DefaultPreemption { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// A search that found no feasible node, with everything that preemption reads of it.
pub struct FailedSearch<'a> {
    pub cycle: SchedulingCycle<'a>,
    pub filters: &'a Filters,
    pub diagnosis: &'a Diagnosis,
    /// The candidates that extenders left: no other candidate may be chosen. `None` if the extenders were not called
    /// yet.
    pub candidates: Option<&'a [Candidate]>,
}

/// What a search for victims has found.
#[derive(Debug, Clone, Default)]
pub struct Preemption {
    pub candidates: Vec<Candidate>,
    /// The nodes that would not become feasible even without pods of lower priority, and why.
    pub rejected: Vec<(Text, Rejection)>,
    pub nomination: Nomination,
    pub message: String,
    /// Whether the search failed with an error, which the message reports.
    pub failed: bool,
    pub victims: Option<Victims>,
}

/// A node that would become feasible if the victims were evicted.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub node: Text,
    /// The pods to evict, the most important pod first.
    pub victims: Vec<Arc<Pod>>,
    /// How many of the victims are protected by a disruption budget that allows no more evictions.
    pub violations: usize,
}

/// The victims on the node that was chosen, and what else must be done so that the pod gets the node.
#[derive(Debug, Clone)]
pub struct Victims {
    pub node: Text,
    /// The pods to evict, without the victims that are being deleted already.
    pub pods: Vec<Arc<Pod>>,
    /// Pods of lower priority that are nominated to this node: their nominations must be removed.
    pub clear_nominations: Vec<Key>,
}

pub(crate) const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

impl DefaultPreemption {
    pub fn find(&self, search: &FailedSearch<'_>) -> Preemption {
        if let Some(message) = ineligible(search) {
            return Preemption::ineligible(message);
        }
        let mut found = Preemption { nomination: Nomination::Clear, ..Preemption::default() };
        let rejected = search.diagnosis.rejected.iter().filter(|(_, rejection)| rejection.code == Code::Unschedulable);
        let mut nodes: Vec<_> = rejected.filter_map(|(name, _)| search.cycle.snapshot.node_named(name)).collect();
        nodes.sort_unstable_by_key(|node| node.id);
        match search.candidates {
            Some([]) => {
                return Preemption::ineligible("no candidate node for preemption");
            }
            Some(remaining) => found.candidates = remaining.to_vec(),
            None => self.try_nodes(search, &nodes, &mut found),
        }
        if let Some(best) = best(&found.candidates) {
            found.nomination = Nomination::Set(best.node.clone());
            found.victims = Some(victims(search.cycle, best));
            return found;
        }
        if let Some(message) = errors(&found.rejected) {
            return Preemption { message, failed: true, nomination: Nomination::Keep, ..found };
        }
        let tried = Diagnosis {
            nodes: search.diagnosis.nodes,
            rejected: found.rejected.clone(),
            absent: Some(Rejection::unresolvable("", NOT_HELPFUL)),
            ..Diagnosis::default()
        };
        found.message = tried.message("");
        found
    }

    fn try_nodes(&self, search: &FailedSearch<'_>, nodes: &[&NodeInfo], found: &mut Preemption) {
        let candidates_wanted = self.candidates_wanted(nodes.len());
        // One copy of the filters serves for all nodes, because the trial on each node undoes its changes to the
        // filters.
        let mut filters = search.filters.clone_box();
        let start = first_candidate_node(search.cycle);
        let (before, from) = nodes.split_at(nodes.partition_point(|node| node.id < start));
        for node in from.iter().chain(before) {
            match dry_run(search.cycle, node, &mut filters) {
                Ok(candidate) => found.candidates.push(candidate),
                Err(rejection) => found.rejected.push((node.node.name.clone(), rejection)),
            }
            let harmless = found.candidates.iter().any(|one| one.violations == 0);
            if harmless && found.candidates.len() >= candidates_wanted {
                break;
            }
        }
    }

    /// How many candidates are enough, in a cluster with `nodes` nodes.
    pub(crate) fn candidates_wanted(&self, nodes: usize) -> usize {
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        let part = nodes.saturating_mul(count(self.min_candidate_nodes_percentage)) / 100;
        part.max(count(self.min_candidate_nodes_absolute)).min(nodes)
    }
}

/// The node with which the search for victims begins. The node differs from pod to pod, so that not all pods evict
/// victims from the same nodes.
pub(crate) fn first_candidate_node(cycle: SchedulingCycle<'_>) -> NodeId {
    let hash = cycle.pod.uid.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    hash % cycle.snapshot.node_bound().max(1)
}

const NEVER: &str = "not eligible due to preemptionPolicy=Never.";

/// The messages of the errors on nodes, each message once; `None` if there was no error.
fn errors(rejected: &[(Text, Rejection)]) -> Option<String> {
    let errors = rejected.iter().filter(|(_, rejection)| rejection.code == Code::Error);
    let mut texts: Vec<String> = errors.map(|(_, rejection)| rejection.message()).collect();
    texts.sort();
    texts.dedup();
    match texts.len() {
        0 | 1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

/// Why no pod may be evicted for this pod; `None` if pods may be evicted.
fn ineligible(search: &FailedSearch<'_>) -> Option<&'static str> {
    let nominated = search.cycle.pod.nominated.as_ref();
    ineligible_reason(search.cycle, nominated.map(|node| search.diagnosis.code(node)))
}

/// Like [`ineligible`]; `rejection` is the code with which the pod's nominated node was rejected.
pub(crate) fn ineligible_reason(cycle: SchedulingCycle<'_>, rejection: Option<Code>) -> Option<&'static str> {
    let pod = cycle.pod;
    if pod.never_preempts {
        return Some(NEVER);
    }
    let name = pod.nominated.as_ref()?;
    if rejection == Some(Code::UnschedulableAndUnresolvable) {
        return None;
    }
    let node = cycle.snapshot.node_named(name)?;
    let is_terminating = |one: &Arc<Pod>| one.priority < pod.priority && one.deleting && one.preempted;
    node.pods.iter().any(is_terminating).then_some("not eligible due to a terminating pod on the nominated node.")
}

/// A trial on one node: pods are removed from a copy of the node, and the filters check the copy.
struct DryRun<'a> {
    cycle: SchedulingCycle<'a>,
    node: NodeInfo,
    filters: &'a mut Filters,
}

impl DryRun<'_> {
    fn remove(&mut self, pod: &Pod) {
        self.node.remove(&pod.key);
        self.filters.remove_pod(self.cycle, pod, self.node.id);
    }

    fn add(&mut self, pod: &Arc<Pod>) {
        self.node.add(pod.clone());
        self.filters.add_pod(self.cycle, pod, self.node.id);
    }

    fn check(&mut self) -> Result<(), Rejection> {
        self.filters.check(self.cycle, &self.node)
    }

    /// Adds a removed pod to the node again if the node stays feasible with it. Returns whether the pod was added.
    fn reprieve(&mut self, pod: &Arc<Pod>) -> bool {
        self.add(pod);
        let stays = self.check().is_ok();
        if !stays {
            self.remove(pod);
        }
        stays
    }
}

/// The victims on a node. Fails if the node would be infeasible even without all pods of lower priority.
pub(crate) fn dry_run(
    cycle: SchedulingCycle<'_>,
    node: &NodeInfo,
    filters: &mut Filters,
) -> Result<Candidate, Rejection> {
    let lower_priority = |pod: &&Arc<Pod>| pod.priority < cycle.pod.priority;
    let mut potential: Vec<Arc<Pod>> = node.pods.iter().filter(lower_priority).cloned().collect();
    if potential.is_empty() {
        return Err(Rejection::unresolvable("", NO_VICTIMS));
    }
    potential.sort_by_key(importance);
    let mut dry_run_node = DryRun { cycle, node: node.clone(), filters };
    for pod in &potential {
        dry_run_node.remove(pod);
    }
    if let Err(rejection) = dry_run_node.check() {
        potential.iter().for_each(|pod| dry_run_node.add(pod));
        return Err(rejection);
    }
    let (protected, others) = split_by_budget(cycle, &potential);
    let mixed = !protected.is_empty() && !others.is_empty();
    let mut victims: Vec<_> = protected.into_iter().filter(|pod| !dry_run_node.reprieve(pod)).collect();
    let violations = victims.len();
    victims.extend(others.into_iter().filter(|pod| !dry_run_node.reprieve(pod)));
    victims.iter().for_each(|pod| dry_run_node.add(pod));
    if mixed {
        victims.sort_by_key(importance);
    }
    if victims.is_empty() {
        // All pods may stay: the node was rejected for a reason that these filters do not check.
        let why = format!("expected at least one victim pod on node \"{}\"", node.node.name);
        return Err(Rejection::error("", why));
    }
    Ok(Candidate { node: node.node.name.clone(), victims, violations })
}

/// A rank by which the most important pod comes first: the pod of higher priority, and among equal priorities the pod
/// that started earlier. A pod that has not started counts as the last to start.
fn importance(pod: &Arc<Pod>) -> (Reverse<i64>, i128) {
    (Reverse(pod.priority), pod.started.unwrap_or(i128::MAX))
}

/// Splits pods into the pods whose eviction violates a disruption budget, and all other pods.
fn split_by_budget(cycle: SchedulingCycle<'_>, pods: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut remaining: Vec<_> = match pods.first() {
        None => Vec::new(),
        Some(_) => cycle.snapshot.selectors().budgets().map(|(key, budget)| (key, budget, budget.allowed)).collect(),
    };
    pods.iter().cloned().partition(|pod| {
        let mut violates = false;
        if pod.template.labels.iter().next().is_none() {
            return false;
        }
        for (key, budget, allowed) in &mut remaining {
            let selects = key.namespace == *pod.namespace()
                && !budget.selector.is_everything()
                && budget.selector.matches(&pod.template.labels);
            if !selects || budget.disrupted.contains(&pod.key.name) {
                continue;
            }
            *allowed -= 1;
            violates |= *allowed < 0;
        }
        violates
    })
}

/// The rank of a candidate; the candidate with the smallest rank is chosen. The first number is
/// [`Candidate::violations`].
pub(crate) type CandidateRank = (usize, i64, i64, usize, Reverse<i128>);

impl Candidate {
    pub(crate) fn rank(&self) -> CandidateRank {
        let victims = &self.victims;
        let highest = victims.first().map_or(i64::MIN, |pod| pod.priority);
        // Priorities are shifted so that none is negative. Otherwise further victims of negative priority would make
        // the sum smaller.
        let sum = victims.iter().map(|pod| pod.priority + (1 << 31)).sum();
        // Extenders may list victims in any order, so the highest priority is searched for.
        let most = victims.iter().map(|pod| pod.priority).max();
        let of_highest = victims.iter().filter(|pod| Some(pod.priority) == most);
        let earliest = of_highest.map(|pod| pod.started.unwrap_or(i128::MAX)).min().unwrap_or(i128::MAX);
        (self.violations, highest, sum, victims.len(), Reverse(earliest))
    }
}

fn best(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().min_by_key(|candidate| candidate.rank())
}

impl Preemption {
    pub(crate) fn ineligible(message: &str) -> Self {
        Preemption { message: message.into(), ..Preemption::default() }
    }

    /// The nodes of all candidates whose rank equals the rank of the best candidate.
    pub fn best(&self) -> Vec<&Text> {
        let Some(best) = best(&self.candidates) else { return Vec::new() };
        self.candidates.iter().filter(|one| one.rank() == best.rank()).map(|one| &one.node).collect()
    }
}

pub(crate) fn victims(cycle: SchedulingCycle<'_>, best: &Candidate) -> Victims {
    let lower_priority = cycle.snapshot.nominations().below(&best.node, cycle.pod.priority);
    Victims {
        node: best.node.clone(),
        pods: best.victims.iter().filter(|pod| !pod.deleting).cloned().collect(),
        clear_nominations: lower_priority.map(|pod| pod.key.clone()).collect(),
    }
}

/// The message of the condition `DisruptionTarget` of a victim.
pub fn eviction_message(scheduler_name: &str) -> String {
    format!("{scheduler_name}: preempting to accommodate a higher priority pod")
}

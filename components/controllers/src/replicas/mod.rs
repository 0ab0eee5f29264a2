//! The controllers of ReplicaSets and ReplicationControllers, which keep a given number of pods of one template
//! running.

mod rank;
#[cfg(test)]
mod tests;

use crate::claim::{self, ControllerRefManager};
use crate::conditions::Conditions;
use crate::pace::Paces;
use crate::planted::{Bug, planted};
use crate::pods::{self, PodWriteFailure};
use crate::subject::{self, Subject, count};
use holdfast_value::{Map, json};
use holdfast_world::views::workloads::{ReplicasSpec, ReplicasStatus};
use holdfast_world::views::{Pod, ReplicaSet, ReplicationController};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, Refused, Resource, Selector, Stamp, Time, View, Viewed, World,
};
use std::collections::BTreeSet;
use std::marker::PhantomData;

/// How many pods one plan creates at most, and how many it deletes at most.
const BURST: usize = 500;
/// How many times the pods of a set may end before their replacement is delayed.
const AT_ONCE: usize = 3;
/// The first delay, in milliseconds; each further delay is twice as long, up to [`MAX_MILLIS`].
const FIRST_MILLIS: i64 = 1_000;
const MAX_MILLIS: i64 = 5 * 60 * 1_000;
/// Ended pods count towards the delay if they were created at most this many milliseconds before the newest ended pod.
/// The time is much longer than the longest delay, so that pods which keep failing do not drop out of the count, which
/// would make the delays short again.
const COUNTED_MILLIS: i64 = 2 * 60 * 60 * 1_000;
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A kind whose controller keeps a given number of pods: ReplicaSet or ReplicationController.
pub trait Replicated: ControllerRefManager {
    const CONTROLLER: &'static str;
    const QUEUE: &'static str;
    const ACCOUNT: &'static str;
    const COMPONENT: &'static str;
    /// Whether the kind's status has a field for the number of terminating pods.
    const COUNTS_TERMINATING: bool;

    fn spec(&self) -> &ReplicasSpec;
    fn status(&self) -> &ReplicasStatus;
}

impl ControllerRefManager for ReplicaSet {
    fn selector(&self) -> &Selector {
        &self.spec.selector
    }
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const QUEUE: &'static str = "replicaset";
    const ACCOUNT: &'static str = "replicaset-controller";
    const COMPONENT: &'static str = "replicaset-controller";
    const COUNTS_TERMINATING: bool = true;

    fn spec(&self) -> &ReplicasSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicasStatus {
        &self.status
    }
}

impl ControllerRefManager for ReplicationController {
    fn selector(&self) -> &Selector {
        &self.spec.selector
    }
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller-controller";
    const QUEUE: &'static str = "replicationmanager";
    const ACCOUNT: &'static str = "replication-controller";
    const COMPONENT: &'static str = "replication-controller";
    const COUNTS_TERMINATING: bool = false;

    fn spec(&self) -> &ReplicasSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicasStatus {
        &self.status
    }
}

/// The controller of the kind `K`.
pub struct Replicas<K> {
    paces: Paces,
    kind: PhantomData<K>,
}

impl<K> Default for Replicas<K> {
    fn default() -> Replicas<K> {
        Replicas { paces: Paces::default(), kind: PhantomData }
    }
}

impl<K: Replicated> Controller for Replicas<K> {
    fn name(&self) -> &'static str {
        K::CONTROLLER
    }

    fn queue(&self) -> &'static str {
        K::QUEUE
    }

    fn account(&self) -> &'static str {
        K::ACCOUNT
    }

    fn component(&self) -> &'static str {
        K::COMPONENT
    }

    fn resources(&self) -> Vec<Resource> {
        vec![K::resource().clone(), Pod::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        claim::index_orphans::<Pod>(world);
        claim::index_selectors::<K>(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<K>() {
            keys.add(change.key.clone());
            if let (Some(gone), None) = (&change.before, &change.after) {
                self.paces.forget(&gone.meta.uid);
            }
        } else {
            claim::concerned::<K>(world, change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let Some(set) = world.get::<K>(key) else { return Plan::default() };
        let mut plan = Plan::default();
        let mut pods = Pods::of(world, set, &mut plan);
        let made = match set.meta().is_deleting() {
            true => 0,
            false => manage(world, set, &mut pods, &mut self.paces, &mut plan, stamp.time),
        };
        let counts = StatusCounts::of(set, &pods, made, stamp.time);
        plan.together(status(set, &counts, None, stamp.time).into_iter().collect());
        if let Some(time) = pods::next_available(pods.active, set.spec().min_ready_seconds, stamp.time) {
            plan.requeue_at(time);
        }
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(set) = world.get::<K>(key) else { return plan };
        let (notes, failure) = pods::refusals(set.into(), refused);
        plan.events = notes;
        if pods::concern_pods(refused) {
            let counts = StatusCounts::of(set, &Pods::of(world, set, &mut Plan::default()), 0, stamp.time);
            plan.together(status(set, &counts, failure.as_ref(), stamp.time).into_iter().collect());
        }
        plan
    }
}

/// The pods of one set, by their state.
struct Pods<'w> {
    /// The pods that have not ended and are not being deleted.
    active: Vec<Viewed<'w, Pod>>,
    /// The number of pods that are being deleted.
    terminating: usize,
    /// The creation times of pods that have ended.
    ended: Vec<Time>,
}

impl<'w> Pods<'w> {
    /// Collects the pods of a set. Adds to the plan the writes that adopt or release active pods.
    fn of<K: Replicated>(world: &'w World, set: Viewed<'_, K>, plan: &mut Plan) -> Pods<'w> {
        let (active, others): (Vec<_>, Vec<_>) = claim::candidates::<Pod>(world, set.into(), set.selector())
            .partition(|pod| pod.is_active(pod.meta()) || planted(Bug::CountsTheLeaving));
        let claims = claim::claim(set.into(), active.into_iter(), |meta| set.selector().matches(meta));
        plan.together(claims.actions);
        let mine = || others.iter().filter(|pod| pod.meta().is_controlled_by(&set.meta().uid));
        let is_leaving = |pod: &&Viewed<'_, Pod>| set.selector().matches(pod.meta()) && !pod.is_finished();
        let ended = mine().filter(|pod| pod.is_finished());
        Pods {
            active: claims.mine,
            terminating: mine().filter(is_leaving).count(),
            ended: ended.filter_map(|pod| pod.meta().creation_timestamp).collect(),
        }
    }

    /// The time until which a set that wants `wanted` replicas creates no more pods; `None` if it may create pods now.
    /// Without a wait, a node that rejects all new pods would cause pods to be created for ever, as fast as they can be
    /// written. Failures are counted in rounds, so that a few failures do not delay a set with many pods: one round is
    /// `wanted` failures, and at most [`BURST`]. A pod that ran for longer than the longest wait is replaced at once.
    fn held_until(&self, wanted: usize) -> Option<Time> {
        let last = self.ended.iter().copied().max()?;
        let counted = self.ended.iter().filter(|made| last.millis_since(**made) < COUNTED_MILLIS).count();
        let rounds = counted / wanted.clamp(1, BURST);
        let doublings = u32::try_from(rounds.checked_sub(AT_ONCE + 1)?).unwrap_or(u32::MAX);
        let wait = FIRST_MILLIS.saturating_mul(2_i64.saturating_pow(doublings));
        Some(last.plus_millis(wait.min(MAX_MILLIS)))
    }
}

/// Creates missing pods, or deletes surplus pods. Returns how many pods the plan creates; pods that it deletes are
/// removed from `pods`.
fn manage<K: Replicated>(
    world: &World,
    set: Viewed<'_, K>,
    pods: &mut Pods<'_>,
    paces: &mut Paces,
    plan: &mut Plan,
    now: Time,
) -> usize {
    let wanted = usize::try_from(set.spec().replicas.unwrap_or(1)).unwrap_or(0);
    let have = pods.active.len();
    if have < wanted {
        if let Some(time) = pods.held_until(wanted).filter(|time| now < *time) {
            plan.requeue_at(time);
            return 0;
        }
        let (missing, again) = paces.take(&set.meta().uid, wanted, (wanted - have).min(BURST), now);
        again.into_iter().for_each(|time| plan.requeue_at(time));
        let template = subject::part(set.object, &["spec", "template"]);
        let pod = pods::from_template(set.into(), &template);
        let creations = vec![pods::create(set.into(), pod); missing];
        plan.steps.extend(pods::slow_start(creations));
        return missing;
    }
    let surplus = (have - wanted).min(BURST);
    if surplus > 0 {
        let leaving = match wanted {
            0 => pods.active.split_off(have - surplus),
            _ => {
                let related = related::<K>(world, set);
                let mut ranked = rank::in_deletion_order(std::mem::take(&mut pods.active), &related, now);
                if planted(Bug::KeepsTheWorst) {
                    ranked.reverse();
                }
                pods.active = ranked.split_off(surplus);
                ranked
            }
        };
        plan.together(leaving.into_iter().map(|pod| pods::delete(set.into(), pod)).collect());
    }
    0
}

/// The active pods of all sets with the same owner as this set, for example the sets of a Deployment's rollout. If a
/// pod shares its node with many of them, it is deleted earlier. A set without an owner has no related pods, and not
/// even its own pods count.
fn related<'w, K: Replicated>(world: &'w World, set: Viewed<'_, K>) -> Vec<Viewed<'w, Pod>> {
    let owner = set.meta().controller().into_iter();
    let sets = owner.flat_map(|owner| claim::owned::<K>(world, &owner.uid));
    let sets: BTreeSet<&str> = sets.map(|set| set.meta().uid.as_str()).collect();
    let pods = sets.into_iter().flat_map(|uid| claim::owned::<Pod>(world, uid));
    pods.filter(|pod| pod.is_active(pod.meta())).collect()
}

/// The numbers of pods in a set's status.
struct StatusCounts {
    replicas: usize,
    fully_labeled: usize,
    ready: usize,
    available: usize,
    terminating: usize,
}

impl StatusCounts {
    /// Counts the pods of a set for its status. `made` pods are added as replicas: the plan creates them, and their
    /// state is not known yet.
    fn of<K: Replicated>(set: Viewed<'_, K>, pods: &Pods<'_>, made: usize, now: Time) -> StatusCounts {
        let template = &set.spec().template.metadata.labels;
        let number = |holds: &dyn Fn(&Viewed<'_, Pod>) -> bool| pods.active.iter().filter(|pod| holds(pod)).count();
        let is_full =
            |pod: &Viewed<'_, Pod>| template.iter().all(|(label, value)| pod.meta().label(label) == Some(value));
        StatusCounts {
            replicas: pods.active.len() + made,
            fully_labeled: number(&is_full) + made,
            ready: number(&|pod| pod.is_ready()),
            available: number(&|pod| pod.is_available(set.spec().min_ready_seconds, now)),
            terminating: pods.terminating,
        }
    }
}

fn status<K: Replicated>(
    set: Viewed<'_, K>,
    counts: &StatusCounts,
    failure: Option<&PodWriteFailure>,
    now: Time,
) -> Option<Action> {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    Subject::from(set).status(|status| {
        status.insert("replicas", number(counts.replicas).into());
        count(status, "fullyLabeledReplicas", number(counts.fully_labeled));
        count(status, "readyReplicas", number(counts.ready));
        count(status, "availableReplicas", number(counts.available));
        count(status, "observedGeneration", set.meta().generation);
        if K::COUNTS_TERMINATING {
            status.insert("terminatingReplicas", number(counts.terminating).into());
        }
        tell_failure(status, failure, now);
    })
}

/// Sets the condition [`REPLICA_FAILURE`] if pods cannot be created. The condition keeps its first message until pods
/// can be created again.
fn tell_failure(status: &mut Map, failure: Option<&PodWriteFailure>, now: Time) {
    let mut conditions = Conditions::take(status);
    match failure {
        None => conditions.remove(REPLICA_FAILURE),
        Some(_) if conditions.get(REPLICA_FAILURE).is_some() => {}
        Some(failure) => conditions.push(json!({
            "type": REPLICA_FAILURE,
            "status": "True",
            "reason": failure.reason,
            "message": failure.message,
            "lastTransitionTime": now,
        })),
    }
    conditions.put(status);
}

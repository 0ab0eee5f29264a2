//! The controller of Jobs, which run pods until the wanted number of pods has succeeded.
//!
//! Each pod has a finalizer until it is counted. Counting has a fixed order, so that no pod is lost or counted twice if
//! the process ends at any point: the pod's uid is written into the status, then the finalizer is removed, then the uid
//! is replaced by an increment of the count. Each plan carries out the steps that are due; the resulting changes cause
//! the next plan. Counting must not rely on pods that are older than the Job's status: see [`proof`].

mod indexes;
mod job_pods;
mod plan;
mod policy;
mod proof;
mod sync;
mod tracking;

#[cfg(test)]
mod tests;

use crate::claim::{self, ControllerRefManager};
use crate::get_answers::{GetAnswers, NeedsGet};
use crate::pods;
use crate::subject::Subject;
use holdfast_value::Value;
use holdfast_world::views::{Job, Pod};
use holdfast_world::{
    BackOff, Change, Controller, Key, Keys, OwnerReference, Plan, Refusal, Refused, Resource, Selector, Stamp, Verb,
    View, Viewed, World,
};
use job_pods::{TRACKING, untrack};
use std::collections::{BTreeMap, BTreeSet};

/// The value of `spec.managedBy` with which this controller runs a Job. This controller also runs the Jobs without a
/// value.
const MANAGER: &str = "kubernetes.io/job-controller";
/// Keys with this prefix name pods that no Job will count. No Job's name has the prefix, because names contain no
/// slash.
const POD: &str = "pod/";

/// After an error of the server a key waits for `first_ms`; the wait grows with further errors up to `last_ms`.
const BACK_OFF: BackOff = BackOff { first_ms: 1_000, last_ms: 60_000 };
/// How many milliseconds a Job's next plan waits after a change of the Job's own status, if requests of the last plan
/// were refused.
const BATCH_MS: i64 = 1_000;

#[derive(Default)]
pub struct Jobs {
    answers: GetAnswers,
    /// For each Job, the uids of the pods that it released before deleting them, as long as the pods exist: the end of
    /// such a pod is no failure.
    let_go: BTreeMap<Key, BTreeSet<String>>,
    /// The Jobs of whose last plan the server refused some requests.
    refused: BTreeSet<Key>,
}

impl ControllerRefManager for Job {
    fn selector(&self) -> &Selector {
        &self.spec.selector
    }
}

impl Controller for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn queue(&self) -> &'static str {
        "job"
    }

    fn back_off(&self) -> BackOff {
        BACK_OFF
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Job::resource().clone(), Pod::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        claim::index_orphans::<Pod>(world);
        claim::index_selectors::<Job>(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Job>() {
            match self.refused.contains(&change.key) && tells_of_itself(change) {
                true => keys.add_after(change.key.clone(), BATCH_MS),
                false => keys.add(change.key.clone()),
            }
            let uids = [&change.before, &change.after].into_iter().flatten().map(|job| job.meta.uid.as_str());
            if change.after::<Job>().is_none_or(|job| job.is_finished()) {
                uids.flat_map(|uid| world.owned::<Pod>(uid)).for_each(|pod| add_uncounted(world, pod, keys));
            }
        } else {
            claim::concerned::<Job>(world, change, keys);
            if let Some(pod) = change.after::<Pod>() {
                add_uncounted(world, pod, keys);
            }
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        if let Some(name) = key.name.strip_prefix(POD) {
            return release(world, &Key::new(&key.namespace, name));
        }
        self.refused.remove(key);
        let plan = self.plan_job(world, key, stamp, sync::Manage::Pods);
        if plan.gets.is_empty() {
            self.answers.forget(key);
        }
        plan
    }

    fn answered(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.answers.store(key, path, answer);
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let Some(job) = world.get::<Job>(key) else { return Plan::default() };
        self.refused.insert(key.clone());
        let (notes, _) = pods::refusals(Subject::from(job), refused);
        let makes_pods = refused.iter().any(|refused| matches!(refused.action.verb, Verb::Create(_)));
        let mut plan = match makes_pods {
            // The creations were refused, so this plan creates no pods: the status should show the pods that exist, and
            // finished pods must lose their finalizers, because a terminating namespace waits for them.
            true => self.plan_job(world, key, stamp, sync::Manage::Nothing),
            false => Plan::default(),
        };
        plan.events.extend(notes);
        plan
    }
}

impl Jobs {
    fn plan_job(&mut self, world: &World, key: &Key, stamp: Stamp, manage: sync::Manage) -> Plan {
        let job = world.get::<Job>(key).filter(|job| is_ours(job) && !job.is_finished());
        let mut let_go = self.let_go.remove(key).unwrap_or_default();
        let read = self.answers.of(world, key);
        let planned = job.map(|job| plan::plan(world, job, read, &mut let_go, stamp.time, manage));
        if job.is_some() && !let_go.is_empty() {
            self.let_go.insert(key.clone(), let_go);
        }
        planned.unwrap_or(Ok(Plan::default())).unwrap_or_else(|NeedsGet(path)| {
            let mut plan = Plan::default();
            plan.gets.push(path);
            plan
        })
    }
}

/// Whether a change of a Job leaves its spec unchanged.
fn tells_of_itself(change: &Change) -> bool {
    let generation = |job: Option<Viewed<'_, Job>>| job.map(|job| (job.meta().uid.to_string(), job.meta().generation));
    generation(change.before::<Job>()) == generation(change.after::<Job>())
}

fn is_ours(job: &Job) -> bool {
    job.spec.managed_by.is_empty() || job.spec.managed_by == MANAGER
}

/// The Job that an owner reference names, if it still exists.
fn job_of<'w>(world: &'w World, namespace: &str, owner: &OwnerReference) -> Option<Viewed<'w, Job>> {
    world.get::<Job>(&Key::new(namespace, &owner.name)).filter(|job| job.meta().uid == owner.uid)
}

/// Whether a pod has the finalizer, but no Job will count it.
fn is_forgotten(world: &World, pod: Viewed<'_, Pod>) -> bool {
    let meta = pod.meta();
    meta.has_finalizer(TRACKING)
        && match meta.controller() {
            Some(owner) if claim::names_kind::<Job>(owner) => {
                job_of(world, &meta.namespace, owner).is_none_or(|job| is_ours(&job) && job.is_finished())
            }
            Some(_) => false,
            None => true,
        }
}

fn add_uncounted(world: &World, pod: Viewed<'_, Pod>, keys: &mut Keys) {
    if is_forgotten(world, pod) {
        keys.add(Key::new(&pod.meta().namespace, &format!("{POD}{}", pod.meta().name)));
    }
}

fn release(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    if let Some(pod) = world.get::<Pod>(key).filter(|pod| is_forgotten(world, *pod)) {
        plan.then(untrack(pod));
    }
    plan
}

//! The invariants that must hold at every version of the log.

use super::cluster::{
    Cluster, Event, controller, has_condition, has_finalizer, is_active, is_available, is_leaving, is_observed, items,
    name, number, ordinal, text, uid,
};
use super::load;
use super::manager::Manager;
use super::namespaces;
use super::people::KEPT;
use super::volumes;
use crate::oracle::{CheckResult, ensure};
use holdfast_value::Value;
use holdfast_world::{Action, Time, Verb};
use std::collections::{BTreeMap, BTreeSet};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What the oracle has seen so far, by the UID of objects.
pub struct Observations {
    /// Whether only controllers and evictions remove pods in this run.
    calm: bool,
    /// Whether controllers learn the results of all their actions. If a controller misses a result, it may create a pod
    /// twice.
    exact: bool,
    /// Whether two managers have acted at the same time. If so, each may have created a pod for the same attempt of a
    /// Job.
    doubted: bool,
    /// The maximum number of pods of each owner. It is the number that the owner's newest spec allows. Until a
    /// controller has acted on the newest spec, the numbers that earlier specs allowed count, too.
    most: BTreeMap<String, i64>,
    /// The number of pods of each owner that must stay available. It grows with the number of available pods, up to the
    /// number that the spec requires.
    least: BTreeMap<String, i64>,
    succeeded: BTreeMap<String, BTreeSet<String>>,
    ended: BTreeMap<String, BTreeSet<String>>,
    /// Pairs of an owner and a dependent that the owner's deletion should orphan.
    left: BTreeSet<(String, String)>,
}

impl Observations {
    pub fn new(calm: bool, exact: bool) -> Observations {
        let (most, least, succeeded, ended, left) = Default::default();
        Observations { calm, exact, doubted: false, most, least, succeeded, ended, left }
    }

    /// From this call on, the checks allow the mistakes that two managers may make if they act at the same time.
    pub fn doubt(&mut self) {
        (self.doubted, self.exact) = (true, false);
    }

    pub fn observe(&mut self, cluster: &Cluster, manager: &Manager, event: &Event) -> CheckResult {
        self.see_orphaning(cluster, manager, event);
        let (before, after) = (event.before.as_deref(), event.after.as_deref());
        if let (Some(before), None) = (before, after) {
            volumes::gone(cluster, &event.plural, before)?;
        }
        match (event.plural.as_str(), after) {
            ("pods", _) => self.pod(cluster, before, after),
            ("deployments", Some(deployment)) => {
                load::stays_within_bounds(deployment)?;
                self.bound(deployment, bounds(deployment).1);
                self.keeps_available(cluster, deployment)
            }
            ("replicasets", Some(set)) => {
                self.bound(set, number(&set["spec"]["replicas"], 1));
                self.surges(cluster, before, set)
            }
            ("jobs", Some(job)) => self.job(cluster, before, job),
            _ => Ok(()),
        }
    }

    fn bound(&mut self, object: &Value, bound: i64) {
        let most = self.most.entry(uid(object).to_owned()).or_insert(bound);
        *most = if is_observed(object) { bound } else { bound.max(*most) };
    }

    /// Checks that all ReplicaSets of a Deployment together request no more pods than its surge allows.
    fn surges(&self, cluster: &Cluster, before: Option<&Value>, set: &Value) -> CheckResult {
        let size = |set: &Value| number(&set["spec"]["replicas"], 1);
        let Some(deployment) = cluster.deployment_of(set).filter(|found| !is_leaving(found)) else { return Ok(()) };
        let grew = before.map_or(0, size) < size(set);
        if !self.exact || !grew {
            return Ok(());
        }
        let sum: i64 = cluster.controlled("replicasets", uid(deployment)).map(size).sum();
        let most = self.most.get(uid(deployment)).copied().unwrap_or(i64::MAX);
        ensure(sum <= most, || format!("sets ask for more pods than their deployment may have: {sum} of {most}"))
    }

    /// Checks that in a calm run a rollout keeps the required number of pods available.
    fn keeps_available(&mut self, cluster: &Cluster, owner: &Value) -> CheckResult {
        if !self.calm || is_leaving(owner) || name(owner) == KEPT || namespaces::holds(owner) {
            return Ok(());
        }
        let (pods, wanted, in_step): (Vec<&Value>, i64, bool) = match text(&owner["kind"]) {
            "DaemonSet" => {
                let nodes = cluster.all("nodes").filter(|node| items(&node["spec"]["taints"]).next().is_none()).count();
                (cluster.controlled("pods", uid(owner)).collect(), nodes as i64 - 1, true)
            }
            _ => {
                let sets: Vec<&Value> = cluster.controlled("replicasets", uid(owner)).collect();
                let pods = sets.iter().flat_map(|set| cluster.controlled("pods", uid(set))).collect();
                (pods, bounds(owner).0, sets.iter().all(|set| is_in_step(cluster, set)))
            }
        };
        let known = number(&owner["status"]["availableReplicas"], 0) + number(&owner["status"]["numberAvailable"], 0);
        let available = pods.into_iter().filter(|pod| is_available(pod)).count() as i64;
        let least = self.least.entry(uid(owner).to_owned()).or_insert(0);
        if is_resized(cluster, owner) {
            // When the size of a Deployment changes, its controller scales each ReplicaSet in proportion, whichever
            // pods are available.
            *least = 0;
        } else if !is_observed(owner) {
            *least = (*least).min(wanted);
        } else if in_step {
            // The controller may delete a ready pod because it does not know yet that the pod is ready. So only the
            // pods that the controller knows as ready count.
            *least = (*least).max(available.min(known).min(wanted));
        }
        let least = *least;
        ensure(available >= least, || {
            format!("fewer pods are available than a rollout must leave: {available} of {least} of {}", name(owner))
        })
    }

    fn pod(&mut self, cluster: &Cluster, before: Option<&Value>, after: Option<&Value>) -> CheckResult {
        let Some(owner) = after.or(before).and_then(controller) else { return Ok(()) };
        let owner_uid = text(&owner["uid"]);
        if owner["kind"] == "Job" {
            self.note_end(owner_uid, after.or(before), after.is_none());
        }
        let Some(owner) = cluster.by_uid(owner_uid) else { return Ok(()) };
        let leaves = before.is_some_and(|pod| !is_leaving(pod));
        match (before, after) {
            (None, Some(pod)) => self.made(cluster, owner, pod)?,
            (Some(_), Some(pod)) if leaves && is_leaving(pod) => self.taken(cluster, owner, pod)?,
            _ => {}
        }
        match text(&owner["kind"]) {
            "DaemonSet" => self.keeps_available(cluster, owner),
            "ReplicaSet" => match cluster.deployment_of(owner) {
                Some(deployment) => self.keeps_available(cluster, deployment),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn note_end(&mut self, job: &str, pod: Option<&Value>, is_gone: bool) {
        let Some(pod) = pod else { return };
        if pod["status"]["phase"] == "Succeeded" {
            self.succeeded.entry(job.to_owned()).or_default().insert(uid(pod).to_owned());
        }
        // A controller may not know yet that a pod has succeeded. For such a controller, a pod that is being deleted
        // counts as failed.
        if is_gone || is_leaving(pod) || pod["status"]["phase"] == "Failed" {
            self.ended.entry(job.to_owned()).or_default().insert(uid(pod).to_owned());
        }
    }

    /// Checks that a controller was right to create a pod.
    fn made(&self, cluster: &Cluster, owner: &Value, pod: &Value) -> CheckResult {
        if !self.exact || is_leaving(owner) {
            return Ok(());
        }
        let active = || cluster.controlled("pods", uid(owner)).filter(|pod| is_active(pod));
        let too_many = |most: i64| {
            let count = active().count() as i64;
            ensure(count <= most, || format!("a pod too many is made: {count} of {most} for {}", name(owner)))
        };
        match text(&owner["kind"]) {
            "ReplicaSet" => too_many(self.most.get(uid(owner)).copied().unwrap_or(i64::MAX)),
            "Job" => too_many(number(&owner["spec"]["parallelism"], 1)),
            "StatefulSet" if self.calm && owner["spec"]["podManagementPolicy"] == "OrderedReady" => {
                let below = active().filter(|other| ordinal(other) < ordinal(pod) && is_available(other)).count();
                let wanted = ordinal(pod);
                ensure(below as i64 == wanted, || {
                    format!("a pod is made before those below it are ready: {}", name(pod))
                })
            }
            "DaemonSet" if self.calm => {
                let node = node_of(pod);
                let taints = cluster.named("nodes", node).map(|node| &node["spec"]["taints"]).unwrap_or(&Value::Null);
                ensure(items(taints).next().is_none(), || {
                    format!("a daemon is made on a node that repels it: {node}")
                })?;
                let here = active().filter(|pod| node_of(pod) == node).count();
                ensure(here == 1, || format!("several daemons are made for one node: {here} for {node}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a controller was right to request the deletion of a pod.
    fn taken(&self, cluster: &Cluster, owner: &Value, pod: &Value) -> CheckResult {
        let is_meant = self.calm && owner["kind"] == "StatefulSet" && !is_leaving(owner) && is_observed(owner);
        let replicas = number(&owner["spec"]["replicas"], 1);
        if !is_meant || ordinal(pod) >= replicas {
            return Ok(());
        }
        let partition = number(&owner["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 0);
        ensure(ordinal(pod) >= partition, || format!("a pod below the partition is replaced: {}", name(pod)))?;
        let above = cluster
            .controlled("pods", uid(owner))
            .filter(|other| (ordinal(pod) + 1..replicas).contains(&ordinal(other)) && is_available(other));
        let above = above.count() as i64;
        ensure(above == replicas - 1 - ordinal(pod), || {
            format!("a pod is replaced before those above it are ready: {}", name(pod))
        })
    }

    fn job(&self, cluster: &Cluster, before: Option<&Value>, job: &Value) -> CheckResult {
        let (status, spec) = (&job["status"], &job["spec"]);
        let (succeeded, failed) = (number(&status["succeeded"], 0), number(&status["failed"], 0));
        let of = |seen: &BTreeMap<String, BTreeSet<String>>| seen.get(uid(job)).map_or(0, BTreeSet::len) as i64;
        let (ever, lost) = (of(&self.succeeded), of(&self.ended));
        ensure(succeeded <= ever, || format!("a job counts more successes than pods: {succeeded} of {ever}"))?;
        ensure(failed <= lost, || format!("a job counts more failures than pods: {failed} of {lost}"))?;
        if has_condition(job, "Complete") {
            let wanted = number(&spec["completions"], 1);
            ensure(succeeded >= wanted, || format!("a job is complete too early: {succeeded} of {wanted}"))?;
        }
        let tries = number(&spec["backoffLimit"], 6) + number(&spec["parallelism"], 1);
        ensure(self.doubted || failed <= tries, || {
            format!("a job tries again and again: {failed} failures of {tries}")
        })?;
        match before {
            Some(before) => {
                let counted = number(&before["status"]["succeeded"], 0);
                ensure(succeeded >= counted, || format!("a job forgets successes: {succeeded} of {counted}"))
            }
            None => self.starts(cluster, job),
        }
    }

    /// Checks that a CronJob with the policy Forbid does not start a Job while another of its Jobs runs.
    fn starts(&self, cluster: &Cluster, job: &Value) -> CheckResult {
        let Some(owner) = controller(job).and_then(|owner| cluster.by_uid(text(&owner["uid"]))) else { return Ok(()) };
        if !self.exact || owner["spec"]["concurrencyPolicy"] != "Forbid" {
            return Ok(());
        }
        let runs = |job: &&Value| !(has_condition(job, "Complete") || has_condition(job, "Failed") || is_leaving(job));
        let count = cluster.controlled("jobs", uid(owner)).filter(runs).count();
        ensure(count <= 1, || format!("jobs run side by side though that is forbidden: {count}"))
    }

    /// Records the dependents that an owner should orphan, so far as the manager knows these dependents.
    fn see_orphaning(&mut self, cluster: &Cluster, manager: &Manager, event: &Event) {
        let is_marked = |object: &Value| is_leaving(object) && has_finalizer(object, ORPHAN);
        let Some(owner) = event.after.as_deref().filter(|after| is_marked(after)) else { return };
        if event.before.as_deref().is_some_and(is_marked) {
            return;
        }
        for plural in ["replicasets", "pods", "jobs"] {
            let known = |owned: &&Value| manager.driver.world().by_uid(uid(owned)).is_some();
            for owned in cluster.controlled(plural, uid(owner)).filter(known) {
                self.left.insert((uid(owner).to_owned(), uid(owned).to_owned()));
            }
        }
    }

    /// Checks that a controller may delete an object.
    pub fn may_delete(&self, cluster: &Cluster, who: &str, action: &Action, now: Time) -> CheckResult {
        let Verb::Delete { .. } = action.verb else { return Ok(()) };
        let Some(object) = cluster.get(action.resource.plural(), &action.key) else { return Ok(()) };
        match who {
            "garbage-collector-controller" => {
                for owner in items(&object["metadata"]["ownerReferences"]) {
                    let owner = text(&owner["uid"]);
                    let stays = |owner: &Value| !(is_leaving(owner) && has_finalizer(owner, FOREGROUND));
                    let alive = cluster.by_uid(owner).is_some_and(stays);
                    ensure(!alive, || format!("what has an owner is collected: {}", action.key))?;
                    let pair = (owner.to_owned(), uid(object).to_owned());
                    ensure(!self.left.contains(&pair), || format!("an orphan is collected: {}", action.key))?;
                }
                Ok(())
            }
            "ttl-after-finished-controller" => {
                let end = items(&object["status"]["conditions"])
                    .filter(|condition| condition["type"] == "Complete" || condition["type"] == "Failed")
                    .find_map(|condition| Time::parse(text(&condition["lastTransitionTime"])));
                let kept = number(&object["spec"]["ttlSecondsAfterFinished"], i64::from(i32::MAX));
                let is_due = end.is_some_and(|end| end.plus_seconds(kept) <= now);
                ensure(is_due, || format!("a job goes before its time: {}", action.key))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a ReplicaSet has the number of pods that its spec requires. If it has more, its controller deletes some of
/// them, whether they are ready or not.
fn is_in_step(cluster: &Cluster, set: &Value) -> bool {
    let active = cluster.controlled("pods", uid(set)).filter(|pod| is_active(pod)).count();
    active as i64 == number(&set["spec"]["replicas"], 1)
}

/// Whether a Deployment with several ReplicaSets has another size than the size for which its ReplicaSets were last
/// scaled.
fn is_resized(cluster: &Cluster, owner: &Value) -> bool {
    let wanted = number(&owner["spec"]["replicas"], 1).to_string();
    let sets = cluster.controlled("replicasets", uid(owner)).filter(|set| set["spec"]["replicas"] != 0);
    let sets: Vec<&Value> = sets.collect();
    sets.len() > 1
        && sets.iter().any(|set| set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] != *wanted)
}

/// The minimum number of pods of a Deployment that must be available, and the maximum number of its pods.
fn bounds(deployment: &Value) -> (i64, i64) {
    let replicas = number(&deployment["spec"]["replicas"], 1);
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    match rolling.is_null() {
        true => (0, replicas),
        false => (replicas - number(&rolling["maxUnavailable"], 0), replicas + number(&rolling["maxSurge"], 0)),
    }
}

pub fn node_of(pod: &Value) -> &str {
    let terms =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    text(&terms[0]["matchFields"][0]["values"][0])
}

//! The status of a StatefulSet.

use super::{Members, Sync};
use crate::revisions::POD_REVISION;
use crate::subject::{Subject, count};
use holdfast_value::{Map, Value};
use holdfast_world::views::{Pod, StatefulSet};
use holdfast_world::{Action, Time, Viewed};

/// Sets the status's numbers of pods that do not depend on revisions. `made` is how many pods the plan creates. Returns
/// the numbers of replicas and of ready pods.
fn count_pods(status: &mut Map, set: Viewed<'_, StatefulSet>, pods: &Members<'_>, made: i64, now: Time) -> (i64, i64) {
    let number = |holds: &dyn Fn(&Viewed<'_, Pod>) -> bool| {
        i64::try_from(pods.all().filter(|pod| holds(pod)).count()).unwrap_or(i64::MAX)
    };
    let is_running = |pod: &Viewed<'_, Pod>| pod.status.phase == "Running" && pod.is_ready();
    let (replicas, ready) = (number(&|_| true) + made, number(&is_running));
    let available =
        number(&|pod: &Viewed<'_, Pod>| is_running(pod) && pod.is_available(set.spec.min_ready_seconds, now));
    status.insert("replicas", replicas.into());
    status.insert("availableReplicas", available.into());
    count(status, "readyReplicas", ready);
    count(status, "observedGeneration", set.meta().generation);
    // This controller writes no conditions into a StatefulSet's status; as in Kubernetes, conditions of other writers
    // are removed.
    status.remove("conditions");
    (replicas, ready)
}

/// The status of a set that is being deleted.
pub fn leaving(set: Viewed<'_, StatefulSet>, pods: &Members<'_>, now: Time) -> Option<Action> {
    written(set, |status| {
        count_pods(status, set, pods, 0, now);
        for (field, revision) in [("currentReplicas", "currentRevision"), ("updatedReplicas", "updateRevision")] {
            let revision = status.get(revision).and_then(Value::as_str).unwrap_or_default();
            let number = of_revision(pods, revision);
            count(status, field, number);
        }
    })
}

/// How many of the pods that are not being deleted have this revision.
fn of_revision(pods: &Members<'_>, revision: &str) -> i64 {
    let is_of = |pod: &Viewed<'_, Pod>| pod.meta().label(POD_REVISION) == Some(revision) && !pod.meta().is_deleting();
    i64::try_from(pods.all().filter(is_of).count()).unwrap_or(i64::MAX)
}

/// The write of a changed status; `None` if none of this controller's fields changed, whatever else is in the status.
fn written(set: Viewed<'_, StatefulSet>, change: impl FnOnce(&mut Map)) -> Option<Action> {
    const TOLD: [&str; 8] = [
        "observedGeneration",
        "replicas",
        "currentReplicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
        "currentRevision",
        "updateRevision",
    ];
    Subject::from(set).status(|status| {
        let before = status.clone();
        change(status);
        let told = |status: &Map, field: &str| status.get(field).filter(|value| **value != 0).cloned();
        if TOLD.iter().all(|field| told(&before, field) == told(status, field)) {
            *status = before;
        }
    })
}

impl Sync<'_> {
    pub fn status(&self) -> Option<Action> {
        let present = self.revisions.present.name();
        let current = self.current().map_or(present, |seen| &seen.object.meta.name);
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let of = |revision: &str| {
            let made = self.made.iter().filter(|made| *made == revision).count();
            of_revision(&self.pods, revision).saturating_add(number(made))
        };
        let made = number(self.made.len());
        written(self.set, |status| {
            let (replicas, ready) = count_pods(status, self.set, &self.pods, made, self.stamp.time);
            let updated = of(present);
            let all = self.pods.replicas;
            let is_rolling = self.set.spec.update_strategy.kind != "OnDelete";
            let is_complete = is_rolling && [replicas, ready, updated].iter().all(|number| *number == all);
            let current = if is_complete { present } else { current };
            count(status, "currentReplicas", of(current));
            count(status, "updatedReplicas", updated);
            status.insert("currentRevision", current.into());
            status.insert("updateRevision", present.into());
            status.insert("collisionCount", self.revisions.collisions.into());
        })
    }
}

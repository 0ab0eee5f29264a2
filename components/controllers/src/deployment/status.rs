//! The status of a Deployment: its numbers of pods, and the progress of its rollout.

use super::Sync;
use crate::conditions::Conditions;
use crate::replicas::REPLICA_FAILURE;
use crate::subject::count;
use holdfast_value::{Map, Value, json};
use holdfast_world::Time;
use holdfast_world::views::Condition;
use holdfast_world::views::Deployment;

pub const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
/// The reasons of the condition [`PROGRESSING`].
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// Whether the Deployment has a progress deadline. The largest 32-bit number means none.
pub fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i64::from(i32::MAX))
}

/// The numbers of pods in a Deployment's status.
struct Numbers {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
    unavailable: i64,
    terminating: Option<i64>,
}

impl Sync<'_> {
    fn numbers(&self) -> Numbers {
        let available = self.available();
        Numbers {
            replicas: self.sets().map(|set| set.seen.status.replicas).sum(),
            updated: self.new.as_ref().map_or(0, |set| set.seen.status.replicas),
            ready: self.sets().map(|set| set.seen.status.ready_replicas).sum(),
            available,
            unavailable: (self.asked() - available).max(0),
            terminating: self.terminating(),
        }
    }

    /// The number of terminating pods; `None` if some set does not report its number. A set that its controller has not
    /// observed yet has no terminating pods.
    fn terminating(&self) -> Option<i64> {
        let told = |set: &super::Set<'_>| match set.seen.status.observed_generation {
            0 => Some(set.seen.status.terminating_replicas.unwrap_or(0)),
            _ => set.seen.status.terminating_replicas,
        };
        self.sets().map(told).sum()
    }

    pub fn has_condition(&self, kind: &str) -> bool {
        Condition::find(&self.deployment.status.conditions, kind).is_some()
    }

    /// Sets the condition [`PROGRESSING`] after the rollout was paused or resumed. The condition of a rollout whose
    /// deadline has passed does not change.
    pub fn note_pause(&mut self) {
        let condition = Condition::find(&self.deployment.status.conditions, PROGRESSING);
        let reason = condition.map_or("", |condition| condition.reason.as_str());
        let (reason, message) = match (self.deployment.spec.paused, reason) {
            (_, TIMED_OUT) | (true, PAUSED) => return,
            (true, _) => (PAUSED, "Deployment is paused"),
            (false, PAUSED) => ("DeploymentResumed", "Deployment is resumed"),
            (false, _) => return,
        };
        if has_deadline(&self.deployment) {
            let now = self.stamp.time;
            self.write_conditions(|conditions| conditions.set(PROGRESSING, "Unknown", reason, message.to_owned(), now));
        }
    }

    /// Whether the rollout is complete by the stored status.
    pub fn is_complete_as_told(&self) -> bool {
        let status = &self.deployment.status;
        let all = self.replicas();
        let is_current = status.observed_generation >= self.deployment.meta().generation;
        is_current && [status.updated_replicas, status.replicas, status.available_replicas].iter().all(|n| *n == all)
    }

    /// Writes only the numbers of pods into the status.
    pub fn write_numbers(&mut self) {
        let numbers = self.numbers();
        self.write_with_conditions(&numbers, |_| ());
    }

    /// Writes the numbers of pods into the status, and whether the rollout progresses, is late or is complete.
    pub fn write_progress(&mut self) {
        let numbers = self.numbers();
        let failure = self.replica_failure();
        let progress = self.progress(&numbers);
        let (now, has_deadline) = (self.stamp.time, has_deadline(&self.deployment));
        self.write_with_conditions(&numbers, |conditions| {
            match progress {
                _ if !has_deadline => conditions.remove(PROGRESSING),
                RolloutProgress::Complete(message) => conditions.set(PROGRESSING, "True", COMPLETE, message, now),
                RolloutProgress::Made(message) => {
                    conditions.renew(PROGRESSING, "True", "ReplicaSetUpdated", message, now)
                }
                RolloutProgress::Late(message) => conditions.set(PROGRESSING, "False", TIMED_OUT, message, now),
                RolloutProgress::None => {}
            }
            match failure {
                None => conditions.remove(REPLICA_FAILURE),
                Some(failure) if is_known(conditions, &failure) => {}
                Some(failure) => {
                    conditions.remove(REPLICA_FAILURE);
                    conditions.push(failure);
                }
            }
        });
        self.look_again_at_the_deadline(&numbers);
    }

    fn write_with_conditions(&mut self, numbers: &Numbers, change: impl FnOnce(&mut Conditions)) {
        let (now, generation) = (self.stamp.time, self.deployment.meta().generation);
        let is_available = numbers.available >= self.min_available();
        self.write_status(|status| {
            numbers.write(status);
            count(status, "observedGeneration", generation);
            let mut conditions = Conditions::take(status);
            let (state, reason, message) = match is_available {
                true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
                false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
            };
            conditions.set(AVAILABLE, state, reason, message.to_owned(), now);
            change(&mut conditions);
            conditions.put(status);
        });
    }

    fn progress(&self, numbers: &Numbers) -> RolloutProgress {
        let condition = Condition::find(&self.deployment.status.conditions, PROGRESSING);
        let was_complete = condition.is_some_and(|condition| condition.reason == COMPLETE);
        if !has_deadline(&self.deployment) || (was_complete && numbers.replicas == numbers.updated) {
            return RolloutProgress::None;
        }
        let whose = match &self.new {
            Some(set) => format!("ReplicaSet \"{}\"", set.name()),
            None => format!("Deployment \"{}\"", self.deployment.meta().name),
        };
        if numbers.are_all(self.replicas()) {
            return RolloutProgress::Complete(format!("{whose} has successfully progressed."));
        }
        if self.is_progress(numbers) {
            return RolloutProgress::Made(format!("{whose} is progressing."));
        }
        let deadline = self.deadline().filter(|_| !was_complete);
        let is_late = condition.is_some_and(|condition| condition.reason == TIMED_OUT);
        if is_late || deadline.is_some_and(|deadline| deadline < self.stamp.time) {
            return RolloutProgress::Late(format!("{whose} has timed out progressing."));
        }
        RolloutProgress::None
    }

    /// Whether there are more new pods, fewer old pods, or more ready or available pods than in the stored status.
    fn is_progress(&self, numbers: &Numbers) -> bool {
        let old = &self.deployment.status;
        numbers.updated > old.updated_replicas
            || numbers.replicas - numbers.updated < old.replicas - old.updated_replicas
            || numbers.ready > old.ready_replicas
            || numbers.available > old.available_replicas
    }

    /// The time at which the rollout counts as late if it makes no progress until then.
    fn deadline(&self) -> Option<Time> {
        let condition = Condition::find(&self.deployment.status.conditions, PROGRESSING)?;
        let seconds = self.deployment.spec.progress_deadline_seconds?;
        Some(condition.last_update_time?.plus_seconds(seconds))
    }

    fn look_again_at_the_deadline(&mut self, numbers: &Numbers) {
        let condition = Condition::find(&self.deployment.status.conditions, PROGRESSING);
        let is_late = condition.is_some_and(|condition| condition.reason == TIMED_OUT);
        if has_deadline(&self.deployment)
            && !is_late
            && !numbers.are_all(self.replicas())
            && let Some(deadline) = self.deadline()
        {
            // Stored times have whole seconds: one second later the deadline has certainly passed.
            self.plan.requeue_at(deadline.plus_seconds(1).max(self.stamp.time.plus_seconds(1)));
        }
    }

    /// The condition [`REPLICA_FAILURE`] of the new set; if the new set does not have the condition, of any other set.
    fn replica_failure(&self) -> Option<Value> {
        let of = |set: &super::Set<'_>| Condition::find(&set.seen.status.conditions, REPLICA_FAILURE).cloned();
        let failure = self.new.as_ref().and_then(of).or_else(|| self.old.iter().find_map(of))?;
        Some(json!({
            "type": failure.kind,
            "status": failure.status,
            "reason": failure.reason,
            "message": failure.message,
            "lastUpdateTime": failure.last_transition_time,
            "lastTransitionTime": failure.last_transition_time,
        }))
    }
}

fn is_known(conditions: &Conditions, failure: &Value) -> bool {
    let known = conditions.get(REPLICA_FAILURE);
    known.is_some_and(|known| failure["status"] == known.status && failure["reason"] == known.reason)
}

/// How far a rollout is, with the message of the condition.
enum RolloutProgress {
    Complete(String),
    Made(String),
    Late(String),
    /// The condition stays as it is.
    None,
}

impl Numbers {
    fn are_all(&self, replicas: i64) -> bool {
        [self.updated, self.replicas, self.available].iter().all(|number| *number == replicas)
    }

    fn write(&self, status: &mut Map) {
        count(status, "replicas", self.replicas);
        count(status, "updatedReplicas", self.updated);
        count(status, "readyReplicas", self.ready);
        count(status, "availableReplicas", self.available);
        count(status, "unavailableReplicas", self.unavailable);
        match self.terminating {
            Some(number) => status.insert("terminatingReplicas", number.into()),
            None => status.remove("terminatingReplicas"),
        };
    }
}

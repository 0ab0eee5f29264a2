//! Counts the pods of a Job: writes the Job's status, and removes the finalizers of counted pods.

use super::indexes::Indexes;
use super::job_pods::{JobPod, untrack};
use super::sync::{JobEnd, Sync};
use crate::planted::{Bug, planted};
use crate::subject::count;
use holdfast_value::{Map, json};
use holdfast_world::views::Condition;
use holdfast_world::views::batch::Uncounted;
use holdfast_world::{Plan, Time};

/// How many pods the status may list as uncounted at a time.
const UNCOUNTED_MAX: usize = 500;

pub struct Tracking<'w> {
    sync: Sync<'w>,
    uncounted: Uncounted,
    succeeded: i64,
    failed: i64,
    /// Indexes whose pods this plan counts.
    new_indexes: Vec<i64>,
    released: Vec<JobPod<'w>>,
    is_full: bool,
}

impl<'w> Tracking<'w> {
    /// Completes a plan: first writes the status, and then removes the finalizers of the pods that the status counts.
    pub fn finish(sync: Sync<'w>) -> Plan {
        let status = &sync.job.view.status;
        let mut tracking = Tracking {
            uncounted: status.uncounted_terminated_pods.clone().unwrap_or_default(),
            succeeded: status.succeeded,
            failed: status.failed,
            new_indexes: Vec::new(),
            released: Vec::new(),
            is_full: false,
            sync,
        };
        tracking.count_released();
        tracking.note_ended();
        tracking.write()
    }

    /// Moves pods from the status's list of uncounted pods to its counts once their finalizer was removed.
    fn count_released(&mut self) {
        let held = &self.sync.held;
        let clean = |uids: &mut Vec<String>| {
            let before = uids.len();
            uids.retain(|uid| held.contains(uid) && !planted(Bug::CountedTooEarly));
            (before - uids.len()) as i64
        };
        self.succeeded += clean(&mut self.uncounted.succeeded);
        self.failed += clean(&mut self.uncounted.failed);
    }

    /// Chooses the pods whose finalizer this plan removes: the pods that have ended, or all pods if the Job has ended
    /// or is being deleted. A failed pod that is still to be replaced keeps the finalizer. Pods that count and are not
    /// counted yet are added to the status's list of uncounted pods, or to `new_indexes`.
    fn note_ended(&mut self) {
        let (end, job) = (self.sync.end.clone(), self.sync.job);
        for member in self.sync.members.iter().filter(|member| member.is_tracked) {
            if !self.can_release(member) {
                continue;
            }
            self.released.push(*member);
            let is_countable = self.sync.is_countable(member);
            let fails = member.is_failed || end.as_ref().is_some_and(|end| !end.succeeds);
            let is_known = |uids: &[String]| uids.iter().any(|uid| uid == member.uid());
            if member.is_succeeded && !is_known(&self.uncounted.failed) {
                match member.index.filter(|_| is_countable) {
                    Some(index) => self.new_indexes.push(index),
                    None if self.sync.is_indexed() || is_known(&self.uncounted.succeeded) => {}
                    None => self.uncounted.succeeded.push(member.uid().to_owned()),
                }
            } else if fails && is_countable && !is_known(&self.uncounted.failed) && member.counts(&job) {
                self.uncounted.failed.push(member.uid().to_owned());
            }
            let waiting = self.new_indexes.len() + self.uncounted.succeeded.len() + self.uncounted.failed.len();
            if waiting >= UNCOUNTED_MAX {
                self.is_full = true;
                break;
            }
        }
    }

    fn can_release(&self, member: &JobPod<'_>) -> bool {
        if self.sync.job.meta().is_deleting() || self.sync.end.is_some() || member.is_succeeded {
            return true;
        }
        let is_kept = |index: i64| self.sync.to_replace.get(&index).is_some_and(|kept| kept.uid() == member.uid());
        member.is_failed && !member.index.is_some_and(is_kept)
    }

    fn write(mut self) -> Plan {
        let end = self.sync.end.clone();
        let is_over = end.as_ref().filter(|end| self.is_over(end)).is_some();
        let mut plan = std::mem::take(&mut self.sync.plan);
        let mut notes = std::mem::take(&mut self.sync.notes);
        if let Some(end) = end.as_ref().filter(|_| is_over) {
            notes.extend(self.notes_of_end(end));
        }
        let owner = self.sync.owner;
        let told = notes.pop();
        if let Some(mut action) = owner.status(|status| self.fill(status, is_over)) {
            plan.events.extend(notes);
            action.event = told;
            plan.then(action);
        }
        plan.together(self.released.iter().map(|member| untrack(member.pod)).collect());
        plan
    }

    /// Whether the Job's end was announced, all pods are counted and have lost their finalizer, and none is
    /// terminating.
    fn is_over(&self, end: &JobEnd) -> bool {
        Condition::is_true(&self.sync.job.view.status.conditions, end.announced())
            && self.uncounted == Uncounted::default()
            && self.released.is_empty()
            && self.sync.terminating == 0
            && !self.is_full
    }

    fn notes_of_end(&self, end: &JobEnd) -> Vec<holdfast_world::PlannedEvent> {
        let owner = self.sync.owner;
        let mut notes = Vec::new();
        if !end.succeeds {
            notes.push(owner.warning(end.reason_for_event(), end.message.clone()));
            return notes;
        }
        if self.sync.job.spec.completions.is_some_and(|completions| self.total() > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            notes.push(owner.warning("TooManySucceededPods", message.into()));
        }
        notes.push(owner.normal("Completed", "Job completed".into()));
        notes
    }

    /// The number of successes that the status counts.
    fn total(&self) -> i64 {
        if self.sync.is_indexed() { self.indexes().count() } else { self.succeeded }
    }

    /// The succeeded indexes that the status shows after this plan.
    fn indexes(&self) -> Indexes {
        self.sync.succeeded_indexes.with(self.new_indexes.iter().copied())
    }

    fn fill(&self, status: &mut Map, is_over: bool) {
        let sync = &self.sync;
        count(status, "active", sync.active);
        status.insert("ready", sync.ready.into());
        status.insert("terminating", sync.terminating.into());
        count(status, "succeeded", self.total());
        count(status, "failed", self.failed);
        let mut uncounted = Map::new();
        for (field, uids) in [("succeeded", &self.uncounted.succeeded), ("failed", &self.uncounted.failed)] {
            if !uids.is_empty() {
                uncounted.insert(field, json!(uids));
            }
        }
        status.insert("uncountedTerminatedPods", uncounted.into());
        if sync.is_indexed() {
            set_text(status, "completedIndexes", Some(self.indexes().to_string()).filter(|text| !text.is_empty()));
            set_text(status, "failedIndexes", sync.failed_indexes.as_ref().map(Indexes::to_string));
        }
        set_text(status, "startTime", sync.start.or(is_over.then_some(sync.now)).map(|time| time.to_string()));
        if let Some(suspended) = sync.suspended {
            let (reason, message) =
                if suspended { ("JobSuspended", "Job suspended") } else { ("JobResumed", "Job resumed") };
            set_condition(status, "Suspended", suspended, reason, message, sync.now);
        }
        let Some(end) = &sync.end else { return };
        set_condition(status, end.announced(), true, &end.reason, &end.message, sync.now);
        if is_over {
            set_condition(status, end.terminal(), true, &end.reason, &end.message, sync.now);
            set_text(status, "completionTime", end.succeeds.then(|| sync.now.to_string()));
        }
    }
}

impl JobEnd {
    /// The type of the condition that announces the end before all pods have ended.
    fn announced(&self) -> &'static str {
        if self.succeeds { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    /// The type of the condition that shows the end itself.
    fn terminal(&self) -> &'static str {
        if self.succeeds { "Complete" } else { "Failed" }
    }

    fn reason_for_event(&self) -> &'static str {
        const REASONS: [&str; 5] = [
            "PodFailurePolicy",
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "MaxFailedIndexesExceeded",
            "FailedIndexes",
        ];
        REASONS.into_iter().find(|reason| *reason == self.reason).unwrap_or("JobFailed")
    }
}

fn set_text(status: &mut Map, field: &str, text: Option<String>) {
    match text {
        Some(text) => status.insert(field, text.into()),
        None => status.remove(field),
    };
}

/// Sets a condition, unless it has this status already.
fn set_condition(status: &mut Map, kind: &str, holds: bool, reason: &str, message: &str, now: Time) {
    let value = if holds { "True" } else { "False" };
    let condition = json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    });
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(known) if known["status"] == value => {}
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

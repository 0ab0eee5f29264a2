//! Decides for one Job how many pods it needs, and whether it has ended.

use super::indexes::Indexes;
use super::job_pods::{self, JobPod, PodSource, untrack};
use super::policy::{self, FailureAction};
use crate::planted::{Bug, planted};
use crate::pods;
use crate::subject::Subject;
use holdfast_value::Value;
use holdfast_world::views::Condition;
use holdfast_world::views::Job;
use holdfast_world::{Plan, PlannedEvent, Time, Viewed};
use std::collections::{BTreeMap, BTreeSet};

/// How many pods one plan creates at most, and how many it deletes at most.
const PODS_MAX: usize = 500;

/// Whether a plan may create and delete pods to reach the wanted number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manage {
    Pods,
    Nothing,
}

/// How a Job ends: successfully or not, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    pub succeeds: bool,
    pub reason: String,
    pub message: String,
}

impl JobEnd {
    fn fails(reason: &str, message: &str) -> JobEnd {
        JobEnd { succeeds: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn succeeds(reason: &str, message: &str) -> JobEnd {
        JobEnd { succeeds: true, reason: reason.to_owned(), message: message.to_owned() }
    }
}

/// One Job, everything that is computed about it, and its plan.
pub struct Sync<'w> {
    pub owner: Subject<'w>,
    pub job: Viewed<'w, Job>,
    pub members: Vec<JobPod<'w>>,
    /// The uids of the pods that have the finalizer.
    pub held: BTreeSet<String>,
    pub now: Time,
    /// The succeeded indexes, including indexes whose pods are not counted yet.
    pub succeeded_indexes: Indexes,
    /// The failed indexes; `None` if the Job does not count failures for each index.
    pub failed_indexes: Option<Indexes>,
    /// Failed pods that keep their finalizer until they are replaced, by index.
    pub to_replace: BTreeMap<i64, JobPod<'w>>,
    pub succeeded: i64,
    pub failed: i64,
    pub active: i64,
    pub ready: i64,
    pub terminating: i64,
    pub end: Option<JobEnd>,
    pub start: Option<Time>,
    /// The new value of the Job's condition `Suspended`; `None` if the condition does not change.
    pub suspended: Option<bool>,
    pub notes: Vec<PlannedEvent>,
    /// The uids of the pods that this plan releases before it deletes them.
    pub released: BTreeSet<String>,
    pub plan: Plan,
}

impl<'w> Sync<'w> {
    pub fn new(
        owner: Subject<'w>,
        job: Viewed<'w, Job>,
        mut members: Vec<JobPod<'w>>,
        held: BTreeSet<String>,
        now: Time,
    ) -> Sync<'w> {
        if job.spec.completion_mode != "Indexed" {
            members.iter_mut().for_each(|member| member.index = None);
        }
        members.sort_by(|a, b| (a.index, &a.pod.meta().name).cmp(&(b.index, &b.pod.meta().name)));
        let is_active = |member: &&JobPod<'_>| member.is_active;
        let active = members.iter().filter(is_active).count() as i64;
        let ready = members.iter().filter(is_active).filter(|member| member.pod.is_ready()).count() as i64;
        let terminating = members.iter().filter(|member| member.is_terminating()).count() as i64;
        let start = job.status.start_time.or_else(|| (!job.spec.suspend).then_some(now));
        let mut sync = Sync {
            owner,
            job,
            members,
            held,
            now,
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            to_replace: BTreeMap::new(),
            succeeded: 0,
            failed: 0,
            active,
            ready,
            terminating,
            end: None,
            start,
            suspended: None,
            notes: Vec::new(),
            released: BTreeSet::new(),
            plan: Plan::default(),
        };
        sync.count();
        sync
    }

    pub fn is_indexed(&self) -> bool {
        self.job.spec.completion_mode == "Indexed"
    }

    /// The number of indexes of an indexed Job: its `spec.completions`.
    pub fn completions(&self) -> i64 {
        self.job.spec.completions.unwrap_or(0)
    }

    /// Whether a pod can be counted: in an indexed Job it must have a valid index.
    pub fn is_countable(&self, member: &JobPod<'_>) -> bool {
        !self.is_indexed() || member.index.is_some_and(|index| index < self.completions())
    }

    /// Counts the succeeded and the failed pods, including pods that the status does not count yet.
    fn count(&mut self) {
        let status = &self.job.view.status;
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let new = |member: &&JobPod<'_>, known: &[String]| {
            member.is_tracked && self.is_countable(member) && !known.iter().any(|uid| uid == member.uid())
        };
        let members = self.members.iter();
        let succeeded = members.clone().filter(|member| member.is_succeeded && new(member, &uncounted.succeeded));
        let failed = members.filter(|member| member.is_failed && new(member, &uncounted.failed));
        let failed = failed.filter(|member| member.counts(&self.job)).count() + uncounted.failed.len();
        self.succeeded = status.succeeded + (succeeded.count() + uncounted.succeeded.len()) as i64;
        self.failed = status.failed + failed as i64;
        if self.is_indexed() {
            self.count_indexes();
        }
    }

    fn count_indexes(&mut self) {
        let (job, completions) = (self.job, self.completions());
        let tracked = || self.members.iter().filter(|member| member.is_tracked && self.is_countable(member));
        let new = tracked().filter(|member| member.is_succeeded).filter_map(|member| member.index);
        let succeeded = Indexes::parse(&job.view.status.completed_indexes, completions).with(new);
        if let Some(limit) = job.spec.backoff_limit_per_index {
            let known = job.view.status.failed_indexes.as_deref().unwrap_or_default();
            let new = tracked().filter(|member| member.fails_index(&job, limit)).filter_map(|member| member.index);
            let failed = Indexes::parse(known, completions).with(new);
            self.to_replace = job_pods::to_replace(&job, &self.members, &succeeded.and(&failed));
            self.failed_indexes = Some(failed);
        }
        self.succeeded = succeeded.count();
        self.succeeded_indexes = succeeded;
    }

    /// Decides whether the Job has ended for a reason other than enough succeeded pods: the status shows an end
    /// already, the Job has failed, or its success policy is satisfied.
    pub fn decide(&mut self) {
        self.end = self.known_end().or_else(|| self.failure()).or_else(|| self.index_failure()).or_else(|| {
            let policy = self.job.view.spec.success_policy.as_ref();
            let message = policy::success(policy, self.completions(), &self.succeeded_indexes)?;
            Some(JobEnd::succeeds("SuccessPolicy", &message))
        });
    }

    /// The end that the status already shows.
    fn known_end(&self) -> Option<JobEnd> {
        let conditions = &self.job.view.status.conditions;
        let known = |kind: &str| Condition::find(conditions, kind).filter(|condition| condition.status == "True");
        let end = |condition: &Condition, succeeds| JobEnd {
            succeeds,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        };
        let success = known("SuccessCriteriaMet").map(|condition| end(condition, true));
        success.or_else(|| known("FailureTarget").map(|condition| end(condition, false)))
    }

    fn failure(&mut self) -> Option<JobEnd> {
        let spec = &self.job.view.spec;
        for member in self.members.iter().filter(|member| member.is_failed) {
            if let FailureAction::FailsJob(message) = member.verdict(&self.job) {
                return Some(JobEnd::fails("PodFailurePolicy", &message));
            }
        }
        let limit = spec.backoff_limit.unwrap_or(i64::from(i32::MAX));
        let limit = if planted(Bug::LimitIgnored) { i64::MAX } else { limit };
        let restarts = self.restarts();
        if self.failed > limit || restarts > 0 && restarts >= limit && spec.template.spec.restart_policy == "OnFailure"
        {
            return Some(JobEnd::fails("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let (seconds, start) = (spec.active_deadline_seconds?, self.start.filter(|_| !spec.suspend)?);
        let deadline = start.plus_seconds(seconds);
        if deadline <= self.now {
            return Some(JobEnd::fails("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        self.plan.requeue_at(deadline);
        None
    }

    fn index_failure(&self) -> Option<JobEnd> {
        let failed = self.failed_indexes.as_ref()?.count();
        let limit = self.job.view.spec.max_failed_indexes;
        if limit.is_some_and(|limit| failed > limit) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(JobEnd::fails("MaxFailedIndexesExceeded", message));
        }
        let is_over = failed > 0 && failed + self.succeeded >= self.completions();
        is_over.then(|| JobEnd::fails("FailedIndexes", "Job has failed indexes"))
    }

    /// How many times containers of the Job's pods were restarted.
    fn restarts(&self) -> i64 {
        let pods = self.members.iter().map(|member| &member.pod.view.status);
        let running = pods.filter(|status| matches!(status.phase.as_str(), "Running" | "Pending"));
        let statuses =
            running.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses));
        statuses.map(|status| status.restart_count).fold(0, i64::saturating_add)
    }

    /// Creates or deletes pods to reach the wanted number.
    pub fn act(&mut self, manage: Manage) {
        if self.end.is_some() {
            let going: Vec<_> = self.members.iter().filter(|member| member.is_active).copied().collect();
            self.delete(&going);
            return;
        }
        let manages = manage == Manage::Pods && !self.job.meta().is_deleting();
        if manages {
            self.manage();
        }
        let enough = match self.job.spec.completions {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0,
        };
        if enough && self.active == 0 {
            self.end = Some(JobEnd::succeeds("CompletionsReached", "Reached expected number of succeeded pods"));
        } else if manages {
            self.report_suspension();
        }
    }

    fn report_suspension(&mut self) {
        let suspend = self.job.spec.suspend;
        let known = Condition::find(&self.job.view.status.conditions, "Suspended");
        let is_new = match known {
            Some(known) => (known.status == "True") != suspend,
            None => suspend,
        };
        if !is_new {
            return;
        }
        self.suspended = Some(suspend);
        let (reason, message) = if suspend { ("Suspended", "Job suspended") } else { ("Resumed", "Job resumed") };
        self.notes.push(self.owner.normal(reason, message.into()));
        // `activeDeadlineSeconds` counts from the last time at which the Job was resumed, so that time becomes the
        // start time.
        self.start = (!suspend).then_some(self.now);
    }

    fn manage(&mut self) {
        let spec = &self.job.view.spec;
        let active: Vec<JobPod<'w>> = self.members.iter().filter(|member| member.is_active).copied().collect();
        let parallelism = spec.parallelism.unwrap_or(1).max(0);
        let wanted = match spec.completions {
            _ if spec.suspend => 0,
            None if self.succeeded > 0 => self.active,
            None => parallelism,
            Some(completions) if planted(Bug::ParallelismIgnored) => (completions - self.succeeded).max(0),
            Some(completions) => (completions - self.succeeded).min(parallelism).max(0),
        };
        let completions = self.is_indexed().then(|| self.completions());
        let too_many = usize::try_from(self.active - wanted).unwrap_or(0);
        let mut going = job_pods::surplus(&active, too_many, completions);
        going.truncate(PODS_MAX);
        if !going.is_empty() {
            // Pods are released before their deletion, so that they do not count as failed.
            let tracked = going.iter().filter(|member| member.is_tracked);
            self.released = going.iter().map(|member| member.uid().to_owned()).collect();
            self.plan.together(tracked.map(|member| untrack(member.pod)).collect());
            self.delete(&going);
            return;
        }
        let leaving = if job_pods::replaces_only_failed(&self.job) { self.terminating } else { 0 };
        let missing = usize::try_from(wanted - self.active - leaving).unwrap_or(0).min(PODS_MAX);
        if missing > 0 && !spec.suspend {
            self.create(missing);
        }
    }

    fn delete(&mut self, going: &[JobPod<'_>]) {
        let owner = self.owner;
        self.plan.together(going.iter().map(|member| pods::delete(owner, member.pod)).collect());
        self.active -= going.len() as i64;
        self.terminating += going.len() as i64;
        self.ready -= going.iter().filter(|member| member.pod.is_ready()).count() as i64;
    }

    fn create(&mut self, missing: usize) {
        let mut wait = None;
        let mut bodies: Vec<Value> = Vec::new();
        let mould = PodSource::of(self.owner);
        if self.job.spec.backoff_limit_per_index.is_none() {
            wait = job_pods::backoff_end(&self.members).filter(|end| *end > self.now);
        }
        if wait.is_none() && self.is_indexed() {
            for index in self.missing_indexes(missing) {
                let failed = self.to_replace.get(&index);
                match failed.map(job_pods::index_backoff_end).filter(|end| *end > self.now) {
                    Some(end) => wait = Some(wait.map_or(end, |known: Time| known.min(end))),
                    None => bodies.push(mould.pod_at(&self.job, index, failed)),
                }
            }
        } else if wait.is_none() {
            bodies = (0..missing).map(|_| mould.pod()).collect();
        }
        if let Some(time) = wait {
            self.plan.requeue_at(time);
            if bodies.is_empty() && self.ready == 0 {
                // As in Kubernetes, the number of active pods is 0 while all creations wait for a back-off and no pod
                // is ready.
                self.active = 0;
            }
        }
        self.active += bodies.len() as i64;
        let creations = bodies.into_iter().map(|body| pods::create(self.owner, body)).collect();
        self.plan.steps.extend(pods::slow_start(creations));
    }

    fn missing_indexes(&self, count: usize) -> Vec<i64> {
        let waits = |member: &&JobPod<'_>| {
            member.is_active || member.is_terminating() && job_pods::replaces_only_failed(&self.job)
        };
        let taken = self.members.iter().filter(waits).filter_map(|member| member.index);
        let mut taken = self.succeeded_indexes.with(taken);
        if let Some(failed) = &self.failed_indexes {
            taken = taken.and(failed);
        }
        taken.missing(count, self.completions())
    }
}

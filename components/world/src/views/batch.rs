//! Views of Jobs and CronJobs.

use super::condition::Condition;
use crate::object::or_default;
use crate::{Selector, Time};
use holdfast_value::Value;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Job {
    pub spec: JobSpec,
    pub status: JobStatus,
}

crate::resource!(Job, "batch", "v1", "jobs", "Job", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    pub parallelism: Option<i64>,
    pub completions: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub backoff_limit: Option<i64>,
    pub backoff_limit_per_index: Option<i64>,
    pub max_failed_indexes: Option<i64>,
    pub completion_mode: String,
    pub suspend: bool,
    pub selector: Selector,
    pub managed_by: String,
    pub pod_replacement_policy: String,
    pub pod_failure_policy: Option<FailurePolicy>,
    pub success_policy: Option<SuccessPolicy>,
    pub ttl_seconds_after_finished: Option<i64>,
    pub template: JobTemplate,
}

/// The fields of a pod template that a Job needs before its pods exist.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobTemplate {
    pub spec: JobTemplateSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobTemplateSpec {
    pub restart_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FailurePolicy {
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<FailureRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    pub action: String,
    pub on_exit_codes: Option<OnExitCodes>,
    #[serde(deserialize_with = "or_default")]
    pub on_pod_conditions: Vec<OnPodCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnExitCodes {
    pub container_name: Option<String>,
    pub operator: String,
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OnPodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<SuccessRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    pub succeeded_indexes: Option<String>,
    pub succeeded_count: Option<i64>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    pub active: i64,
    pub ready: Option<i64>,
    pub terminating: Option<i64>,
    pub succeeded: i64,
    pub failed: i64,
    pub completed_indexes: String,
    pub failed_indexes: Option<String>,
    pub start_time: Option<Time>,
    pub completion_time: Option<Time>,
    pub uncounted_terminated_pods: Option<Uncounted>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// The UIDs of pods that have ended and that the Job has not counted yet.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    #[serde(deserialize_with = "or_default")]
    pub succeeded: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub failed: Vec<String>,
}

impl Job {
    /// The condition that says how the Job ended; `None` if the Job has not ended.
    pub fn end(&self) -> Option<&Condition> {
        let ends = |condition: &&Condition| matches!(condition.kind.as_str(), "Complete" | "Failed");
        self.status.conditions.iter().filter(ends).find(|condition| condition.status == "True")
    }

    pub fn is_finished(&self) -> bool {
        self.end().is_some()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CronJob {
    pub spec: CronJobSpec,
    pub status: CronJobStatus,
}

crate::resource!(CronJob, "batch", "v1", "cronjobs", "CronJob", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    pub schedule: String,
    pub time_zone: Option<String>,
    pub starting_deadline_seconds: Option<i64>,
    pub concurrency_policy: String,
    pub suspend: bool,
    pub successful_jobs_history_limit: Option<i64>,
    pub failed_jobs_history_limit: Option<i64>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// References to Jobs, in the form in which they are written to the status.
    #[serde(deserialize_with = "or_default")]
    pub active: Vec<Value>,
    pub last_schedule_time: Option<Time>,
    pub last_successful_time: Option<Time>,
}

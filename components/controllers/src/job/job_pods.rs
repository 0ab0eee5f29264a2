//! The pods of a Job: their state, their index, and the content of new pods.

use super::indexes::Indexes;
use super::policy::{self, FailureAction};
use crate::pods;
use crate::subject::{Subject, part};
use holdfast_value::{Value, json};
use holdfast_world::views::{Job, Pod};
use holdfast_world::{Action, Time, Verb, View, Viewed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The finalizer that each pod of a Job has until the Job's status counts the pod.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The length of the longest prefix of a generated name, in characters.
const GENERATED_MAX: usize = 58;
const BACKOFF_SECONDS: i64 = 10;
const BACKOFF_SECONDS_MAX: i64 = 600;

/// A pod of a job.
#[derive(Clone, Copy)]
pub struct JobPod<'w> {
    pub pod: Viewed<'w, Pod>,
    /// The pod's index, in an indexed Job.
    pub index: Option<i64>,
    pub is_tracked: bool,
    pub is_active: bool,
    pub is_succeeded: bool,
    /// Whether the pod counts as failed, in its present state.
    pub is_failed: bool,
    /// Whether the Job released the pod and deleted it because too many pods ran; such a pod does not count as failed.
    pub is_released: bool,
}

impl<'w> JobPod<'w> {
    pub fn of(job: &Job, pod: Viewed<'w, Pod>) -> JobPod<'w> {
        let meta = pod.meta();
        let is_succeeded = pod.status.phase == "Succeeded";
        let is_leaving = meta.is_deleting() && !is_succeeded && !replaces_only_failed(job);
        JobPod {
            pod,
            index: number(pod, INDEX).filter(|index| *index >= 0),
            is_tracked: meta.has_finalizer(TRACKING),
            is_active: pod.is_active(meta),
            is_succeeded,
            is_failed: pod.status.phase == "Failed" || is_leaving,
            is_released: false,
        }
    }

    pub fn uid(&self) -> &'w str {
        &self.pod.meta().uid
    }

    pub fn is_terminating(&self) -> bool {
        self.pod.meta().is_deleting() && !self.pod.is_finished()
    }

    pub fn verdict(&self, job: &Job) -> FailureAction {
        policy::judge(job.spec.pod_failure_policy.as_ref(), self.pod)
    }

    pub fn counts(&self, job: &Job) -> bool {
        self.verdict(job) != FailureAction::Ignored
    }

    /// How many earlier pods of the same index failed, by the pod's annotations: first the failures that count against
    /// the limit, then the failures that a policy ignores.
    fn failures(&self) -> (i64, i64) {
        (number(self.pod, FAILURES).unwrap_or(0).max(0), number(self.pod, IGNORED_FAILURES).unwrap_or(0).max(0))
    }

    /// Whether the pod's failure makes its index fail for good, if an index may fail `limit` times.
    pub fn fails_index(&self, job: &Job, limit: i64) -> bool {
        match self.verdict(job) {
            _ if !self.is_failed => false,
            FailureAction::FailsIndex => true,
            FailureAction::Ignored => false,
            FailureAction::Counts | FailureAction::FailsJob(_) => self.failures().0 >= limit,
        }
    }

    /// The time at which the pod ended, or else at which its end became known.
    pub fn finished(&self) -> Time {
        let status = &self.pod.view.status;
        let ends = status.container_statuses.iter();
        let ends: Option<Vec<Time>> = ends.map(|status| status.state.terminated.as_ref()?.finished_at).collect();
        let unready =
            status.conditions.iter().find(|condition| condition.kind == "Ready" && condition.status == "False");
        let meta = self.pod.meta();
        let grace = meta.deletion_grace_period_seconds.unwrap_or(0);
        (ends.and_then(|ends| ends.into_iter().max()))
            .or_else(|| unready?.last_transition_time)
            .or_else(|| Some(meta.deletion_timestamp?.plus_seconds(grace.saturating_neg())))
            .or(meta.creation_timestamp)
            .unwrap_or(self.pod.object.received_at)
    }

    /// A rank by which surplus pods are sorted for deletion: the pods that are furthest from being ready come first.
    fn worth(&self) -> impl Ord + use<> {
        let pod = self.pod;
        let phase = match pod.status.phase.as_str() {
            "Pending" | "" => 0,
            "Running" => 2,
            _ => 1,
        };
        let restarts: i64 = pod.status.container_statuses.iter().map(|status| status.restart_count).max().unwrap_or(0);
        (
            !pod.spec.node_name.is_empty(),
            phase,
            pod.is_ready(),
            Reverse(pod.ready_since()),
            Reverse(restarts),
            Reverse(pod.meta().creation_timestamp),
        )
    }
}

/// Whether a pod is replaced only once it has failed, rather than as soon as it is being deleted.
pub fn replaces_only_failed(job: &Job) -> bool {
    job.spec.pod_replacement_policy == "Failed" || job.spec.pod_failure_policy.is_some()
}

fn number(pod: Viewed<'_, Pod>, annotation: &str) -> Option<i64> {
    Some(i64::from(pod.meta().annotation(annotation)?.parse::<i32>().ok()?))
}

/// Chooses active pods to delete, at least `count` of them. In an indexed Job these are all pods without a valid index
/// and all but one pod of each index. If these pods are fewer than `count`, further pods are added, beginning with the
/// pods that are furthest from being ready.
pub fn surplus<'w>(active: &[JobPod<'w>], count: usize, completions: Option<i64>) -> Vec<JobPod<'w>> {
    let mut sorted = active.to_vec();
    sorted.sort_by_key(JobPod::worth);
    let Some(completions) = completions else {
        sorted.truncate(count);
        return sorted;
    };
    let mut taken = BTreeSet::new();
    let mut stays = |member: &JobPod<'w>| member.index.is_some_and(|index| index < completions && taken.insert(index));
    let (mut left, mut going): (Vec<_>, Vec<_>) = sorted.into_iter().rev().partition(|member| stays(member));
    left.reverse();
    left.truncate(count.saturating_sub(going.len()));
    going.extend(left);
    going
}

/// For each index that is to be tried again, the pod that failed last. That pod keeps its finalizer until it is
/// replaced, because only its annotations show how many times the index has failed.
pub fn to_replace<'w>(job: &Job, members: &[JobPod<'w>], done: &Indexes) -> BTreeMap<i64, JobPod<'w>> {
    let completions = job.spec.completions.unwrap_or(0);
    let active: BTreeSet<i64> = members.iter().filter(|pod| pod.is_active).filter_map(|pod| pod.index).collect();
    let mut found: BTreeMap<i64, JobPod<'w>> = BTreeMap::new();
    for member in members.iter().filter(|member| member.is_tracked && member.is_failed) {
        let Some(index) = member.index.filter(|index| *index < completions) else { continue };
        if done.has(index) || active.contains(&index) {
            continue;
        }
        let rank = |member: &JobPod<'_>| (total(member), member.finished());
        if found.get(&index).is_none_or(|known| rank(known) <= rank(member)) {
            found.insert(index, *member);
        }
    }
    found
}

fn total(member: &JobPod<'_>) -> i64 {
    let (counted, ignored) = member.failures();
    counted.saturating_add(ignored)
}

/// The time from which the Job may create its next pod. One failure since the last success delays the next pod by ten
/// seconds; each further failure doubles the delay, up to ten minutes.
pub fn backoff_end(members: &[JobPod<'_>]) -> Option<Time> {
    let success = members.iter().filter(|member| member.is_succeeded).map(JobPod::finished).max();
    let failures = members.iter().filter(|member| member.is_failed && !member.is_released).map(JobPod::finished);
    let failures: Vec<Time> = failures.filter(|failed| success.is_none_or(|success| *failed > success)).collect();
    Some(failures.iter().max()?.plus_seconds(backoff(failures.len() as i64)))
}

/// Like [`backoff_end`], for one index: the time from which its next pod may be created. `failed` is the last failed
/// pod of the index.
pub fn index_backoff_end(failed: &JobPod<'_>) -> Time {
    failed.finished().plus_seconds(backoff(total(failed).saturating_add(1)))
}

fn backoff(failures: i64) -> i64 {
    let doublings = u32::try_from(failures - 1).unwrap_or(0).min(10);
    (BACKOFF_SECONDS << doublings).min(BACKOFF_SECONDS_MAX)
}

/// The owner of new pods, and the template from which they are made.
pub struct PodSource<'a> {
    owner: Subject<'a>,
    template: Value,
}

impl<'a> PodSource<'a> {
    pub fn of(owner: Subject<'a>) -> PodSource<'a> {
        PodSource { owner, template: part(owner.object, &["spec", "template"]) }
    }

    pub fn pod(&self) -> Value {
        let mut pod = pods::from_template(self.owner, &self.template);
        match pod["metadata"]["finalizers"].as_array_mut() {
            Some(finalizers) if finalizers.iter().any(|finalizer| finalizer == TRACKING) => {}
            Some(finalizers) => finalizers.push(TRACKING.into()),
            None => pod["metadata"]["finalizers"] = json!([TRACKING]),
        }
        pod
    }

    /// A new pod for an index. If `failed` is given, the new pod's annotations count the failures up to and including
    /// that pod's failure.
    pub fn pod_at(&self, job: &Job, index: i64, failed: Option<&JobPod<'_>>) -> Value {
        let mut pod = self.pod();
        let name = &self.owner.object.meta.name;
        let (text, end) = (index.to_string(), format!("-{index}-"));
        let beginning: String = name.chars().take(GENERATED_MAX.saturating_sub(end.len())).collect();
        pod["metadata"]["generateName"] = format!("{beginning}{end}").into();
        pod["metadata"]["annotations"][INDEX] = text.as_str().into();
        pod["metadata"]["labels"][INDEX] = text.as_str().into();
        pod["spec"]["hostname"] = format!("{name}-{index}").into();
        for list in ["initContainers", "containers"] {
            pod["spec"][list].as_array_mut().into_iter().flatten().for_each(add_variable);
        }
        if job.spec.backoff_limit_per_index.is_some() {
            let (counted, ignored) = failures_after(job, failed);
            pod["metadata"]["annotations"][FAILURES] = counted.to_string().into();
            if ignored > 0 {
                pod["metadata"]["annotations"][IGNORED_FAILURES] = ignored.to_string().into();
            }
        }
        pod
    }
}

/// How many times an index has failed, including the pod `failed`: first the failures that count against the limit,
/// then the failures that a policy ignores.
fn failures_after(job: &Job, failed: Option<&JobPod<'_>>) -> (i64, i64) {
    let Some(failed) = failed else { return (0, 0) };
    let (counted, ignored) = failed.failures();
    if failed.counts(job) { (counted + 1, ignored) } else { (counted, ignored + 1) }
}

fn add_variable(container: &mut Value) {
    let variables = container["env"].as_array().into_iter().flatten();
    if variables.into_iter().any(|variable| variable["name"] == INDEX_VARIABLE) {
        return;
    }
    let field = json!({"fieldPath": format!("metadata.labels['{INDEX}']")});
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": field}});
    match container["env"].as_array_mut() {
        Some(variables) => variables.push(variable),
        None => container["env"] = json!([variable]),
    }
}

/// Removes the finalizer of a pod that the status already counts, or that no Job will count.
pub fn untrack(pod: Viewed<'_, Pod>) -> Action {
    let patch = json!({"metadata": {
        "uid": pod.meta().uid,
        "$deleteFromPrimitiveList/finalizers": [TRACKING],
    }});
    Action::new(Pod::resource(), pod.object.key(), Verb::StrategicPatch(patch))
}

//! Validation of the status of jobs. A finished job stays finished, with consistent counts.

use super::indexes;
use crate::kinds::cells::epoch_seconds;
use crate::kinds::rules::{At, IMMUTABLE, Seen, none_negative};
use crate::kinds::shapes::{is_condition_true, without_value};
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

/// Pairs of conditions that must not be true together, each with Kubernetes' message.
const EXCLUSIVE: &[(&str, &str, &str)] = &[
    ("Complete", "Failed", "cannot set Complete=True and Failed=true conditions"),
    ("Complete", "FailureTarget", "cannot set Complete=True and FailureTarget=true conditions"),
    ("SuccessCriteriaMet", "Failed", "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
    ("SuccessCriteriaMet", "FailureTarget", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
];
/// Conditions that may be true only together with another condition, each with Kubernetes' message.
const WITH: &[(&str, &str, &str)] = &[
    ("Failed", "FailureTarget", "cannot set Failed=True condition without the FailureTarget=true condition"),
    (
        "Complete",
        "SuccessCriteriaMet",
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    ),
];
/// Conditions that must stay true once they are true, each with Kubernetes' message.
const TERMINAL: &[(&str, &str)] = &[
    ("Failed", "cannot disable the terminal Failed=True condition"),
    ("Complete", "cannot disable the terminal Complete=True condition"),
    ("FailureTarget", "cannot disable the terminal FailureTarget=True condition"),
    ("SuccessCriteriaMet", "cannot disable the SuccessCriteriaMet=True condition"),
];

pub fn job(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    none_negative(status, &["active", "succeeded", "failed", "ready", "terminating"], &mut causes);
    uncounted(status.get("uncountedTerminatedPods"), &mut causes);
    conditions(root, &mut causes);
    if is_condition_true(status, "Complete") || is_condition_true(status, "Failed") {
        finished(status, &mut causes);
    }
    times(status, &mut causes);
    listed(root.get("spec"), status, old, &mut causes);
    let (ready, active) = (status.get("ready"), status.get("active").number().unwrap_or(0));
    if ready.number().is_some_and(|ready| ready > active) {
        causes.push(ready.invalid("cannot set more ready pods than active"));
    }
    if let Some(old) = old {
        changes(root, At::root(old).get("status"), &mut causes);
    }
    causes
}

fn uncounted(pods: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    for field in ["succeeded", "failed"] {
        for uid in pods.get(field).items() {
            if uid.is_empty() {
                causes.push(uid.invalid("must not be empty"));
            } else if seen.again(uid.value) {
                causes.push(uid.duplicate());
            }
        }
    }
}

fn conditions(job: At, causes: &mut Causes) {
    let status = job.get("status");
    let list = status.get("conditions");
    let is = |ty: &str| is_condition_true(status, ty);
    let apart = EXCLUSIVE.iter().filter(|(one, other, _)| is(one) && is(other));
    let alone = WITH.iter().filter(|(one, other, _)| is(one) && !is(other));
    causes.extend(apart.chain(alone).map(|(_, _, detail)| without_value(list, detail)));
    if job.get("spec").get("successPolicy").is_set() && is("Complete") && !is("SuccessCriteriaMet") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        causes.push(without_value(list, detail));
    }
}

fn finished(status: At, causes: &mut Causes) {
    for field in ["active", "terminating"] {
        let pods = status.get(field);
        if pods.number().is_some_and(|number| number > 0) {
            causes.push(pods.invalid(&format!("{field}>0 is invalid for finished job")));
        }
    }
    let start = status.get("startTime");
    if !start.is_set() {
        causes.push(start.required("startTime is required for finished job"));
    }
    let pods = status.get("uncountedTerminatedPods");
    if !pods.get("succeeded").is_empty() || !pods.get("failed").is_empty() {
        causes.push(pods.invalid("must be empty for finished job"));
    }
}

fn times(status: At, causes: &mut Causes) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    let complete = is_condition_true(status, "Complete");
    if end.is_set() && !complete {
        causes.push(end.invalid("cannot set completionTime when there is no Complete=True condition"));
    }
    if !end.is_set() && complete {
        causes.push(end.required("completionTime is required for Complete jobs"));
    }
    if let (Some(start), Some(ended)) = (epoch_seconds(start.text()), epoch_seconds(end.text()))
        && ended < start
    {
        causes.push(end.invalid("must be equal to or after `startTime`"));
    }
}

/// Checks the lists of indexes that this write changes. Unchanged lists are not checked: a job whose completions were
/// reduced may still list indexes that it no longer has.
fn listed(spec: At, status: At, old: Option<&Value>, causes: &mut Causes) {
    let (completed, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let [completes, fails] = [("completedIndexes", completed), ("failedIndexes", failed)]
        .map(|(field, now)| old.is_none_or(|old| &old["status"][field] != now.value));
    let by_index = spec.get("backoffLimitPerIndex").is_set();
    if let Some(completions) = spec.get("completions").number() {
        if completes && let Err(fault) = indexes::count(completed.text(), completions) {
            causes.push(completed.invalid(&format!("error parsing completedIndexes: {fault}")));
        }
        if fails
            && by_index
            && let Err(fault) = indexes::count(failed.text(), completions)
        {
            causes.push(failed.invalid(&format!("error parsing failedIndexes: {fault}")));
        }
        if (completes || fails)
            && let Some(index) = indexes::common(completed.text(), failed.text(), completions)
        {
            causes.push(failed.invalid(&format!("failedIndexes and completedIndexes overlap at index: {index}")));
        }
    }
    if completes && !completed.is_empty() && spec.get("completionMode").text() != "Indexed" {
        causes.push(completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode"));
    }
    if fails && failed.is_set() && !by_index {
        causes.push(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
    }
}

fn changes(job: At, old: At, causes: &mut Causes) {
    let status = job.get("status");
    let list = status.get("conditions");
    for (ty, detail) in TERMINAL {
        if is_condition_true(old, ty) && !is_condition_true(status, ty) {
            causes.push(without_value(list, detail));
        }
    }
    let spec = job.get("spec");
    // An elastic job (parallelism equals completions) may be reduced, and then fewer completed indexes count.
    let elastic = spec.get("completionMode").text() == "Indexed"
        && spec.get("completions").value == spec.get("parallelism").value;
    for counter in ["failed", "succeeded"].into_iter().filter(|counter| *counter == "failed" || !elastic) {
        let now = status.get(counter);
        let number = now.number().unwrap_or(0);
        if number < old.get(counter).number().unwrap_or(0) {
            let detail = format!("cannot decrease the {counter} counter");
            causes.push(Cause::invalid(now.path(), &Value::from(number), &detail));
        }
    }
    let end = status.get("completionTime");
    if end.is_set() && old.get("completionTime").is_set() && end.value != old.get("completionTime").value {
        causes.push(end.invalid(IMMUTABLE));
    }
    let start = status.get("startTime");
    let running = !spec.get("suspend").is_true();
    if running && old.get("startTime").is_set() && start.value != old.get("startTime").value {
        causes.push(start.required("startTime cannot be removed for unsuspended job"));
    }
    let met = "SuccessCriteriaMet";
    if is_condition_true(old, "Complete") && !is_condition_true(old, met) && is_condition_true(status, met) {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        causes.push(without_value(list, detail));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_part;
    use holdfast_value::{Value, json};

    fn job(status: &Value) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "status": status,
            "spec": {
                "completionMode": "Indexed", "completions": 10, "backoffLimitPerIndex": 1, "parallelism": 2,
                "template": {},
            },
        })
    }

    #[test]
    fn a_job_that_runs() {
        let good = job(&json!({"active": 2, "failed": 1, "succeeded": 3, "startTime": "2024-01-01T00:00:00Z"}));
        let done = |types: &[&str]| {
            let conditions = types.iter().map(|ty| json!({"type": ty, "status": "True"})).collect::<Vec<_>>();
            json!({
                "failed": 1, "succeeded": 3, "startTime": "2024-01-01T00:00:00Z",
                "completionTime": "2024-01-01T00:00:01Z", "conditions": conditions,
            })
        };
        let conditions = |text: &str| format!("status.conditions: Invalid value: {text}");
        check_part(
            &good,
            "status",
            &[
                ("/status/active", json!(-1), "status.active: Invalid value: -1: must be greater than or equal to 0"),
                ("/status/ready", json!(3), "status.ready: Invalid value: 3: cannot set more ready pods than active"),
                ("/status/failed", json!(0), "status.failed: Invalid value: 0: cannot decrease the failed counter"),
                ("/status/succeeded", json!(2), "status.succeeded: Invalid value: 2: cannot decrease the succeeded"),
                ("/status/startTime", Value::Null, "status.startTime: Required value: startTime cannot be removed for"),
                (
                    "/status/completionTime",
                    json!("2024-01-01T00:00:01Z"),
                    "status.completionTime: Invalid value: \"2024-01-01T00:00:01Z\": cannot set completionTime when the",
                ),
                ("/status/completedIndexes", json!("0-2"), ""),
                (
                    "/status/completedIndexes",
                    json!("0-20"),
                    "status.completedIndexes: Invalid value: \"0-20\": error parsing completedIndexes: too large index",
                ),
                (
                    "/status/uncountedTerminatedPods",
                    json!({"succeeded": ["a"], "failed": ["a"]}),
                    "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
                ),
                ("/status", done(&["Complete", "SuccessCriteriaMet"]), ""),
                (
                    "/status",
                    done(&["Complete"]),
                    &conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
                ),
                (
                    "/status",
                    done(&["Complete", "SuccessCriteriaMet", "Failed", "FailureTarget"]),
                    &conditions("cannot set Complete=True and Failed=true conditions"),
                ),
                (
                    "/status/conditions",
                    json!([{"type": "Failed", "status": "True"}]),
                    &conditions("cannot set Failed=True condition without the FailureTarget=true condition"),
                ),
                (
                    "/status/conditions",
                    json!([{"type": "Failed", "status": "True"}, {"type": "FailureTarget", "status": "True"}]),
                    "status.active: Invalid value: 2: active>0 is invalid for finished job",
                ),
            ],
        );
        let mut early = done(&["Complete", "SuccessCriteriaMet"]);
        early["completionTime"] = json!("2023-01-01T00:00:00Z");
        let before =
            "status.completionTime: Invalid value: \"2023-01-01T00:00:00Z\": must be equal to or after `startTi";
        check_part(&good, "status", &[("/status", early, before)]);
        check_part(
            &job(&done(&["Complete", "SuccessCriteriaMet"])),
            "status",
            &[
                ("/status/conditions", json!([]), &conditions("cannot disable the terminal Complete=True condition")),
                (
                    "/status/completionTime",
                    json!("2024-01-01T00:00:02Z"),
                    "status.completionTime: Invalid value: \"2024-01-01T00:00:02Z\": field is immutable",
                ),
            ],
        );
        let listed = job(&json!({"completedIndexes": "0-3"}));
        let overlap =
            "status.failedIndexes: Invalid value: \"3-5\": failedIndexes and completedIndexes overlap at index: 3";
        check_part(&listed, "status", &[("/status/failedIndexes", json!("3-5"), overlap)]);
    }

    #[test]
    fn a_job_that_was_made_smaller() {
        let mut smaller = job(&json!({"active": 2, "succeeded": 5, "completedIndexes": "0-4", "failedIndexes": "5-9"}));
        smaller["spec"]["completions"] = json!(2);
        let too_large =
            "status.completedIndexes: Invalid value: \"0-3\": error parsing completedIndexes: too large index: \"3\"";
        check_part(
            &smaller,
            "status",
            &[
                ("/status/ready", json!(1), ""),
                ("/status/succeeded", json!(2), ""),
                ("/status/completedIndexes", json!("0-1"), ""),
                ("/status/completedIndexes", json!("0-3"), too_large),
                ("/status/failedIndexes", json!("6"), "status.failedIndexes: Invalid value: \"6\": error parsing"),
            ],
        );
    }

    #[test]
    fn a_job_with_a_success_policy() {
        let mut job = job(&json!({"startTime": "2024-01-01T00:00:00Z"}));
        job["spec"]["successPolicy"] = json!({"rules": [{"succeededCount": 1}]});
        let refused = super::job(
            &{
                let mut done = job.clone();
                done["status"]["completionTime"] = json!("2024-01-01T00:00:01Z");
                done["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
                done
            },
            Some(&job),
        );
        let texts: Vec<String> = refused.iter().map(|cause| cause.message.clone()).collect();
        assert_eq!(
            texts,
            [
                "Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "Invalid value: cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
            ]
        );
    }
}

//! The rules of jobs and cron jobs.

use super::schedule;
use crate::kinds::core::validate::template;
use crate::kinds::rules::{At, immutable, none_negative, one_of, selector, selects};
use crate::refusal::Cause;
use serde_json::Value;

/// What a job's name adds to its cron job's must still fit a label.
const CRON_JOB_NAME_BYTES_MAX: usize = 52;

pub fn job(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    job_spec(spec, &mut causes);
    let at = spec.get("selector");
    if at.is_set() {
        let pods = spec.get("template");
        let metadata = pods.get("metadata");
        let labels = metadata.get("labels");
        if !selects(at.value, labels.value) {
            causes.push(labels.invalid("`selector` does not match template `labels`"));
        }
    }
    if let Some(old) = old {
        let old = &old["spec"];
        // A job that waits may still be told otherwise, and an indexed one may grow.
        let mut fixed = vec!["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"];
        if old["suspend"] != true {
            fixed.push("template");
        }
        if old["completionMode"] != "Indexed" {
            fixed.push("completions");
        }
        for field in fixed {
            immutable(spec.get(field), &old[field], &mut causes);
        }
    }
    causes
}

pub fn cron_job(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    let at = spec.get("schedule");
    if at.is_empty() {
        causes.push(at.required(""));
    } else if let Err(fault) = schedule::check(at.text()) {
        causes.push(at.invalid(&fault));
    }
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    if old.is_none() && name.text().len() > CRON_JOB_NAME_BYTES_MAX {
        causes.push(name.invalid(&format!("must be no more than {CRON_JOB_NAME_BYTES_MAX} characters")));
    }
    let zone = spec.get("timeZone");
    if zone.is_set() && zone.text().is_empty() {
        causes.push(zone.invalid("timeZone must be nil or non-empty string"));
    } else if zone.text().eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.push(zone.invalid(detail));
    }
    none_negative(
        spec,
        &["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
        &mut causes,
    );
    one_of(spec.get("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], &mut causes);
    let job = spec.get("jobTemplate");
    job_spec(job.get("spec"), &mut causes);
    causes
}

fn job_spec(spec: At, causes: &mut Vec<Cause>) {
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    none_negative(spec, &counts, causes);
    none_negative(spec, &["backoffLimitPerIndex", "maxFailedIndexes"], causes);
    one_of(spec.get("completionMode"), &["Indexed", "NonIndexed"], causes);
    let completions = spec.get("completions");
    if spec.get("completionMode").text() == "Indexed" && !completions.is_set() {
        causes.push(completions.required("when completion mode is Indexed"));
    }
    selector(spec.get("selector"), causes);
    let pods = spec.get("template");
    template(pods, causes);
    let pod = pods.get("spec");
    let restart = pod.get("restartPolicy");
    match restart.text() {
        // The default of pods: it cannot be told from nothing said.
        "" | "Always" => causes.push(restart.required("valid values: \"OnFailure\", \"Never\"")),
        _ => one_of(restart, &["OnFailure", "Never"], causes),
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use serde_json::{Value, json};

    #[test]
    fn each_rule_of_jobs() {
        let pods = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": pods},
        });
        check_rows(
            &job,
            &[
                (
                    "/spec/template/spec/restartPolicy",
                    Value::Null,
                    "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
                ),
                ("/spec/parallelism", json!(-1), "spec.parallelism: Invalid value: -1: must be greater than or equal"),
                ("/spec/completionMode", json!("Some"), "spec.completionMode: Unsupported value: \"Some\""),
            ],
        );
        check_updates(
            &job,
            &[
                ("/spec/backoffLimit", json!(2), ""),
                ("/spec/completions", json!(2), "spec.completions: Invalid value: 2: field is immutable"),
                ("/spec/template/spec/containers/0/image", json!("b"), "spec.template: Invalid value"),
            ],
        );
        let cron = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"},
            "spec": {"schedule": "*/5 0-6,8 * JAN mon-fri", "jobTemplate": {"spec": {"template": pods}}},
        });
        let schedule = "/spec/schedule";
        check_rows(
            &cron,
            &[
                (schedule, json!("@hourly"), ""),
                (schedule, json!("@every 1h"), ""),
                (schedule, json!("0 0 ? * 7"), "spec.schedule: Invalid value: \"0 0 ? * 7\": end of range (7) above"),
                (
                    schedule,
                    json!("every day"),
                    "spec.schedule: Invalid value: \"every day\": expected exactly 5 fields, found 2: [every day]",
                ),
                (
                    schedule,
                    json!("60 * * * *"),
                    "spec.schedule: Invalid value: \"60 * * * *\": end of range (60) above",
                ),
                (schedule, json!("a * * * *"), "spec.schedule: Invalid value: \"a * * * *\": failed to parse int from"),
                (schedule, json!(""), "spec.schedule: Required value"),
                ("/spec/concurrencyPolicy", json!("Queue"), "spec.concurrencyPolicy: Unsupported value: \"Queue\""),
                ("/spec/jobTemplate/spec/template/spec/restartPolicy", json!("Always"), "spec.jobTemplate.spec.templ"),
                ("/spec/timeZone", json!("Local"), "spec.timeZone: Invalid value: \"Local\": timeZone must be an expl"),
                ("/metadata/name", json!("a".repeat(53)), "metadata.name: Invalid value"),
            ],
        );
    }
}

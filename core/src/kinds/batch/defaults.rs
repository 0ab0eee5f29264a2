//! Defaults of jobs and cron jobs.

use crate::kinds::core::defaults::{set_labels, template_labels};
use crate::schema::defaults::{Rule, is_absent, object, set_absent};
use holdfast_value::Map;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::of("api.batch.v1.Job").run(job),
        Rule::of("api.batch.v1.PodFailurePolicyOnPodConditionsPattern").set("status", "True"),
        Rule::in_versions("api.batch", &["v1", "v1beta1"], "CronJobSpec")
            .set("concurrencyPolicy", "Allow")
            .set("suspend", false)
            .set("successfulJobsHistoryLimit", 3)
            .set("failedJobsHistoryLimit", 1),
    ]
}

/// Sets the defaults that a Job has and the job template of a CronJob does not have.
fn job(job: &mut Map) {
    if let Some(labels) = template_labels(job) {
        set_labels(job, labels);
    }
    let Some(spec) = object(job, "spec") else { return };
    // A job that sets neither `parallelism` nor `completions` is a single pod. If only `parallelism` is set,
    // `completions` stays unset.
    if is_absent(spec, "parallelism") {
        set_absent(spec, "completions", 1);
    }
    set_absent(spec, "parallelism", 1);
    // A limit for each index replaces the total limit.
    let backoff_limit = if is_absent(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
    set_absent(spec, "backoffLimit", backoff_limit);
    set_absent(spec, "completionMode", "NonIndexed");
    set_absent(spec, "suspend", false);
    set_absent(spec, "manualSelector", false);
    let replacement = if is_absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    set_absent(spec, "podReplacementPolicy", replacement);
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::{Value, json};

    /// A template that needs no defaults itself.
    fn template() -> Value {
        json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "dnsPolicy": "Default", "restartPolicy": "Always", "schedulerName": "s", "securityContext": {},
                "terminationGracePeriodSeconds": 1,
            },
        })
    }

    #[test]
    fn a_job() {
        check(
            "api.batch.v1.Job",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                metadata.labels.a = "b"
                spec.backoffLimit = 6
                spec.completionMode = "NonIndexed"
                spec.completions = 1
                spec.manualSelector = false
                spec.parallelism = 1
                spec.podReplacementPolicy = "TerminatingOrFailed"
                spec.suspend = false
                spec.template.spec.containers = null
                status = {}"#]],
        );
    }

    #[test]
    fn a_job_with_completions_only() {
        check(
            "api.batch.v1.Job",
            json!({
                "metadata": {"labels": {"own": "x"}}, "status": {},
                "spec": {
                    "completions": 3, "backoffLimitPerIndex": 0, "template": template(),
                    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]},
                },
            }),
            expect![[r#"
                spec.backoffLimit = 2147483647
                spec.completionMode = "NonIndexed"
                spec.manualSelector = false
                spec.parallelism = 1
                spec.podFailurePolicy.rules[0].onPodConditions[0].status = "True"
                spec.podReplacementPolicy = "Failed"
                spec.suspend = false
                spec.template.spec.containers = null"#]],
        );
    }

    #[test]
    fn a_job_without_an_end() {
        check(
            "api.batch.v1.JobSpec",
            json!({"parallelism": 2, "template": template()}),
            expect!["template.spec.containers = null"],
        );
    }

    #[test]
    fn a_cron_job() {
        check(
            "api.batch.v1.CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}}}),
            expect![[r#"
                spec.concurrencyPolicy = "Allow"
                spec.failedJobsHistoryLimit = 1
                spec.jobTemplate.metadata = {}
                spec.jobTemplate.spec.template.spec.containers = null
                spec.successfulJobsHistoryLimit = 3
                spec.suspend = false
                status = {}"#]],
        );
    }

    #[test]
    fn an_old_cron_job() {
        check(
            "api.batch.v1beta1.CronJob",
            json!({
                "spec": {
                    "suspend": true, "failedJobsHistoryLimit": 0,
                    "jobTemplate": {"spec": {"template": template()}},
                },
            }),
            expect![[r#"
                spec.concurrencyPolicy = "Allow"
                spec.jobTemplate.metadata = {}
                spec.jobTemplate.spec.template.spec.containers = null
                spec.schedule = ""
                spec.successfulJobsHistoryLimit = 3
                status = {}"#]],
        );
    }
}

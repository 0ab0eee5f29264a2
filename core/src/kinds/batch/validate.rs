//! Validation of jobs and cron jobs.

use super::{job as own, policies};
use crate::kinds::Judging;
use crate::kinds::core::validate::template;
use crate::kinds::rules::{
    At, immutable, none_negative, one_of, same, selector as label_selector, selects, twice_on_update,
};
use crate::kinds::shapes::{domain_prefixed_path, no_more_than, not_longer};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use crate::schema::schedule::{Schedule, check_zone};
use crate::select::LabelSelector;
use holdfast_value::{Map, Value};

/// The maximum number of bytes of a CronJob's name. A Job of the CronJob is named by this name and a suffix of 11
/// bytes, and the name of the Job must fit into a label (63 bytes).
const CRON_JOB_NAME_BYTES_MAX: usize = 52;
const MANAGED_BY_BYTES_MAX: usize = 63;
const INDEXES_MAX: i64 = 100_000;
/// If a job has more completions than this number and sets a backoff limit for each index, other limits of the job are
/// lower.
const MANY_COMPLETIONS: i64 = 100_000;
/// The maximum number of parallel pods and of failed indexes of such a job.
const INDEXES_OF_MANY_MAX: i64 = 10_000;

pub fn job(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    job_spec(spec, &mut causes);
    let at = spec.get("selector");
    if at.is_set() {
        label_selector(at, &mut causes)
    } else {
        causes.push(at.required(""))
    }
    let pods = spec.get("template");
    let metadata = pods.get("metadata");
    let labels = metadata.get("labels");
    if !selects(at.value, labels.value) {
        causes.push(labels.invalid("`selector` does not match template `labels`"));
    }
    twice_on_update(old, &mut causes);
    own_selector(root, old, &mut causes);
    host_names(root, &mut causes);
    if let Some(old) = old {
        job_update(spec, old, &mut causes);
    }
    causes
}

/// Refuses generated labels and selectors that the client has set to other values.
fn own_selector(job: At, old: Option<&Value>, causes: &mut Causes) {
    let spec = job.get("spec");
    let selector = spec.get("selector");
    if spec.get("manualSelector").is_true() || !selector.is_set() {
        return;
    }
    let meta = job.get("metadata");
    let (uid, name) = (meta.get("uid"), meta.get("name"));
    if uid.is_empty() {
        causes.push(uid.required(""));
    }
    let pods = spec.get("template");
    let metadata = pods.get("metadata");
    let labels = metadata.get("labels");
    // A job created by an old API server may lack the labels with a domain.
    let older = old.is_some_and(|old| {
        let labels = &old["spec"]["template"]["metadata"]["labels"];
        labels[own::NAME].is_null() || labels[own::UID].is_null()
    });
    let mut wanted = vec![(own::OLD_UID, uid.text()), (own::OLD_NAME, name.text())];
    if !older {
        wanted.extend([(own::UID, uid.text()), (own::NAME, name.text())]);
    }
    for (label, expected) in &wanted {
        let found = labels.key(label);
        let detail = format!("must be '{expected}'");
        if !found.is_set() {
            causes.push(found.required(&detail));
        } else if found.text() != *expected {
            causes.push(Cause::invalid(found.path(), labels.value, &detail));
        }
    }
    let made: Map = wanted.iter().map(|(label, value)| (*label, (*value).into())).collect();
    if LabelSelector::from_object(selector.value).is_ok_and(|selector| !selector.matches(&made)) {
        causes.push(selector.invalid("`selector` not auto-generated"));
    }
}

/// Validates the host names of an indexed job's pods, which end with the index.
fn host_names(job: At, causes: &mut Causes) {
    let spec = job.get("spec");
    let completions = spec.get("completions").number().unwrap_or(0);
    if spec.get("completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let meta = job.get("metadata");
    let name = meta.get("name");
    let host = format!("{}-{}", name.text(), completions - 1);
    if !names::label(&host).is_empty() {
        causes.push(name.invalid(&format!("will not able to create pod with invalid DNS label: {host}")));
    }
}

fn job_update(spec: At, old: &Value, causes: &mut Causes) {
    let before = &old["spec"];
    let completions = spec.get("completions");
    if spec.get("completionMode").text() != "Indexed" {
        immutable(completions, &before["completions"], causes);
    } else if completions.is_set()
        && completions.value != &before["completions"]
        && completions.number() != spec.get("parallelism").number()
    {
        causes.push(completions.invalid("can only be modified in tandem with spec.parallelism"));
    }
    let pods = spec.get("template");
    immutable(spec.get("selector"), &before["selector"], causes);
    if before["suspend"] == true && old["status"]["startTime"].is_null() {
        let mut kept = before["template"].clone();
        free_placement(&mut kept, pods.value);
        immutable(pods.get("spec"), &kept["spec"], causes);
    } else {
        immutable(pods, &before["template"], causes);
    }
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        immutable(spec.get(field), &before[field], causes);
    }
}

/// With the gates `MutablePodResourcesForSuspendedJobs` and `MutableSchedulingDirectivesForSuspendedJobs`, more fields
/// of a suspended job may change: the resources of its pods, and their scheduling directives even if some pods have
/// run.
pub fn suspended(judging: &Judging<'_>, causes: &mut Causes) {
    let resources = judging.is_on("MutablePodResourcesForSuspendedJobs");
    let placement = judging.is_on("MutableSchedulingDirectivesForSuspendedJobs");
    let Some(old) = judging.old.filter(|_| resources || placement) else { return };
    let conditions = old["status"]["conditions"].as_array().into_iter().flatten();
    let is_suspended =
        conditions.into_iter().any(|condition| condition["type"] == "Suspended" && condition["status"] == "True");
    let is_idle = old["status"]["active"].as_i64().unwrap_or(0) == 0;
    // A job that never started counts as suspended even without the condition.
    let waits = is_suspended || old["status"]["startTime"].is_null();
    if old["spec"]["suspend"] != true || !waits || !is_idle {
        return;
    }
    let wanted = &judging.new["spec"]["template"];
    let mut kept = old["spec"]["template"].clone();
    if placement || old["status"]["startTime"].is_null() {
        free_placement(&mut kept, wanted);
    }
    for list in ["containers", "initContainers"].into_iter().filter(|_| resources) {
        let asked = wanted["spec"][list].as_array().into_iter().flatten();
        let own = kept["spec"][list].as_array_mut().into_iter().flatten();
        for (own, asked) in own.zip(asked) {
            own["resources"] = asked["resources"].clone();
        }
    }
    if same(&kept["spec"], &wanted["spec"]) {
        causes.retain(|cause| !matches!(cause.field.as_str(), "spec.template" | "spec.template.spec"));
    }
}

/// Copies the scheduling directives that may change while a job is suspended.
fn free_placement(kept: &mut Value, wanted: &Value) {
    for field in ["annotations", "labels"] {
        kept["metadata"][field] = wanted["metadata"][field].clone();
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        kept["spec"][field] = wanted["spec"][field].clone();
    }
    let node = wanted["spec"]["affinity"]["nodeAffinity"].clone();
    kept["spec"]["affinity"]["nodeAffinity"] = node;
    // An empty affinity equals an absent one.
    if same(&kept["spec"]["affinity"], &Value::Null) && wanted["spec"]["affinity"].is_null() {
        kept["spec"]["affinity"] = Value::Null;
    }
}

pub fn cron_job(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let zone = spec.get("timeZone");
    let at = spec.get("schedule");
    let zoned = at.text().contains("TZ");
    let was_zoned = old.is_some_and(|old| old["spec"]["schedule"].as_str().is_some_and(|text| text.contains("TZ")));
    if at.is_empty() {
        causes.push(at.required(""));
    } else if let Err(fault) = Schedule::parse(at.text()) {
        causes.push(at.invalid(&fault));
    }
    if zoned && !was_zoned {
        causes.push(at.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    } else if zoned && zone.is_set() {
        causes.push(at.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
    }
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    if old.is_none() && name.text().len() > CRON_JOB_NAME_BYTES_MAX {
        causes.push(name.invalid(&names::too_long(CRON_JOB_NAME_BYTES_MAX)));
    }
    if old.is_none_or(|old| &old["spec"]["timeZone"] != zone.value) {
        time_zone(zone, &mut causes);
    }
    let counts = ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    none_negative(spec, &counts, &mut causes);
    one_of(spec.get("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], &mut causes);
    let job = spec.get("jobTemplate");
    let job_at = job.get("spec");
    job_spec(job_at, &mut causes);
    let selector = job_at.get("selector");
    if selector.is_set() {
        causes.push(selector.invalid("`selector` will be auto-generated"));
    }
    let manual = job_at.get("manualSelector");
    if manual.is_true() {
        causes.push(manual.not_supported(&["nil", "false"]));
    }
    causes
}

fn time_zone(zone: At, causes: &mut Causes) {
    let text = zone.text();
    if !zone.is_set() {
        return;
    }
    if text.is_empty() {
        causes.push(zone.invalid("timeZone must be nil or non-empty string"));
        return;
    }
    if text.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.push(zone.invalid(detail));
    }
    if let Err(why) = check_zone(text) {
        causes.push(zone.invalid(&why));
    }
}

fn job_spec(spec: At, causes: &mut Causes) {
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    none_negative(spec, &counts, causes);
    none_negative(spec, &["backoffLimitPerIndex", "maxFailedIndexes"], causes);
    let (by_index, failed) = (spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes"));
    if failed.is_set() && !by_index.is_set() {
        causes.push(by_index.required("when maxFailedIndexes is specified"));
    }
    let manager = spec.get("managedBy");
    if manager.is_set() {
        domain_prefixed_path(manager, causes);
        not_longer(manager, MANAGED_BY_BYTES_MAX, causes);
    }
    let mode = spec.get("completionMode");
    if mode.is_set() && !matches!(mode.text(), "NonIndexed" | "Indexed") {
        causes.push(mode.not_supported(&["NonIndexed", "Indexed"]));
    }
    match mode.text() {
        "Indexed" => indexed(spec, causes),
        "NonIndexed" | "" => {
            for field in [by_index, failed] {
                if field.is_set() {
                    causes.push(field.invalid("requires indexed completion mode"));
                }
            }
        }
        _ => {}
    }
    if spec.get("podFailurePolicy").is_set() {
        policies::failure(spec, causes);
    }
    if spec.get("successPolicy").is_set() {
        policies::success(spec, causes);
    }
    policies::replacement(spec, causes);
    let pods = spec.get("template");
    template(pods, causes);
    let pod = pods.get("spec");
    let restart = pod.get("restartPolicy");
    match restart.text() {
        // `Always` is the default for pods, so it counts as unset.
        "" | "Always" => causes.push(restart.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.get("podFailurePolicy").is_set() => {
            causes.push(restart.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        _ => causes.push(restart.not_supported(&["OnFailure", "Never"])),
    }
}

fn indexed(spec: At, causes: &mut Causes) {
    let (completions, parallelism) = (spec.get("completions"), spec.get("parallelism"));
    let failed = spec.get("maxFailedIndexes");
    if !completions.is_set() {
        causes.push(completions.required("when completion mode is Indexed"));
    }
    let at_once = format!("must be less than or equal to {INDEXES_MAX} when completion mode is Indexed");
    no_more_than(parallelism, INDEXES_MAX, &at_once, causes);
    let all = completions.number();
    no_more_than(failed, all.unwrap_or(i64::MAX), "must be less than or equal to completions", causes);
    no_more_than(failed, INDEXES_MAX, &format!("must be less than or equal to {INDEXES_MAX}"), causes);
    if all.is_some_and(|all| all > MANY_COMPLETIONS) && spec.get("backoffLimitPerIndex").is_set() {
        if !failed.is_set() {
            causes.push(failed.required(&format!("must be specified when completions is above {MANY_COMPLETIONS}")));
        }
        let detail = format!(
            "must be less than or equal to {INDEXES_OF_MANY_MAX} when completions are above {MANY_COMPLETIONS} and \
             used with backoff limit per index"
        );
        no_more_than(parallelism, INDEXES_OF_MANY_MAX, &detail, causes);
        no_more_than(failed, INDEXES_OF_MANY_MAX, &detail, causes);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    fn pods() -> Value {
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}})
    }

    /// A job with a manual selector, so that nothing is generated.
    fn manual() -> Value {
        let mut template = pods();
        template["metadata"] = json!({"labels": {"a": "b"}});
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
            "spec": {"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        })
    }

    #[test]
    fn each_rule_of_jobs() {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": pods()},
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
                ("/spec/ttlSecondsAfterFinished", json!(-1), "spec.ttlSecondsAfterFinished: Invalid value: -1: must"),
                ("/spec/completionMode", json!("Some"), "spec.completionMode: Unsupported value: \"Some\""),
                (
                    "/spec/backoffLimitPerIndex",
                    json!(1),
                    "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
                ),
                ("/spec/maxFailedIndexes", json!(1), "spec.backoffLimitPerIndex: Required value: when maxFailedIndexe"),
                ("/spec/managedBy", json!("me"), "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed"),
                ("/spec/managedBy", json!(format!("a.b/{}", "c".repeat(60))), "spec.managedBy: Too long: may not be"),
                ("/spec/manualSelector", json!(true), "spec.selector: Required value"),
                ("/spec/selector/matchLabels/a", json!("b"), "spec.template.metadata.labels: Invalid value: {"),
                (
                    "/spec/template/metadata/labels/job-name",
                    json!("other"),
                    "spec.template.metadata.labels[job-name]: Invalid value: {",
                ),
                (
                    "/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid",
                    json!("other"),
                    "spec.selector: Invalid value: {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"other\"}}: `sel",
                ),
                ("/spec", json!({"completionMode": "Indexed", "template": pods()}), ""),
                (
                    "/spec",
                    json!({"completionMode": "Indexed", "parallelism": 1, "template": pods()}),
                    "spec.completions: Required value: when completion mode is Indexed",
                ),
                (
                    "/spec",
                    json!({"completionMode": "Indexed", "completions": 1, "parallelism": 100_001, "template": pods()}),
                    "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mod",
                ),
                (
                    "/spec",
                    json!({
                        "completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 1,
                        "parallelism": 1, "template": pods(),
                    }),
                    "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
                ),
                (
                    "/spec",
                    json!({
                        "completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1,
                        "maxFailedIndexes": 3, "template": pods(),
                    }),
                    "spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions",
                ),
            ],
        );
        let mut long = job;
        long["metadata"]["name"] = json!("a".repeat(60));
        long["spec"]["completionMode"] = json!("Indexed");
        long["spec"]["completions"] = json!(10);
        let host =
            "metadata.name: Invalid value: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": will not";
        check_rows(&long, &[("/spec/completions", json!(1000), host)]);
    }

    #[test]
    fn what_may_change_of_a_job() {
        let image = ("/spec/template/spec/containers/0/image", json!("b"), "spec.template: Invalid value");
        let placed = ("/spec/template/spec/nodeSelector", json!({"a": "b"}));
        check_updates(
            &manual(),
            &[
                ("/spec/backoffLimit", json!(2), ""),
                ("/spec/suspend", json!(true), ""),
                ("/spec/ttlSecondsAfterFinished", json!(2), ""),
                ("/spec/activeDeadlineSeconds", json!(2), ""),
                ("/spec/completions", json!(2), "spec.completions: Invalid value: 2: field is immutable"),
                ("/spec/completionMode", json!("Indexed"), "spec.completionMode: Invalid value: \"Indexed\": field is"),
                ("/spec/managedBy", json!("a.b/c"), "spec.managedBy: Invalid value: \"a.b/c\": field is immutable"),
                image.clone(),
                (placed.0, placed.1.clone(), "spec.template: Invalid value"),
            ],
        );
        let node = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}});
        let mut waiting = manual();
        waiting["spec"]["suspend"] = json!(true);
        let pod_affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "t", "labelSelector": {}}]}});
        check_updates(
            &waiting,
            &[
                ("/spec/suspend", json!(false), ""),
                (placed.0, placed.1.clone(), ""),
                ("/spec/template/spec/affinity", node.clone(), ""),
                ("/spec/template/spec/affinity", pod_affinity, "spec.template.spec: Invalid value"),
                ("/spec/template/spec/tolerations", json!([{"operator": "Exists"}]), ""),
                ("/spec/template/metadata/annotations", json!({"a": "b"}), ""),
                ("/spec/template/metadata/labels/c", json!("d"), ""),
                (image.0, image.1.clone(), "spec.template.spec: Invalid value"),
            ],
        );
        waiting["spec"]["template"]["spec"]["affinity"] = node;
        check_updates(&waiting, &[("/spec/template/spec/affinity", Value::Null, "")]);
        waiting["status"] = json!({"startTime": "2024-01-01T00:00:00Z"});
        check_updates(&waiting, &[(placed.0, placed.1, "spec.template: Invalid value")]);
        let mut indexed = manual();
        indexed["spec"]["completionMode"] = json!("Indexed");
        indexed["spec"]["completions"] = json!(3);
        indexed["spec"]["parallelism"] = json!(4);
        check_updates(
            &indexed,
            &[
                ("/spec/completions", json!(4), ""),
                (
                    "/spec/completions",
                    json!(5),
                    "spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism",
                ),
            ],
        );
    }

    #[test]
    fn each_rule_of_cron_jobs() {
        let cron = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"},
            "spec": {"schedule": "*/5 0-6,8 * JAN mon-fri", "jobTemplate": {"spec": {"template": pods()}}},
        });
        let schedule = "/spec/schedule";
        let name =
            "metadata.name: Invalid value: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": must be no mo";
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
                (
                    schedule,
                    json!("TZ=UTC 0 * * * *"),
                    "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use time",
                ),
                ("/spec/concurrencyPolicy", json!("Queue"), "spec.concurrencyPolicy: Unsupported value: \"Queue\""),
                ("/spec/jobTemplate/spec/template/spec/restartPolicy", json!("Always"), "spec.jobTemplate.spec.templ"),
                (
                    "/spec/jobTemplate/spec/selector",
                    json!({"matchLabels": {"a": "b"}}),
                    "spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` will be aut",
                ),
                (
                    "/spec/jobTemplate/spec/manualSelector",
                    json!(true),
                    "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"",
                ),
                ("/spec/timeZone", json!("Europe/Berlin"), ""),
                ("/spec/timeZone", json!("Etc/UTC"), ""),
                ("/spec/timeZone", json!("Local"), "spec.timeZone: Invalid value: \"Local\": timeZone must be an expl"),
                ("/spec/timeZone", json!(""), "spec.timeZone: Invalid value: \"\": timeZone must be nil or non-empty"),
                ("/spec/timeZone", json!("Mars/Dust"), "spec.timeZone: Invalid value: \"Mars/Dust\": unknown time zon"),
                ("/spec/startingDeadlineSeconds", json!(-1), "spec.startingDeadlineSeconds: Invalid value: -1: must"),
                ("/spec/failedJobsHistoryLimit", json!(-1), "spec.failedJobsHistoryLimit: Invalid value: -1: must be"),
                ("/metadata/name", json!("a".repeat(53)), name),
                ("/metadata/name", json!("a".repeat(52)), ""),
            ],
        );
        check_updates(
            &cron,
            &[
                ("/metadata/name", json!("a".repeat(53)), ""),
                ("/spec/suspend", json!(true), ""),
                ("/spec/jobTemplate/spec/template/spec/containers/0/image", json!("b"), ""),
            ],
        );
    }
}

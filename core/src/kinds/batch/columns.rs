//! Columns of jobs and cron jobs.

use crate::kinds::Column;
use crate::kinds::cells::{
    NONE, UNSET, age, age_column, at, column, condition, epoch_seconds, field, items, joined, name, number, of_field,
    selector_column, show, since, template_columns, text,
};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Job" => job(),
        "CronJob" => cron_job(),
        _ => Vec::new(),
    }
}

fn job() -> Vec<Column> {
    let [containers, images] = template_columns();
    vec![
        name(),
        column("Status", "string", 0, "Whether the job runs, and how it ended.", |doc, _| status(doc).into())
            .reading(&["status.conditions"]),
        column("Completions", "string", 0, field("status.succeeded"), |doc, _| completions(doc).into()).reading(&[
            "status.succeeded",
            "spec.completions",
            "spec.parallelism",
        ]),
        column("Duration", "string", 0, "Time from start to completion, or until now.", |doc, now| {
            duration(doc, now).into()
        })
        .reading(&["status.startTime", "status.completionTime"]),
        age_column(),
        containers,
        images,
        selector_column(),
    ]
}

fn cron_job() -> Vec<Column> {
    const CONTAINERS: &str = "spec.jobTemplate.spec.template.spec.containers";
    vec![
        name(),
        of_field("Schedule", "string", 0, "spec.schedule", show::text),
        of_field("Timezone", "string", 0, "spec.timeZone", |doc, path| {
            at(doc, path).cloned().unwrap_or_else(|| NONE.into())
        }),
        of_field("Suspend", "boolean", 0, "spec.suspend", |doc, path| match at(doc, path).and_then(Value::as_bool) {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => UNSET.into(),
        }),
        of_field("Active", "integer", 0, "status.active", show::count),
        column("Last Schedule", "string", 0, field("status.lastScheduleTime"), |doc, now| {
            match text(doc, "status.lastScheduleTime") {
                "" => NONE.into(),
                time => since(time, now).into(),
            }
        })
        .reading(&["status.lastScheduleTime"]),
        age_column(),
        column("Containers", "string", 1, "Names of the template's containers.", |doc, _| {
            joined(items(doc, CONTAINERS), "name").into()
        })
        .reading(&["spec.jobTemplate.spec.template.spec.containers.name"]),
        column("Images", "string", 1, "Images of the template's containers.", |doc, _| {
            joined(items(doc, CONTAINERS), "image").into()
        })
        .reading(&["spec.jobTemplate.spec.template.spec.containers.image"]),
        of_field("Selector", "string", 1, "spec.jobTemplate.spec.selector", show::selector),
    ]
}

fn status(job: &Value) -> &'static str {
    let is = |ty| condition(job, ty) == "True";
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if at(job, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else {
        let lesser = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
        lesser.into_iter().find(|ty| is(ty)).unwrap_or("Running")
    }
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "status.succeeded");
    match at(job, "spec.completions").and_then(Value::as_i64) {
        Some(needed) => format!("{succeeded}/{needed}"),
        // Without completions, the job is complete when one pod succeeds.
        None => match number(job, "spec.parallelism") {
            parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
            _ => format!("{succeeded}/1"),
        },
    }
}

fn duration(job: &Value, now: i64) -> String {
    let started = epoch_seconds(text(job, "status.startTime"));
    let ended = epoch_seconds(text(job, "status.completionTime")).unwrap_or(now);
    started.map_or_else(String::new, |started| age(ended - started))
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::{Value, json};

    #[test]
    fn jobs() {
        let conditions =
            |types: &[&str]| -> Vec<Value> { types.iter().map(|ty| json!({"type": ty, "status": "True"})).collect() };
        let cases = [
            (json!({}), json!({}), "Running | 0/1 | "),
            (
                json!({"completions": 5}),
                json!({"succeeded": 2, "startTime": "2026-01-09T23:50:00Z"}),
                "Running | 2/5 | 10m",
            ),
            (json!({"parallelism": 3}), json!({"succeeded": 1}), "Running | 1/1 of 3 | "),
            (json!({"parallelism": 1}), json!({"succeeded": 1}), "Running | 1/1 | "),
            (
                json!({"completions": 1}),
                json!({
                    "succeeded": 1, "startTime": "2026-01-09T20:00:00Z", "completionTime": "2026-01-09T20:03:05Z",
                    "conditions": conditions(&["SuccessCriteriaMet", "Complete"]),
                }),
                "Complete | 1/1 | 3m5s",
            ),
            (
                json!({"completions": 1}),
                json!({"conditions": conditions(&["FailureTarget", "Failed"])}),
                "Failed | 0/1 | ",
            ),
            (json!({"completions": 1}), json!({"conditions": conditions(&["Suspended"])}), "Suspended | 0/1 | "),
            (
                json!({"completions": 1}),
                json!({"conditions": conditions(&["FailureTarget"])}),
                "FailureTarget | 0/1 | ",
            ),
            (
                json!({"completions": 1}),
                json!({"conditions": conditions(&["SuccessCriteriaMet"])}),
                "SuccessCriteriaMet | 0/1 | ",
            ),
            (
                json!({"completions": 1}),
                json!({"conditions": [{"type": "Suspended", "status": "False"}]}),
                "Running | 0/1 | ",
            ),
        ];
        for (spec, status, expected) in cases {
            let doc = json!({"metadata": {"name": "x"}, "spec": spec, "status": status});
            assert_eq!(shown(&of("Job")[1..4], &doc), expected);
        }
        let going = json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-09T23:50:00Z"},
            "spec": {"completions": 1}, "status": {"conditions": conditions(&["Suspended"])}});
        assert_eq!(shown(&of("Job")[1..3], &going), "Terminating | 0/1");
    }

    #[test]
    fn cron_jobs() {
        let cases = [
            (
                json!({"schedule": "*/5 * * * *", "suspend": false, "timeZone": "Etc/UTC", "jobTemplate": {"spec": {
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}}),
                json!({"active": [{"name": "x-1"}], "lastScheduleTime": "2026-01-09T23:55:30Z"}),
                "x | */5 * * * * | Etc/UTC | False | 1 | 4m30s | 5m | c | i | <none>",
            ),
            (json!({"suspend": true}), json!({}), "x |  | <none> | True | 0 | <none> | 5m |  |  | <none>"),
            (json!({}), json!({}), "x |  | <none> | <unset> | 0 | <none> | 5m |  |  | <none>"),
        ];
        for (spec, status, expected) in cases {
            let metadata = json!({"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"});
            assert_eq!(shown(&of("CronJob"), &json!({"metadata": metadata, "spec": spec, "status": status})), expected);
        }
    }
}

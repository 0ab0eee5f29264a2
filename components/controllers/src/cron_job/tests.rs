use super::CronJobs;
use holdfast_value::{Value, json};
use holdfast_world::trial::Trial;
use holdfast_world::views::CronJob;
use holdfast_world::{BackOff, Driver, Key, Stamp, Time, View};

/// Trials begin at 2026-11-21 10:00 UTC; this is that time in minutes since 1970.
const FIRST_MINUTE: i64 = 1_795_255_200 / 60;

fn cron_job(spec: Value) -> Value {
    let mut cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {
            "metadata": {"labels": {"from": "cron"}, "annotations": {"note": "x"}},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
        }},
    });
    for (field, value) in spec.as_object().expect("fields") {
        cron_job["spec"][field] = value.clone();
    }
    cron_job
}

fn started(spec: Value) -> Trial {
    let mut trial = Trial::new().with(CronJobs);
    trial.create(cron_job(spec));
    trial.run();
    trial
}

fn job(minutes: i64) -> String {
    format!("c-{}", FIRST_MINUTE + minutes)
}

fn status(trial: &Trial) -> Value {
    trial.get("cronjobs", "c")["status"].clone()
}

fn active(trial: &Trial) -> Vec<String> {
    let status = status(trial);
    let active = status["active"].as_array().into_iter().flatten();
    active.map(|job| job["name"].as_str().expect("a name").to_owned()).collect()
}

fn finish(trial: &mut Trial, name: &str, kind: &str) {
    let now = trial.now();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let (announced, completion) =
        if kind == "Complete" { ("SuccessCriteriaMet", json!(now)) } else { ("FailureTarget", Value::Null) };
    let status = json!({"startTime": now, "completionTime": completion, "uncountedTerminatedPods": {},
        "conditions": [condition(announced), condition(kind)]});
    trial.patch_status("jobs", name, status);
    trial.run();
}

#[test]
fn a_job_each_minute() {
    let mut trial = started(json!({}));
    trial.run_for(59);
    assert!(trial.list("jobs").is_empty());
    trial.run_for(1);
    assert_eq!(trial.names("jobs"), [job(1)]);
    let made = trial.get("jobs", &job(1));
    assert_eq!(made["metadata"]["labels"]["from"], "cron");
    let annotations = json!({"note": "x", "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-21T10:01:00Z"});
    assert_eq!(made["metadata"]["annotations"], annotations);
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    assert_eq!(active(&trial), [job(1)]);
    assert_eq!(status(&trial)["lastScheduleTime"], "2026-11-21T10:01:00Z");
    trial.run_for(60);
    assert_eq!(active(&trial), [job(1), job(2)]);
    let created = |minutes| format!("Normal SuccessfulCreate Created job {}", job(minutes));
    assert_eq!(trial.take_event_texts(), [created(1), created(2)]);
    finish(&mut trial, &job(1), "Complete");
    assert_eq!(active(&trial), [job(2)]);
    assert_eq!(status(&trial)["lastSuccessfulTime"], json!(trial.now()));
    let saw = format!("Normal SawCompletedJob Saw completed job: {}, condition: Complete", job(1));
    assert_eq!(trial.take_event_texts(), [saw]);
}

#[test]
fn what_runs_holds_back_or_is_replaced() {
    let mut trial = started(json!({"concurrencyPolicy": "Forbid"}));
    trial.run_for(120);
    assert_eq!(trial.names("jobs"), [job(1)]);
    let held = "Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is \
                Forbid";
    assert_eq!(trial.take_event_texts().last().expect("a note"), held);
    finish(&mut trial, &job(1), "Failed");
    assert_eq!(active(&trial), [job(2)], "the newest time is not lost");

    let mut trial = started(json!({"concurrencyPolicy": "Replace"}));
    trial.run_for(120);
    assert_eq!(trial.names("jobs"), [job(2)]);
    assert_eq!(active(&trial), [job(2)]);
    let notes = trial.take_event_texts();
    assert_eq!(notes[1..2], [format!("Normal SuccessfulDelete Deleted job {}", job(1))], "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("MissingJob")), "{notes:?}");
}

#[test]
fn only_the_newest_missed_time_counts() {
    let mut trial = started(json!({}));
    trial.pass_millis(3_600_000 * 3);
    trial.run();
    assert_eq!(trial.names("jobs"), [job(180)]);
    let many = "Warning TooManyMissedTimes too many missed start times. Set or decrease .spec.startingDeadlineSeconds or \
                check clock skew";
    assert!(trial.take_event_texts().contains(&many.to_owned()));
    let mut trial = started(json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 600}));
    trial.pass_millis(1000 * (3600 + 601));
    trial.run();
    assert!(trial.list("jobs").is_empty());
    trial.pass_millis(1000 * 3000);
    trial.run();
    assert_eq!(trial.names("jobs"), [job(120)]);
}

#[test]
fn history_is_kept_to_its_limits() {
    let mut trial = started(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}));
    for minute in 1..=3 {
        trial.run_for(60);
        finish(&mut trial, &job(minute), if minute == 2 { "Failed" } else { "Complete" });
    }
    assert_eq!(trial.names("jobs"), [job(3)]);
    assert!(active(&trial).is_empty());
    let notes = trial.take_event_texts();
    let deleted = notes.iter().filter(|note| note.starts_with("Normal SuccessfulDelete")).count();
    assert_eq!(deleted, 2, "{notes:?}");
}

#[test]
fn jobs_that_come_and_go_by_other_hands() {
    let mut trial = started(json!({}));
    trial.run_for(60);
    trial.patch("cronjobs", "c", json!({"spec": {"suspend": true}}));
    trial.delete_as("jobs", &job(1), Some(holdfast_world::Propagation::Background), None);
    trial.run_for(600);
    assert!(active(&trial).is_empty());
    assert_eq!(trial.take_event_texts()[1..], [format!("Normal MissingJob Active job went missing: {}", job(1))]);
    let uid = trial.get("cronjobs", "c")["metadata"]["uid"].clone();
    let mut by_hand = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "by-hand"}});
    by_hand["spec"] = cron_job(json!({}))["spec"]["jobTemplate"]["spec"].clone();
    by_hand["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": uid, "controller": true}]);
    trial.create(by_hand);
    trial.run();
    let unexpected = "Warning UnexpectedJob Saw a job that the controller did not create or forgot: by-hand";
    assert_eq!(trial.take_event_texts(), [unexpected]);
}

#[test]
fn a_job_that_is_no_longer_owned_is_listed_while_it_is_there() {
    let disowned = json!({"metadata": {"ownerReferences": null}});
    let mut trial = started(json!({"concurrencyPolicy": "Forbid"}));
    trial.run_for(60);
    trial.take_event_texts();
    trial.patch("jobs", &job(1), disowned.clone());
    trial.run();
    finish(&mut trial, &job(1), "Complete");
    assert_eq!((active(&trial), trial.take_event_texts()), (vec![job(1)], Vec::new()));
    trial.run_for(60);
    assert_eq!(trial.names("jobs"), [job(1)], "it holds the next one back");
    trial.patch("cronjobs", "c", json!({"spec": {"suspend": true}}));
    trial.run();
    trial.take_event_texts();
    trial.delete_as("jobs", &job(1), Some(holdfast_world::Propagation::Background), None);
    trial.run();
    assert_eq!(trial.take_event_texts(), [format!("Normal MissingJob Active job went missing: {}", job(1))]);
    assert!(active(&trial).is_empty());

    let mut trial = started(json!({"concurrencyPolicy": "Replace"}));
    trial.run_for(60);
    trial.patch("jobs", &job(1), disowned.clone());
    trial.run_for(60);
    assert_eq!((trial.names("jobs"), active(&trial)), (vec![job(2)], vec![job(2)]));

    let mut trial = started(json!({}));
    trial.run_for(60);
    trial.take_event_texts();
    trial.delete_as("cronjobs", "c", Some(holdfast_world::Propagation::Orphan), None);
    trial.patch("jobs", &job(1), disowned);
    trial.run_for(60);
    assert_eq!((active(&trial), trial.take_event_texts()), (vec![job(1)], Vec::new()));
}

#[test]
fn a_schedule_that_never_fires_and_zones() {
    let mut trial = started(json!({"schedule": "0 0 31 2 *"}));
    assert_eq!(trial.next_time(), None);
    let invalid = "Warning InvalidSchedule invalid schedule: 0 0 31 2 * : time difference between two schedules is less \
                   than 1 second";
    assert_eq!(trial.take_event_texts(), [invalid]);

    let mut trial = started(json!({"schedule": "15 11 * * *", "timeZone": "Europe/Oslo"}));
    trial.run_for(15 * 60);
    let made = trial.get("jobs", &job(15));
    let scheduled = &made["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(scheduled, "2026-11-21T11:15:00+01:00");
}

#[test]
fn a_restart_starts_nothing_twice() {
    let mut trial = started(json!({"schedule": "@every 90s"}));
    trial.run_for(90);
    assert_eq!(trial.list("jobs").len(), 1);
    trial.restart(CronJobs);
    trial.run_for(60);
    assert_eq!(trial.list("jobs").len(), 1);
    trial.run_for(60);
    assert_eq!(trial.list("jobs").len(), 2);
}

/// An API server with other time zones, or weaker validation, may store a schedule that this controller cannot follow.
#[test]
fn what_cannot_be_followed_is_told_and_waits_for_a_change() {
    let unknown = "invalid timeZone: \"Europe/Nowhere\": unknown time zone Europe/Nowhere";
    for (spec, reason, message) in [
        (json!({"schedule": "* * * * *", "timeZone": "Europe/Nowhere"}), "UnknownTimeZone", unknown),
        (
            json!({"schedule": "TZ=Europe/Nowhere * * * * *"}),
            "UnparseableSchedule",
            "unparseable schedule: \"TZ=Europe/Nowhere * * * * *\" : provided bad location Europe/Nowhere",
        ),
        (json!({"schedule": "nonsense"}), "UnparseableSchedule", "unparseable schedule: \"nonsense\" : "),
    ] {
        let now = Time::from_second(FIRST_MINUTE * 60);
        let mut driver = Driver::new();
        driver.add(Box::new(CronJobs), 1, BackOff::default());
        let object = json!({"metadata": {"name": "c", "namespace": "default", "uid": "u", "creationTimestamp": now},
            "spec": spec});
        let body = object.to_string().into();
        driver.apply(CronJob::resource(), Key::new("default", "c"), Some(body), 1, now);
        driver.complete();
        let task = driver.next_task(|| Stamp { time: now, seed: 0 }).expect("a plan");
        let [note] = &task.plan.events[..] else { panic!("{:?}", task.plan.events) };
        assert_eq!((note.reason, note.warning), (reason, true));
        assert!(note.message.starts_with(message), "{}", note.message);
        assert!(task.plan.is_idle() && task.plan.requeue_at.is_none() && !task.plan.unready, "{:?}", task.plan);
    }
}

#[test]
fn a_new_schedule_makes_up_for_nothing() {
    let mut trial = started(json!({"schedule": "30 10 * * *"}));
    trial.is_level = false;
    trial.run_for(31 * 60);
    assert_eq!(trial.names("jobs"), [job(30)]);
    trial.run_for(20 * 60);
    // The time 10:50 of the new schedule passed a minute ago, so no Job may be started for it.
    trial.patch("cronjobs", "c", json!({"spec": {"schedule": "50 * * * *"}}));
    trial.run_for(58 * 60);
    assert_eq!(trial.names("jobs"), [job(30)]);
    trial.run_for(2 * 60);
    assert_eq!(trial.names("jobs"), [job(30), job(110)]);
}

#[test]
fn that_very_many_times_were_missed_is_told_once() {
    let mut trial = started(json!({"suspend": true}));
    trial.run_for(200 * 60);
    trial.patch("cronjobs", "c", json!({"spec": {"suspend": false}}));
    trial.run();
    let told = trial.take_event_texts().iter().filter(|note| note.contains("TooManyMissedTimes")).count();
    assert_eq!(told, 1);
}

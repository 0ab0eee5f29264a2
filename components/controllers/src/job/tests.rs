use super::Jobs;
use holdfast_value::{Value, json};
use holdfast_world::trial::Trial;

fn job(spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        }},
    });
    for (field, value) in spec.as_object().expect("fields") {
        job["spec"][field] = value.clone();
    }
    job
}

fn started(spec: Value) -> Trial {
    let mut trial = Trial::new().with(Jobs::default());
    trial.create(job(spec));
    trial.run();
    trial
}

/// Lets a pending pod end with an exit code: the first pending pod, or the first pending pod of `index`. Returns the
/// pod's name.
fn end(trial: &mut Trial, index: Option<&str>, code: i64) -> String {
    let is_meant = |pod: &Value| {
        let of = &pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"];
        pod["status"]["phase"] == "Pending"
            && pod["metadata"]["deletionTimestamp"].is_null()
            && index.is_none_or(|index| of == index)
    };
    let pod = trial.list("pods").into_iter().find(is_meant).expect("a pod that waits");
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    let now = trial.now();
    trial.patch_status(
        "pods",
        &name,
        json!({
            "phase": if code == 0 { "Succeeded" } else { "Failed" },
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "finishedAt": now, "startedAt": now}}}],
        }),
    );
    trial.run();
    name
}

fn status(trial: &Trial) -> Value {
    trial.get("jobs", "j")["status"].clone()
}

fn condition(trial: &Trial, kind: &str) -> String {
    let status = status(trial);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind);
    found.map_or(String::new(), |found| {
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("status"), text("reason"), text("message"))
    })
}

#[test]
fn one_pod_that_succeeds() {
    let mut trial = started(json!({}));
    let found = status(&trial);
    assert_eq!((&found["active"], &found["ready"], &found["terminating"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(found["uncountedTerminatedPods"], json!({}));
    let pod = &trial.list("pods")[0];
    assert_eq!(pod["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    assert_eq!(pod["metadata"]["generateName"], "j-");
    end(&mut trial, None, 0);
    let found = status(&trial);
    assert_eq!((&found["active"], &found["succeeded"]), (&Value::Null, &json!(1)));
    let reached = "True CompletionsReached Reached expected number of succeeded pods";
    assert_eq!(condition(&trial, "SuccessCriteriaMet"), reached);
    assert_eq!(condition(&trial, "Complete"), reached);
    assert!(found["completionTime"].is_string());
    assert_eq!(trial.list("pods")[0]["metadata"]["finalizers"], Value::Null);
    let notes = trial.take_event_texts();
    assert!(notes[0].starts_with("Normal SuccessfulCreate Created pod: j-"), "{notes:?}");
    assert_eq!(notes[1..], ["Normal Completed Job completed"]);
}

#[test]
fn a_work_queue_is_done_when_no_pod_is_left_after_a_success() {
    let mut trial = started(json!({"parallelism": 2}));
    end(&mut trial, None, 0);
    assert_eq!(status(&trial)["active"], 1);
    assert_eq!(condition(&trial, "Complete"), "");
    end(&mut trial, None, 0);
    assert_eq!(status(&trial)["succeeded"], 2);
    assert!(condition(&trial, "Complete").starts_with("True CompletionsReached"));
}

#[test]
fn failures_are_tried_again_later_each_time() {
    let mut trial = started(json!({"backoffLimit": 2}));
    for (failures, seconds) in [(1, 10), (2, 20)] {
        end(&mut trial, None, 1);
        assert_eq!(status(&trial)["failed"], failures);
        assert_eq!(status(&trial)["active"], Value::Null);
        trial.run_for(seconds - 1);
        assert_eq!(trial.list("pods").len(), failures);
        trial.run_for(1);
        assert_eq!(trial.list("pods").len(), failures + 1);
        assert_eq!(status(&trial)["active"], 1);
    }
    end(&mut trial, None, 1);
    let exceeded = "True BackoffLimitExceeded Job has reached the specified backoff limit";
    assert_eq!(condition(&trial, "FailureTarget"), exceeded);
    assert_eq!(condition(&trial, "Failed"), exceeded);
    assert_eq!(status(&trial)["failed"], 3);
    let last = "Warning BackoffLimitExceeded Job has reached the specified backoff limit";
    assert_eq!(trial.take_event_texts().last().expect("a note"), last);
}

#[test]
fn pods_that_still_run_are_deleted_and_counted_when_a_job_fails() {
    let mut trial = started(json!({"backoffLimit": 0, "parallelism": 3, "completions": 3}));
    end(&mut trial, None, 1);
    assert_eq!(trial.list("pods").len(), 1, "those that no node has are gone at once");
    assert_eq!(status(&trial)["failed"], 3);
    assert_eq!(status(&trial)["terminating"], 0);
    assert!(condition(&trial, "Failed").starts_with("True BackoffLimitExceeded"));
}

#[test]
fn indexes_fail_by_themselves() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1});
    let mut trial = started(spec);
    assert_eq!(status(&trial)["failedIndexes"], "");
    let first = end(&mut trial, Some("0"), 1);
    let held = trial.get("pods", &first)["metadata"]["finalizers"].clone();
    assert_eq!(held, json!(["batch.kubernetes.io/job-tracking"]), "it knows how often its index failed");
    trial.run_for(10);
    let pod = trial.list("pods").into_iter().find(|pod| {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
            && pod["metadata"]["name"] != first.as_str()
    });
    let pod = pod.expect("another pod of the index");
    assert_eq!(pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "1");
    assert_eq!(pod["spec"]["hostname"], "j-0");
    assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    assert_eq!(trial.get("pods", &first)["metadata"]["finalizers"], Value::Null);
    end(&mut trial, Some("0"), 1);
    assert_eq!(status(&trial)["failedIndexes"], "0");
    end(&mut trial, Some("1"), 0);
    assert_eq!(status(&trial)["completedIndexes"], "1");
    assert_eq!(condition(&trial, "Failed"), "True FailedIndexes Job has failed indexes");
}

#[test]
fn too_many_failed_indexes_end_a_job() {
    let mut trial = started(json!({"completionMode": "Indexed", "completions": 5, "parallelism": 2,
        "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}));
    end(&mut trial, Some("0"), 1);
    let failed = "True MaxFailedIndexesExceeded Job has exceeded the specified maximal number of failed indexes";
    assert_eq!(condition(&trial, "FailureTarget"), failed);
}

#[test]
fn policies_of_failures() {
    let rules = |action: &str| {
        json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [
        {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}})
    };
    let mut trial = started(rules("FailJob"));
    let name = end(&mut trial, None, 42);
    let failed = format!(
        "True PodFailurePolicy Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
    );
    assert_eq!(condition(&trial, "Failed"), failed);
    let mut trial = started(rules("Ignore"));
    end(&mut trial, None, 42);
    trial.run_for(10);
    assert_eq!(status(&trial)["failed"], Value::Null);
    assert_eq!(status(&trial)["active"], 1);
    end(&mut trial, None, 41);
    assert!(condition(&trial, "Failed").starts_with("True BackoffLimitExceeded"));
}

#[test]
fn a_success_policy_ends_a_job_early() {
    let mut trial = started(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}}));
    end(&mut trial, Some("0"), 0);
    assert_eq!(condition(&trial, "SuccessCriteriaMet"), "");
    end(&mut trial, Some("2"), 0);
    assert_eq!(condition(&trial, "SuccessCriteriaMet"), "True SuccessPolicy Matched rules at index 0");
    for name in trial.names("pods").into_iter().filter(|name| name.starts_with("j-1")) {
        trial.delete_as("pods", &name, None, Some(0));
    }
    trial.run();
    assert_eq!(condition(&trial, "Complete"), "True SuccessPolicy Matched rules at index 0");
    assert_eq!(status(&trial)["completedIndexes"], "0,2");
    assert_eq!(status(&trial)["failed"], Value::Null);
}

#[test]
fn suspended_and_resumed() {
    let mut trial = started(json!({"suspend": true, "parallelism": 2, "activeDeadlineSeconds": 5}));
    assert_eq!(trial.list("pods").len(), 0);
    assert_eq!(condition(&trial, "Suspended"), "True JobSuspended Job suspended");
    trial.run_for(60);
    trial.patch("jobs", "j", json!({"spec": {"suspend": false}}));
    trial.run();
    assert_eq!(trial.list("pods").len(), 2);
    assert_eq!(condition(&trial, "Suspended"), "False JobResumed Job resumed");
    assert_eq!(status(&trial)["startTime"], json!(trial.now()));
    trial.patch("jobs", "j", json!({"spec": {"suspend": true}}));
    trial.run();
    let pods = trial.list("pods");
    assert!(pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null()), "they do not count as failed");
    for name in trial.names("pods") {
        trial.delete_as("pods", &name, None, Some(0));
    }
    trial.run();
    assert_eq!(status(&trial)["failed"], Value::Null);
    trial.patch("jobs", "j", json!({"spec": {"suspend": false}}));
    trial.run_for(5);
    assert_eq!(
        condition(&trial, "FailureTarget"),
        "True DeadlineExceeded Job was active longer than specified deadline"
    );
    let notes = trial.take_event_texts();
    assert_eq!(notes.iter().filter(|note| *note == "Normal Resumed Job resumed").count(), 2, "{notes:?}");
}

#[test]
fn pods_are_replaced_when_they_are_asked_to_stop_or_when_they_have() {
    let mut trial = started(json!({}));
    let name = trial.names("pods").remove(0);
    trial.delete("pods", &name);
    trial.run();
    assert_eq!(status(&trial)["failed"], 1);
    trial.run_for(600);
    assert_eq!(status(&trial)["active"], 1);
    let mut trial = started(json!({"podReplacementPolicy": "Failed"}));
    let name = trial.names("pods").remove(0);
    trial.delete("pods", &name);
    trial.run_for(600);
    let found = status(&trial);
    assert_eq!((&found["failed"], &found["active"], &found["terminating"]), (&Value::Null, &Value::Null, &json!(1)));
}

#[test]
fn an_elastic_job_gives_up_the_highest_indexes() {
    let mut trial = started(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3}));
    trial.patch("jobs", "j", json!({"spec": {"completions": 2, "parallelism": 2}}));
    trial.run();
    let left = trial.list("pods").into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let left: Vec<_> = left.map(|pod| pod["spec"]["hostname"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(left, ["j-0", "j-1"]);
    assert_eq!(status(&trial)["active"], 2);
}

#[test]
fn what_is_selected_is_adopted_and_pods_without_a_job_are_let_go() {
    let mut trial = Trial::new().with(Jobs::default());
    let mut manual = job(json!({"manualSelector": true, "selector": {"matchLabels": {"app": "a"}}}));
    manual["spec"]["suspend"] = json!(true);
    trial.create(manual);
    let containers = json!([{"name": "c", "image": "i"}]);
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"containers": containers}}));
    trial.create(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "q", "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": {"containers": containers}}));
    trial.patch("jobs", "j", json!({"spec": {"suspend": false}}));
    trial.run();
    let pod = trial.get("pods", "p");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "j");
    assert_eq!(pod["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    assert_eq!(trial.get("pods", "q")["metadata"]["finalizers"], Value::Null);
    trial.patch("pods", "p", json!({"metadata": {"labels": {"app": "b"}}}));
    trial.run();
    let pod = trial.get("pods", "p");
    assert_eq!(pod["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(pod["metadata"]["finalizers"], Value::Null);
}

#[test]
fn jobs_of_others_are_left_alone() {
    let trial = started(json!({"managedBy": "example.com/other"}));
    assert!(trial.list("pods").is_empty());
    assert_eq!(status(&trial), json!({}));
}

#[test]
fn pods_of_a_namespace_that_goes_are_let_go_of() {
    let mut trial = Trial::new().with(Jobs::default());
    trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let mut job = job(json!({}));
    job["metadata"]["namespace"] = json!("shop");
    trial.create(job);
    trial.run();
    let name = trial.names("pods").remove(0);
    trial.delete("namespaces", "shop");
    trial.delete_as("pods", &format!("shop/{name}"), None, Some(0));
    trial.run();
    assert!(trial.names("pods").is_empty(), "no other may be made, and this one is counted");
}

/// Suspending the Job deletes its pods. These deletions are no failures, so the resumed Job creates pods without a
/// back-off.
#[test]
fn a_job_that_goes_on_after_a_pause_does_not_wait() {
    let mut trial = started(json!({"parallelism": 2, "completions": 4}));
    for pod in trial.names("pods") {
        let finalizers = json!(["example.com/hold", "batch.kubernetes.io/job-tracking"]);
        trial.patch("pods", &pod, json!({"metadata": {"finalizers": finalizers}}));
    }
    trial.patch("jobs", "j", json!({"spec": {"suspend": true}}));
    trial.run();
    assert_eq!(status(&trial)["terminating"], 2);
    trial.patch("jobs", "j", json!({"spec": {"suspend": false}}));
    trial.run();
    assert_eq!((status(&trial)["active"].clone(), trial.list("pods").len()), (json!(2), 4));
}

#[test]
fn what_is_refused_is_tried_again_after_a_second_and_then_more_slowly() {
    let mut trial = Trial::new().with(Jobs::default());
    crate::testing::allow(&mut trial, "pods", 0);
    trial.create(job(json!({})));
    trial.run_for(6);
    let refused = trial.take_event_texts().iter().filter(|note| note.contains("FailedCreate")).count();
    assert_eq!(refused, 3, "at once, after one second, and after two more");
}

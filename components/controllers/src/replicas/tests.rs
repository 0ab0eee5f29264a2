use super::*;
use crate::testing::{all, delete_new_pods, event_counts, make_ready, template};
use holdfast_value::Value;
use holdfast_world::Trial;

fn trial() -> Trial {
    Trial::new().with(Replicas::<ReplicaSet>::default()).with(Replicas::<ReplicationController>::default())
}

fn set(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template("a", "one")},
    })
}

fn loose_pod(name: &str) -> Value {
    let template = template("a", "one");
    let metadata = json!({"name": name, "labels": {"app": "a"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn status(trial: &Trial) -> Value {
    trial.get("replicasets.apps", "r")["status"].clone()
}

fn note(text: &str, number: usize) -> (String, usize) {
    (text.to_owned(), number)
}

#[test]
fn so_many_pods_are_kept_as_are_asked_for() {
    let mut trial = trial();
    trial.create(set(3));
    trial.run();
    assert_eq!(trial.list("pods").len(), 3);
    let expected = json!({"replicas": 3, "fullyLabeledReplicas": 3, "observedGeneration": 1, "terminatingReplicas": 0});
    assert_eq!(status(&trial), expected);
    let pod = &trial.list("pods")[0];
    assert_eq!(pod["metadata"]["generateName"], "r-");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(event_counts(&mut trial), [note("Normal SuccessfulCreate Created pod: r-*", 3)]);
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 1}}));
    trial.run();
    assert_eq!(trial.list("pods").len(), 1);
    assert_eq!(status(&trial)["replicas"], 1);
    assert_eq!(event_counts(&mut trial), [note("Normal SuccessfulDelete Deleted pod: r-*", 2)]);
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 0}}));
    trial.run();
    assert_eq!(status(&trial), json!({"replicas": 0, "observedGeneration": 3, "terminatingReplicas": 0}));
}

#[test]
fn pods_that_have_ended_are_replaced_and_stay() {
    let mut trial = trial();
    trial.create(set(2));
    trial.run();
    let name = trial.names("pods")[0].clone();
    trial.patch_status("pods", &name, json!({"phase": "Failed"}));
    trial.run();
    assert_eq!(trial.list("pods").len(), 3);
    assert_eq!(status(&trial)["replicas"], 2);
}

/// For `seconds` seconds, the nodes reject each pod as soon as it is created. Returns each second in which pods were
/// created, with their number.
fn refuse_all(trial: &mut Trial, seconds: i64) -> Vec<(i64, usize)> {
    let start = trial.now();
    let end = start.plus_seconds(seconds);
    let mut made: Vec<(i64, usize)> = Vec::new();
    loop {
        trial.run();
        let pods = trial.list("pods").into_iter().filter(|pod| pod["status"]["phase"] == "Pending");
        let names: Vec<String> = pods.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect();
        if !names.is_empty() {
            made.push((trial.now().millis_since(start) / 1_000, names.len()));
            for name in names {
                trial.patch_status("pods", &name, json!({"phase": "Failed", "reason": "OutOfcpu"}));
            }
            continue;
        }
        let Some(next) = trial.next_time().filter(|next| *next <= end) else { return made };
        trial.pass_millis(next.millis_since(trial.now()));
    }
}

#[test]
fn pods_that_no_node_takes_are_made_ever_more_slowly() {
    let waits = |made: &[(i64, usize)]| made.windows(2).map(|two| two[1].0 - two[0].0).collect::<Vec<_>>();
    let mut trial = trial();
    trial.create(set(1));
    let made = refuse_all(&mut trial, 7 * 3_600);
    assert_eq!(waits(&made[..14]), [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    let late = waits(&made[13..]);
    assert!(late.len() > 50 && late.iter().all(|wait| *wait == 300), "{late:?}");
    assert_eq!(status(&trial)["replicas"], 0);
}

#[test]
fn what_is_told_to_go_on_goes_on() {
    let mut trial = trial();
    trial.create(set(1));
    assert_eq!(refuse_all(&mut trial, 60).len(), 9);
    // Once the failed pods are deleted, none is left to count, so the delays begin again.
    trial.names("pods").iter().for_each(|name| trial.delete_as("pods", name, None, Some(0)));
    trial.run();
    assert_eq!(trial.list("pods").len(), 1);
    assert_eq!(refuse_all(&mut trial, 0).len(), 4);
    // A pod that ran for long is replaced at once, however many pods have failed earlier.
    trial.run_for(1);
    let running = trial.list("pods").into_iter().find(|pod| pod["status"]["phase"] == "Pending").expect("one runs");
    let running = running["metadata"]["name"].as_str().expect("a name");
    make_ready(&mut trial, running);
    trial.run_for(600);
    trial.patch_status("pods", running, json!({"phase": "Failed", "reason": "Evicted"}));
    trial.run();
    assert_eq!(status(&trial)["replicas"], 1);
}

#[test]
fn a_few_pods_that_fail_do_not_hold_up_many() {
    let mut trial = trial();
    trial.create(set(10));
    trial.run();
    for _ in 0..39 {
        let pods = trial.list("pods").into_iter().find(|pod| pod["status"]["phase"] == "Pending");
        let pod = pods.expect("one that runs")["metadata"]["name"].as_str().expect("a name").to_owned();
        trial.patch_status("pods", &pod, json!({"phase": "Failed"}));
        trial.run();
        assert_eq!(status(&trial)["replicas"], 10);
    }
    assert_eq!(refuse_all(&mut trial, 2), [(0, 10), (1, 10)]);
}

#[test]
fn however_many_are_wanted_failures_slow_them_down() {
    let held = |ended: usize, wanted: usize| {
        let made = Time::from_second(0);
        let pods = Pods { active: Vec::new(), terminating: 0, ended: vec![made; ended] };
        pods.held_until(wanted).map(Time::millis)
    };
    assert_eq!((held(0, 1), held(3, 1), held(4, 1), held(4, 0)), (None, None, Some(1_000), Some(1_000)));
    assert_eq!((held(1_999, 1_000_000), held(2_000, 1_000_000)), (None, Some(1_000)));
    assert_eq!(held(1_000_000, 1), Some(MAX_MILLIS));
}

#[test]
fn of_too_many_pods_those_that_are_not_ready_go_first() {
    let mut trial = trial();
    trial.create(set(4));
    trial.run();
    let names = trial.names("pods");
    make_ready(&mut trial, &names[1]);
    make_ready(&mut trial, &names[3]);
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 2}}));
    trial.run();
    assert_eq!(trial.names("pods"), [names[1].clone(), names[3].clone()]);
    assert_eq!(status(&trial)["availableReplicas"], 2);
}

#[test]
fn a_cheaper_pod_goes_first_and_age_counts_as_powers_of_two() {
    let mut trial = trial();
    trial.create(set(2));
    trial.run();
    let names = trial.names("pods");
    names.iter().for_each(|name| make_ready(&mut trial, name));
    let cost = |cost: &str| json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
    trial.patch("pods", &names[0], cost("5"));
    trial.patch("pods", &names[1], cost("-9"));
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 1}}));
    trial.run();
    assert_eq!(trial.names("pods"), [names[0].clone()]);
    trial.run_for(1000);
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 2}}));
    trial.patch("pods", &names[0], cost("0"));
    trial.run();
    let young = trial.names("pods").into_iter().find(|name| *name != names[0]).expect("a second pod");
    make_ready(&mut trial, &young);
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 1}}));
    trial.run();
    assert_eq!(trial.names("pods"), [names[0].clone()], "the younger one goes");
}

#[test]
fn orphans_are_adopted_and_others_let_go() {
    let mut trial = trial();
    trial.create(loose_pod("loose-a"));
    trial.create(loose_pod("loose-b"));
    make_ready(&mut trial, "loose-a");
    trial.create(set(1));
    trial.run();
    assert_eq!(trial.names("pods"), ["loose-a"]);
    assert_eq!(trial.get("pods", "loose-a")["metadata"]["ownerReferences"][0]["name"], "r");
    trial.patch("pods", "loose-a", json!({"metadata": {"labels": {"app": "b"}}}));
    trial.run();
    assert_eq!(trial.get("pods", "loose-a")["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(trial.list("pods").len(), 2);
    trial.patch("pods", "loose-a", json!({"metadata": {"labels": {"app": "a"}}}));
    trial.run();
    assert_eq!(trial.names("pods"), ["loose-a"], "it comes back, and is worth more than the new one");
}

#[test]
fn availability_comes_with_time() {
    let mut trial = trial();
    let mut set = set(1);
    set["spec"]["minReadySeconds"] = 10.into();
    trial.create(set);
    trial.run();
    let name = trial.names("pods")[0].clone();
    make_ready(&mut trial, &name);
    trial.run_for(9);
    assert_eq!(status(&trial)["readyReplicas"], 1);
    assert_eq!(status(&trial)["availableReplicas"], Value::Null);
    trial.run_for(1);
    assert_eq!(status(&trial)["availableReplicas"], 1);
}

#[test]
fn a_replication_controller_is_the_same_with_other_words() {
    let mut trial = trial();
    trial.create(json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "r"},
        "spec": {"replicas": 2, "selector": {"app": "a"}, "template": template("a", "one")},
    }));
    trial.run();
    assert_eq!(trial.list("pods").len(), 2);
    let status = trial.get("replicationcontrollers", "r")["status"].clone();
    assert_eq!(status, json!({"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1}));
    let components: Vec<_> = trial.take_events().iter().map(|told| told.component).collect();
    assert_eq!(components, ["replication-controller"; 2]);
}

#[test]
fn what_cannot_be_made_shows_as_a_condition_until_it_can() {
    let mut trial = trial();
    trial.create(set(3));
    let key = Key::new("default", "r");
    let mut controller = Replicas::<ReplicaSet>::default();
    let world = trial.world("replicaset-controller");
    let stamp = Stamp { time: trial.now(), seed: 1 };
    let plan = controller.plan(world, &key, stamp);
    let refusal = holdfast_world::Refusal {
        reason: "Forbidden".into(),
        message: "pods \"r-x\" is forbidden: exceeded quota: q".into(),
        causes: Vec::new(),
    };
    let refused = Refused { action: plan.steps[0][0].clone(), refusal };
    let after = controller.refused(world, &key, std::slice::from_ref(&refused), stamp);
    assert_eq!(after.events[0].reason, "FailedCreate");
    assert_eq!(after.events[0].message, "Error creating: pods \"r-x\" is forbidden: exceeded quota: q");
    let document = after.steps[0][0].verb.document().expect("a status");
    let condition = &document["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("FailedCreate")));
    let mut silent = refused;
    silent.refusal.causes = vec!["NamespaceTerminating".into()];
    let after = controller.refused(world, &key, &[silent], stamp);
    let document = after.steps[0][0].verb.document().expect("a status");
    assert!(after.events.is_empty() && document["status"]["conditions"].is_null(), "{after:?}");
}

#[test]
fn a_thousand_pods_are_made_in_growing_steps() {
    let mut trial = trial();
    trial.create(set(1000));
    let mut controller = Replicas::<ReplicaSet>::default();
    let stamp = Stamp { time: trial.now(), seed: 1 };
    let plan = controller.plan(trial.world("replicaset-controller"), &Key::new("default", "r"), stamp);
    let sizes: Vec<usize> = plan.steps.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 245, 1], "500 pods, and the status");
    trial.run();
    assert_eq!(all(&trial, "replicasets.apps", "/status/replicas"), [json!(1000)]);
}

/// A set without an owner has no related pods: when it is scaled down, the number of its own pods on a node does not
/// matter.
#[test]
fn of_a_set_without_an_owner_the_youngest_goes_wherever_it_is() {
    let mut trial = trial();
    for (name, node) in [("a", "n0"), ("b", "n0"), ("c", "n1")] {
        let mut pod = loose_pod(name);
        pod["spec"]["nodeName"] = json!(node);
        trial.create(pod);
        if name == "c" {
            trial.run_for(30);
        }
        make_ready(&mut trial, name);
    }
    trial.create(set(3));
    trial.run();
    trial.patch("replicasets.apps", "r", json!({"spec": {"replicas": 2}}));
    trial.run();
    assert_eq!(trial.names("pods"), ["a", "b"]);
}

#[test]
fn the_status_follows_while_the_namespace_goes() {
    let mut trial = trial();
    trial.create(set(2));
    trial.run();
    for pod in trial.names("pods") {
        trial.patch("pods", &pod, json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    }
    crate::testing::terminate_namespace(&mut trial);
    for pod in trial.names("pods") {
        trial.delete("pods", &pod);
    }
    trial.run();
    assert_eq!(status(&trial), json!({"replicas": 0, "observedGeneration": 1, "terminatingReplicas": 2}));
}

/// Something outside of the set, such as a taint, deletes its pods at once, so no failed pods are left to count. The
/// set must still create pods more and more slowly.
#[test]
fn pods_that_are_always_gone_again_are_made_ever_more_slowly() {
    let mut trial = trial();
    trial.create(set(1));
    assert_eq!(delete_new_pods(&mut trial), 20);
    trial.run_for(1);
    assert_eq!(trial.names("pods").len(), 1);
}

use super::*;
use crate::testing::{all, allow, delete_new_pods, make_ready, template};
use holdfast_value::json;
use holdfast_world::Trial;

const KIND: &str = "statefulsets.apps";
const CLAIMS: &str = "persistentvolumeclaims";

fn trial() -> Trial {
    Trial::new().with(StatefulSets::default())
}

fn set(replicas: i64, more: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
        "spec": {
            "replicas": replicas, "serviceName": "h", "selector": {"matchLabels": {"app": "a"}},
            "template": template("a", "one"),
        },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    set
}

/// Lets controllers and nodes run until nothing changes any more. Returns the names of the created and deleted pods, in
/// order.
fn settle(trial: &mut Trial) -> String {
    let mut seen = Vec::new();
    loop {
        trial.run();
        for note in trial.take_event_texts() {
            let words: Vec<&str> = note.split(' ').collect();
            if words[3] == "Pod" {
                seen.push(format!("{}{}", if words[2] == "Create" { "+" } else { "-" }, words[4]));
            }
        }
        let pods = trial.list("pods");
        let pending = pods.iter().find(|pod| pod["status"]["phase"] == "Pending");
        let Some(pod) = pending.and_then(|pod| pod["metadata"]["name"].as_str()) else { break };
        make_ready(trial, pod);
    }
    seen.join(" ")
}

fn update_to(trial: &mut Trial, image: &str) {
    trial.patch(KIND, "s", json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
}

fn images(trial: &Trial) -> Vec<Value> {
    all(trial, "pods", "/spec/containers/0/image")
}

fn status(trial: &Trial) -> Value {
    trial.get(KIND, "s")["status"].clone()
}

#[test]
fn pods_come_and_go_in_order() {
    let mut trial = trial();
    trial.create(set(3, json!({})));
    trial.run();
    assert_eq!(trial.names("pods"), ["s-0"], "the next waits for the first");
    assert_eq!(settle(&mut trial), "+s-0 +s-1 +s-2");
    let pod = trial.get("pods", "s-1");
    let revision = trial.names("controllerrevisions.apps")[0].clone();
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "app": "a", "apps.kubernetes.io/pod-index": "1", "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "s-1",
        })
    );
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("s-1"), &json!("h")));
    assert_eq!(
        status(&trial),
        json!({
            "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3, "updatedReplicas": 3,
            "currentRevision": revision, "updateRevision": revision, "collisionCount": 0, "observedGeneration": 1,
        })
    );
    trial.patch(KIND, "s", json!({"spec": {"replicas": 1}}));
    assert_eq!(settle(&mut trial), "-s-2 -s-1");
}

#[test]
fn parallel_pods_wait_for_nobody() {
    let mut trial = trial();
    trial.create(set(4, json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}})));
    trial.run();
    assert_eq!(trial.names("pods"), ["s-5", "s-6", "s-7", "s-8"]);
    trial.patch(KIND, "s", json!({"spec": {"replicas": 1}}));
    trial.run();
    assert_eq!(trial.names("pods"), ["s-5"]);
    trial.patch(KIND, "s", json!({"spec": {"replicas": 2_147_483_647_i64 - 10}}));
    let mut controller = StatefulSets::default();
    let stamp = Stamp { time: trial.now(), seed: 1 };
    let plan = controller.plan(trial.world("statefulset-controller"), &Key::new("default", "s"), stamp);
    assert_eq!(plan.steps.iter().map(Vec::len).sum::<usize>(), BURST + 1, "so many pods at once, and the status");
}

#[test]
fn an_update_goes_from_the_highest_ordinal_down_to_the_partition() {
    let mut trial = trial();
    trial.create(set(3, json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}})));
    settle(&mut trial);
    update_to(&mut trial, "two");
    assert_eq!(settle(&mut trial), "-s-2 +s-2");
    assert_eq!(images(&trial), ["one", "one", "two"]);
    assert_eq!((&status(&trial)["currentReplicas"], &status(&trial)["updatedReplicas"]), (&json!(2), &json!(1)));
    trial.delete_as("pods", "s-0", None, Some(0));
    assert_eq!(settle(&mut trial), "+s-0");
    assert_eq!(images(&trial), ["one", "one", "two"], "below the partition pods come back as they were");
    trial.patch(KIND, "s", json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}));
    assert_eq!(settle(&mut trial), "-s-1 +s-1 -s-0 +s-0");
    assert_eq!(status(&trial)["currentRevision"], status(&trial)["updateRevision"]);
    assert_eq!(status(&trial)["currentReplicas"], 3);
}

/// API servers without the feature gate MaxUnavailableStatefulSet drop the field `maxUnavailable` from a StatefulSet,
/// so the test puts the set into the controller's world itself.
#[test]
fn several_may_be_missing_at_once_where_that_is_allowed() {
    let mut trial = trial();
    trial.create(set(5, json!({"podManagementPolicy": "Parallel"})));
    settle(&mut trial);
    update_to(&mut trial, "two");
    let leaving = |amount: Value, missing: usize| {
        let mut world = World::default();
        StatefulSets::default().resources().iter().for_each(|resource| world.track_resource(resource));
        StatefulSets::default().indexes(&mut world);
        let mut show = |resource: &Resource, object: &Value| {
            let name = object["metadata"]["name"].as_str().expect("a name");
            world.apply(resource, Key::new("default", name), Some(object.to_string().into()), 1, trial.now());
        };
        let mut set = trial.get(KIND, "s");
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = amount;
        show(StatefulSet::resource(), &set);
        for (index, mut pod) in trial.list("pods").into_iter().enumerate() {
            if index < missing {
                pod["status"]["conditions"][0]["status"] = "False".into();
            }
            show(Pod::resource(), &pod);
        }
        let stamp = Stamp { time: trial.now(), seed: 1 };
        let plan = StatefulSets::default().plan(&world, &Key::new("default", "s"), stamp);
        let actions = plan.steps.into_iter().flatten();
        let deleted = actions.filter(|action| matches!(action.verb, Verb::Delete { .. }));
        deleted.map(|action| action.key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(leaving(json!(2), 0), ["s-4", "s-3"]);
    assert_eq!(leaving(json!("50%"), 1), ["s-4"], "half of five are two, and one is missing");
    assert_eq!(leaving(json!("10%"), 0), ["s-4"], "one at least");
    assert_eq!(leaving(json!(2), 2), [""; 0]);
}

#[test]
fn on_delete_leaves_old_pods_alone() {
    let mut trial = trial();
    trial.create(set(2, json!({"updateStrategy": {"type": "OnDelete"}})));
    settle(&mut trial);
    update_to(&mut trial, "two");
    assert_eq!(settle(&mut trial), "");
    trial.delete_as("pods", "s-0", None, Some(0));
    settle(&mut trial);
    assert_eq!(images(&trial), ["two", "one"]);
}

#[test]
fn an_older_template_gets_the_highest_number_again() {
    let mut trial = trial();
    trial.create(set(0, json!({"revisionHistoryLimit": 1})));
    settle(&mut trial);
    for image in ["two", "three", "one", "four"] {
        update_to(&mut trial, image);
        settle(&mut trial);
    }
    let mut revisions = all(&trial, "controllerrevisions.apps", "/revision");
    revisions.sort_by_key(Value::as_i64);
    assert_eq!(revisions, [json!(4), json!(5)], "`one` came back as the fourth, `four` is the fifth");
    assert_eq!(trial.list("controllerrevisions.apps")[0]["data"]["spec"]["template"]["$patch"], "replace");
}

#[test]
fn a_pod_that_has_ended_is_made_again() {
    let mut trial = trial();
    trial.create(set(1, json!({})));
    settle(&mut trial);
    let uid = trial.get("pods", "s-0")["metadata"]["uid"].clone();
    trial.patch_status("pods", "s-0", json!({"phase": "Failed"}));
    assert_eq!(settle(&mut trial), "-s-0 +s-0");
    assert_ne!(trial.get("pods", "s-0")["metadata"]["uid"], uid);
}

/// For `seconds` seconds, the nodes reject each pod as soon as it is created. Returns the name of each created pod,
/// with the second of its creation.
fn refuse_all(trial: &mut Trial, seconds: i64) -> Vec<(i64, String)> {
    let start = trial.now();
    let end = start.plus_seconds(seconds);
    let mut made = Vec::new();
    loop {
        trial.run();
        let pods = trial.list("pods").into_iter().filter(|pod| pod["status"]["phase"] == "Pending");
        let names: Vec<String> = pods.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect();
        if !names.is_empty() {
            for name in names {
                trial.patch_status("pods", &name, json!({"phase": "Failed", "reason": "OutOfcpu"}));
                made.push((trial.now().millis_since(start) / 1_000, name));
            }
            continue;
        }
        let Some(next) = trial.next_time().filter(|next| *next <= end) else { return made };
        trial.pass_millis(next.millis_since(trial.now()));
    }
}

#[test]
fn a_pod_that_no_node_takes_is_made_again_ever_more_slowly() {
    let waits = |made: &[(i64, String)]| made.windows(2).map(|two| two[1].0 - two[0].0).collect::<Vec<_>>();
    let mut trial = trial();
    trial.create(set(2, json!({})));
    let made = refuse_all(&mut trial, 2 * 3_600);
    assert_eq!(waits(&made[..14]), [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    let late = waits(&made[13..]);
    assert!(made.iter().all(|(_, pod)| pod == "s-0") && late.iter().all(|wait| *wait == 300), "{late:?}");
    // After a change of the template the failed pods of the old template no longer count, so the first pods are
    // replaced without a wait.
    update_to(&mut trial, "two");
    assert_eq!(refuse_all(&mut trial, 0).len(), 3);
    // While a pod runs for ten minutes, the failures before it become so old that they no longer count.
    trial.run_for(1);
    make_ready(&mut trial, "s-0");
    trial.run_for(601);
    trial.patch_status("pods", "s-0", json!({"phase": "Failed", "reason": "Evicted"}));
    assert_eq!(refuse_all(&mut trial, 0).iter().filter(|(_, pod)| pod == "s-0").count(), 3);
}

#[test]
fn a_pod_that_no_node_takes_holds_up_no_other_where_they_need_no_order() {
    let mut trial = trial();
    trial.create(set(2, json!({"podManagementPolicy": "Parallel"})));
    trial.run();
    make_ready(&mut trial, "s-1");
    let made = refuse_all(&mut trial, 5);
    assert_eq!(made.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 3]);
    assert!(made.iter().all(|(_, pod)| pod == "s-0"));
    trial.patch_status("pods", "s-1", json!({"phase": "Failed"}));
    assert_eq!(refuse_all(&mut trial, 0), [(0, "s-1".to_owned()), (0, "s-1".to_owned()), (0, "s-1".to_owned())]);
}

#[test]
fn a_broken_update_stops_where_it_is() {
    let mut trial = trial();
    trial.create(set(2, json!({})));
    settle(&mut trial);
    update_to(&mut trial, "broken");
    trial.run();
    update_to(&mut trial, "one");
    trial.run();
    assert_eq!(images(&trial), ["one", "broken"], "the pod that never got ready is waited for");
}

#[test]
fn the_next_pod_waits_until_the_one_before_is_available() {
    let mut trial = trial();
    trial.create(set(2, json!({"minReadySeconds": 5})));
    trial.run();
    make_ready(&mut trial, "s-0");
    trial.run_for(4);
    assert_eq!(trial.names("pods"), ["s-0"]);
    assert_eq!((&status(&trial)["readyReplicas"], &status(&trial)["availableReplicas"]), (&json!(1), &json!(0)));
    trial.run_for(1);
    assert_eq!(trial.names("pods"), ["s-0", "s-1"]);
}

fn with_claims(replicas: i64, deleted: &str, scaled: &str) -> Value {
    let claim = json!({
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    set(
        replicas,
        json!({
            "podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled},
        }),
    )
}

fn holders(trial: &Trial) -> Vec<Value> {
    all(trial, CLAIMS, "/metadata/ownerReferences/0/name")
}

#[test]
fn each_pod_has_claims_of_its_own() {
    let mut trial = trial();
    trial.create(with_claims(2, "Retain", "Retain"));
    settle(&mut trial);
    assert_eq!(trial.names(CLAIMS), ["v-s-0", "v-s-1"]);
    assert_eq!(trial.get(CLAIMS, "v-s-0")["metadata"]["labels"], json!({"app": "a"}));
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "v-s-1"}});
    assert_eq!(trial.get("pods", "s-1")["spec"]["volumes"][0], volume);
    trial.patch(KIND, "s", json!({"spec": {"replicas": 1}}));
    settle(&mut trial);
    assert_eq!(holders(&trial), [Value::Null, Value::Null]);
}

#[test]
fn claims_belong_to_who_they_go_with() {
    let mut trial = trial();
    trial.create(with_claims(2, "Delete", "Delete"));
    settle(&mut trial);
    assert_eq!(holders(&trial), ["s", "s"]);
    trial.patch("pods", "s-1", json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    trial.patch(KIND, "s", json!({"spec": {"replicas": 1}}));
    settle(&mut trial);
    assert_eq!(holders(&trial), ["s", "s-1"]);
    trial.patch(KIND, "s", json!({"spec": {"replicas": 2}}));
    settle(&mut trial);
    assert_eq!(holders(&trial), ["s", "s"], "the pod is wanted again");
    trial.patch(KIND, "s", json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}}));
    settle(&mut trial);
    assert_eq!(holders(&trial), [Value::Null, Value::Null]);
}

#[test]
fn a_claim_of_the_former_pod_is_waited_for() {
    let mut trial = trial();
    trial.create(with_claims(1, "Retain", "Delete"));
    settle(&mut trial);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "s-1", "uid": "former"});
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "v-s-1", "ownerReferences": [owner]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    trial.create(claim);
    trial.patch(KIND, "s", json!({"spec": {"replicas": 2}}));
    settle(&mut trial);
    assert_eq!(trial.names("pods"), ["s-0"]);
    trial.patch(CLAIMS, "v-s-1", json!({"metadata": {"finalizers": null}}));
    trial.delete(CLAIMS, "v-s-1");
    settle(&mut trial);
    assert_eq!(trial.names("pods"), ["s-0", "s-1"]);
}

#[test]
fn only_pods_of_the_right_name_are_adopted() {
    let mut trial = trial();
    for name in ["s-0", "s-x", "other-1"] {
        let metadata = json!({"name": name, "labels": {"app": "a"}});
        trial.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template("a", "one")["spec"],
        }));
    }
    trial.create(set(0, json!({})));
    trial.run();
    assert_eq!(trial.names("pods"), ["other-1", "s-x"], "the first is adopted, and one too many");
}

#[test]
fn the_status_is_told_while_pods_cannot_be_made() {
    for (policy, allowed, pods) in [("OrderedReady", 0, 0), ("Parallel", 1, 1)] {
        let mut trial = trial();
        allow(&mut trial, "pods", allowed);
        trial.create(set(3, json!({"podManagementPolicy": policy})));
        trial.run_for(1);
        let revision = trial.names("controllerrevisions.apps")[0].clone();
        let mut expected = json!({
            "replicas": pods, "availableReplicas": 0, "currentRevision": revision, "updateRevision": revision,
            "collisionCount": 0, "observedGeneration": 1,
        });
        if pods > 0 {
            (expected["currentReplicas"], expected["updatedReplicas"]) = (json!(pods), json!(pods));
        }
        assert_eq!(status(&trial), expected, "{policy}");
    }
    // If a claim cannot be created because of a quota, the pod that needs the claim is not created.
    let mut trial = trial();
    allow(&mut trial, CLAIMS, 0);
    let template = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    trial.create(set(1, json!({"volumeClaimTemplates": [template]})));
    trial.run_for(1);
    assert_eq!(status(&trial)["observedGeneration"], 1);
}

#[test]
fn what_others_say_in_the_status_stays_until_there_is_something_to_tell() {
    let mut trial = trial();
    trial.create(set(1, json!({})));
    settle(&mut trial);
    trial.patch_status(KIND, "s", json!({"conditions": [{"type": "Mine", "status": "True"}]}));
    trial.run();
    assert_eq!(status(&trial)["conditions"][0]["type"], "Mine");
    trial.patch(KIND, "s", json!({"spec": {"replicas": 2}}));
    trial.run();
    assert!(status(&trial)["conditions"].is_null());
}

/// Adds a finalizer to a pod, so that the pod still exists after its deletion.
fn hold(trial: &mut Trial, pod: &str) {
    trial.patch("pods", pod, json!({"metadata": {"finalizers": ["example.com/hold"]}}));
}

#[test]
fn pods_that_need_no_order_do_not_wait_for_one_that_has_ended() {
    let mut trial = trial();
    trial.create(set(3, json!({"podManagementPolicy": "Parallel"})));
    settle(&mut trial);
    hold(&mut trial, "s-0");
    trial.patch_status("pods", "s-0", json!({"phase": "Failed"}));
    trial.patch(KIND, "s", json!({"spec": {"replicas": 2}}));
    trial.run();
    assert_eq!(trial.names("pods"), ["s-0", "s-1"]);
    update_to(&mut trial, "two");
    trial.run();
    assert_eq!(images(&trial), ["one", "two"], "s-1 is replaced");
}

#[test]
fn a_set_that_is_being_deleted_counts_the_pods_that_stay() {
    let mut trial = trial();
    trial.create(set(2, json!({})));
    settle(&mut trial);
    ["s-0", "s-1"].into_iter().for_each(|pod| hold(&mut trial, pod));
    trial.delete_as(KIND, "s", Some(holdfast_world::Propagation::Foreground), None);
    trial.delete("pods", "s-0");
    trial.delete("pods", "s-1");
    trial.run();
    let left = status(&trial);
    assert_eq!(
        (&left["replicas"], &left["currentReplicas"], &left["updatedReplicas"]),
        (&json!(2), &Value::Null, &Value::Null)
    );
}

#[test]
fn the_only_condemned_pod_that_is_not_available_goes_at_once() {
    let mut trial = trial();
    trial.create(set(3, json!({"minReadySeconds": 60})));
    for pod in ["s-0", "s-1"] {
        trial.run();
        make_ready(&mut trial, pod);
        trial.run_for(61);
    }
    make_ready(&mut trial, "s-2");
    trial.patch(KIND, "s", json!({"spec": {"replicas": 2}}));
    trial.run();
    assert_eq!(trial.names("pods"), ["s-0", "s-1"]);
}

#[test]
fn a_claim_of_somebody_elses_is_told_of_while_its_pod_is_pending() {
    let mut trial = trial();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "controller": true});
    trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-s-0", "ownerReferences": [owner]}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}));
    let template = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    trial.create(set(1, json!({"volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": policy})));
    trial.run();
    assert!(trial.take_event_texts().iter().any(|note| note.starts_with("Warning ConflictingController")));
    make_ready(&mut trial, "s-0");
    trial.run();
    trial.take_event_texts();
    trial.patch("pods", "s-0", json!({"metadata": {"annotations": {"a": "b"}}}));
    trial.run();
    assert!(trial.take_event_texts().is_empty());
}

/// Something outside of the set, such as a taint, deletes its pods at once, so no failed pods are left to count. The
/// set must still create pods more and more slowly.
#[test]
fn pods_that_are_always_gone_again_are_made_ever_more_slowly() {
    let mut trial = trial();
    trial.create(set(1, json!({})));
    assert_eq!(delete_new_pods(&mut trial), 20);
    trial.run_for(1);
    assert_eq!(trial.names("pods").len(), 1);
}

fn claim_template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

#[test]
fn claims_of_a_running_pod_that_come_to_others_are_told_of() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut trial = trial();
        let templates = [claim_template("v"), claim_template("w")];
        trial.create(set(1, json!({"podManagementPolicy": policy, "volumeClaimTemplates": templates})));
        settle(&mut trial);
        trial.take_event_texts();
        trial.patch(KIND, "s", json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}}));
        trial.run();
        assert_eq!(holders(&trial), ["s", "s"]);
        assert_eq!(trial.take_event_texts(), ["Normal SuccessfulUpdate Update Pod s-0 in StatefulSet s successful"]);
    }
}

#[test]
fn claims_of_a_pod_that_is_waited_for_stay_whose_they_are() {
    let mut trial = trial();
    trial.create(set(1, json!({"volumeClaimTemplates": [claim_template("v")]})));
    trial.run();
    trial.patch_status("pods", "s-0", json!({"phase": "Running"}));
    trial.take_event_texts();
    trial.patch(KIND, "s", json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}}));
    trial.run();
    assert_eq!((holders(&trial), trial.take_event_texts()), (vec![Value::Null], Vec::<String>::new()));
    make_ready(&mut trial, "s-0");
    trial.run();
    assert_eq!(holders(&trial), ["s"]);
}

#[test]
fn a_pod_is_told_of_once_whichever_of_its_claims_are_refused() {
    let mut trial = trial();
    allow(&mut trial, CLAIMS, 0);
    trial.create(set(1, json!({"volumeClaimTemplates": [claim_template("v"), claim_template("w")]})));
    trial.run_for(1);
    let notes = trial.take_event_texts();
    let of = |what: &str| notes.iter().filter(|note| note.contains(what)).cloned().collect::<Vec<_>>();
    assert!(!of("Create Claim v-s-0 for Pod s-0 in StatefulSet s failed error: ").is_empty(), "{notes:?}");
    let pod = of("FailedCreate Create Pod s-0 in StatefulSet s failed error: ");
    let both = |note: &String| {
        note.contains(" error: [failed to create PVC v-s-0: ") && note.contains(", failed to create PVC w-s-0: ")
    };
    assert!(!pod.is_empty() && pod.iter().all(both), "{notes:?}");
    // The pod exists already when its claim is missing: it only waits for the claim, and no Event reports a failure.
    let mut trial = self::trial();
    trial.create(set(1, json!({"volumeClaimTemplates": [claim_template("v")]})));
    trial.run();
    allow(&mut trial, CLAIMS, 0);
    trial.take_event_texts();
    trial.delete(CLAIMS, "v-s-0");
    trial.run_for(1);
    let notes = trial.take_event_texts();
    let is_of_claim = |note: &String| note.starts_with("Warning FailedCreate Create Claim v-s-0 for Pod s-0 ");
    assert!(!notes.is_empty() && notes.iter().all(is_of_claim), "{notes:?}");
}

#[test]
fn a_claim_that_goes_keeps_its_pod_from_being_made_and_no_other_claim() {
    let mut trial = trial();
    for name in ["v-s-0", "w-s-0"] {
        let mut claim = claim_template(name);
        (claim["apiVersion"], claim["kind"]) = (json!("v1"), json!("PersistentVolumeClaim"));
        claim["metadata"]["finalizers"] = json!(["example.com/hold"]);
        trial.create(claim);
        trial.delete(CLAIMS, name);
    }
    let templates = ["v", "w", "x"].map(claim_template);
    trial.create(set(1, json!({"volumeClaimTemplates": templates})));
    trial.run_for(1);
    assert_eq!(
        (trial.names(CLAIMS), trial.names("pods").len()),
        (vec!["v-s-0", "w-s-0", "x-s-0"].into_iter().map(str::to_owned).collect(), 0)
    );
    let why = "Warning FailedCreate Create Pod s-0 in StatefulSet s failed error: [pvc v-s-0 is being deleted, pvc w-s-0 is \
               being deleted]";
    assert!(trial.take_event_texts().iter().any(|note| note == why));
}

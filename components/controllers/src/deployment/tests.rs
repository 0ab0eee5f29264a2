use super::*;
use crate::replicas::Replicas;
use crate::testing::{all, event_counts, make_all_ready, make_ready, template};
use holdfast_value::{Value, json};
use holdfast_world::Trial;

const KIND: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";

fn trial() -> Trial {
    Trial::new().with(Replicas::<ReplicaSet>::default()).with(Deployments::default())
}

fn deployment(replicas: i64, strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template("a", "one"),
            "strategy": strategy,
        },
    })
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn roll_to(trial: &mut Trial, image: &str) {
    trial.patch(KIND, "d", json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
    trial.run();
}

/// A trial with one Deployment whose pods are all available.
fn running(replicas: i64, strategy: Value) -> Trial {
    let mut trial = trial();
    trial.create(deployment(replicas, strategy));
    trial.run();
    make_all_ready(&mut trial);
    trial.run();
    trial.take_event_texts();
    trial
}

/// The sizes of the sets by revision: `1: 3, 2: 2`.
fn sizes(trial: &Trial) -> String {
    let annotation = |set: &Value| set["metadata"]["annotations"][REVISION].as_str().unwrap_or("?").to_owned();
    let mut sizes: Vec<_> =
        trial.list(SETS).iter().map(|set| format!("{}: {}", annotation(set), set["spec"]["replicas"])).collect();
    sizes.sort();
    sizes.join(", ")
}

fn condition(trial: &Trial, kind: &str) -> String {
    let status = trial.get(KIND, "d")["status"].clone();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or(String::new(), |found| {
        format!("{} {}", found["status"].as_str().unwrap_or(""), found["reason"].as_str().unwrap_or(""))
    })
}

#[test]
fn a_set_is_made_and_its_pods_counted() {
    let mut trial = trial();
    let mut wanted = deployment(3, rolling(json!("25%"), json!("25%")));
    wanted["metadata"]["annotations"] =
        json!({"note": "one", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    trial.create(wanted);
    trial.run();
    let set = trial.list(SETS)[0].clone();
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    assert_eq!(
        set["metadata"]["annotations"],
        json!({
            "note": "one", "deployment.kubernetes.io/revision": "1",
            "deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4",
        })
    );
    assert_eq!(format!("d-{}", set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap_or("")), name);
    assert_eq!(condition(&trial, "Progressing"), "True ReplicaSetUpdated");
    assert_eq!(condition(&trial, "Available"), "False MinimumReplicasUnavailable");
    let scaled = (format!("Normal ScalingReplicaSet Scaled up replica set {name} from 0 to 3"), 1);
    assert!(event_counts(&mut trial).contains(&scaled));
    make_all_ready(&mut trial);
    trial.run();
    let mut status = trial.get(KIND, "d")["status"].clone();
    status.as_object_mut().map(|status| status.remove("conditions"));
    assert_eq!(
        status,
        json!({
            "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "terminatingReplicas": 0,
            "observedGeneration": 1,
        })
    );
    assert_eq!(condition(&trial, "Progressing"), "True NewReplicaSetAvailable");
    assert_eq!(condition(&trial, "Available"), "True MinimumReplicasAvailable");
    assert_eq!(trial.get(KIND, "d")["metadata"]["annotations"][REVISION], "1");
    let managers = all(&trial, KIND, "/metadata/managedFields/1/subresource");
    assert_eq!(managers, [json!("status")]);
}

/// The status of a set that was just scaled down still counts its former pods.
#[test]
fn pods_that_are_to_go_do_not_count_as_available() {
    let mut trial = Trial::new().with(Deployments::default());
    trial.create(deployment(5, rolling(json!(1), json!(1))));
    trial.run();
    let name = trial.names(SETS)[0].clone();
    trial.patch_status(SETS, &name, json!({"replicas": 5, "readyReplicas": 5, "availableReplicas": 5}));
    trial.run();
    trial.patch(KIND, "d", json!({"spec": {"replicas": 4}}));
    trial.run();
    assert_eq!(sizes(&trial), "1: 4");
    roll_to(&mut trial, "two");
    assert_eq!(sizes(&trial), "1: 3, 2: 2");
}

#[test]
fn a_rollout_stops_where_new_pods_do_not_run() {
    let cases = [
        (4, json!("25%"), json!("25%"), "1: 3, 2: 2"),
        (1, json!("25%"), json!("25%"), "1: 1, 2: 1"),
        (3, json!(0), json!(1), "1: 2, 2: 1"),
        (2, json!("100%"), json!(0), "1: 2, 2: 2"),
        (5, json!("50%"), json!("50%"), "1: 3, 2: 5"),
        (3, json!(0), json!("100%"), "1: 0, 2: 3"),
        (10, json!(2), json!(1), "1: 9, 2: 3"),
        (3, json!("1%"), json!("1%"), "1: 3, 2: 1"),
    ];
    for (replicas, surge, unavailable, expected) in cases {
        let mut trial = running(replicas, rolling(surge.clone(), unavailable.clone()));
        roll_to(&mut trial, "two");
        assert_eq!(sizes(&trial), expected, "{replicas} pods, {surge} more, {unavailable} missing");
        make_all_ready(&mut trial);
        for _ in 0..replicas {
            trial.run();
            make_all_ready(&mut trial);
        }
        trial.run();
        assert_eq!(sizes(&trial), format!("1: 0, 2: {replicas}"));
        assert_eq!(condition(&trial, "Progressing"), "True NewReplicaSetAvailable");
    }
}

#[test]
fn a_rollout_goes_on_pod_by_pod() {
    let mut trial = running(3, rolling(json!(1), json!(0)));
    roll_to(&mut trial, "two");
    let mut seen = vec![sizes(&trial)];
    for _ in 0..3 {
        make_all_ready(&mut trial);
        trial.run();
        seen.push(sizes(&trial));
    }
    assert_eq!(seen, ["1: 3, 2: 1", "1: 2, 2: 2", "1: 1, 2: 3", "1: 0, 2: 3"]);
    assert_eq!(trial.get(KIND, "d")["metadata"]["annotations"][REVISION], "2");
}

#[test]
fn pods_that_are_broken_anyway_make_room_for_new_ones() {
    let mut trial = running(3, rolling(json!(1), json!(0)));
    roll_to(&mut trial, "broken");
    assert_eq!(sizes(&trial), "1: 3, 2: 1");
    roll_to(&mut trial, "repaired");
    assert_eq!(sizes(&trial), "1: 3, 2: 0, 3: 1", "the broken set gives its pod away");
}

#[test]
fn all_sets_share_a_change_of_size() {
    let mut trial = running(10, rolling(json!(3), json!(2)));
    roll_to(&mut trial, "stuck");
    assert_eq!(sizes(&trial), "1: 8, 2: 5");
    trial.patch(KIND, "d", json!({"spec": {"replicas": 30}}));
    trial.run();
    assert_eq!(sizes(&trial), "1: 20, 2: 13");
    trial.patch(KIND, "d", json!({"spec": {"replicas": 0}}));
    trial.run();
    assert_eq!(sizes(&trial), "1: 0, 2: 0");
}

#[test]
fn a_paused_rollout_scales_and_does_nothing_else() {
    let mut trial = running(2, rolling(json!(1), json!(0)));
    trial.patch(KIND, "d", json!({"spec": {"paused": true}}));
    trial.run();
    assert_eq!(condition(&trial, "Progressing"), "Unknown DeploymentPaused");
    roll_to(&mut trial, "two");
    assert_eq!(sizes(&trial), "1: 2");
    trial.patch(KIND, "d", json!({"spec": {"replicas": 3}}));
    trial.run();
    assert_eq!(sizes(&trial), "1: 3");
    trial.patch(KIND, "d", json!({"spec": {"paused": null}}));
    trial.run();
    assert_eq!(condition(&trial, "Progressing"), "True ReplicaSetUpdated");
    assert_eq!(sizes(&trial), "1: 3, 2: 1");
}

#[test]
fn recreating_waits_for_the_last_old_pod() {
    let mut trial = trial();
    let mut wanted = deployment(2, json!({"type": "Recreate"}));
    wanted["spec"]["template"]["metadata"]["finalizers"] = json!(["example.com/hold"]);
    trial.create(wanted);
    trial.run();
    make_all_ready(&mut trial);
    roll_to(&mut trial, "two");
    assert_eq!(sizes(&trial), "1: 0");
    for name in trial.names("pods") {
        assert_eq!(sizes(&trial), "1: 0");
        trial.patch("pods", &name, json!({"metadata": {"finalizers": null}}));
        trial.run();
    }
    assert_eq!(sizes(&trial), "1: 0, 2: 2");
}

#[test]
fn a_rollout_that_does_not_move_is_late() {
    let mut trial = trial();
    let mut wanted = deployment(1, rolling(json!(1), json!(0)));
    wanted["spec"]["progressDeadlineSeconds"] = 20.into();
    trial.create(wanted);
    trial.run();
    trial.run_for(20);
    assert_eq!(condition(&trial, "Progressing"), "True ReplicaSetUpdated");
    trial.run_for(1);
    assert_eq!(condition(&trial, "Progressing"), "False ProgressDeadlineExceeded");
    make_all_ready(&mut trial);
    trial.run();
    assert_eq!(condition(&trial, "Progressing"), "True NewReplicaSetAvailable");
}

#[test]
fn old_sets_are_forgotten_beyond_the_limit() {
    let mut trial = trial();
    let mut wanted = deployment(0, rolling(json!(1), json!(0)));
    wanted["spec"]["revisionHistoryLimit"] = 1.into();
    trial.create(wanted);
    trial.run();
    for image in ["two", "three", "four"] {
        roll_to(&mut trial, image);
    }
    assert_eq!(sizes(&trial), "3: 0, 4: 0");
}

#[test]
fn an_annotation_brings_an_older_template_back() {
    let mut trial = running(1, rolling(json!(1), json!(0)));
    roll_to(&mut trial, "two");
    make_all_ready(&mut trial);
    trial.run();
    trial.take_event_texts();
    let back = |to: &str| json!({"metadata": {"annotations": {(ROLLBACK_TO): to}}});
    trial.patch(KIND, "d", back("0"));
    trial.run();
    let set = trial.list(SETS).into_iter().find(|set| set["metadata"]["annotations"][REVISION] == "3").expect("a set");
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "one");
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert!(
        trial
            .take_event_texts()
            .contains(&"Normal DeploymentRollback Rolled back deployment \"d\" to revision 1".into())
    );
    trial.patch(KIND, "d", back("9"));
    trial.patch(KIND, "d", back("9"));
    trial.run();
    let warning = "Warning DeploymentRollbackRevisionNotFound Unable to find the revision to rollback to.";
    assert!(trial.take_event_texts().contains(&warning.into()));
    assert_eq!(trial.get(KIND, "d")["metadata"]["annotations"][ROLLBACK_TO], Value::Null);
}

#[test]
fn a_set_of_the_same_template_is_taken_over() {
    let mut trial = running(2, rolling(json!(1), json!(0)));
    trial.delete_as(KIND, "d", Some(holdfast_world::Propagation::Orphan), None);
    let name = trial.names(SETS)[0].clone();
    trial.patch(SETS, &name, json!({"metadata": {"ownerReferences": null}}));
    trial.patch(KIND, "d", json!({"metadata": {"finalizers": null}}));
    let mut other = deployment(2, rolling(json!(1), json!(0)));
    other["metadata"]["name"] = "e".into();
    trial.create(other);
    trial.run();
    assert_eq!(trial.names(SETS), [name]);
    assert_eq!(all(&trial, SETS, "/metadata/ownerReferences/0/name"), [json!("e")]);
}

#[test]
fn a_name_that_is_taken_leads_to_another() {
    let mut trial = trial();
    let wanted = deployment(1, rolling(json!(1), json!(0)));
    trial.create(wanted.clone());
    trial.run();
    let set = trial.list(SETS)[0].clone();
    trial.delete_as(KIND, "d", Some(holdfast_world::Propagation::Orphan), None);
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    trial.patch(KIND, "d", json!({"metadata": {"finalizers": null}}));
    // A ReplicaSet without an owner has the name that the new Deployment's ReplicaSet would get.
    trial.patch(SETS, name, json!({"metadata": {"ownerReferences": null, "labels": {"app": "b"}}}));
    trial.create(wanted);
    trial.run();
    assert_eq!(trial.list(SETS).len(), 2);
    assert_eq!(trial.get(KIND, "d")["status"]["collisionCount"], 1);
}

#[test]
fn what_others_write_into_a_status_stays() {
    let mut trial = running(1, rolling(json!(1), json!(0)));
    let mut status = trial.get(KIND, "d")["status"].clone();
    let mine = json!({"type": "Mine", "status": "True", "lastUpdateTime": null, "lastTransitionTime": null});
    status["conditions"].as_array_mut().expect("conditions").push(mine);
    trial.patch_status(KIND, "d", status);
    let name = trial.names("pods")[0].clone();
    trial.delete_as("pods", &name, None, Some(0));
    trial.run();
    assert_eq!(condition(&trial, "Available"), "False MinimumReplicasUnavailable");
    assert!(condition(&trial, "Mine").starts_with("True"));
    let name = trial.names("pods")[0].clone();
    make_ready(&mut trial, &name);
    trial.run();
    assert_eq!(condition(&trial, "Available"), "True MinimumReplicasAvailable");
}

#[test]
fn a_set_that_cannot_be_made_shows() {
    let mut trial = trial();
    trial.create(deployment(1, rolling(json!(1), json!(0))));
    let key = Key::new("default", "d");
    let stamp = Stamp { time: trial.now(), seed: 1 };
    let world = trial.world("deployment-controller");
    let creation = Deployments::default().plan(world, &key, stamp).steps[0][0].clone();
    let refusal = holdfast_world::Refusal { reason: "Forbidden".into(), message: "no".into(), causes: vec![] };
    let plan = Deployments::default().refused(world, &key, &[Refused { action: creation.clone(), refusal }], stamp);
    let message = format!("Failed to create new replica set \"{}\": no", creation.key.name);
    assert_eq!((plan.events[0].reason, &plan.events[0].message), ("ReplicaSetCreateError", &message));
    assert_eq!(plan.steps.len(), 1);
}

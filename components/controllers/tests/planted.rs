//! Plants deliberate bugs of workload controllers. Each bug breaks a rule that the controllers otherwise keep.

use holdfast_controllers::daemon_set::DaemonSets;
use holdfast_controllers::deployment::Deployments;
use holdfast_controllers::planted::{Bug, plant};
use holdfast_controllers::replicas::Replicas;
use holdfast_controllers::stateful_set::StatefulSets;
use holdfast_value::{Value, json};
use holdfast_world::Trial;
use holdfast_world::views::ReplicaSet;

/// The bugs that a test with a very small cluster can find; the simulation finds all bugs.
const MISTAKES: [Bug; 8] = [
    Bug::KeepsTheWorst,
    Bug::CountsTheLeaving,
    Bug::UnreadyCountsAsAvailable,
    Bug::SurgeUnbounded,
    Bug::OrderIgnored,
    Bug::PartitionIgnored,
    Bug::TaintsIgnored,
    Bug::AllAtOnce,
];

#[test]
fn every_planted_mistake_is_found() {
    let unseen: Vec<Bug> = MISTAKES.into_iter().filter(|bug| broken(Some(*bug)).is_empty()).collect();
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
    assert_eq!(broken(None), [""; 0]);
}

/// The names of the rules that the controllers break while this bug is planted.
fn broken(bug: Option<Bug>) -> Vec<&'static str> {
    plant(bug);
    let promises: [(&str, fn() -> bool); 6] = [
        ("a smaller set keeps the pods that are ready", keeps_the_ready),
        ("what has ended is replaced", replaces_the_ended),
        ("a rollout stays within its bounds", rolls_within_bounds),
        ("pods of a StatefulSet come in order", comes_in_order),
        ("pods below the partition stay", stops_at_the_partition),
        ("daemons are where they may be, and most of them run", keeps_daemons),
    ];
    let broken = promises.into_iter().filter(|(_, holds)| !holds()).map(|(promise, _)| promise).collect();
    plant(None);
    broken
}

fn object(kind: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    object["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
    object["spec"]["template"] = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "one"}]},
    });
    object
}

fn make_ready(trial: &mut Trial, pod: &str) {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": trial.now()});
    trial.patch_status("pods", pod, json!({"phase": "Running", "conditions": [ready]}));
}

/// Runs controllers and nodes until all pods should be ready. With a bug planted the controllers may never stop making
/// plans, so the number of steps is fixed.
fn settle(trial: &mut Trial) {
    for _ in 0..20 {
        steps(trial);
        for name in trial.names("pods") {
            if trial.get("pods", &name)["status"]["phase"] == "Pending" {
                make_ready(trial, &name);
            }
        }
    }
}

fn steps(trial: &mut Trial) {
    for _ in 0..200 {
        if !trial.step() {
            return;
        }
    }
}

fn update(trial: &mut Trial, kind: &str) {
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}});
    trial.patch(kind, "x", patch);
    steps(trial);
}

fn images(trial: &Trial) -> Vec<String> {
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
    trial.list("pods").iter().map(image).collect()
}

fn keeps_the_ready() -> bool {
    let mut trial = Trial::new().with(Replicas::<ReplicaSet>::default());
    trial.create(object("ReplicaSet", json!({"replicas": 3})));
    steps(&mut trial);
    let ready = trial.names("pods")[1].clone();
    make_ready(&mut trial, &ready);
    trial.patch("replicasets.apps", "x", json!({"spec": {"replicas": 1}}));
    steps(&mut trial);
    trial.names("pods") == [ready]
}

fn replaces_the_ended() -> bool {
    let mut trial = Trial::new().with(Replicas::<ReplicaSet>::default());
    trial.create(object("ReplicaSet", json!({"replicas": 2})));
    steps(&mut trial);
    let name = trial.names("pods")[0].clone();
    trial.patch_status("pods", &name, json!({"phase": "Failed"}));
    steps(&mut trial);
    trial.list("pods").len() == 3
}

fn rolls_within_bounds() -> bool {
    let mut trial = Trial::new().with(Replicas::<ReplicaSet>::default()).with(Deployments::default());
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 1});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    trial.create(object("Deployment", json!({"replicas": 5, "strategy": strategy})));
    settle(&mut trial);
    update(&mut trial, "deployments.apps");
    let pods = trial.list("pods");
    pods.len() == 6 && pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 4
}

fn comes_in_order() -> bool {
    let mut trial = Trial::new().with(StatefulSets::default());
    trial.create(object("StatefulSet", json!({"replicas": 3, "serviceName": "h"})));
    steps(&mut trial);
    trial.names("pods") == ["x-0"]
}

fn stops_at_the_partition() -> bool {
    let mut trial = Trial::new().with(StatefulSets::default());
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    trial.create(object("StatefulSet", json!({"replicas": 2, "serviceName": "h", "updateStrategy": strategy})));
    settle(&mut trial);
    let first = |trial: &Trial| trial.get("pods", "x-0")["metadata"]["uid"].clone();
    let before = first(&trial);
    update(&mut trial, "statefulsets.apps");
    settle(&mut trial);
    images(&trial) == ["one", "two"] && first(&trial) == before
}

fn keeps_daemons() -> bool {
    let mut trial = Trial::new().with(DaemonSets::default());
    for (name, taints) in [("a", json!([])), ("b", json!([])), ("c", json!([{"key": "k", "effect": "NoExecute"}]))] {
        let metadata = json!({"name": name});
        trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}}));
    }
    trial.create(object("DaemonSet", json!({})));
    settle(&mut trial);
    update(&mut trial, "daemonsets.apps");
    let mut images = images(&trial);
    images.sort();
    images == ["one", "two"]
}

use super::*;
use crate::testing::{all, allow, event_counts, make_all_ready, make_ready, template};
use holdfast_value::json;
use holdfast_world::Trial;

const KIND: &str = "daemonsets.apps";

fn trial(nodes: &[&str]) -> Trial {
    let mut trial = Trial::new().with(DaemonSets::default());
    nodes.iter().for_each(|name| add_node(&mut trial, name, json!({}), json!([])));
    trial
}

fn add_node(trial: &mut Trial, name: &str, labels: Value, taints: Value) {
    let metadata = json!({"name": name, "labels": labels});
    trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}}));
}

fn set(more: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template("a", "one")},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    set
}

fn surging(surge: Value) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}}})
}

fn update_to(trial: &mut Trial, image: &str) {
    trial.patch(KIND, "d", json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
    trial.run();
}

/// The nodes that pods are pinned to, with the images of the pods.
fn places(trial: &Trial) -> Vec<String> {
    let place = |pod: &Value| {
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let node = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().unwrap_or("?");
        format!("{node} {}", pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default())
    };
    let mut places: Vec<String> = trial.list("pods").iter().map(place).collect();
    places.sort();
    places
}

fn pod_on(trial: &Trial, place: &str) -> String {
    let (node, image) = place.split_once(' ').expect("a node and an image");
    let is_there = |pod: &&Value| {
        pod.to_string().contains(&format!("[\"{node}\"]"))
            && pod.to_string().contains(&format!("\"image\":\"{image}\""))
    };
    let pods = trial.list("pods");
    pods.iter().find(is_there).and_then(|pod| pod["metadata"]["name"].as_str()).expect("a pod").to_owned()
}

fn status(trial: &Trial) -> Value {
    trial.get(KIND, "d")["status"].clone()
}

#[test]
fn every_node_has_one_pod() {
    let mut trial = trial(&["a", "b"]);
    trial.create(set(json!({})));
    trial.run();
    assert_eq!(places(&trial), ["a one", "b one"]);
    let pod = trial.list("pods")[0].clone();
    let tolerated: Vec<&str> =
        pod["spec"]["tolerations"].as_array().expect("a list").iter().filter_map(|one| one["key"].as_str()).collect();
    assert_eq!(
        tolerated,
        ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"]
            .map(|condition| format!("node.kubernetes.io/{condition}"))
    );
    let revision = trial.list("controllerrevisions.apps")[0].clone();
    assert_eq!(pod["metadata"]["labels"][POD_REVISION], revision["metadata"]["labels"][POD_REVISION]);
    assert_eq!(pod["metadata"]["labels"][POD_GENERATION], "1");
    assert_eq!(
        status(&trial),
        json!({
            "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 0,
            "updatedNumberScheduled": 2, "numberUnavailable": 2, "observedGeneration": 1,
        })
    );
    add_node(&mut trial, "c", json!({}), json!([]));
    trial.run();
    make_all_ready(&mut trial);
    trial.run();
    assert_eq!(places(&trial), ["a one", "b one", "c one"]);
    assert_eq!(status(&trial)["numberAvailable"], 3);
    let name = pod_on(&trial, "b one");
    trial.delete_as("pods", &name, None, Some(0));
    trial.run();
    assert_eq!(places(&trial), ["a one", "b one", "c one"]);
}

#[test]
fn pods_are_where_labels_and_taints_allow_them() {
    let mut trial = trial(&["plain"]);
    add_node(&mut trial, "fast", json!({"disk": "ssd"}), json!([]));
    add_node(&mut trial, "slow", json!({"disk": "hdd"}), json!([]));
    let taint = |effect: &str| json!([{"key": "k", "value": "v", "effect": effect}]);
    add_node(&mut trial, "tainted", json!({"disk": "ssd"}), taint("NoSchedule"));
    let mut wanted = set(json!({}));
    let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    wanted["spec"]["template"]["spec"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    trial.create(wanted);
    trial.run();
    assert_eq!(places(&trial), ["fast one"]);
    trial.patch("nodes", "slow", json!({"metadata": {"labels": {"disk": "ssd"}}}));
    trial.patch("nodes", "tainted", json!({"spec": {"taints": null}}));
    trial.run();
    assert_eq!(places(&trial), ["fast one", "slow one", "tainted one"]);
    trial.patch("nodes", "tainted", json!({"spec": {"taints": taint("NoSchedule")}}));
    while trial.step() {}
    assert_eq!(status(&trial)["desiredNumberScheduled"], 3, "nobody looks, for the pod may stay");
    trial.patch("nodes", "slow", json!({"spec": {"taints": taint("NoExecute")}}));
    trial.run();
    assert_eq!(places(&trial), ["fast one", "tainted one"]);
    let counts = ["desiredNumberScheduled", "numberMisscheduled"].map(|field| status(&trial)[field].clone());
    assert_eq!(counts, [json!(1), json!(1)]);
}

#[test]
fn old_pods_are_replaced_one_by_one() {
    let mut trial = trial(&["a", "b", "c"]);
    trial.create(set(json!({})));
    trial.run();
    make_all_ready(&mut trial);
    update_to(&mut trial, "two");
    assert_eq!(places(&trial), ["a two", "b one", "c one"]);
    make_all_ready(&mut trial);
    trial.run();
    assert_eq!(places(&trial), ["a two", "b two", "c one"]);
    update_to(&mut trial, "one");
    assert_eq!(places(&trial), ["a two", "b one", "c one"], "b was not available, and c never was another");
    make_all_ready(&mut trial);
    trial.run();
    make_all_ready(&mut trial);
    trial.run();
    assert_eq!(status(&trial)["updatedNumberScheduled"], 3);
    assert_eq!(all(&trial, "controllerrevisions.apps", "/revision").len(), 2);
}

/// If a node now repels a pod that is still to be bound to it, the pod never becomes available. The update of other
/// pods does not wait for this pod.
#[test]
fn an_update_does_not_wait_for_nodes_that_repel_the_pods() {
    let strategies = [json!({}), surging(json!(1))];
    for strategy in strategies {
        let mut trial = trial(&["a", "b"]);
        trial.create(set(strategy));
        trial.run();
        make_all_ready(&mut trial);
        update_to(&mut trial, "two");
        add_node(&mut trial, "c", json!({}), json!([]));
        trial.run();
        let ready = pod_on(&trial, "a two");
        make_ready(&mut trial, &ready);
        trial.run();
        assert!(places(&trial).contains(&"b one".to_owned()));
        trial.patch("nodes", "c", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
        trial.run();
        let waiting = pod_on(&trial, "b two");
        make_ready(&mut trial, &waiting);
        trial.run();
        assert_eq!(places(&trial), ["a two", "b two", "c two"]);
        assert_eq!(status(&trial)["numberMisscheduled"], 1);
    }
}

#[test]
fn a_share_of_nodes_is_rounded_up() {
    let mut trial = trial(&["a", "b", "c"]);
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "34%"}});
    trial.create(set(json!({"updateStrategy": strategy})));
    trial.run();
    make_all_ready(&mut trial);
    update_to(&mut trial, "two");
    assert_eq!(places(&trial), ["a two", "b two", "c one"]);
}

#[test]
fn new_pods_come_first_where_more_may_run() {
    let mut trial = trial(&["a", "b"]);
    trial.create(set(surging(json!(1))));
    trial.run();
    make_all_ready(&mut trial);
    update_to(&mut trial, "two");
    assert_eq!(places(&trial), ["a one", "a two", "b one"]);
    let name = pod_on(&trial, "a two");
    make_ready(&mut trial, &name);
    trial.run();
    assert_eq!(places(&trial), ["a two", "b one", "b two"]);
    make_all_ready(&mut trial);
    trial.run();
    assert_eq!(places(&trial), ["a two", "b two"]);
}

#[test]
fn on_delete_leaves_old_pods_alone() {
    let mut trial = trial(&["a", "b"]);
    trial.create(set(json!({"updateStrategy": {"type": "OnDelete"}})));
    trial.run();
    make_all_ready(&mut trial);
    update_to(&mut trial, "two");
    assert_eq!(places(&trial), ["a one", "b one"]);
    let name = pod_on(&trial, "a one");
    trial.delete_as("pods", &name, None, Some(0));
    trial.run();
    assert_eq!(places(&trial), ["a two", "b one"]);
}

#[test]
fn failed_pods_are_replaced_after_growing_waits() {
    let mut trial = trial(&["a"]);
    trial.create(set(json!({})));
    trial.run();
    trial.take_event_texts();
    let fail = |trial: &mut Trial| {
        let name = pod_on(trial, "a one");
        trial.patch_status("pods", &name, json!({"phase": "Failed"}));
        trial.run();
        name
    };
    let first = fail(&mut trial);
    let message =
        format!("Warning FailedDaemonPod Found failed daemon pod default/{first} on node a, will try to kill it");
    assert!(trial.take_event_texts().contains(&message));
    let second = fail(&mut trial);
    assert_eq!(trial.names("pods"), std::slice::from_ref(&second), "too soon");
    trial.run_for(1);
    assert_ne!(trial.names("pods"), [second]);
    let third = fail(&mut trial);
    trial.run_for(1);
    assert_eq!(trial.names("pods"), std::slice::from_ref(&third), "the second wait is twice as long");
    trial.run_for(1);
    assert_ne!(trial.names("pods"), [third]);
    let name = pod_on(&trial, "a one");
    trial.take_event_texts();
    trial.patch_status("pods", &name, json!({"phase": "Succeeded"}));
    trial.run();
    assert!(event_counts(&mut trial)[0].0.starts_with("Normal SucceededDaemonPod"));
    assert_ne!(trial.names("pods"), [name]);
}

#[test]
fn of_two_pods_on_a_node_the_older_stays() {
    let mut trial = trial(&["a"]);
    trial.create(set(json!({"updateStrategy": {"type": "OnDelete"}})));
    trial.run();
    let spec = trial.list("pods")[0]["spec"].clone();
    trial.run_for(10);
    let mut loose = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose", "labels": {"app": "a"}}});
    loose["spec"] = json!({"containers": spec["containers"], "affinity": spec["affinity"]});
    trial.create(loose);
    trial.run();
    assert!(!trial.names("pods").contains(&"loose".to_owned()));
    assert_eq!(trial.list("pods").len(), 1);
}

#[test]
fn pods_for_a_node_that_is_gone_are_not_left() {
    let mut trial = trial(&["a", "b"]);
    trial.create(set(json!({})));
    trial.run();
    trial.delete("nodes", "b");
    trial.run();
    assert_eq!(places(&trial), ["a one"]);
    assert_eq!(status(&trial)["desiredNumberScheduled"], 1);
}

#[test]
fn pods_of_another_set_of_the_same_name_are_replaced() {
    let mut trial = trial(&["n1"]);
    trial.create(set(json!({})));
    trial.run();
    make_all_ready(&mut trial);
    let pod = trial.names("pods").remove(0);
    trial.patch("pods", &pod, json!({"metadata": {"ownerReferences": null}}));
    trial.delete(KIND, "d");
    let mut other = set(json!({}));
    other["spec"]["template"] = template("a", "two");
    trial.create(other);
    trial.run();
    make_all_ready(&mut trial);
    trial.run();
    assert_eq!(places(&trial), ["n1 two"], "both sets number their template 1");
}

#[test]
fn what_is_too_much_goes_though_nothing_can_be_made() {
    let mut trial = trial(&[]);
    add_node(&mut trial, "a", json!({"on": "a"}), json!([]));
    add_node(&mut trial, "b", json!({"on": "b"}), json!([]));
    let on = |node: &str| json!({"spec": {"template": {"spec": {"nodeSelector": {"on": node}}}}});
    let mut only = set(json!({}));
    only["spec"]["template"]["spec"]["nodeSelector"] = json!({"on": "a"});
    trial.create(only);
    trial.run();
    assert_eq!(places(&trial), ["a one"]);
    allow(&mut trial, "pods", 1);
    trial.patch(KIND, "d", on("b"));
    trial.run_for(1);
    assert!(places(&trial).is_empty(), "{:?}", places(&trial));
}

#[test]
fn the_status_follows_while_the_namespace_goes() {
    let mut trial = trial(&["a", "b"]);
    trial.create(set(json!({})));
    trial.run();
    assert_eq!(status(&trial)["currentNumberScheduled"], 2);
    crate::testing::terminate_namespace(&mut trial);
    for pod in trial.names("pods") {
        trial.delete("pods", &pod);
    }
    trial.run();
    assert_eq!(status(&trial)["currentNumberScheduled"], 0);
    assert!(trial.take_event_texts().iter().all(|note| !note.contains("FailedCreate")));
}

#[test]
fn a_pod_that_is_meant_for_no_node_is_left_alone() {
    let mut trial = trial(&["a"]);
    let template = template("a", "one");
    let metadata = json!({"name": "loose", "labels": {"app": "a"}});
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}));
    trial.create(set(json!({})));
    trial.run();
    let loose = trial.get("pods", "loose");
    assert_eq!(loose["metadata"]["ownerReferences"][0]["name"], "d");
    assert!(loose["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(trial.list("pods").len(), 2);
}

#[test]
fn where_a_surge_may_not_run_old_pods_that_are_not_available_go() {
    let mut trial = trial(&["a", "b"]);
    trial.create(set(surging(json!(1))));
    trial.run();
    let of_a = pod_on(&trial, "a one");
    make_ready(&mut trial, &of_a);
    trial.patch("nodes", "b", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    trial.run();
    assert_eq!(places(&trial), ["a one", "b one"]);
    update_to(&mut trial, "two");
    assert_eq!(places(&trial), ["a one", "a two"]);
}

use super::*;
use holdfast_value::json;
use holdfast_world::Trial;

fn node(name: &str, zone: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
        "labels": {"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": zone}}})
}

fn ready(trial: &mut Trial, name: &str, status: &str) {
    let now = trial.now();
    let condition = json!({"type": "Ready", "status": status, "reason": "x", "message": "x",
        "lastHeartbeatTime": now, "lastTransitionTime": now});
    trial.patch_status("nodes", name, json!({"conditions": [condition]}));
}

fn trial(nodes: &[(&str, &str)]) -> Trial {
    let mut trial = Trial::new().with(NodeLifecycle::new(&Settings::default()));
    trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}}));
    for (name, zone) in nodes {
        trial.create(node(name, zone));
        ready(&mut trial, name, "True");
    }
    trial.run();
    trial.take_event_texts();
    trial
}

fn taints(trial: &Trial, name: &str) -> Vec<String> {
    let node = trial.get("nodes", name);
    let list = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let short = |text: &Value| text.as_str().unwrap_or_default().trim_start_matches("node.kubernetes.io/").to_owned();
    list.iter().map(|taint| format!("{}:{}", short(&taint["key"]), short(&taint["effect"]))).collect()
}

fn condition(trial: &Trial, kind: &str, name: &str, which: &str) -> Value {
    let object = trial.get(kind, name);
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.into_iter().find(|condition| condition["type"] == which).unwrap_or_default()
}

#[test]
fn a_silent_node_becomes_unknown_and_its_pods_not_ready() {
    let mut trial = trial(&[("n", ""), ("other", "")]);
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}));
    trial.patch_status(
        "pods",
        "p",
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "reason": "kept"}]}),
    );
    trial.run_for(49);
    assert_eq!(condition(&trial, "nodes", "n", "Ready")["status"], "True");
    ready(&mut trial, "other", "True");
    trial.run_for(1);
    let found = condition(&trial, "nodes", "n", "Ready");
    assert_eq!(
        (&found["status"], &found["reason"], &found["message"]),
        (&json!("Unknown"), &json!("NodeStatusUnknown"), &json!("Kubelet stopped posting node status."))
    );
    assert_eq!(condition(&trial, "nodes", "n", "DiskPressure")["reason"], "NodeStatusNeverUpdated");
    let pod = condition(&trial, "pods", "p", "Ready");
    assert_eq!((&pod["status"], &pod["reason"]), (&json!("False"), &json!("kept")));
    assert_eq!(
        trial.take_event_texts(),
        ["Normal NodeNotReady Node n status is now: NodeNotReady", "Warning NodeNotReady Node is not ready"]
    );
    assert_eq!(taints(&trial, "n"), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    ready(&mut trial, "n", "True");
    trial.run();
    assert!(taints(&trial, "n").is_empty());
}

#[test]
fn a_lease_is_a_sign_of_life() {
    let mut trial = trial(&[("n", "")]);
    trial.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n", "namespace": LEASES}}));
    for second in 0..5 {
        trial.patch(
            "leases",
            "kube-node-lease/n",
            json!({"spec": {"renewTime": format!("2026-11-21T10:00:0{second}.000000Z")}}),
        );
        trial.run_for(40);
    }
    assert_eq!(condition(&trial, "nodes", "n", "Ready")["status"], "True");
    trial.run_for(10);
    assert_eq!(condition(&trial, "nodes", "n", "Ready")["status"], "Unknown");
}

#[test]
fn a_node_that_never_reports_is_given_longer() {
    let mut trial = trial(&[("other", "")]);
    trial.create(node("n", ""));
    trial.run_for(59);
    assert_eq!(trial.take_event_texts()[0], "Normal RegisteredNode Node n event: Registered Node n in Controller");
    assert!(condition(&trial, "nodes", "n", "Ready").is_null());
    trial.run_for(1);
    let found = condition(&trial, "nodes", "n", "Ready");
    assert_eq!((&found["status"], &found["message"]), (&json!("Unknown"), &json!("Kubelet never posted node status.")));
    assert_eq!(trial.get("nodes", "n")["metadata"]["labels"]["beta.kubernetes.io/os"], "linux");
}

#[test]
fn a_node_that_says_nothing_but_renews_its_lease_is_left_alone() {
    let mut trial = trial(&[("other", "")]);
    trial.create(node("n", ""));
    trial.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n", "namespace": LEASES}}));
    for second in 0..5 {
        let renewed = json!({"spec": {"renewTime": format!("2026-11-21T10:00:0{second}.000000Z")}});
        trial.patch("leases", "kube-node-lease/n", renewed);
        trial.run_for(40);
    }
    assert!(condition(&trial, "nodes", "n", "Ready").is_null());
    trial.run_for(20);
    assert_eq!(condition(&trial, "nodes", "n", "Ready")["reason"], "NodeStatusNeverUpdated");
}

/// If three of five nodes are lost, more than half of the zone's nodes are lost, and in a small zone evictions then
/// stop.
#[test]
fn a_node_that_says_nothing_counts_as_lost() {
    let mut trial = trial(&[("a", ""), ("b", "")]);
    for name in ["c", "d", "e"] {
        trial.create(node(name, ""));
    }
    trial.run();
    ready(&mut trial, "a", "False");
    trial.run_for(30);
    assert_eq!(taints(&trial, "a"), ["not-ready:NoSchedule"]);
}

#[test]
fn conditions_become_taints() {
    let mut trial = trial(&[("n", "")]);
    let mut conditions = vec![json!({"type": "Ready", "status": "True"})];
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"] {
        conditions.push(json!({"type": kind, "status": "True"}));
    }
    trial.patch_status("nodes", "n", json!({"conditions": conditions}));
    trial.patch(
        "nodes",
        "n",
        json!({"spec": {"unschedulable": true, "taints": [{"key": "mine", "effect": "NoSchedule"}]}}),
    );
    trial.run();
    assert_eq!(
        taints(&trial, "n"),
        [
            "mine:NoSchedule",
            "memory-pressure:NoSchedule",
            "disk-pressure:NoSchedule",
            "pid-pressure:NoSchedule",
            "network-unavailable:NoSchedule",
            "unschedulable:NoSchedule"
        ]
    );
    ready(&mut trial, "n", "True");
    trial.patch("nodes", "n", json!({"spec": {"unschedulable": null}}));
    trial.run();
    assert_eq!(taints(&trial, "n"), ["mine:NoSchedule"]);
}

/// In this test a zone has one eviction in ten seconds, so its lost nodes get a NoExecute taint one after the other. If
/// a node's condition changes from one kind of loss to the other, one taint replaces the other at once.
#[test]
fn pods_are_driven_out_slowly() {
    let mut trial = trial(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]);
    for name in ["a", "b"] {
        ready(&mut trial, name, "False");
    }
    trial.run();
    let driven = |trial: &Trial| {
        let has = |name: &&&str| taints(trial, name).iter().any(|taint| taint.ends_with("NoExecute"));
        ["a", "b", "c", "d"].iter().filter(has).count()
    };
    assert_eq!(driven(&trial), 1);
    trial.run_for(10);
    assert_eq!(driven(&trial), 2);
    ready(&mut trial, "a", "Unknown");
    trial.run();
    assert_eq!(taints(&trial, "a"), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
}

#[test]
fn when_most_of_a_small_zone_is_lost_nobody_is_driven_out() {
    let mut trial = trial(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]);
    for name in ["a", "b", "c"] {
        ready(&mut trial, name, "False");
    }
    trial.run_for(30);
    for name in ["a", "b", "c"] {
        assert_eq!(taints(&trial, name), ["not-ready:NoSchedule"]);
    }
}

#[test]
fn when_all_is_lost_no_taint_drives_pods_out() {
    let mut trial = trial(&[("a", "x"), ("b", "y")]);
    ready(&mut trial, "a", "False");
    trial.run();
    assert_eq!(taints(&trial, "a"), ["not-ready:NoSchedule", "not-ready:NoExecute"]);
    ready(&mut trial, "b", "False");
    trial.run();
    assert_eq!(taints(&trial, "a"), ["not-ready:NoSchedule"]);
    ready(&mut trial, "b", "True");
    trial.run_for(20);
    assert_eq!(taints(&trial, "a"), ["not-ready:NoSchedule", "not-ready:NoExecute"]);
    assert!(taints(&trial, "b").is_empty());
}

//! Tests of simulated nodes in a trial cluster, which has the rules of a real cluster.

use crate::{Nodes, Pods, Reports, Template};
use holdfast_value::{Value, json};
use holdfast_world::trial::Trial;
use std::sync::Arc;

fn cluster(count: u32) -> Trial {
    let mut trial = Trial::new();
    trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}));
    trial.create(crate::stage::definition());
    let template = Arc::new(Template::default());
    trial.step();
    let mut trial = trial.with(Nodes::new(template.clone(), count)).with(Pods::new(template)).with(Reports);
    trial.run();
    trial
}

fn pod(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]}})
}

fn stage(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec})
}

fn phase(trial: &Trial, name: &str) -> String {
    trial.get("pods", name)["status"]["phase"].as_str().unwrap_or("gone").to_owned()
}

#[test]
fn nodes_register_and_renew_their_leases() {
    let mut trial = cluster(3);
    assert_eq!(trial.names("nodes"), ["node-0", "node-1", "node-2"]);
    let node = trial.get("nodes", "node-1");
    assert_eq!(node["status"]["conditions"][3]["status"], "True", "{node}");
    let renewed = |trial: &Trial| -> Vec<String> {
        let leases = trial.list("leases.coordination.k8s.io");
        leases.iter().map(|lease| lease["spec"]["renewTime"].as_str().expect("a time").to_owned()).collect()
    };
    let mut before = renewed(&trial);
    assert_eq!(before.len(), 3);
    for _ in 0..5 {
        trial.run_for(11);
        let after = renewed(&trial);
        assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?} {after:?}");
        before = after;
    }
    let beat = |trial: &Trial| trial.get("nodes", "node-1")["status"]["conditions"][3].clone();
    let first = beat(&trial);
    trial.run_for(300);
    assert_ne!(beat(&trial)["lastHeartbeatTime"], first["lastHeartbeatTime"]);
    assert_eq!(beat(&trial)["lastTransitionTime"], first["lastTransitionTime"]);
    // The process does not create a deleted node again, and a user may create a new Node under its name.
    trial.delete("nodes", "node-1");
    trial.run_for(60);
    assert_eq!(trial.names("nodes"), ["node-0", "node-2"]);
    trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}}}));
    trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real"}}));
    trial.run();
    assert_eq!(trial.get("nodes", "n")["status"]["nodeInfo"]["osImage"], crate::node::OS_IMAGE);
    assert!(trial.get("nodes", "real")["status"]["nodeInfo"]["osImage"].as_str().unwrap_or_default().is_empty());
    assert!(trial.take_refused().is_empty());
}

#[test]
fn pods_run_and_go() {
    let mut trial = cluster(1);
    trial.create(pod("a", json!({})));
    trial.create(pod("b", json!({})));
    trial.run();
    let (a, b) = (trial.get("pods", "a"), trial.get("pods", "b"));
    assert_eq!((&a["status"]["phase"], &a["status"]["hostIP"]), (&json!("Running"), &json!("172.16.0.1")));
    assert_eq!((&a["status"]["podIP"], &b["status"]["podIP"]), (&json!("10.128.0.1"), &json!("10.128.0.2")));
    trial.delete("pods", "a");
    trial.run();
    assert_eq!(trial.names("pods"), ["b"]);
    // A finalizer keeps the pod after the kubelet has deleted it. The kubelet does not delete it again.
    trial.patch("pods", "b", json!({"metadata": {"finalizers": ["x/y"]}}));
    trial.delete("pods", "b");
    trial.run();
    assert_eq!(phase(&trial, "b"), "Failed");
    trial.patch("pods", "b", json!({"metadata": {"finalizers": null}}));
    assert!(trial.names("pods").is_empty());
    assert!(trial.take_refused().is_empty());
}

#[test]
fn a_restart_of_the_simulation_changes_nothing() {
    let mut trial = cluster(1);
    trial.create(pod("a", json!({})));
    trial.run();
    let before = trial.get("pods", "a");
    let template = Arc::new(Template::default());
    trial.restart(Pods::new(template.clone()));
    trial.restart(Nodes::new(template, 1));
    trial.run_for(15);
    assert_eq!(trial.get("pods", "a"), before);
    trial.create(pod("b", json!({})));
    trial.run();
    assert_eq!(trial.get("pods", "b")["status"]["podIP"], "10.128.0.2");
    assert!(trial.take_refused().is_empty());
}

/// The usual KWOK Stages for pods, in a shortened form.
fn life() -> Vec<Value> {
    let absent = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    vec![
        stage(
            "pod-ready",
            json!({
                "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
                "selector": {"matchExpressions": [absent(".metadata.deletionTimestamp"), absent(".status.podIP")]},
                "delay": {"durationMilliseconds": 5000, "durationFrom": {"expressionFrom": ".metadata.labels[\"delay\"]"}},
                "next": {
                    "event": {"type": "Normal", "reason": "Created", "message": "Created container"},
                    "statusTemplate": "{{ $now := Now }}\nphase: Running\npodIP: {{ PodIPWith .spec.nodeName false .metadata.uid \"\" \"\" | Quote }}\nhostIP: {{ NodeIPWith .spec.nodeName | Quote }}\nstartTime: {{ $now | Quote }}\nconditions:\n- type: Ready\n  status: \"True\"\n  lastTransitionTime: {{ $now | Quote }}\ncontainerStatuses:\n{{ range .spec.containers }}\n- name: {{ .name | Quote }}\n  image: {{ .image | Quote }}\n  imageID: \"\"\n  ready: true\n  restartCount: 0\n  state:\n    running:\n      startedAt: {{ $now | Quote }}\n{{ end }}\n",
                },
            }),
        ),
        stage(
            "pod-delete",
            json!({
                "resourceRef": {"kind": "Pod"},
                "selector": {"matchExpressions": [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}]},
                "next": {"finalizers": {"empty": true}, "delete": true},
            }),
        ),
    ]
}

#[test]
fn stages_tell_the_life_of_pods() {
    let mut trial = cluster(1);
    life().into_iter().for_each(|stage| drop(trial.create(stage)));
    trial.create(pod("a", json!({})));
    trial.create(pod("b", json!({"delay": "60s"})));
    trial.run_for(4);
    assert_eq!(phase(&trial, "a"), "Pending");
    trial.run_for(2);
    assert_eq!((phase(&trial, "a").as_str(), phase(&trial, "b").as_str()), ("Running", "Pending"));
    let a = trial.get("pods", "a");
    assert_eq!((&a["status"]["podIP"], &a["status"]["hostIP"]), (&json!("10.128.0.1"), &json!("172.16.0.1")));
    // No Stage matches the pod `a` any more, and the kubelet does not change the pod.
    assert!(a["status"]["containerStatuses"][0].get("containerID").is_none(), "{a}");
    trial.run_for(60);
    assert_eq!(phase(&trial, "b"), "Running");
    let events = trial.list("events");
    assert_eq!(events.len(), 2, "{events:?}");
    trial.patch("pods", "a", json!({"metadata": {"finalizers": ["x/y"]}}));
    trial.delete("pods", "a");
    trial.run_for(2);
    assert_eq!(trial.names("pods"), ["b"]);
    // After a restart of the controller, Stages still control the pod `b`.
    trial.restart(Pods::new(Arc::new(Template::default())));
    trial.run_for(10);
    assert!(trial.get("pods", "b")["status"]["containerStatuses"][0].get("containerID").is_none());
    assert!(trial.take_refused().is_empty());
}

#[test]
fn a_stage_of_some_pods_leaves_the_others_to_their_kubelets() {
    let mut trial = cluster(1);
    trial.create(stage("fail-later", json!({
        "resourceRef": {"kind": "Pod"},
        "selector": {"matchLabels": {"chaos": "yes"}, "matchExpressions": [
            {"key": ".status.conditions.[] | select( .type == \"Ready\" ) | .status", "operator": "In", "values": ["True"]}]},
        "delay": {"durationMilliseconds": 30000},
        "next": {"patches": [{"subresource": "status", "root": "status", "type": "merge", "template": "phase: Failed\nreason: Chaos\n"}]},
    })));
    trial.create(pod("a", json!({"chaos": "yes"})));
    trial.create(pod("b", json!({})));
    trial.run_for(29);
    assert_eq!((phase(&trial, "a").as_str(), phase(&trial, "b").as_str()), ("Running", "Running"));
    trial.run_for(2);
    assert_eq!((phase(&trial, "a").as_str(), phase(&trial, "b").as_str()), ("Failed", "Running"));
    trial.delete("pods", "a");
    trial.run();
    assert_eq!(trial.names("pods"), ["b"]);
}

#[test]
fn a_stage_that_always_matches_does_not_spin() {
    let mut trial = cluster(1);
    trial.create(stage(
        "again",
        json!({
            "resourceRef": {"kind": "Pod"}, "selector": {},
            "next": {"statusTemplate": "message: {{ Now | Quote }}\n"},
        }),
    ));
    trial.create(pod("a", json!({})));
    trial.run_for(10);
    let first = trial.get("pods", "a")["metadata"]["resourceVersion"].clone();
    trial.run_for(10);
    assert_ne!(trial.get("pods", "a")["metadata"]["resourceVersion"], first);
    let count =
        trial.get("pods", "a")["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
    let first = first.as_str().and_then(|text| text.parse::<u64>().ok());
    assert!(count.zip(first).is_some_and(|(count, first)| count - first <= 15), "{first:?} {count:?}");
}

#[test]
fn stages_that_are_not_understood_say_so() {
    let mut trial = cluster(1);
    trial.take_event_texts();
    trial.create(stage("good", life()[0]["spec"].clone()));
    let rows = [
        (
            "function",
            json!({"resourceRef": {"kind": "Pod"}, "next": {"statusTemplate": "{{ getHostByName \"x\" }}"}}),
            "\"getHostByName\" is not supported",
        ),
        (
            "query",
            json!({"resourceRef": {"kind": "Pod"}, "selector": {"matchExpressions": [{"key": ".a | input", "operator": "Exists"}]}, "next": {}}),
            "matchExpressions[0]: the function input/0",
        ),
        (
            "kind",
            json!({"resourceRef": {"apiGroup": "apps", "kind": "Deployment"}, "next": {}}),
            "spec.resourceRef.apiGroup: \"apps\" is neither a version",
        ),
        ("none", json!({"next": {}}), "resourceRef"),
        ("step", json!({"resourceRef": {"kind": "Pod"}, "steps": [{"exec": {}}]}), "spec.steps: exec is not supported"),
    ];
    for (name, spec, _) in &rows {
        trial.create(stage(name, spec.clone()));
    }
    trial.run();
    let condition =
        |trial: &Trial, name: &str| trial.get("stages.kwok.x-k8s.io", name)["status"]["conditions"][0].clone();
    assert_eq!(condition(&trial, "good")["status"], "True");
    for (name, _, complaint) in &rows {
        let condition = condition(&trial, name);
        assert_eq!(condition["status"], "False", "{name}");
        assert!(
            condition["message"].as_str().is_some_and(|message| message.contains(complaint)),
            "{name}: {condition}"
        );
    }
    assert_eq!(trial.take_event_texts().len(), rows.len());
    trial.patch("stages.kwok.x-k8s.io", "kind", json!({"spec": {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}}}));
    trial.run();
    assert_eq!(condition(&trial, "kind")["status"], "True");
}

#[test]
fn stages_of_nodes_take_their_status_over() {
    let mut trial = cluster(0);
    trial.create(stage("node-initialize", json!({
        "resourceRef": {"kind": "Node"},
        "selector": {"matchExpressions": [{"key": ".status.conditions.[] | select( .type == \"Ready\" ) | .status", "operator": "NotIn", "values": ["True"]}]},
        "next": {"statusTemplate": "{{ $now := Now }}\nconditions:\n{{ range NodeConditions }}\n- type: {{ .type | Quote }}\n  status: {{ .status | Quote }}\n  reason: {{ .reason | Quote }}\n  message: {{ .message | Quote }}\n  lastHeartbeatTime: {{ $now | Quote }}\n{{ end }}\naddresses:\n{{ with .status.addresses }}\n{{ YAML . 1 }}\n{{ else }}\n{{ with NodeIP }}\n- address: {{ . | Quote }}\n  type: InternalIP\n{{ end }}\n{{ end }}\nallocatable:\n{{ with .status.allocatable }}\n{{ YAML . 1 }}\n{{ else }}\n  cpu: 1k\n  pods: 1M\n{{ end }}\n"},
    })));
    trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}}}));
    trial.run_for(30);
    let node = trial.get("nodes", "n");
    assert_eq!(node["status"]["allocatable"]["cpu"], "1k", "{node}");
    assert_eq!(trial.list("leases.coordination.k8s.io").len(), 1);
}

#[test]
fn settled_pods_are_told_from_others_without_being_read() {
    use crate::kubelet::is_settled;
    use holdfast_world::views::Pod;
    use holdfast_world::{Key, Time, View, World};
    let mut trial = cluster(1);
    trial.create(pod("a", json!({})));
    trial.run();
    let running = trial.get("pods", "a");
    let settled = |pod: &Value, told: &crate::BehaviourSettings| {
        let mut world = World::default();
        world.track::<Pod>();
        let key = Key::new("default", "a");
        world.apply(Pod::resource(), key.clone(), Some(pod.to_string().into()), 1, Time::from_second(0));
        is_settled(world.get::<Pod>(&key).expect("the pod"), told)
    };
    let nothing = crate::BehaviourSettings::default();
    assert!(settled(&running, &nothing), "{running}");
    let mut resizing = running["status"]["conditions"].as_array().cloned().unwrap_or_default();
    resizing.push(json!({"type": "PodResizePending", "status": "True"}));
    let told = crate::BehaviourSettings::parse([("run-for", "30s")].into_iter());
    assert!(!settled(&running, &told), "its node's template tells how long it runs");
    for (pointer, value) in [
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/metadata/generation", json!(7)),
        ("/metadata/annotations", json!({"simulate.holdfast.dev/run-for": "30s"})),
        (
            "/metadata/ownerReferences",
            json!([{"apiVersion": "batch/v1", "kind": "Job", "uid": "u", "controller": true}]),
        ),
        ("/spec/containers/0/command", json!(["sleep", "30"])),
        ("/spec/activeDeadlineSeconds", json!(30)),
        ("/spec/readinessGates", json!([{"conditionType": "x"}])),
        ("/status/phase", json!("Pending")),
        ("/status/podIP", json!("")),
        ("/status/conditions/2/status", json!("False")),
        ("/status/conditions", resizing.into()),
        ("/status/containerStatuses/0/ready", json!(false)),
        ("/status/containerStatuses/0/state", json!({"terminated": {"exitCode": 1}})),
        ("/status/containerStatuses", json!([])),
    ] {
        let mut other = running.clone();
        let (parent, field) = pointer.rsplit_once('/').expect("a field");
        match other.pointer_mut(parent).expect(pointer) {
            Value::Array(list) => list[field.parse::<usize>().expect("a place")] = value,
            map => map[field] = value,
        }
        assert!(!settled(&other, &nothing), "{pointer}");
    }
}

#[test]
fn nodes_that_have_just_shown_signs_of_life_need_none_after_a_restart() {
    let mut trial = cluster(20);
    trial.run_for(30);
    let versions = |trial: &Trial| -> Vec<Value> {
        let objects = [trial.list("nodes"), trial.list("leases.coordination.k8s.io")].concat();
        objects.iter().map(|object| object["metadata"]["resourceVersion"].clone()).collect()
    };
    let before = versions(&trial);
    trial.restart(Nodes::new(Arc::new(Template::default()), 20));
    trial.run();
    let after = versions(&trial);
    let renewed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert!(renewed <= 3, "{renewed} of {}", before.len());
    // Ten seconds after the restart, all leases have been renewed once more.
    trial.run_for(10);
    assert!(after[20..].iter().zip(&versions(&trial)[20..]).all(|(before, after)| before != after));
}

#[test]
fn a_pod_that_does_not_fit_its_node_fails() {
    let mut trial = cluster(1);
    let asking = |name: &str, cpu: &str| {
        let mut pod = pod(name, json!({}));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    // The pods `a` and `b` are bound to the node before the node has admitted one of them. Only one of them fits.
    trial.create(asking("a", "20"));
    trial.create(asking("b", "20"));
    trial.run();
    let (a, b) = (trial.get("pods", "a")["status"].clone(), trial.get("pods", "b")["status"].clone());
    assert_eq!(a["phase"], "Running");
    let message = "Node didn't have enough resource: cpu, requested: 20000, used: 20000, capacity: 32000";
    assert_eq!((&b["phase"], &b["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    assert_eq!(b["message"], format!("Pod was rejected: {message}"));
    assert!(b["containerStatuses"].is_null() && b["podIP"].is_null(), "{b}");
    let told = trial.list("events").into_iter().find(|event| event["reason"] == "OutOfcpu").expect("an Event");
    assert_eq!(
        (&told["type"], &told["message"], &told["source"]["host"]),
        (&json!("Warning"), &json!(message), &json!("node-0"))
    );
    // A pod that has ended or was deleted uses no resources, also after a restart of the process.
    trial.delete("pods", "a");
    trial.run();
    trial.restart(Pods::new(Arc::new(Template::default())));
    trial.create(asking("c", "20"));
    trial.run();
    assert_eq!(phase(&trial, "c"), "Running");
    trial.restart(Pods::new(Arc::new(Template::default())));
    trial.create(asking("d", "20"));
    trial.run();
    assert_eq!(phase(&trial, "d"), "Failed");
}

#[test]
fn what_becomes_of_containers_is_told_while_there_are_few_nodes() {
    for (template, told) in [("{}", "Pulling Pulled Created Started"), ("events: false", "")] {
        let mut trial = cluster(1);
        trial.take_event_texts();
        trial.restart(Pods::new(Arc::new(Template::parse(template).expect("a template"))));
        trial.create(pod("a", json!({})));
        trial.run();
        let reasons: Vec<_> = trial.take_events().iter().map(|told| told.event.reason).collect();
        assert_eq!(reasons.join(" "), told, "{template}");
    }
    let mut trial = cluster(101);
    assert!(trial.take_event_texts().is_empty());
    trial.create(pod("a", json!({})));
    trial.run();
    assert!(trial.take_event_texts().is_empty());
}

#[test]
fn failed_probes_are_told_when_they_fail_and_only_then() {
    let mut trial = cluster(1);
    let unhealthy =
        |trial: &mut Trial| trial.take_event_texts().iter().filter(|told| told.contains("Unhealthy")).count();
    let mut ails = pod("a", json!({}));
    ails["spec"]["containers"][0] = json!({"name": "c", "image": "i", "command": ["sleep", "600"],
        "readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 5}});
    trial.create(ails);
    trial.run_for(12);
    assert_eq!(unhealthy(&mut trial), 3, "at once, after 5 and after 10 seconds");
    trial.patch("pods", "a", json!({"metadata": {"labels": {"x": "y"}}}));
    trial.run();
    assert_eq!(unhealthy(&mut trial), 0, "a change of the pod tells nothing anew");
    trial.restart(Pods::new(Arc::new(Template::default())));
    trial.run_for(5);
    assert_eq!(unhealthy(&mut trial), 1, "a process that begins anew tells what comes, and not what was");
}

#[test]
fn a_node_says_that_it_begins_once() {
    let mut trial = cluster(1);
    let told = trial.take_events();
    assert_eq!(
        told.iter().map(|told| told.event.reason).collect::<Vec<_>>(),
        ["Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"]
    );
    assert_eq!(
        (told[4].event.message.as_str(), told[4].event.host.as_str()),
        ("Node node-0 status is now: NodeReady", "node-0")
    );
    trial.restart(Nodes::new(Arc::new(Template::default()), 1));
    trial.run_for(400);
    assert!(trial.take_event_texts().is_empty());
}

/// If an object of one tenant is too much work for a Stage, the objects of other tenants are not delayed: the Stage
/// pauses only in the namespace of the object, and an Event reports the pause.
#[test]
fn a_stage_that_is_too_much_work_says_so_and_everybody_goes_on() {
    let mut trial = cluster(1);
    trial.take_event_texts();
    let length = "(.metadata.annotations.x | split(\"\") | length)";
    let query = &format!("{length} + {length} > 10");
    let spec = |key: &str, template: &str| {
        json!({
            "resourceRef": {"kind": "Pod"}, "next": {"statusTemplate": template},
            "selector": {"matchLabels": {"s": "y"}, "matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]},
        })
    };
    trial.create(stage("by-query", spec(query, "phase: Failed\n")));
    let with = |name: &str, text: &str| {
        let mut pod = pod(name, json!({"s": "y"}));
        pod["metadata"]["annotations"] = json!({"x": text});
        pod
    };
    trial.create(with("large", &"B".repeat(250_000)));
    trial.run();
    trial.create(with("small", "BBBB"));
    trial.create(pod("other", json!({})));
    trial.run_for(70);
    assert_eq!(phase(&trial, "small"), "Failed");
    assert_eq!((phase(&trial, "large").as_str(), phase(&trial, "other").as_str()), ("Running", "Running"));
    let notes = trial.take_event_texts();
    let told: Vec<&String> = notes.iter().filter(|note| note.contains("TooMuchWork")).collect();
    assert!((1..8).contains(&told.len()), "{notes:?}");
    assert!(told[0].contains("more work for Pod default/large than they may be"), "{told:?}");
    let noted = trial.get("stages.kwok.x-k8s.io", "by-query");
    assert_eq!(noted["status"]["conditions"][0]["status"], "True", "it is understood all the same");

    trial.patch(
        "stages.kwok.x-k8s.io",
        "by-query",
        json!({"spec": spec(
        ".metadata.name == \"loop\"", "{{ range 60000 }}{{ $y := Quote $.metadata }}{{ end }}phase: Failed\n")}),
    );
    trial.create(with("loop", &"B".repeat(100_000)));
    trial.run_for(10);
    assert_ne!(phase(&trial, "loop"), "Failed");
    assert!(trial.take_event_texts().iter().any(|note| note.contains("TooMuchWork") && note.contains("default/loop")));
}

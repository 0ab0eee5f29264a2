//! Extenders.

use super::*;

#[test]
fn extenders_refuse_score_and_bind() {
    let mut scene = Scene::with(json!({"extenders": [
        {"urlPrefix": "http://one", "filterVerb": "filter", "prioritizeVerb": "score", "weight": 5,
            "nodeCacheCapable": true},
        {"urlPrefix": "http://two", "filterVerb": "filter", "bindVerb": "bind", "ignorable": true},
    ]}));
    for name in ["a", "b", "c"] {
        scene.node(name, "4");
    }
    scene.pod("p", asks("1"));
    scene.pod("q", asks("1"));
    scene.turn();
    assert_eq!(scene.orders.len(), 1, "one pod after the other: {:#?}", scene.shown());
    let left = Answer::Done(json!({"NodeNames": ["b", "c"], "FailedNodes": {"a": "not this one"}}));
    let asked = scene.answer("extender 0 filter", left);
    let Ask::Extender { body: asked, .. } = &asked.ask else { panic!() };
    assert_eq!((&asked["Pod"]["metadata"]["name"], &asked["NodeNames"]), (&json!("p"), &json!(["a", "b", "c"])));
    // The failure of an ignorable extender is ignored.
    scene.answer("extender 1 filter", Answer::Failed("down".into()));
    scene.answer("extender 0 score", Answer::Done(json!([{"Host": "c", "Score": 10}])));
    let bind = scene.answer("extender 1 bind", Answer::Done(json!({"Error": "not mine"})));
    let Ask::Extender { body: asked, .. } = &bind.ask else { panic!() };
    assert_eq!((&asked["PodName"], &asked["Node"]), (&json!("p"), &json!("c")));
    let bound = scene.done("create pods/p/binding");
    assert_eq!(body(&bound)["target"]["name"], "c");
    scene.answer("extender 0 filter", Answer::Failed("broken".into()));
    let told = scene.take("patch pods/q/status");
    let condition = &body(&told)["status"]["conditions"][0];
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("SchedulerError"), &json!("broken")));
}

#[test]
fn who_is_not_asked_about_does_not_wait_for_those_who_are() {
    let mut scene = Scene::with(json!({"extenders": [{"urlPrefix": "http://one", "filterVerb": "filter",
        "nodeCacheCapable": true, "managedResources": [{"name": "example.com/x"}]}]}));
    let allocatable = json!({"cpu": "8", "pods": "10", "example.com/x": "8"});
    scene.see(
        Kind::Node,
        Key::cluster("n"),
        json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}),
    );
    let managed = json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/x": "1"}}}]});
    for name in ["a", "b", "c"] {
        scene.pod(name, managed.clone());
    }
    scene.pod("free", asks("1"));
    scene.turn();
    scene.done("create pods/free/binding");
    let asked = |scene: &Scene| scene.shown().iter().filter(|order| order.starts_with("extender")).count();
    assert_eq!(asked(&scene), 1, "one after the other");
    // A pod that is deleted while it waits in line is not asked about.
    scene.see(Kind::Pod, Key::new("default", "b"), Value::Null);
    let order = scene.take("extender 0 filter");
    scene.scheduler.answer(order.number, Answer::Done(json!({"nodeNames": ["n"]})), scene.now);
    scene.turn();
    scene.done("create pods/a/binding");
    let order = scene.take("extender 0 filter");
    let Ask::Extender { body, .. } = &order.ask else { unreachable!() };
    assert_eq!(body["Pod"]["metadata"]["name"], "c");
    scene.scheduler.answer(order.number, Answer::Failed("context deadline exceeded".into()), scene.now);
    scene.turn();
    assert!(scene.scheduler.line.is_empty() && asked(&scene) == 0);
    scene.take("FailedScheduling");
}

/// A scheduler with one extender that is sent node names.
fn asking(more: Value) -> Scene {
    let mut extender = json!({"urlPrefix": "http://e", "filterVerb": "filter", "nodeCacheCapable": true});
    for (field, value) in more.as_object().unwrap() {
        extender[field] = value.clone();
    }
    Scene::with(json!({"extenders": [extender]}))
}

fn urgent() -> Value {
    let mut spec = asks("1");
    spec["priority"] = 10.into();
    spec
}

/// The answer of an extender that leaves `nodes` and fails `failed`.
fn leaves(nodes: &[&str], failed: &[&str]) -> Answer {
    let failed: holdfast_value::Map = failed.iter().map(|node| ((*node).to_owned(), json!("e says no"))).collect();
    Answer::Done(json!({"nodeNames": nodes, "failedNodes": failed}))
}

fn asked_about(order: &Order) -> &Value {
    let Ask::Extender { body, .. } = &order.ask else { panic!("{order:?}") };
    &body["NodeNames"]
}

fn nominated(name: &str, node: &str) -> Value {
    let mut object = pod(name, urgent());
    object["status"]["nominatedNodeName"] = node.into();
    object
}

#[test]
fn a_node_that_a_pod_is_nominated_to_is_asked_about_alone_and_then_all_are() {
    for first in [leaves(&[], &["a"]), leaves(&[], &[]), Answer::Failed("down".into())] {
        let mut scene = asking(json!({}));
        scene.node("a", "4");
        scene.node("b", "4");
        scene.see(Kind::Pod, Key::new("default", "p"), nominated("p", "a"));
        scene.turn();
        let order = scene.answer("extender 0 filter", first);
        assert_eq!(asked_about(&order), &json!(["a"]));
        let order = scene.answer("extender 0 filter", leaves(&["b"], &[]));
        assert_eq!(asked_about(&order), &json!(["a", "b"]));
        let bound = scene.done("create pods/p/binding");
        assert_eq!(body(&bound)["target"]["name"], "b");
    }
    // The consultation may also end with the first answer; the refusal from when the node was asked about alone is then
    // used, if there is no newer one.
    let mut scene = asking(json!({}));
    scene.node("a", "4");
    scene.node("b", "4");
    scene.see(Kind::Pod, Key::new("default", "p"), nominated("p", "a"));
    scene.see(Kind::Pod, Key::new("default", "q"), nominated("q", "b"));
    scene.turn();
    scene.answer("extender 0 filter", leaves(&["a"], &[]));
    scene.done("create pods/p/binding");
    scene.answer("extender 0 filter", leaves(&[], &["b"]));
    scene.answer("extender 0 filter", leaves(&[], &[]));
    let (_, message) = scene.refusal_of("q");
    assert!(message.starts_with("0/2 nodes are available: 1 e says no. "), "{message}");
}

#[test]
fn nobody_is_nominated_to_a_node_where_nobody_has_to_go() {
    let mut scene = asking(json!({}));
    for (node, low) in [("a", "low1"), ("b", "low2")] {
        scene.node(node, "4");
        scene.see(Kind::Pod, Key::new("default", low), bound(low, "1", node));
    }
    scene.pod("p", urgent());
    scene.turn();
    scene.answer("extender 0 filter", leaves(&[], &["a"]));
    let order = scene.take("patch pods/p/status");
    let status = &body(&order)["status"];
    let message = "0/2 nodes are available: 1 e says no. preemption: expected at least one victim pod on node \"a\"";
    assert_eq!(status["conditions"][0]["message"], message);
    assert_eq!(status.get("nominatedNodeName"), None, "{status}");
    assert!(scene.shown().iter().all(|order| !order.contains("DisruptionTarget")), "{:#?}", scene.shown());
}

#[test]
fn nodes_that_are_left_out_without_a_word_are_hoped_for_with_every_event() {
    for (cpu_of_b, rejectors) in [("4", vec!["Extender"]), ("500m", vec!["Extender", "NodeResourcesFit"])] {
        let mut scene = asking(json!({}));
        scene.node("a", "4");
        scene.node("b", cpu_of_b);
        scene.pod("p", asks("1"));
        scene.turn();
        scene.answer("extender 0 filter", leaves(&[], &[]));
        let (reason, _) = scene.refusal_of("p");
        assert_eq!(reason, "Unschedulable");
        let refused = scene.scheduler.refused().filter(|(.., pods)| *pods > 0);
        assert_eq!(refused.map(|(plugin, ..)| plugin).collect::<Vec<_>>(), rejectors);
        scene.now += 20 * SECONDS;
        scene.turn();
        assert!(scene.shown().iter().all(|order| !order.starts_with("extender")), "it waits for an event");
        // An event that no plug-in waits for wakes no pod.
        scene.see(Kind::Namespace, Key::cluster("n"), json!({}));
        scene.turn();
        assert!(scene.shown().iter().all(|order| !order.starts_with("extender")));
        scene.see(Kind::PersistentVolumeClaim, Key::new("default", "c"), json!({}));
        scene.turn();
        scene.answer("extender 0 filter", leaves(&["a"], &[]));
        scene.done("create pods/p/binding");
    }
}

#[test]
fn an_extender_may_have_others_go_or_nobody() {
    let scene = || {
        let mut scene = asking(json!({"preemptVerb": "preempt", "filterVerb": ""}));
        scene.node("a", "4");
        scene.see(Kind::Pod, Key::new("default", "low"), bound("low", "3", "a"));
        scene.see(Kind::Pod, Key::new("default", "other"), bound("other", "1", "a"));
        let mut spec = asks("2");
        spec["priority"] = 10.into();
        scene.pod("p", spec);
        scene.turn();
        scene
    };
    let victims = |pods: &[&str]| {
        let pods: Vec<_> = pods.iter().map(|pod| json!({"uid": format!("{pod}-uid")})).collect();
        Answer::Done(json!({"nodeNameToMetaVictims": {"a": {"pods": pods}}}))
    };
    let mut both = scene();
    let order = both.answer("extender 0 preempt", victims(&["low", "other"]));
    let Ask::Extender { body, .. } = &order.ask else { panic!() };
    assert_eq!(body["NodeNameToMetaVictims"]["a"]["Pods"], json!([{"UID": "low-uid"}]));
    both.write_statuses();
    both.done("delete pods/low");
    both.write_statuses();
    both.done("delete pods/other");
    let mut nobody = scene();
    nobody.answer("extender 0 preempt", Answer::Done(json!({"nodeNameToMetaVictims": {}})));
    let order = nobody.take("patch pods/p/status");
    let status = &super::body(&order)["status"];
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: no candidate \
                   node for preemption";
    assert_eq!(status["conditions"][0]["message"], message);
    assert_eq!(status.get("nominatedNodeName"), None, "{status}");
}

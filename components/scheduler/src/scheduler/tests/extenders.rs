//! Tests of extenders.

use super::*;

#[test]
fn extenders_filter_score_and_bind() {
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
    scene.run();
    assert_eq!(scene.requests.len(), 1, "one pod after the other: {:#?}", scene.shown());
    let left = RequestOutcome::Succeeded(json!({"NodeNames": ["b", "c"], "FailedNodes": {"a": "not this one"}}));
    let asked = scene.answer("extender 0 filter", left);
    let RequestContent::Extender { body: asked, .. } = &asked.content else { panic!() };
    assert_eq!((&asked["Pod"]["metadata"]["name"], &asked["NodeNames"]), (&json!("p"), &json!(["a", "b", "c"])));
    // Extender 1 fails to filter. The failure is ignored, because extender 1 is `ignorable`.
    scene.answer("extender 1 filter", RequestOutcome::Failed("down".into()));
    scene.answer("extender 0 score", RequestOutcome::Succeeded(json!([{"Host": "c", "Score": 10}])));
    let bind = scene.answer("extender 1 bind", RequestOutcome::Succeeded(json!({"Error": "not mine"})));
    let RequestContent::Extender { body: asked, .. } = &bind.content else { panic!() };
    assert_eq!((&asked["PodName"], &asked["Node"]), (&json!("p"), &json!("c")));
    let bound = scene.done("create pods/p/binding");
    assert_eq!(body(&bound)["target"]["name"], "c");
    scene.answer("extender 0 filter", RequestOutcome::Failed("broken".into()));
    let told = scene.take("patch pods/q/status");
    let condition = &body(&told)["status"]["conditions"][0];
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("SchedulerError"), &json!("broken")));
}

#[test]
fn pods_without_extenders_do_not_wait_for_extenders() {
    let mut scene = Scene::with(json!({"extenders": [{"urlPrefix": "http://one", "filterVerb": "filter",
        "nodeCacheCapable": true, "managedResources": [{"name": "example.com/x"}]}]}));
    let allocatable = json!({"cpu": "8", "pods": "10", "example.com/x": "8"});
    scene.apply_object(
        Kind::Node,
        Key::cluster("n"),
        json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}),
    );
    let managed = json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/x": "1"}}}]});
    for name in ["a", "b", "c"] {
        scene.pod(name, managed.clone());
    }
    scene.pod("free", asks("1"));
    scene.run();
    scene.done("create pods/free/binding");
    let asked = |scene: &Scene| scene.shown().iter().filter(|request| request.starts_with("extender")).count();
    assert_eq!(asked(&scene), 1, "one after the other");
    // The pod `b` is deleted while it waits for its extender calls, so no extender is called for it.
    scene.apply_object(Kind::Pod, Key::new("default", "b"), Value::Null);
    let request = scene.take("extender 0 filter");
    scene.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(json!({"nodeNames": ["n"]})), scene.now);
    scene.run();
    scene.done("create pods/a/binding");
    let request = scene.take("extender 0 filter");
    let RequestContent::Extender { body, .. } = &request.content else { unreachable!() };
    assert_eq!(body["Pod"]["metadata"]["name"], "c");
    scene.scheduler.handle_outcome(
        request.number,
        RequestOutcome::Failed("context deadline exceeded".into()),
        scene.now,
    );
    scene.run();
    assert!(scene.scheduler.extenders.is_queue_empty() && asked(&scene) == 0);
    scene.take("FailedScheduling");
}

/// A scheduler with one extender, which is sent the names of nodes and not whole nodes.
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

/// The answer of an extender that leaves the nodes `nodes` feasible and rejects the nodes `failed` with a reason.
fn leaves(nodes: &[&str], failed: &[&str]) -> RequestOutcome {
    let failed: holdfast_value::Map = failed.iter().map(|node| ((*node).to_owned(), json!("e says no"))).collect();
    RequestOutcome::Succeeded(json!({"nodeNames": nodes, "failedNodes": failed}))
}

fn asked_about(request: &OutgoingRequest) -> &Value {
    let RequestContent::Extender { body, .. } = &request.content else { panic!("{request:?}") };
    &body["NodeNames"]
}

fn nominated(name: &str, node: &str) -> Value {
    let mut object = pod(name, urgent());
    object["status"]["nominatedNodeName"] = node.into();
    object
}

#[test]
fn extenders_get_the_nominated_node_first_and_then_all_nodes() {
    for first in [leaves(&[], &["a"]), leaves(&[], &[]), RequestOutcome::Failed("down".into())] {
        let mut scene = asking(json!({}));
        scene.node("a", "4");
        scene.node("b", "4");
        scene.apply_object(Kind::Pod, Key::new("default", "p"), nominated("p", "a"));
        scene.run();
        let request = scene.answer("extender 0 filter", first);
        assert_eq!(asked_about(&request), &json!(["a"]));
        let request = scene.answer("extender 0 filter", leaves(&["b"], &[]));
        assert_eq!(asked_about(&request), &json!(["a", "b"]));
        let bound = scene.done("create pods/p/binding");
        assert_eq!(body(&bound)["target"]["name"], "b");
    }
    // The nominated node is filtered alone first. If the second call, with all nodes, gives no reason for that node,
    // the reason of the first call is used.
    let mut scene = asking(json!({}));
    scene.node("a", "4");
    scene.node("b", "4");
    scene.apply_object(Kind::Pod, Key::new("default", "p"), nominated("p", "a"));
    scene.apply_object(Kind::Pod, Key::new("default", "q"), nominated("q", "b"));
    scene.run();
    scene.answer("extender 0 filter", leaves(&["a"], &[]));
    scene.done("create pods/p/binding");
    scene.answer("extender 0 filter", leaves(&[], &["b"]));
    scene.answer("extender 0 filter", leaves(&[], &[]));
    let (_, message) = scene.refusal_of("q");
    assert!(message.starts_with("0/2 nodes are available: 1 e says no. "), "{message}");
}

#[test]
fn no_pod_is_nominated_to_a_node_without_victims() {
    let mut scene = asking(json!({}));
    for (node, low) in [("a", "low1"), ("b", "low2")] {
        scene.node(node, "4");
        scene.apply_object(Kind::Pod, Key::new("default", low), bound(low, "1", node));
    }
    scene.pod("p", urgent());
    scene.run();
    scene.answer("extender 0 filter", leaves(&[], &["a"]));
    let request = scene.take("patch pods/p/status");
    let status = &body(&request)["status"];
    let message = "0/2 nodes are available: 1 e says no. preemption: expected at least one victim pod on node \"a\"";
    assert_eq!(status["conditions"][0]["message"], message);
    assert_eq!(status.get("nominatedNodeName"), None, "{status}");
    assert!(scene.shown().iter().all(|request| !request.contains("DisruptionTarget")), "{:#?}", scene.shown());
}

#[test]
fn nodes_excluded_by_extenders_may_be_feasible_after_any_event() {
    for (cpu_of_b, rejectors) in [("4", vec!["Extender"]), ("500m", vec!["Extender", "NodeResourcesFit"])] {
        let mut scene = asking(json!({}));
        scene.node("a", "4");
        scene.node("b", cpu_of_b);
        scene.pod("p", asks("1"));
        scene.run();
        scene.answer("extender 0 filter", leaves(&[], &[]));
        let (reason, _) = scene.refusal_of("p");
        assert_eq!(reason, "Unschedulable");
        let refused = scene.scheduler.unschedulable_pods().filter(|(.., pods)| *pods > 0);
        assert_eq!(refused.map(|(plugin, ..)| plugin).collect::<Vec<_>>(), rejectors);
        scene.now += 20 * SECONDS;
        scene.run();
        assert!(scene.shown().iter().all(|request| !request.starts_with("extender")), "it waits for an event");
        // An event of a kind for which no rejecting plug-in waits makes no pod active.
        scene.apply_object(Kind::Namespace, Key::cluster("n"), json!({}));
        scene.run();
        assert!(scene.shown().iter().all(|request| !request.starts_with("extender")));
        scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), json!({}));
        scene.run();
        scene.answer("extender 0 filter", leaves(&["a"], &[]));
        scene.done("create pods/p/binding");
    }
}

#[test]
fn an_extender_may_choose_other_victims_or_none() {
    let scene = || {
        let mut scene = asking(json!({"preemptVerb": "preempt", "filterVerb": ""}));
        scene.node("a", "4");
        scene.apply_object(Kind::Pod, Key::new("default", "low"), bound("low", "3", "a"));
        scene.apply_object(Kind::Pod, Key::new("default", "other"), bound("other", "1", "a"));
        let mut spec = asks("2");
        spec["priority"] = 10.into();
        scene.pod("p", spec);
        scene.run();
        scene
    };
    let victims = |pods: &[&str]| {
        let pods: Vec<_> = pods.iter().map(|pod| json!({"uid": format!("{pod}-uid")})).collect();
        RequestOutcome::Succeeded(json!({"nodeNameToMetaVictims": {"a": {"pods": pods}}}))
    };
    let mut both = scene();
    let request = both.answer("extender 0 preempt", victims(&["low", "other"]));
    let RequestContent::Extender { body, .. } = &request.content else { panic!() };
    assert_eq!(body["NodeNameToMetaVictims"]["a"]["Pods"], json!([{"UID": "low-uid"}]));
    both.write_statuses();
    both.done("delete pods/low");
    both.write_statuses();
    both.done("delete pods/other");
    let mut nobody = scene();
    nobody.answer("extender 0 preempt", RequestOutcome::Succeeded(json!({"nodeNameToMetaVictims": {}})));
    let request = nobody.take("patch pods/p/status");
    let status = &super::body(&request)["status"];
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: no candidate \
                   node for preemption";
    assert_eq!(status["conditions"][0]["message"], message);
    assert_eq!(status.get("nominatedNodeName"), None, "{status}");
}

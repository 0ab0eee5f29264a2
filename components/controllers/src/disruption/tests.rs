use super::*;
use holdfast_world::trial::Trial;

fn started(budget: Value) -> Trial {
    let mut trial = Trial::new().with(Disruption::default());
    trial.create(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }));
    for name in ["p1", "p2", "p3"] {
        add(&mut trial, name, "r");
    }
    trial.create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": budget}));
    trial.run();
    trial
}

fn add(trial: &mut Trial, name: &str, owner: &str) {
    let uid = trial.get("replicasets", owner)["metadata"]["uid"].clone();
    let owners =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": true}]);
    trial.create(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}, "ownerReferences": owners, "finalizers": ["x.y/z"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    ready(trial, name, "True");
}

fn ready(trial: &mut Trial, name: &str, status: &str) {
    let conditions = json!([{"type": "Ready", "status": status}]);
    trial.patch_status("pods", name, json!({"phase": "Running", "conditions": conditions}));
}

fn budget(min: &str, value: Value) -> Value {
    json!({"selector": {"matchLabels": {"app": "a"}}, min: value})
}

/// Four numbers of the budget's status: allowed disruptions, healthy, desired and expected pods.
fn counts(trial: &Trial) -> [i64; 4] {
    let status = trial.get("poddisruptionbudgets", "b")["status"].clone();
    ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
        .map(|field| status[field].as_i64().expect("a number"))
}

fn condition(trial: &Trial) -> String {
    let status = trial.get("poddisruptionbudgets", "b")["status"].clone();
    let condition = &status["conditions"][0];
    format!("{} {} {}", condition["status"], condition["reason"], condition["message"])
}

#[test]
fn numbers_and_shares() {
    for (field, value, expected) in [
        ("minAvailable", json!(2), [1, 3, 2, 3]),
        ("minAvailable", json!("50%"), [1, 3, 2, 3]),
        ("maxUnavailable", json!(1), [1, 3, 2, 3]),
        ("maxUnavailable", json!("34%"), [2, 3, 1, 3]),
        ("maxUnavailable", json!(5), [3, 3, 0, 3]),
        ("minAvailable", json!(5), [0, 3, 5, 3]),
    ] {
        let trial = started(budget(field, value.clone()));
        assert_eq!(counts(&trial), expected, "{field} {value}");
    }
    let mut trial = started(budget("minAvailable", json!("100%")));
    assert_eq!(condition(&trial), r#""False" "InsufficientPods" """#);
    trial.patch("replicasets", "r", json!({"spec": {"replicas": 1}}));
    trial.run();
    assert_eq!(counts(&trial), [2, 3, 1, 1], "shares move with their owner");
    assert_eq!(condition(&trial), r#""True" "SufficientPods" """#);
    ready(&mut trial, "p1", "False");
    ready(&mut trial, "p2", "False");
    trial.run();
    assert_eq!(counts(&trial), [0, 1, 1, 1]);
}

#[test]
fn a_budget_without_pods() {
    let mut trial = started(json!({"selector": {"matchLabels": {"app": "b"}}, "maxUnavailable": 1}));
    assert_eq!(counts(&trial), [0, 0, 0, 0]);
    assert!(trial.take_event_texts().iter().all(|note| note == "Normal NoPods No matching pods found"));
}

#[test]
fn pods_that_nobody_manages() {
    let mut trial = started(budget("maxUnavailable", json!(1)));
    trial.take_event_texts();
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    trial.run();
    assert_eq!(counts(&trial), [1, 3, 2, 3]);
    let notes = trial.take_event_texts();
    let told = "Warning UnmanagedPods Pods selected by this PodDisruptionBudget (selector: \
                &LabelSelector{MatchLabels:map[string]string{app: a,},MatchExpressions:[]LabelSelectorRequirement{},}) were";
    assert!(notes[0].starts_with(told), "{notes:?}");
    trial.patch(
        "pods",
        "q",
        json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u", "controller": true}]}}),
    );
    trial.run();
    assert_eq!(condition(&trial), r#""False" "SyncFailed" "found no controllers for pod \"q\"""#);
    assert_eq!(counts(&trial)[0], 0);
}

#[test]
fn evicted_pods_count_as_gone_for_a_while() {
    let mut trial = started(budget("minAvailable", json!(1)));
    let mut status = trial.get("poddisruptionbudgets", "b")["status"].clone();
    status["disruptedPods"] = json!({"p1": trial.now(), "gone": trial.now()});
    status["disruptionsAllowed"] = json!(1);
    trial.patch_status("poddisruptionbudgets", "b", status);
    trial.run();
    assert_eq!(counts(&trial), [1, 2, 1, 3]);
    let disrupted = trial.get("poddisruptionbudgets", "b")["status"]["disruptedPods"].clone();
    assert_eq!(disrupted.as_object().expect("pods").keys().collect::<Vec<_>>(), ["p1"]);
    trial.take_event_texts();
    trial.run_for(120);
    assert_eq!(counts(&trial), [2, 3, 1, 3]);
    assert_eq!(
        trial.take_event_texts(),
        ["Warning NotDeleted Pod was expected by PDB default/b to be deleted but it wasn't"]
    );
}

#[test]
fn a_disruption_that_does_not_come_is_taken_back() {
    let mut trial = started(budget("minAvailable", json!(1)));
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": trial.now()});
    let conditions = json!([{"type": "Ready", "status": "True"}, condition]);
    trial.patch_status("pods", "p1", json!({"conditions": conditions}));
    trial.run_for(119);
    assert_eq!(trial.get("pods", "p1")["status"]["conditions"][1]["status"], "True");
    trial.run_for(1);
    let taken_back = trial.get("pods", "p1")["status"]["conditions"][1].clone();
    assert_eq!((&taken_back["status"], &taken_back["reason"]), (&json!("False"), &Value::Null));
}

#[test]
fn the_scale_of_other_kinds_is_asked_for() {
    let mut disruption = Disruption::default();
    let mut world = World::default();
    disruption.resources().iter().for_each(|resource| world.track_resource(resource));
    disruption.indexes(&mut world);
    let key = Key::new("default", "b");
    let budget = json!({"metadata": {"name": "b", "namespace": "default", "uid": "b", "generation": 1},
        "spec": budget("maxUnavailable", json!(1))});
    let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p", "labels": {"app": "a"},
        "ownerReferences": [{"apiVersion": "x.io/v1", "kind": "Set", "name": "s", "uid": "u", "controller": true}]}});
    let time = Time::from_second(0);
    world.apply(PodDisruptionBudget::resource(), key.clone(), Some(budget.to_string().into()), 1, time);
    world.apply(Pod::resource(), Key::new("default", "p"), Some(pod.to_string().into()), 2, time);
    let stamp = Stamp { time, seed: 1 };
    assert_eq!(disruption.plan(&world, &key, stamp).gets, ["/apis/x.io/v1"]);
    let resources = json!({"resources": [{"name": "sets", "kind": "Set"}, {"name": "sets/scale", "kind": "Scale"}]});
    disruption.answered(&key, "/apis/x.io/v1", Ok(resources));
    let path = "/apis/x.io/v1/namespaces/default/sets/s/scale";
    assert_eq!(disruption.plan(&world, &key, stamp).gets, [path]);
    disruption.answered(&key, path, Ok(json!({"metadata": {"uid": "u"}, "spec": {"replicas": 7}})));
    let plan = disruption.plan(&world, &key, stamp);
    let document = plan.steps[0][0].verb.document().unwrap_or_else(|| panic!("{plan:?}"));
    assert_eq!(document["status"]["expectedPods"], 7);
    assert_eq!(disruption.plan(&world, &key, stamp).gets, ["/apis/x.io/v1"], "what was read is not read from memory");
}

#[test]
fn a_pod_that_has_failed_is_not_healthy_whatever_it_says() {
    let mut trial = started(budget("minAvailable", json!(2)));
    trial.patch_status("pods", "p1", json!({"phase": "Failed"}));
    trial.run();
    assert_eq!(counts(&trial), [0, 2, 2, 3]);
}

#[test]
fn a_budget_that_says_nothing_allows_nothing() {
    let mut trial = started(json!({"selector": {"matchLabels": {"app": "a"}}}));
    assert_eq!(counts(&trial), [0, 3, 0, 0]);
    assert_eq!(condition(&trial), r#""False" "InsufficientPods" """#);
    trial.take_event_texts();
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    trial.run();
    assert!(trial.take_event_texts().is_empty(), "nobody counts who manages which pod");
}

#[test]
fn a_pod_of_several_budgets_is_told_of_with_each_change() {
    let mut trial = started(budget("minAvailable", json!(1)));
    trial.create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "c"},
        "spec": budget("minAvailable", json!(1))}));
    trial.run();
    trial.take_event_texts();
    let told = "Warning MultiplePodDisruptionBudgets Pod \"default\"/\"p1\" matches multiple PodDisruptionBudgets.  Chose \
                \"b\" arbitrarily.";
    trial.patch("pods", "p1", json!({"metadata": {"annotations": {"a": "b"}}}));
    trial.run();
    assert_eq!(trial.take_event_texts(), [told]);
    trial.patch("pods", "p1", json!({"metadata": {"finalizers": null}}));
    trial.run();
    trial.take_event_texts();
    trial.delete_as("pods", "p1", None, Some(0));
    trial.run();
    assert_eq!(trial.take_event_texts(), [told, told], "that it is to go, and that it goes");
}

#[test]
fn a_disruption_of_no_known_time_is_taken_back_at_once() {
    let mut trial = started(budget("minAvailable", json!(1)));
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"});
    trial.patch_status("pods", "p1", json!({"conditions": [condition]}));
    trial.run();
    assert_eq!(trial.get("pods", "p1")["status"]["conditions"][0]["status"], "False");
}

#[test]
fn the_set_of_a_deployment_that_is_gone_counts_itself() {
    let mut trial = started(budget("maxUnavailable", json!(1)));
    let gone = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone", "uid": "u", "controller": true}]);
    trial.patch("replicasets", "r", json!({"metadata": {"ownerReferences": gone}, "spec": {"replicas": 2}}));
    trial.run();
    assert_eq!(counts(&trial), [2, 3, 1, 2]);
}

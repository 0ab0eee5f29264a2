//! Tests of gangs: groups of pods that get nodes all together or not at all.

use super::*;

/// A scheduler with the plug-in GangScheduling, and a Workload whose group `g` needs two pods at least; the group
/// `single` of the Workload is no gang.
fn gangs() -> Scene {
    let mut scene = Scene::with(json!({"profiles": [{"schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}]}));
    scene.apply_object(Kind::Workload, Key::new("default", "w"), workload(2));
    scene
}

fn workload(least: u64) -> Value {
    json!({"spec": {"podGroups": [
        {"name": "g", "policy": {"gang": {"minCount": least}}}, {"name": "single", "policy": {"basic": {}}}]}})
}

fn member(group: &str, replica: &str) -> Value {
    let mut spec = asks("1");
    spec["workloadRef"] = json!({"name": "w", "podGroup": group, "podGroupReplicaKey": replica});
    spec
}

fn is_bound(scene: &Scene, pod: &str) -> bool {
    scene.shown().iter().any(|request| request.starts_with(&format!("create pods/{pod}/binding")))
}

#[test]
fn a_gang_is_bound_together_or_times_out() {
    let mut scene = gangs();
    scene.node("n", "1");
    for name in ["one", "two"] {
        scene.pod(name, member("g", ""));
    }
    scene.run();
    scene.write_statuses();
    assert!(scene.shown().iter().all(|request| !request.contains("binding")), "{:#?}", scene.shown());
    scene.now += 2 * SECONDS;
    scene.node("m", "1");
    scene.run();
    scene.take("create pods/one/binding");
    scene.take("create pods/two/binding");
}

#[test]
fn a_group_must_exist_and_each_of_its_replicas_is_a_gang() {
    let mut scene = gangs();
    scene.node("n", "8");
    scene.pod("missing", member("none", ""));
    scene.pod("single", member("single", ""));
    scene.pod("r0", member("g", "r0"));
    scene.pod("r1", member("g", "r1"));
    scene.run();
    let bound = |scene: &Scene| ["missing", "single", "r0", "r1"].map(|pod| is_bound(scene, pod));
    assert_eq!(bound(&scene), [false, true, false, false]);
    assert_eq!(scene.scheduler.pending_pods().gated, 3);
    scene.pod("r0-too", member("g", "r0"));
    scene.run();
    scene.write_statuses();
    assert_eq!(bound(&scene), [false, true, true, false]);
    assert_eq!(scene.scheduler.pending_pods().gated, 2);
}

#[test]
fn all_pods_of_a_gang_share_the_permit_deadline_of_the_first() {
    let mut scene = gangs();
    scene.apply_object(Kind::Workload, Key::new("default", "w"), workload(3));
    scene.node("n", "2");
    for name in ["one", "two", "three"] {
        scene.pod(name, member("g", ""));
    }
    scene.pod("full", asks("1"));
    scene.apply_object(Kind::Pod, Key::new("default", "other"), bound("other", "1", "n"));
    scene.run();
    scene.write_statuses();
    scene.now += 240 * SECONDS + 500_000_000;
    scene.apply_object(Kind::Pod, Key::new("default", "other"), Value::Null);
    scene.run();
    scene.write_statuses();
    assert_eq!(scene.scheduler.snapshot().assumed_count(), 2);
    scene.now += 60 * SECONDS;
    scene.requests.clear();
    scene.run();
    let told = |scene: &Scene, text: &str| scene.shown().iter().filter(|request| request.contains(text)).count();
    let first = "0/1 nodes are available: 1 rejected due to timeout after waiting 5m0s at plugin GangScheduling.";
    let second = "0/1 nodes are available: 1 rejected due to timeout after waiting 59.5s at plugin GangScheduling.";
    assert_eq!((told(&scene, first), told(&scene, second)), (2, 2), "{:#?}", scene.shown());
}

#[test]
fn a_waiting_member_activates_the_others() {
    let mut scene = gangs();
    scene.node("n", "1");
    scene.pod("one", member("g", ""));
    scene.pod("two", member("g", ""));
    scene.run();
    scene.write_statuses();
    // The pod `one` has reserved the only node, so the pod `two` is unschedulable.
    assert_eq!(scene.scheduler.pending_pods().unschedulable, 1);
    scene.pod("three", member("g", ""));
    scene.run();
    assert_eq!(scene.scheduler.pending_pods().unschedulable, 2);
    scene.now += 300 * SECONDS;
    scene.run();
    // After the timeout the pod `one` gives up the node. Another pod of the gang gets the node and makes both waiting
    // pods active, whichever event they wait for.
    let shown = scene.shown();
    let tried = |request: &&String| {
        request.starts_with("create events.events.k8s.io/one") && request.contains("Insufficient cpu")
    };
    assert!(shown.iter().any(|request| tried(&request)), "{shown:#?}");
}

#[test]
fn a_member_without_its_workload_is_gated() {
    let mut scene = gangs();
    scene.node("n", "500m");
    scene.pod("one", member("g", ""));
    scene.pod("two", member("g", ""));
    scene.run();
    scene.write_statuses();
    scene.apply_object(Kind::Workload, Key::new("default", "w"), Value::Null);
    scene.node("n", "4");
    scene.now += 20 * SECONDS;
    scene.run();
    assert!(!is_bound(&scene, "one") && !is_bound(&scene, "two"), "{:#?}", scene.shown());
    // The status of gated pods is not written.
    assert_eq!(scene.scheduler.pending_pods().gated, 2);
    assert!(scene.shown().iter().all(|request| !request.contains("/status")), "{:#?}", scene.shown());
}

#[test]
fn a_member_whose_workload_is_deleted_during_its_attempt_is_requeued() {
    let mut scene = gangs();
    scene.node("n", "4");
    scene.pod("one", member("g", ""));
    scene.pod("two", member("g", ""));
    let (key, info) = scene.scheduler.queue.pop(scene.now).unwrap();
    scene.apply_object(Kind::Workload, Key::new("default", "w"), Value::Null);
    scene.scheduler.schedule_pod(&key, info, scene.now);
    scene.requests.extend(scene.scheduler.take_requests(scene.now));
    let (reason, message) = scene.refusal_of("one");
    let why = "failed to get workload default/w: workload.scheduling.k8s.io \"w\" not found";
    assert_eq!(message, format!("running Permit plugin \"GangScheduling\": {why}"));
    assert_eq!(reason, "SchedulerError");
    assert_eq!(scene.scheduler.snapshot().assumed_count(), 0);
}

//! Tests when the status of a pod with victims is written.

use super::*;

/// A scheduler with many pending requests, and the pod `urgent`, which fits only on a node with a pod of lower
/// priority.
fn busy() -> Scene {
    let mut scene = Scene::new();
    for number in 0..4 {
        scene.node(&format!("n{number}"), "10");
        for pod in 0..10 {
            scene.pod(&format!("p{number}{pod}"), asks("1"));
        }
    }
    scene.run();
    assert_eq!(scene.requests.len(), 40);
    scene.node("full", "20");
    scene.apply_object(Kind::Pod, Key::new("default", "victim"), bound("victim", "20", "full"));
    urgent(&mut scene, json!({}));
    scene.run();
    scene
}

/// Applies the pod `urgent`, which has a higher priority, with this status.
fn urgent(scene: &mut Scene, status: Value) {
    let mut spec = asks("20");
    spec["priority"] = 10.into();
    let mut pod = pod("urgent", spec);
    pod["status"] = status;
    scene.apply_object(Kind::Pod, Key::new("default", "urgent"), pod);
}

/// The texts of the requests that write the status of the pod `urgent`.
fn written(scene: &Scene) -> Vec<String> {
    scene.shown().into_iter().filter(|request| request.starts_with("patch pods/urgent/status")).collect()
}

fn nominated(scene: &Scene) -> Option<Text> {
    scene.scheduler.snapshot.pod(&Key::new("default", "urgent")).and_then(|pod| pod.nominated.clone())
}

fn victim_goes(scene: &mut Scene) {
    scene.done("patch pods/victim/status");
    scene.done("delete pods/victim");
    scene.apply_object(Kind::Pod, Key::new("default", "victim"), Value::Null);
}

#[test]
fn a_delayed_status_is_dropped_once_the_pod_is_bound() {
    let mut scene = busy();
    assert_eq!(nominated(&scene).as_deref(), Some("full"));
    victim_goes(&mut scene);
    scene.now += SECONDS;
    scene.run();
    assert_eq!(written(&scene), [""; 0]);
    scene.done("create pods/urgent/binding");
    let mut spec = asks("20");
    spec["nodeName"] = "full".into();
    scene.pod("urgent", spec);
    scene.now += 2 * SECONDS;
    scene.run();
    assert_eq!(written(&scene), [""; 0]);
    assert!(scene.scheduler.statuses.nomination(&Key::new("default", "urgent")).is_none());
}

#[test]
fn a_delayed_status_is_dropped_if_another_client_bound_or_deleted_the_pod() {
    let mut elsewhere = asks("20");
    elsewhere["nodeName"] = "n0".into();
    for object in [pod("urgent", elsewhere), Value::Null] {
        let mut scene = busy();
        scene.apply_object(Kind::Pod, Key::new("default", "urgent"), object);
        assert_eq!(nominated(&scene), None);
        scene.now += 3 * SECONDS;
        assert_eq!(written(scene.run()), [""; 0]);
        assert!(scene.scheduler.statuses.nomination(&Key::new("default", "urgent")).is_none());
    }
}

#[test]
fn an_unwritten_nomination_counts() {
    let mut scene = busy();
    // The nomination is not written yet, so an event about the pod shows a status without it. The scheduler must keep
    // the nomination.
    urgent(&mut scene, json!({"phase": "Pending"}));
    assert_eq!(nominated(&scene).as_deref(), Some("full"));
    victim_goes(&mut scene);
    scene.pod("other", asks("20"));
    scene.run();
    assert!(scene.shown().iter().all(|request| !request.contains("pods/other/binding")), "{:#?}", scene.shown());
}

#[test]
fn a_status_is_delayed_two_seconds_at_most() {
    let mut scene = busy();
    scene.now += 2 * SECONDS - 1;
    assert_eq!(written(scene.run()), [""; 0]);
    assert!(scene.scheduler.next_wakeup().is_some_and(|at| at <= scene.now + 1));
    scene.now += 1;
    assert_eq!(written(scene.run()).len(), 1);
    let request = scene.take("patch pods/urgent/status");
    assert_eq!(body(&request)["status"]["nominatedNodeName"], "full");
    assert_eq!(body(&request)["status"]["conditions"][0]["reason"], "Unschedulable");
    // The write of the status is pending now, so the pod must not be bound before the write has an outcome.
    victim_goes(&mut scene);
    scene.now += SECONDS;
    scene.run();
    assert!(scene.shown().iter().all(|request| !request.contains("pods/urgent/binding")), "{:#?}", scene.shown());
    scene.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(Value::Null), scene.now);
    scene.run().done("create pods/urgent/binding");
}

#[test]
fn a_delayed_status_is_written_once_few_requests_are_pending() {
    let mut scene = busy();
    for _ in 0..7 {
        scene.done("/binding");
    }
    assert_eq!(written(&scene), [""; 0]);
    for _ in 0..2 {
        scene.done("/binding");
    }
    assert_eq!(written(&scene).len(), 1);
}

#[test]
fn the_status_of_a_pod_without_victims_is_written_at_once() {
    let mut scene = busy();
    scene.apply_object(Kind::Node, Key::cluster("full"), Value::Null);
    scene.unschedulable_pods("patch pods/victim/status", "InternalError");
    let written = written(&scene);
    assert_eq!(written.len(), 1, "{:#?}", scene.shown());
    assert!(written[0].contains("Insufficient cpu"), "{written:?}");
}

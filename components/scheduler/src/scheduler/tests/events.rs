//! Tests when Events are written relative to requests for pods.

use super::super::event_recorder::WAITING_BYTES_MAX;
use super::*;

/// A scheduler that has requested the bindings of these pods. One request has an outcome, and all other requests are
/// pending.
fn busy(pods: usize) -> Scene {
    let mut scene = Scene::new();
    for number in 0..pods.div_ceil(10) {
        scene.node(&format!("n{number}"), "100");
    }
    for number in 0..pods {
        scene.pod(&format!("p{number}"), asks("1"));
    }
    scene.run();
    assert_eq!(scene.requests.len(), pods);
    scene.done("create pods/p0/binding");
    scene
}

fn events(scene: &Scene) -> usize {
    scene.shown().iter().filter(|request| request.contains(" events.")).count()
}

#[test]
fn events_wait_until_few_requests_are_pending() {
    let mut scene = busy(35);
    assert_eq!((scene.requests.len(), events(&scene)), (34, 0));
    scene.done("/binding");
    assert_eq!(events(&scene), 0);
    scene.done("/binding");
    assert_eq!((scene.requests.len(), events(&scene)), (32 + 3, 3));
}

#[test]
fn a_late_event_is_written_with_its_own_time() {
    let mut scene = busy(60);
    assert_eq!(scene.scheduler.next_wakeup(), Some(scene.now + 5 * SECONDS));
    let came = scene.now;
    scene.now += 5 * SECONDS - 1;
    assert_eq!(events(scene.run()), 0);
    scene.now += 1;
    assert_eq!(events(scene.run()), 1);
    let told = scene.take("create events.events.k8s.io/p0");
    assert_eq!(
        body(&told)["eventTime"],
        holdfast_world::Time(jiff::Timestamp::from_nanosecond(came).unwrap()).micros()
    );
    assert_eq!(scene.scheduler.next_wakeup(), None);
}

#[test]
fn active_pods_come_before_events() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.pod("p", asks("1"));
    scene.run();
    let request = scene.take("/binding");
    scene.pod("q", asks("1"));
    scene.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(Value::Null), scene.now);
    assert_eq!(scene.scheduler.take_requests(scene.now), []);
    let shown = scene.run().shown();
    assert!(shown.iter().any(|request| request.starts_with("create pods/q/binding")), "{shown:#?}");
    assert_eq!(events(&scene), 1);
}

#[test]
fn few_events_are_written_at_once_and_all_eventually() {
    let mut scene = busy(120);
    while scene.shown().iter().any(|request| request.contains("/binding")) {
        scene.done("/binding");
        assert!(events(&scene) <= 64);
    }
    assert_eq!(events(&scene), 64);
    for written in 1..120 {
        scene.done("create events.");
        assert_eq!(events(&scene), 64.min(120 - written));
    }
}

#[test]
fn waiting_events_are_bounded() {
    let mut scene = busy(40);
    let pod = scene.scheduler.snapshot().pod(&Key::new("default", "p7")).cloned().expect("the pod");
    let note = "n".repeat(1024);
    while scene.scheduler.events.waiting_bytes <= WAITING_BYTES_MAX {
        scene.scheduler.record_failure(&pod, 0, &note, scene.now);
    }
    for _ in 0..2 {
        scene.scheduler.record_failure(&pod, 0, &note, scene.now);
    }
    let waiting = scene.scheduler.events.waiting.len();
    assert!((10_000..40_000).contains(&waiting), "{waiting}");
    // The waiting Events take too much memory, so the oldest Events are written. These Events are short and free little
    // memory, so several are written.
    assert!((3..12).contains(&events(scene.run())), "{}", events(&scene));
    assert!(scene.scheduler.events.waiting_bytes <= WAITING_BYTES_MAX);
    scene.scheduler.record_failure(&pod, 0, "no", scene.now);
    while scene.shown().iter().any(|request| request.contains("/binding") || request.contains(" events.")) {
        let request = scene.requests.remove(0);
        scene.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(Value::Null), scene.now);
        scene.run();
    }
    assert_eq!((scene.scheduler.events.waiting.len(), scene.scheduler.events.waiting_bytes), (0, 0));
}

//! Checks which events each watch gets, in which order, and that no event is missing.

use super::stage::{Stage, config_map, create, delete, drain, patch, selection, set, told};
use holdfast_core::event::Offset;
use holdfast_core::request::Verb;
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{ChangeType, Hub, LogRead, Watch, WatchStart};
use holdfast_value::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn watch(stage: &Stage, resource: &str, namespace: &str, labels: &str, fields: &str, start: WatchStart) -> Watch {
    stage.engine.watch(selection(&stage.engine.snapshot(), resource, namespace, labels, fields), start)
}

/// A watch of all events on this resource after the present state.
fn follow(stage: &Stage, resource: &str) -> Watch {
    watch(stage, resource, "", "", "", WatchStart::After(stage.engine.snapshot().offset))
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn each_scope_gets_its_own_events() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    stage.must(&create("namespaces", "", json!({"metadata": {"name": "n1"}})));
    let cases = [
        (
            "pods",
            "",
            "",
            "",
            "ADDED default/a@3 ADDED n1/a@4 ADDED default/b@5 MODIFIED default/a@6 MODIFIED n1/a@7 DELETED n1/a@8",
        ),
        ("pods", "default", "", "", "ADDED default/a@3 ADDED default/b@5 MODIFIED default/a@6"),
        ("pods", "n1", "", "", "ADDED n1/a@4 MODIFIED n1/a@7 DELETED n1/a@8"),
        ("pods", "default", "", "metadata.name=b", "ADDED default/b@5"),
        (
            "pods",
            "",
            "",
            "metadata.name=a",
            "ADDED default/a@3 ADDED n1/a@4 MODIFIED default/a@6 MODIFIED n1/a@7 DELETED n1/a@8",
        ),
        ("pods", "", "", "spec.nodeName=node", "ADDED default/a@6"),
        (
            "pods",
            "",
            "",
            "spec.nodeName=",
            "ADDED default/a@3 ADDED n1/a@4 ADDED default/b@5 DELETED default/a@6 MODIFIED n1/a@7 DELETED n1/a@8",
        ),
        ("pods", "n1", "", "spec.nodeName=node", ""),
        ("pods", "", "app=y", "", ""),
        ("pods", "default", "app=x", "metadata.name=b", "ADDED default/b@5"),
        ("configmaps", "", "", "", ""),
    ];
    let mut watches: Vec<Watch> = cases
        .iter()
        .map(|(resource, namespace, labels, fields, _)| {
            watch(&stage, resource, namespace, labels, fields, WatchStart::After(Offset(2)))
        })
        .collect();
    stage.must(&create("pods", "default", pod("a")));
    stage.must(&create("pods", "n1", pod("a")));
    stage.must(&create("pods", "default", pod("b")));
    let mut bind = create("pods", "default", json!({"metadata": {"name": "a"}, "target": {"name": "node"}}));
    bind.target.name = Some("a".into());
    bind.target.subresource = Some("binding".into());
    stage.must(&bind);
    stage.must(&delete("pods", "n1", "a"));
    for ((resource, namespace, labels, fields, expected), live) in cases.iter().zip(&mut watches) {
        let what = format!("{resource} in {namespace:?}, {labels:?} {fields:?}");
        assert_eq!(drain(live).join(" "), *expected, "live: {what}");
        // A watch that starts later must get these events too, from the log.
        let mut late = watch(&stage, resource, namespace, labels, fields, WatchStart::After(Offset(2)));
        assert_eq!(drain(&mut late).join(" "), *expected, "late: {what}");
    }
    drop(watches);
    assert_eq!(stage.engine.hub().watchers(), 0);
}

#[test]
fn what_leaves_a_selection_is_deleted_to_it() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let relabel = |value: Value| patch("configmaps", "default", "a", json!({"metadata": {"labels": {"app": value}}}));
    let mut live = watch(&stage, "configmaps", "", "app=x", "", WatchStart::After(Offset(1)));
    stage.must(&config_map("a"));
    stage.must(&relabel("y".into()));
    stage.must(&set("a", "unseen"));
    stage.must(&relabel("x".into()));
    stage.must(&set("a", "seen"));
    stage.must(&relabel(Value::Null));
    stage.must(&delete("configmaps", "default", "a"));
    let mut late = watch(&stage, "configmaps", "", "app=x", "", WatchStart::After(Offset(1)));
    for watch in [&mut live, &mut late] {
        let mut seen = Vec::new();
        while let Some(delivery) = watch.next_ready().unwrap() {
            let object = delivery.event.shown(delivery.change_type).document();
            seen.push((told(&delivery), object["data"]["k"].clone(), object["metadata"]["labels"]["app"].clone()));
            assert_eq!(object["metadata"]["resourceVersion"], delivery.event.change.offset.to_string());
        }
        let expected = [
            ("ADDED default/a@2", "v"),
            // The event shows the object's last state in the selection, with the version of the event by which the
            // object left the selection.
            ("DELETED default/a@3", "v"),
            ("ADDED default/a@5", "unseen"),
            ("MODIFIED default/a@6", "seen"),
            ("DELETED default/a@7", "seen"),
        ];
        assert_eq!(seen, expected.map(|(event, data)| (event.to_owned(), json!(data), json!("x"))));
    }
}

#[test]
fn a_slow_watcher_is_let_go_and_misses_nothing() {
    let log = Arc::new(MemoryLog::default());
    drop(Stage::new(log.clone()));
    let mut stage = Stage::on(log, Hub::with_queues(2));
    let mut slow = follow(&stage, "configmaps");
    let mut quick = follow(&stage, "configmaps");
    let mut heard = Vec::new();
    let mut expected = Vec::new();
    for turn in 0..300u64 {
        let (request, what) = match turn {
            0 => (config_map("a"), "ADDED"),
            _ => (set("a", &turn.to_string()), "MODIFIED"),
        };
        stage.must(&request);
        // Between the events of the watched kind, events of another kind are written, which give the versions gaps.
        stage.must(&create("leases", "default", json!({"metadata": {"name": format!("l{turn}")}})));
        expected.push(format!("{what} default/a@{}", 2 + 2 * turn));
        heard.extend(drain(&mut quick));
    }
    assert_eq!(heard, expected);
    assert_eq!(drain(&mut slow), expected);
    // By now both watches must have joined the hub again.
    stage.must(&delete("configmaps", "default", "a"));
    assert_eq!(drain(&mut slow), ["DELETED default/a@602"]);
    assert_eq!(drain(&mut quick), ["DELETED default/a@602"]);
    assert_eq!(stage.engine.hub().watchers(), 2);
}

#[test]
fn a_watch_from_now_begins_with_what_is_there() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    stage.must(&config_map("b"));
    stage.must(&config_map("a"));
    let mut now = watch(&stage, "configmaps", "", "", "", WatchStart::Now);
    let mut none = watch(&stage, "secrets", "", "", "", WatchStart::Now);
    stage.must(&set("a", "w"));
    assert_eq!(none.initial_events_ended(), Some(Offset(3)));
    assert_eq!(now.initial_events_ended(), None);
    for expected in ["ADDED default/a@3", "ADDED default/b@2"] {
        assert_eq!(now.initial_events_ended(), None);
        assert_eq!(told(&now.next_ready().unwrap().unwrap()), expected);
    }
    assert_eq!(now.initial_events_ended(), Some(Offset(3)));
    assert_eq!(now.initial_events_ended(), None, "only once");
    assert_eq!(drain(&mut now), ["MODIFIED default/a@4"]);
}

#[test]
fn a_watch_goes_on_across_a_crash() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let mut before = follow(&stage, "configmaps");
    stage.must(&config_map("a"));
    assert_eq!(drain(&mut before), ["ADDED default/a@2"]);
    stage.must(&set("a", "b"));
    stage.must(&delete("configmaps", "default", "a"));
    let mut stage = stage.restart(&log);
    let mut after = watch(&stage, "configmaps", "", "", "", WatchStart::After(Offset(2)));
    stage.must(&config_map("a"));
    assert_eq!(drain(&mut after), ["MODIFIED default/a@3", "DELETED default/a@4", "ADDED default/a@5"]);
}

#[test]
fn bookmarks_tell_the_truth() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let mut watch = follow(&stage, "configmaps");
    assert_eq!(watch.bookmark().unwrap(), Some(Offset(1)));
    stage.must(&config_map("a"));
    assert_eq!(watch.bookmark().unwrap(), None, "something waits to be told");
    assert_eq!(watch.bookmark().unwrap(), None, "and asking does not lose it");
    assert_eq!(drain(&mut watch), ["ADDED default/a@2"]);
    assert_eq!(watch.bookmark().unwrap(), Some(Offset(2)));
    // Events that do not concern the watcher must also advance its position.
    stage.must(&create("secrets", "default", json!({"metadata": {"name": "s"}})));
    stage.must(&create("secrets", "default", json!({"metadata": {"name": "t"}})));
    assert_eq!(watch.bookmark().unwrap(), Some(Offset(4)));
    assert_eq!(watch.bookmark().unwrap(), Some(Offset(4)));
    stage.must(&set("a", "b"));
    assert_eq!(drain(&mut watch), ["MODIFIED default/a@5"]);
}

#[test]
fn one_frame_serves_every_watcher() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let mut one = follow(&stage, "configmaps");
    let mut other = watch(&stage, "configmaps", "default", "app=x", "", WatchStart::After(Offset(1)));
    stage.must(&config_map("a"));
    let snapshot = stage.engine.snapshot();
    let kind = snapshot.kind(snapshot.registry.by_storage("configmaps").unwrap());
    let frames = [&mut one, &mut other]
        .map(|watch| watch.next_ready().unwrap().unwrap().event.frame(kind, 0, ChangeType::Added));
    assert_eq!(frames[0].as_ptr(), frames[1].as_ptr());
    let frame: Value = serde_json::from_slice(&frames[0]).unwrap();
    assert_eq!((&frame["type"], &frame["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    assert!(frames[0].ends_with(b"}\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_watcher_is_woken() {
    let log = Arc::new(MemoryLog::default());
    drop(Stage::new(log.clone()));
    let clock = Arc::default();
    let registry = Arc::new(holdfast_core::kinds::registry().clone());
    let engine = holdfast_engine::Engine::open(log.clone(), registry, super::stage::options(&clock)).unwrap();
    let mut watch = engine.watch(selection(&engine.snapshot(), "configmaps", "", "", ""), WatchStart::After(Offset(1)));
    let reader = tokio::spawn(async move {
        let mut heard = Vec::new();
        while heard.len() < 3 {
            heard.push(told(&watch.next().await.unwrap()));
        }
        heard
    });
    tokio::task::yield_now().await;
    for request in [config_map("a"), set("a", "b"), delete("configmaps", "default", "a")] {
        engine.mutate(&request).await.unwrap();
    }
    let heard = tokio::time::timeout(Duration::from_secs(10), reader).await.unwrap().unwrap();
    assert_eq!(heard, ["ADDED default/a@2", "MODIFIED default/a@3", "DELETED default/a@4"]);
    assert_eq!(log.read(Offset(4)).unwrap().unwrap().actor.verb, Verb::Delete.as_str());
    engine.close();
}

//! The loop that finishes the deletion of namespaces, and deletions of many.

use super::stage::{config_map, create, delete, everything, options, patch};
use holdfast_core::kinds::registry;
use holdfast_core::request::{Request, Verb};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Engine, LogRead};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

async fn open() -> (Arc<Engine>, Arc<MemoryLog>) {
    let log = Arc::new(MemoryLog::default());
    let engine = Engine::open(log.clone(), Arc::new(registry().clone()), options(&Arc::default())).unwrap();
    for name in ["default", "n1"] {
        must(&engine, &create("namespaces", "", json!({"metadata": {"name": name}}))).await;
    }
    (engine, log)
}

async fn must(engine: &Arc<Engine>, request: &Request) {
    if let Err(refusal) = engine.mutate(request).await {
        panic!("{}: {refusal:?}", request.id);
    }
}

/// Waits until the state is as the test wants it.
async fn until(engine: &Arc<Engine>, what: &str, holds: impl Fn(&Engine) -> bool) {
    for _ in 0..2000 {
        if holds(engine) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} does not happen: {:#?}", everything(&engine.snapshot()));
}

fn has(engine: &Engine, place: &str) -> bool {
    everything(&engine.snapshot()).contains_key(place)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_emptied_and_goes() {
    let (engine, log) = open().await;
    let house = tokio::spawn(engine.clone().keep_house());
    for kind in ["configmaps", "secrets", "serviceaccounts"] {
        for name in ["a", "b"] {
            must(&engine, &create(kind, "n1", json!({"metadata": {"name": name}}))).await;
        }
    }
    must(&engine, &create("configmaps", "n1", json!({"metadata": {"name": "held", "finalizers": ["example.com/f"]}})))
        .await;
    must(&engine, &config_map("elsewhere")).await;
    must(&engine, &delete("namespaces", "", "n1")).await;

    until(&engine, "emptying", |engine| everything(&engine.snapshot()).len() == 4).await;
    until(&engine, "telling why it stays", |engine| {
        everything(&engine.snapshot())["namespaces n1"].1.contains("example.com/f in 1 resource instances")
    })
    .await;
    assert!(has(&engine, "configmaps n1/held"));

    must(&engine, &patch("configmaps", "n1", "held", json!({"metadata": {"finalizers": null}}))).await;
    until(&engine, "going", |engine| !has(engine, "namespaces n1")).await;
    let left: Vec<String> = everything(&engine.snapshot()).into_keys().collect();
    assert_eq!(left, ["configmaps default/elsewhere", "namespaces default"]);
    // The content went before its namespace.
    let last = log.read(log.last().unwrap()).unwrap().unwrap();
    assert_eq!((last.resource.as_str(), last.key.as_str(), last.is_delete()), ("namespaces", "n1", true));

    // The name can be had again, and the loop holds nobody alive.
    must(&engine, &create("namespaces", "", json!({"metadata": {"name": "n1"}}))).await;
    engine.close();
    let weak = Arc::downgrade(&engine);
    drop(engine);
    house.abort();
    let _ = house.await;
    assert!(weak.upgrade().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_goes_object_by_object() {
    let (engine, log) = open().await;
    for n in 0..30 {
        let color = if n % 3 == 0 { "red" } else { "blue" };
        let body = json!({"metadata": {"name": format!("a{n}"), "labels": {"color": color}}});
        must(&engine, &create("configmaps", "default", body)).await;
    }
    let before = log.last().unwrap().0;
    let mut request = delete("configmaps", "default", "");
    request.verb = Verb::DeleteCollection;
    request.options.label_selector = Some("color=blue".into());
    assert_eq!(engine.delete_collection(&request).await, Ok(20));
    assert_eq!(log.last().unwrap().0, before + 20);
    assert_eq!(everything(&engine.snapshot()).len(), 12);
    request.options.label_selector = None;
    assert_eq!(engine.delete_collection(&request).await, Ok(10));
    assert_eq!(engine.delete_collection(&request).await, Ok(0));
    engine.close();
}

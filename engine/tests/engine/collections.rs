//! Tests deletecollection requests, which delete many objects.

use super::stage::{create, delete, everything, options};
use holdfast_core::kinds::registry;
use holdfast_core::request::{Request, Verb};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Engine, LogRead};
use holdfast_value::json;
use std::sync::Arc;

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

/// Deletes a collection, and returns the number of objects that the reply contains.
async fn count(engine: &Arc<Engine>, request: &Request) -> usize {
    let deleted = engine.delete_collection(request).await.unwrap_or_else(|why| panic!("{why:?}"));
    deleted.page.entries.len()
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
    assert_eq!(count(&engine, &request).await, 20);
    assert_eq!(log.last().unwrap().0, before + 20);
    assert_eq!(everything(&engine.snapshot()).len(), 12);
    request.options.label_selector = None;
    assert_eq!(count(&engine, &request).await, 10);
    assert_eq!(count(&engine, &request).await, 0);
    engine.close();
}

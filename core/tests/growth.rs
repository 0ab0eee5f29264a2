//! Clients try to make an object grow with every request, or to fill a namespace. Without limits, every list and watch
//! would have to send all of this data.

#[path = "custom_resources/world.rs"]
#[allow(dead_code)]
mod world;

use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_value::{Value, json};
use std::sync::Arc;
use world::World;

const PATH: &str = "/apis/apps/v1/namespaces/shop/deployments/d";

/// A Deployment with one environment variable of a megabyte. Apply adds the variable to those of other managers.
fn variable(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "env": [{"name": name, "value": "x".repeat(1 << 20)}]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        },
    })
}

#[test]
fn patches_cannot_grow_an_object_without_end() {
    let mut world = World::new();
    world.user = Arc::new(User::new("jane", &[]));
    let mut apply = |name: &str| world.apply(PATH, &variable(name), name);
    for number in 0..7 {
        apply(&format!("E{number}")).expect("a megabyte more");
    }
    let refused = apply("MORE").expect_err("too much");
    assert!(matches!(refused, Refusal::TooLarge { .. }), "{refused:?}");
    // An object at the limit may still change or become smaller.
    world.merge(PATH, &json!({"spec": {"replicas": 2}})).expect("a small change");
    world
        .merge(PATH, &json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .expect("a smaller one");
}

fn config_map(name: &str, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x".repeat(bytes)}})
}

fn words(refused: Result<Value, Refusal>) -> String {
    refused.expect_err("too much").message()
}

#[test]
fn a_namespace_stores_no_more_than_it_may() {
    const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
    let mut world = World::new();
    world.user = Arc::new(User::new("jane", &[]));
    world.settings.namespace_bytes = Some(100_000);
    world.create(MAPS, &config_map("a", 60_000)).expect("there is room");
    let used = world.state.room.stored("shop");
    assert!((60_000..61_000).contains(&used), "{used}");
    let why = words(world.create(MAPS, &config_map("b", 60_000)));
    let begin = "configmaps \"b\" is forbidden: exceeded --namespace-bytes, requested: 60";
    assert!(
        why.starts_with(begin) && why.contains("used by namespace shop: 60") && why.contains("limited: 100000"),
        "{why}"
    );
    // A ResourceQuota in the namespace replaces the server's limit by a lower or a higher one.
    let quota = |bytes: &str| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {"hard": {"holdfast.dev/bytes": bytes}}})
    };
    world.create("/api/v1/namespaces/shop/resourcequotas", &quota("1Mi")).expect("a quota");
    world.create(MAPS, &config_map("b", 60_000)).expect("there is room");
    world
        .merge("/api/v1/namespaces/shop/resourcequotas/q", &json!({"spec": {"hard": {"holdfast.dev/bytes": "130k"}}}))
        .expect("less");
    let why = words(world.merge(&format!("{MAPS}/b"), &json!({"data": {"more": "x".repeat(20_000)}})));
    assert!(
        why.starts_with("configmaps \"b\" is forbidden: exceeded quota: q, requested: holdfast.dev/bytes=20"),
        "{why}"
    );
    assert!(why.ends_with("limited: holdfast.dev/bytes=130000"), "{why}");
    // In a full namespace, objects may become smaller and may be deleted. Writes of the status may exceed the limit by
    // an eighth.
    world
        .merge("/api/v1/namespaces/shop/resourcequotas/q", &json!({"spec": {"hard": {"holdfast.dev/bytes": "1k"}}}))
        .expect("less");
    world.merge(&format!("{MAPS}/b"), &json!({"data": {"a": "x"}})).expect("it becomes less");
    world.delete(&format!("{MAPS}/a")).expect("it goes");
    assert!(world.state.room.stored("shop") < 2_000);
    // The full namespace does not affect other namespaces, and the cluster's own namespaces have no limit.
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    world.create("/api/v1/namespaces", &system).expect("a namespace");
    world.create("/api/v1/namespaces/kube-system/configmaps", &config_map("a", 200_000)).expect("the cluster's own");
}

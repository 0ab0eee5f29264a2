//! Attacks that make one object larger with every request. What is stored is carried by every list and every watch.

#[path = "custom_resources/world.rs"]
#[allow(dead_code)]
mod world;

use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::authz::chain::Way;
use holdfast_value::{Value, json};
use std::sync::Arc;
use world::World;

const PATH: &str = "/apis/apps/v1/namespaces/shop/deployments/d";

/// One variable of a megabyte, beside those of others.
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
    world.settings.authorization = Way::AlwaysAllow.into();
    world.user = Arc::new(User::new("jane", &[]));
    let mut apply = |name: &str| world.apply(PATH, &variable(name), name);
    for number in 0..7 {
        apply(&format!("E{number}")).expect("a megabyte more");
    }
    let refused = apply("MORE").expect_err("too much");
    assert!(matches!(refused, Refusal::TooLarge { .. }), "{refused:?}");
    // It may still change, and become smaller.
    world.merge(PATH, &json!({"spec": {"replicas": 2}})).expect("a small change");
    world
        .merge(PATH, &json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .expect("a smaller one");
}

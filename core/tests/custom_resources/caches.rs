//! Tests that caches change no result: a cluster whose caches are full, and a cluster whose caches are emptied before
//! each request, must answer the same requests in the same way.

use super::world::{DEFINITIONS, World, words};
use holdfast_core::refusal::Refusal;
use holdfast_value::{Value, json};
use proptest::prelude::*;

const SCALERS: &str = "/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers";
/// The path of the autoscalers in their newer version.
const NEW_SCALERS: &str = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/shop/widgets";

/// A definition whose schema has a default, so that an object that is read may differ from the object that is stored.
fn definition() -> Value {
    let size = json!({"type": "integer", "default": 3, "maximum": 5});
    let spec = json!({"type": "object", "default": {}, "properties": {"size": size, "note": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = |name: &str, stored: bool| {
        let schema = json!({"openAPIV3Schema": schema});
        json!({"name": name, "served": true, "storage": stored, "schema": schema, "subresources": {"status": {}}})
    };
    let names = json!({"plural": "widgets", "kind": "Widget"});
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": names, "versions": [version("v1", true), version("v2", false)]}})
}

fn deployment(name: &str, number: u8) -> Value {
    let container = json!({"name": "c", "image": format!("registry.example/app:{number}"), "env":
        [{"name": "A", "value": "a".repeat(800)}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": number, "selector": {"matchLabels": {"a": "b"}}, "template": template}})
}

fn scaler(name: &str, number: u8) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": number,
        "targetCPUUtilizationPercentage": 50}})
}

fn widget(name: &str, number: u8) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": number, "note": "n".repeat(900)}})
}

/// Makes one request. `act` chooses the verb, and `which` chooses the object.
fn request(world: &mut World, act: u8, which: u8, number: u8) -> Result<Value, Refusal> {
    let name = ["a", "b", "c"][usize::from(which) % 3];
    let at = |path: &str| format!("{path}/{name}");
    match act {
        0 => world.create(DEPLOYMENTS, &deployment(name, number)),
        1 => world.merge(&at(DEPLOYMENTS), &json!({"spec": {"replicas": number}})),
        2 => world.apply(&at(DEPLOYMENTS), &deployment(name, number), "other"),
        3 => world.merge(&format!("{}/scale", at(DEPLOYMENTS)), &json!({"spec": {"replicas": number}})),
        4 => world.create(SCALERS, &scaler(name, number)),
        5 => world.merge(&at(NEW_SCALERS), &json!({"spec": {"maxReplicas": number}})),
        6 => world.merge(&at(SCALERS), &json!({"spec": {"targetCPUUtilizationPercentage": number}})),
        7 => world.create(WIDGETS, &widget(name, number)),
        8 => world.merge(&at(WIDGETS), &json!({"spec": {"size": number}})),
        9 => world.apply(&at(WIDGETS), &widget(name, number), "other"),
        10 => world.delete(&at(DEPLOYMENTS)).map(|()| Value::Null),
        _ => world.get(&at([DEPLOYMENTS, SCALERS, NEW_SCALERS, WIDGETS][usize::from(number) % 4])),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cached_values_change_no_result(acts in proptest::collection::vec((0u8..13, any::<u8>(), 0u8..8), 1..25)) {
        let mut full = World::new();
        full.create(DEFINITIONS, &definition()).expect("a definition");
        full.settle();
        let mut empty = full.clone();
        for (act, which, number) in acts {
            full.fill_caches();
            empty.empty_caches();
            let one = request(&mut full, act, which, number).map_err(|refusal| words(&refusal));
            let other = request(&mut empty, act, which, number).map_err(|refusal| words(&refusal));
            prop_assert_eq!(one, other);
            prop_assert_eq!(full.outcome(), empty.outcome());
        }
    }
}

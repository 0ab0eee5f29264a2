//! The type check and the defaults skip the parts that a patched document shares with the stored document. The result
//! must be the same as if the whole document were processed.

use holdfast_core::kinds::{apply_defaults, default_change, show_zeros, show_zeros_of_change};
use holdfast_core::schema::{check, check_change, schema};
use holdfast_value::{Map, Value, json};
use proptest::prelude::*;

fn stored() -> Value {
    let container = json!({
        "name": "c", "image": "registry.example/c:1", "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}, "env": [{"name": "A", "value": "1"}],
        "livenessProbe": {"httpGet": {"port": 80}},
    });
    let mut document = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "m"}}]},
            },
        },
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    });
    let message = schema().id("io.k8s.api.apps.v1.Deployment").expect("a message");
    assert!(check(schema(), message, &mut document).is_ok_and(|unknown| unknown.is_empty()));
    apply_defaults(message, &mut document).expect("few defaults");
    show_zeros(message, &mut document);
    document
}

/// A copy of the document that shares no parts with it.
fn apart(document: &Value) -> Value {
    document.to_string().parse().expect("JSON")
}

/// Replaces the value to which a walk of random steps leads.
fn change(value: &mut Value, steps: &[usize], put: &Value) {
    let Some((step, rest)) = steps.split_first() else { return *value = put.clone() };
    match value {
        Value::Object(fields) if !fields.is_empty() && !rest.is_empty() => {
            let name = fields.keys().nth(step % fields.len()).expect("a field").clone();
            change(&mut fields[&name], rest, put);
        }
        Value::Object(fields) => {
            let names = ["unknown", "name", "protocol", "terminationGracePeriodSeconds", "successThreshold", "labels"];
            let known = fields.keys().nth(step % (fields.len() + 1)).cloned();
            let name = known.unwrap_or_else(|| names[step % names.len()].into());
            if step % 3 == 0 {
                fields.remove(&name);
            } else {
                fields.insert(name, put.clone());
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = step % items.len();
            match step % 5 {
                0 => _ = items.remove(at),
                1 => items.insert(at, put.clone()),
                2 => items.push(items[at].clone()),
                _ => change(&mut items[at], rest, put),
            }
        }
        other => *other = put.clone(),
    }
}

fn puts() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("text")),
        Just(json!("0.5")),
        Just(json!(7)),
        Just(json!([])),
        Just(json!([{"name": "x"}])),
        Just(json!({"cpu": 1, "unknown": {"a": null}})),
        Just(Value::Object(Map::new())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shared_needs_no_look(
        changes in prop::collection::vec((prop::collection::vec(0..40_usize, 1..9), puts()), 0..4),
    ) {
        let message = schema().id("io.k8s.api.apps.v1.Deployment").expect("a message");
        let stored = stored();
        let mut shared = stored.clone();
        for (steps, put) in &changes {
            change(&mut shared, steps, put);
        }
        let mut whole = apart(&shared);
        let complaints = check(schema(), message, &mut whole);
        prop_assert_eq!(check_change(schema(), message, &mut shared, Some(&stored)), complaints.clone());
        if complaints.is_err() || !whole.is_object() {
            return Ok(());
        }
        // The check removes zeros that are shown as null, and the defaults set them again.
        default_change(message, &mut shared, Some(&stored)).expect("few defaults");
        apply_defaults(message, &mut whole).expect("few defaults");
        prop_assert_eq!(&shared, &whole);
        show_zeros_of_change(message, &mut shared, Some(&stored)).expect("few zeros");
        show_zeros(message, &mut whole);
        prop_assert_eq!(&shared, &whole);
        prop_assert_eq!(stored, self::stored(), "the stored document stays as it is");
    }
}

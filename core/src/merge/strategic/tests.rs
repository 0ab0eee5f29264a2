use crate::refusal::BadRequest;
use holdfast_value::{CompactString, json};
use proptest::prelude::*;

use super::*;
use crate::merge::testing;

fn merged(original: Value, patch: Value) -> Result<Value, Refusal> {
    let schema = testing::schema();
    let message = schema.id("test.Root").unwrap();
    strategic_merge(&original, &patch, &schema, message)
}

#[test]
fn documented_cases() {
    let containers = json!({"spec": {"containers": [{"name": "nginx", "image": "nginx-1.0"}]}});
    let rows = [
        // A list with a merge key is merged by the key. New elements have the position that the patch gives them.
        (
            containers.clone(),
            json!({"spec": {"containers": [{"name": "log-tailer", "image": "log-tailer-1.0"}]}}),
            json!({"spec": {"containers": [
                {"name": "log-tailer", "image": "log-tailer-1.0"}, {"name": "nginx", "image": "nginx-1.0"}]}}),
        ),
        (
            containers.clone(),
            json!({"spec": {"containers": [{"name": "nginx", "args": ["-v"]}]}}),
            json!({"spec": {"containers": [{"name": "nginx", "image": "nginx-1.0", "args": ["-v"]}]}}),
        ),
        (
            containers.clone(),
            json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "x", "image": "y"}]}}),
            json!({"spec": {"containers": [{"name": "x", "image": "y"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
        ),
        // Maps with the directives `replace` and `delete`, and with null as a value.
        (
            json!({"spec": {"strategy": {"type": "a", "other": "b"}}}),
            json!({"spec": {"strategy": {"$patch": "replace", "type": "c"}}}),
            json!({"spec": {"strategy": {"type": "c"}}}),
        ),
        (
            json!({"spec": {"strategy": {"type": "a"}}}),
            json!({"spec": {"strategy": {"$patch": "delete"}}}),
            json!({"spec": {"strategy": {}}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": null}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
        ),
        // `$retainKeys` removes the keys that it does not name.
        (
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        ),
        // Lists whose items are scalars.
        (
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["c", "b"]}}),
            json!({"metadata": {"finalizers": ["c", "a", "b"]}}),
        ),
        (
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}}),
            json!({"metadata": {"finalizers": ["a", "c"]}}),
        ),
        (
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"],
                "$setElementOrder/finalizers": ["d", "c", "a"], "finalizers": ["d"]}}),
            json!({"metadata": {"finalizers": ["d", "c", "a"]}}),
        ),
        // The order of the patch has precedence. Live elements that the patch does not name keep their position.
        (
            json!({"spec": {"containers": [{"name": "1"}, {"name": "x"}, {"name": "2"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "3"}, {"name": "1"}, {"name": "2"}],
                "containers": [{"name": "3", "image": "i"}]}}),
            json!({"spec": {"containers": [
                {"name": "3", "image": "i"}, {"name": "1"}, {"name": "x"}, {"name": "2"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "1"}, {"name": "2"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "2"}, {"name": "1"}]}}),
            json!({"spec": {"containers": [{"name": "2"}, {"name": "1"}]}}),
        ),
        // A list without a merge strategy is replaced. An unknown field is merged as plain JSON.
        (
            json!({"spec": {"tolerations": [{"key": "a"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
        ),
        (
            json!({"extra": {"a": [1], "b": {"c": 1}}}),
            json!({"extra": {"a": [2], "b": {"d": 2}}}),
            json!({"extra": {"a": [2], "b": {"c": 1, "d": 2}}}),
        ),
        // Nulls and directives never remain in the document.
        (
            json!({}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "a", "rollingUpdate": null}}}),
            json!({"spec": {"strategy": {"type": "a"}}}),
        ),
    ];
    for (original, patch, expected) in rows {
        assert_eq!(merged(original, patch.clone()).unwrap(), expected, "{patch}");
    }
}

#[test]
fn faults_read_as_clients_know_them() {
    let live = || json!({"spec": {"containers": [{"name": "a"}], "strategy": {"type": "x"}}, "metadata": {"finalizers": ["f"]}});
    let rows = [
        (
            json!({"spec": {"containers": [{"image": "x", "args": ["1", "2"]}]}}),
            (false, "map: map[args:[1 2] image:x] does not contain declared merge key: name"),
        ),
        (
            json!({"spec": {"containers": [{"$patch": "delete"}]}}),
            (false, "map: map[$patch:delete] does not contain declared merge key: name"),
        ),
        (
            json!({"spec": {"strategy": {"$patch": "frobnicate"}}}),
            (false, "unknown patch type: frobnicate in map: map[$patch:frobnicate]"),
        ),
        (
            json!({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}),
            (false, "merging lists cannot yet be specified in the patch"),
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["rollingUpdate"], "type": "y"}}}),
            (true, "invalid patch format of retainKeys"),
        ),
        (json!({"spec": {"strategy": {"$retainKeys": "type"}}}), (true, "invalid patch format of retainKeys")),
        (json!({"metadata": {"$deleteFromPrimitiveList": ["f"]}}), (true, "invalid patch format of primitive list")),
        (json!({"metadata": {"$setElementOrder": ["f"]}}), (true, "invalid patch format of setElementOrder list")),
        (
            json!({"metadata": {"finalizers": [["f"]]}}),
            (false, "list element types are not identical: string []interface {}"),
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["a", "b"], "finalizers": ["b", "a"]}}),
            (false, "The order in patch list:\n[b a]\n doesn't match $setElementOrder list:\n[a b]\n"),
        ),
    ];
    for (patch, (is_bad_request, words)) in rows {
        let refused = merged(live(), patch.clone()).unwrap_err();
        assert_eq!(matches!(refused, Refusal::BadRequest(_)), is_bad_request, "{patch}");
        assert_eq!(refused.message(), words, "{patch}");
    }
    assert_eq!(merged(live(), json!([])).unwrap_err(), Refusal::BadRequest(BadRequest::NotAnObjectToMerge));
}

/// The patches of `kubectl set image` and `kubectl edit`, with the built-in schema.
#[test]
fn pods_merge_by_the_built_in_schema() {
    let schema = crate::schema::schema();
    let message = schema.id("io.k8s.api.core.v1.Pod").unwrap();
    let pod = json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}, "spec": {
        "containers": [{"name": "c", "image": "1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80}]}],
        "volumes": [{"name": "v", "emptyDir": {}}]}});
    let patch = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}]}, "spec": {
        "$setElementOrder/containers": [{"name": "c"}],
        "containers": [{"name": "c", "image": "2", "env": [{"name": "B", "$patch": "delete"}, {"name": "A", "value": "3"}],
            "ports": [{"containerPort": 80, "name": "http"}]}],
        "volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}]}});
    assert_eq!(
        strategic_merge(&pod, &patch, schema, message).unwrap(),
        json!({"metadata": {"ownerReferences": []}, "spec": {
            "containers": [{"name": "c", "image": "2", "env": [{"name": "A", "value": "3"}],
                "ports": [{"containerPort": 80, "name": "http"}]}],
            "volumes": [{"name": "v", "configMap": {"name": "m"}}]}})
    );
}

fn any_patch() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!("replace")),
        Just(json!("delete")),
        "[a-c]".prop_map(Value::from),
        (0..3).prop_map(Value::from),
    ];
    let key = "spec|containers|name|ports|containerPort|metadata|finalizers|labels|\\$patch|\\$retainKeys|\
               \\$setElementOrder/containers|\\$setElementOrder/finalizers|\\$deleteFromPrimitiveList/finalizers";
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            2 => prop::collection::btree_map(key, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The patch that client-side apply would compute, by the merge strategy of each list in the test schema.
fn naive_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { unreachable!() };
    let mut patch = Map::new();
    let names: BTreeSet<&CompactString> = old.keys().chain(new.keys()).collect();
    for name in names {
        let merge_key = match name.as_str() {
            "containers" => Some("name"),
            "ports" => Some("containerPort"),
            _ => None,
        };
        match (old.get(name), new.get(name)) {
            (before, after) if before == after => {}
            (_, None) => _ = patch.insert(name.clone(), Value::Null),
            (Some(Value::Object(_)), Some(Value::Object(_))) => {
                patch.insert(name.clone(), naive_patch(&old[name], &new[name]));
            }
            (Some(Value::Array(before)), Some(Value::Array(after))) if merge_key.is_some() => {
                let key = merge_key.unwrap();
                let of = |items: &[Value], wanted: &Value| items.iter().find(|item| item[key] == *wanted).cloned();
                let mut items = Vec::new();
                for item in after {
                    let mut change = of(before, &item[key]).map_or(item.clone(), |before| naive_patch(&before, item));
                    change[key] = item[key].clone();
                    items.push(change);
                }
                let gone = before.iter().filter(|item| of(after, &item[key]).is_none());
                items.extend(gone.map(|item| json!({"$patch": "delete", key: item[key]})));
                patch.insert(name.clone(), items.into());
                let order: Vec<Value> = after.iter().map(|item| json!({key: item[key]})).collect();
                patch.insert(format!("$setElementOrder/{name}"), order.into());
            }
            (Some(Value::Array(before)), Some(Value::Array(after))) if name == "finalizers" => {
                let without = |items: &[Value], others: &[Value]| -> Vec<Value> {
                    items.iter().filter(|item| !others.contains(item)).cloned().collect()
                };
                patch.insert(name.clone(), without(after, before).into());
                patch.insert(format!("$deleteFromPrimitiveList/{name}"), without(before, after).into());
                patch.insert(format!("$setElementOrder/{name}"), after.clone().into());
            }
            (_, Some(after)) => _ = patch.insert(name.clone(), after.clone()),
        }
    }
    Value::Object(patch)
}

proptest! {
    #[test]
    fn a_computed_patch_leads_where_it_was_computed_for(
        old in testing::any_document(),
        new in testing::any_document(),
        added in "[x-z]",
    ) {
        prop_assert_eq!(merged(old.clone(), naive_patch(&old, &new)).unwrap(), new.clone());
        // Another client adds a field before the patch is applied. As in client-side apply, the field stays.
        let mut live = old.clone();
        live["metadata"]["annotations"] = json!({"added": added});
        let mut expected = new.clone();
        expected["metadata"]["annotations"] = json!({"added": added});
        prop_assert_eq!(merged(live, naive_patch(&old, &new)).unwrap(), expected);
    }

    #[test]
    fn no_patch_panics(original in any_patch(), patch in any_patch()) {
        let _ = merged(original, patch);
    }

    #[test]
    fn the_empty_patch_and_the_document_itself_change_nothing(document in testing::any_document()) {
        prop_assert_eq!(merged(document.clone(), json!({})).unwrap(), document.clone());
        prop_assert_eq!(merged(document.clone(), document.clone()).unwrap(), document);
    }
}

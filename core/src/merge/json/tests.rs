use holdfast_value::json;
use proptest::prelude::*;

use super::*;

#[test]
fn nulls_within_lists_of_a_merge_patch() {
    let rows = [
        (
            json!({}),
            json!({"a": [null, {"b": null, "c": [{"d": null}, null]}]}),
            json!({"a": [null, {"c": [{}, null]}]}),
        ),
        (json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
        (json!({"a": {"b": 1}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        (json!({"a": 1}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
    ];
    for (original, patch, expected) in rows {
        assert_eq!(merge_patch(original, patch.clone()).unwrap(), expected, "{patch}");
    }
    assert_eq!(json_patch(json!({"a": 1}), &json!(null)).unwrap(), json!({"a": 1}));
}

/// The examples of RFC 7386, appendix A, in which both the patch and the patched value are objects.
#[test]
fn merge_patch_follows_the_standard() {
    let rows = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for (original, patch, expected) in rows {
        assert_eq!(merge_patch(original, patch.clone()).unwrap(), expected, "{patch}");
    }
}

#[test]
fn json_patch_operations() {
    let rows = [
        (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), Some(json!({"a": 1, "b": 2}))),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), Some(json!({"a": [1, 2, 3]}))),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), Some(json!({"a": [1, 2]}))),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), Some(json!({"a": [1]}))),
        (json!({"a": {}}), json!([{"op": "test", "path": "/a/b~1c", "value": null}]), Some(json!({"a": {}}))),
        (json!({"a": {"b/c": 1}}), json!([{"op": "test", "path": "/a/b~1c", "value": null}]), None),
        (json!({"a": {}}), json!([{"op": "test", "path": "/b/c", "value": null}]), None),
        (json!({"a": {}}), json!([{"op": "test", "path": "/b", "value": 1}]), None),
        (json!({"a/b": 1}), json!([{"op": "replace", "path": "/a~1b", "value": 2}]), Some(json!({"a/b": 2}))),
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), Some(json!({"b": 1}))),
        (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), Some(json!({"a": 1, "b": 1}))),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), Some(json!({"a": 1}))),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 2}]), None),
        (json!({"a": 1}), json!([{"op": "remove", "path": "/b"}]), None),
        (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 1}]), Some(json!({"a": 1, "b": 1}))),
        (json!({"a": [1]}), json!([{"op": "replace", "path": "/a/1", "value": 1}]), None),
        (json!({"a": 1}), json!([{"op": "replace", "path": "/b/c", "value": 1}]), None),
        (json!({"a": 1}), json!([{"op": "copy", "from": "/c", "path": "/b"}]), Some(json!({"a": 1, "b": null}))),
        (json!({"a": [1]}), json!([{"op": "copy", "from": "/a/1", "path": "/b"}]), None),
        (json!({"a": 1}), json!([{"op": "move", "from": "/c", "path": "/b"}]), None),
        (json!({"a": 1}), json!([{"op": "add", "path": "/b/c", "value": 1}]), None),
        (json!({"a": 1}), json!([{"op": "add", "path": "b", "value": 1}]), None),
        (json!({"a": 1}), json!([{"op": "add", "path": "x/b", "value": 1}]), Some(json!({"a": 1, "b": 1}))),
        (json!({"a": {}}), json!([{"op": "add", "path": "x/a/b", "value": 1}]), Some(json!({"a": {"b": 1}}))),
        (json!({"a": 1}), json!([{"op": "copy", "from": "x/a", "path": "y/b"}]), Some(json!({"a": 1, "b": 1}))),
        (json!({"a": 1}), json!([{"op": "add", "path": "/~b~2", "value": 1}]), Some(json!({"a": 1, "~b~2": 1}))),
        (json!({"~b~2": {"c~": 1}}), json!([{"op": "remove", "path": "/~b~2/c~"}]), Some(json!({"~b~2": {}}))),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/7", "value": 1}]), None),
        (json!({"a": 1}), json!([{"op": "frobnicate", "path": "/a"}]), None),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": 1}]), None),
        (json!({"a": {}}), json!([{"op": "move", "from": "/a", "path": "/a/b"}]), None),
        (
            json!({"a": [1, {}]}),
            json!([{"op": "move", "from": "/a/0", "path": "/a/0/b"}]),
            Some(json!({"a": [{"b": 1}]})),
        ),
        (json!({"a": 1}), json!([{"op": "copy", "from": "", "path": "/b"}]), None),
        (json!({"a": [[]]}), json!([{"op": "replace", "path": "", "value": [1]}]), None),
        (json!({"a": 1}), json!([{"op": "test", "path": "", "value": {"a": 1}}]), Some(json!({"a": 1}))),
        (json!({"a": 1}), json!([null]), None),
    ];
    for (original, patch, expected) in rows {
        let got = json_patch(original, &patch);
        match expected {
            Some(document) => assert_eq!(got.unwrap(), document, "{patch}"),
            None => assert_eq!(got.unwrap_err(), does_not_apply(), "{patch}"),
        }
    }
}

/// As in Go, an index may have a sign. A negative index counts from the last element, or from the position after it if
/// an element is inserted.
#[test]
fn elements_are_counted_as_in_go() {
    let rows = [
        ("add", "-", Some(json!([1, 2, 9]))),
        ("add", "-1", Some(json!([1, 2, 9]))),
        ("add", "-2", Some(json!([1, 9, 2]))),
        ("add", "-3", Some(json!([9, 1, 2]))),
        ("add", "-4", None),
        ("add", "2", Some(json!([1, 2, 9]))),
        ("add", "3", None),
        ("add", "01", Some(json!([1, 9, 2]))),
        ("add", "+1", Some(json!([1, 9, 2]))),
        ("add", "-0", Some(json!([9, 1, 2]))),
        ("add", "", None),
        ("copy", "-1", Some(json!([1, 2, 7]))),
        ("copy", "-3", Some(json!([7, 1, 2]))),
        ("move", "-1", Some(json!([1, 2, 7]))),
        ("remove", "-1", Some(json!([1]))),
        ("remove", "-2", Some(json!([2]))),
        ("remove", "-3", None),
        ("remove", "2", None),
        ("remove", "-", None),
        ("remove", "00", Some(json!([2]))),
        ("replace", "-1", Some(json!([1, 9]))),
        ("replace", "-2", Some(json!([9, 2]))),
        ("replace", "-3", None),
        ("replace", "2", None),
        ("replace", "-", None),
    ];
    for (op, step, expected) in rows {
        let patch = json!([{"op": op, "path": format!("/list/{step}"), "from": "/seven", "value": 9}]);
        let patched = json_patch(json!({"list": [1, 2], "seven": 7}), &patch);
        assert_eq!(patched.ok().map(|patched| patched["list"].clone()), expected, "{op} {step}");
    }
    let rows = [
        // The moved element is removed before the index of the target is resolved.
        (json!({"op": "move", "from": "/0", "path": "/-1"}), json!([{"a": [2]}, 3, 1])),
        (json!({"op": "move", "from": "/0", "path": "/2"}), json!([{"a": [2]}, 3, 1])),
        (json!({"op": "move", "from": "/-1", "path": "/0"}), json!([3, 1, {"a": [2]}])),
        (json!({"op": "move", "from": "/0", "path": "/0/a/-1"}), json!([{"a": [2, 1]}, 3])),
        (json!({"op": "copy", "from": "/-2/a/-1", "path": "/-2/a/-1"}), json!([1, {"a": [2, 2]}, 3])),
        (json!({"op": "test", "path": "/-2/a/-1", "value": 2}), json!([1, {"a": [2]}, 3])),
    ];
    for (mut operation, expected) in rows {
        for member in ["from", "path"] {
            if let Some(path) = operation.get(member).and_then(Value::as_str) {
                operation[member] = format!("/list{path}").into();
            }
        }
        let patched = json_patch(json!({"list": [1, {"a": [2]}, 3]}), &json!([operation]));
        assert_eq!(patched, Ok(json!({"list": expected})), "{operation}");
    }
}

/// Each message of a fault must equal the message of Kubernetes' library.
#[test]
fn faults_are_told_in_the_words_of_kubernetes() {
    const BEYOND: &str = "Unable to access invalid index: 9: invalid index referenced";
    let pod = json!({"metadata": {"name": "a"}, "data": {"k": "v", "null": null}, "list": [{"a": 1}, {"a": 2}]});
    let rows = [
        // Operations `test` that fail because the document has another value.
        (json!({"op": "test", "path": "/data/k", "value": "w"}), "testing value /data/k failed: test failed"),
        (json!({"op": "test", "path": "/data/k"}), "testing value /data/k failed: test failed"),
        (json!({"op": "test", "path": "/data/x", "value": "w"}), "testing value /data/x failed: test failed"),
        (json!({"op": "test", "path": "/list/-1", "value": {}}), "testing value /list/-1 failed: test failed"),
        (json!({"op": "test", "path": "", "value": {}}), "testing value  failed: test failed"),
        // Operations on paths that do not exist in the document.
        (
            json!({"op": "test", "path": "/metadata/labels/a", "value": null}),
            "test operation does not apply: is missing path: /metadata/labels/a: missing value",
        ),
        (
            json!({"op": "test", "path": "/list/9/name", "value": "w"}),
            "test operation does not apply: is missing path: /list/9/name: missing value",
        ),
        (
            json!({"op": "test", "path": "/data/k/x", "value": "w"}),
            "test operation does not apply: is missing path: /data/k/x: missing value",
        ),
        (
            json!({"op": "test", "path": "data", "value": "w"}),
            "test operation does not apply: is missing path: data: missing value",
        ),
        (json!({"op": "test", "path": "/list/9"}), &format!("error in test for path: '/list/9': {BEYOND}")),
        (
            json!({"op": "test", "path": "/list/x"}),
            "error in test for path: '/list/x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!({"op": "add", "path": "/data/k/x"}),
            "add operation does not apply: doc is missing path: \"/data/k/x\": missing value",
        ),
        (
            json!({"op": "add", "path": "/data/null/x"}),
            "add operation does not apply: doc is missing path: \"/data/null/x\": missing value",
        ),
        (json!({"op": "add", "path": ""}), "add operation does not apply: doc is missing path: \"\": missing value"),
        (
            json!({"op": "add", "path": "data"}),
            "add operation does not apply: doc is missing path: \"data\": missing value",
        ),
        (json!({"op": "add", "path": "/list/9"}), &format!("error in add for path: '/list/9': {BEYOND}")),
        (
            json!({"op": "add", "path": "/list/-4"}),
            "error in add for path: '/list/-4': Unable to access invalid index: -4: invalid index referenced",
        ),
        (
            json!({"op": "add", "path": "/list/a~1\"b"}),
            "error in add for path: '/list/a~1\"b': value was not a proper array index: 'a/\"b': strconv.Atoi: \
             parsing \"a/\\\"b\": invalid syntax",
        ),
        (
            json!({"op": "add", "path": "/list/9223372036854775808"}),
            "error in add for path: '/list/9223372036854775808': value was not a proper array index: \
             '9223372036854775808': strconv.Atoi: parsing \"9223372036854775808\": value out of range",
        ),
        (
            json!({"op": "remove", "path": "/data/k/x"}),
            "remove operation does not apply: doc is missing path: \"/data/k/x\": missing value",
        ),
        (
            json!({"op": "remove", "path": ""}),
            "remove operation does not apply: doc is missing path: \"\": missing value",
        ),
        (
            json!({"op": "remove", "path": "x/data/no~1ne"}),
            "error in remove for path: 'x/data/no~1ne': Unable to remove nonexistent key: no/ne: missing value",
        ),
        (json!({"op": "remove", "path": "/list/9"}), &format!("error in remove for path: '/list/9': {BEYOND}")),
        (
            json!({"op": "remove", "path": "/list/-"}),
            "error in remove for path: '/list/-': strconv.Atoi: parsing \"-\": invalid syntax",
        ),
        (
            json!({"op": "replace", "path": "/data/k/x"}),
            "replace operation does not apply: doc is missing path: /data/k/x: missing value",
        ),
        (
            json!({"op": "replace", "path": "/list/9"}),
            "replace operation does not apply: doc is missing key: /list/9: missing value",
        ),
        (
            json!({"op": "replace", "path": "", "value": 1}),
            "replace operation value must be object or array: %!w(<nil>)",
        ),
        (
            json!({"op": "copy", "from": "/no/k", "path": "/data/x"}),
            "copy operation does not apply: doc is missing from path: /no/k: missing value",
        ),
        (
            json!({"op": "copy", "from": "", "path": "/data/x"}),
            "copy operation does not apply: doc is missing from path: : missing value",
        ),
        (
            json!({"op": "copy", "from": "/list/9", "path": "/data/x"}),
            &format!("error in copy for from: '/list/9': {BEYOND}"),
        ),
        (
            json!({"op": "copy", "from": "/data/k", "path": "/no/k"}),
            "copy operation does not apply: doc is missing destination path: /no/k: missing value",
        ),
        (
            json!({"op": "copy", "from": "/data/k", "path": "/list/9"}),
            &format!("error while adding value during copy: {BEYOND}"),
        ),
        (
            json!({"op": "move", "from": "/no/k", "path": "/data/x"}),
            "move operation does not apply: doc is missing from path: /no/k: missing value",
        ),
        (
            json!({"op": "move", "from": "/data/no~1ne", "path": "/data/x"}),
            "error in move for path: 'no/ne': Unable to remove nonexistent key: no/ne: missing value",
        ),
        (
            json!({"op": "move", "from": "/list/9", "path": "/data/x"}),
            &format!("error in move for path: '9': {BEYOND}"),
        ),
        (
            json!({"op": "move", "from": "/data/k", "path": "/list/9"}),
            &format!("error in move for path: '/list/9': {BEYOND}"),
        ),
        (
            json!({"op": "move", "from": "/list/0", "path": "/list/2"}),
            "error in move for path: '/list/2': Unable to access invalid index: 2: invalid index referenced",
        ),
        (
            json!({"op": "move", "from": "/data", "path": "/data/k"}),
            "move operation does not apply: doc is missing destination path: /data/k: missing value",
        ),
        // Members of the operation that are missing or are not strings.
        (json!({"op": "add"}), "add operation failed to decode path: missing value"),
        (json!({"op": "remove", "path": null}), "remove operation failed to decode path: missing value"),
        (json!({"op": "add", "path": 1}), "add operation failed to decode path: missing value"),
        (json!({"op": "copy", "from": "/data/k"}), "copy operation failed to decode path: missing value"),
        (
            json!({"op": "replace"}),
            "replace operation failed to decode path: operation missing path field: missing value",
        ),
        (json!({"op": "test"}), "test operation failed to decode path: operation missing path field: missing value"),
        (
            json!({"op": "move", "from": "/data/k"}),
            "move operation failed to decode path: operation missing path field: missing value",
        ),
        (
            json!({"op": "test", "path": 1}),
            "test operation failed to decode path: json: cannot unmarshal number into Go value of type string",
        ),
        (
            json!({"op": "copy", "path": "/data/x"}),
            "copy operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            json!({"op": "move", "path": "/data/x"}),
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            json!({"op": "move", "from": [], "path": "/data/x"}),
            "move operation failed to decode from: json: cannot unmarshal array into Go value of type string",
        ),
        (json!({"op": "frob", "path": "/data/k"}), "Unexpected kind: frob"),
        (json!({"op": 1, "path": "/data/k"}), "Unexpected kind: unknown"),
        (json!(null), "Unexpected kind: unknown"),
    ];
    for (operation, expected) in rows {
        let fault = patched(pod.clone(), &json!([operation])).unwrap_err();
        assert_eq!(fault.to_string(), expected, "{operation}");
        assert_eq!(matches!(fault, Fault::Test(_)), expected.ends_with("test failed"), "{operation}");
    }
    // A `from` that the operation does not use may have any type. Operations after a failed operation are not examined.
    let unread = json!([{"op": "add", "path": "/data", "from": 1}]);
    assert_eq!(patched(json!({}), &unread), Ok(json!({"data": null})));
    let two = json!([{"op": "test", "path": "/a"}, {"op": "remove", "path": "/b"}, {"op": "frob"}]);
    assert!(patched(json!({}), &two).unwrap_err().to_string().contains("nonexistent key: b"));
}

#[test]
fn malformed_bodies_are_bad_requests() {
    let rows = [
        (json!({}), "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (json!(["x"]), "json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
        (json!([{"op": 1}]), "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    ];
    for (patch, fault) in rows {
        let expected = format!("error decoding patch: {fault}");
        assert_eq!(json_patch(json!({}), &patch).unwrap_err().message(), expected);
    }
    assert!(matches!(merge_patch(json!({}), json!([])), Err(Refusal::BadRequest(_))));
    assert!(matches!(decode(b"{"), Err(Refusal::BadRequest(_))));
}

#[test]
fn limits_hold() {
    let many = Value::Array(vec![json!({"op": "test", "path": "/a", "value": 1}); OPERATIONS_MAX + 1]);
    let expected = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(json_patch(json!({"a": 1}), &many).unwrap_err().message(), expected);

    // Each copy doubles the document. Without a limit, forty copies would need a terabyte.
    let doubling: Vec<_> = (0..40).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/{n}x")})).collect();
    let refused = json_patch(json!({"a": {"text": "0123456789"}}), &Value::Array(doubling));
    assert_eq!(refused.unwrap_err(), does_not_apply());

    let deeper: Value = (0..500)
        .flat_map(|_| {
            [
                json!({"op": "add", "path": "/b", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/b/a"}),
                json!({"op": "move", "from": "/b", "path": "/a"}),
            ]
        })
        .collect::<Vec<_>>()
        .into();
    assert_eq!(json_patch(json!({"a": {}}), &deeper).unwrap_err(), does_not_apply());

    // The limits also apply to patches of webhooks and policies, and their authors get the limit's own message.
    let told = |original: Value, patch: Value| patched(original, &patch).unwrap_err().to_string();
    assert_eq!(told(json!({"a": 1}), many), expected);
    let copies = (0..10).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/b{n}")})).collect();
    let expected = "Unable to complete the copy, the accumulated size increase of copy is 3145734, exceeding the \
                    limit 3145728";
    assert_eq!(told(json!({"a": "x".repeat(1 << 20)}), Value::Array(copies)), expected);
    assert_eq!(told(json!({"a": {}}), deeper), TOO_MUCH);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c/~]{1,2}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn merging_twice_is_merging_once(original in any_json(), patch in any_json()) {
        if let Ok(once) = merge_patch(original, patch.clone()) {
            prop_assert_eq!(merge_patch(once.clone(), patch).unwrap(), once);
        }
    }

    #[test]
    fn no_patch_panics(
        original in any_json(),
        operations in prop::collection::vec(
            (
                "add|remove|replace|move|copy|test",
                "x?(/([a-c~-]|[0-2]|-[1-3]|~0)){0,3}",
                "x?(/([a-c]|[0-2]|-|-[1-3])){0,3}",
                any_json(),
            ),
            0..6,
        ),
    ) {
        let patch: Vec<_> = operations
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        let _ = json_patch(original, &Value::Array(patch));
    }

    /// Compares the operations with another library, which has its own document type and follows the RFC strictly.
    #[test]
    fn operations_do_what_those_of_a_library_do(
        original in any_json(),
        operations in prop::collection::vec(
            (
                "add|remove|replace|move|copy|test",
                "(/([a-c]|[0-2]|-|~0|~1)){1,3}",
                "(/([a-c]|[0-2]|-)){1,3}",
                any_json(),
            ),
            1..6,
        ),
    ) {
        let (mut ours, mut theirs) = (Patched::new(original.clone()), serde_json::Value::from(original));
        for (op, path, from, value) in operations {
            let is_read = |path: &str| {
                let place = Place::find(&ours.document, path, Slot::Kept).ok();
                place.is_some_and(|place| place.get(&ours.document).is_none())
            };
            let is_beyond_the_standard = match op.as_str() {
                "replace" | "test" => is_read(&path),
                "copy" => is_read(&from),
                "move" => path.starts_with(&format!("{from}/")),
                _ => false,
            };
            if is_beyond_the_standard {
                continue;
            }
            let operation = json!({"op": op, "path": path, "from": from, "value": value});
            let applied = ours.take(&operation).is_ok();
            let operation: json_patch::PatchOperation =
                serde_json::from_value(operation.into()).expect("an operation");
            prop_assert_eq!(applied, json_patch::patch(&mut theirs, &[operation]).is_ok());
            if !applied {
                return Ok(());
            }
            prop_assert_eq!(serde_json::Value::from(ours.document.clone()), theirs.clone());
        }
    }
}

use holdfast_value::json;
use proptest::prelude::*;

use super::*;
use crate::merge::testing;
use crate::schema::layout::Layout;

fn check_difference(old: Option<Value>, new: Value, changed: Value, removed: Value) {
    let schema = testing::schema();
    let typed = Typed::new(Layout::Table(&schema, schema.id("test.Root").unwrap()));
    let difference = typed.difference(old.as_ref(), &new);
    assert_eq!(difference.changed.into_value(), changed, "changed by {new}");
    assert_eq!(difference.removed.into_value(), removed, "removed by {new}");
}

#[test]
fn differences() {
    // A struct that is always written has no path of its own. Maps, pointers and list elements have their own paths.
    check_difference(
        None,
        json!({"data": {"a": "1"}, "spec": {"strategy": {"type": "x", "rollingUpdate": {"maxSurge": 1}},
            "containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "selector": {"matchLabels": {"a": "b"}}},
            "status": {}}),
        json!({
            "f:data": {".": {}, "f:a": {}},
            "f:spec": {
                "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}},
                "f:selector": {},
            },
        }),
        json!({}),
    );
    check_difference(
        Some(json!({"data": {"a": "1", "b": "2", "c": "3"}, "spec": {"replicas": 1}})),
        json!({"data": {"a": "1", "b": "3", "d": "4"}, "spec": {}}),
        json!({"f:data": {"f:b": {}, "f:d": {}}}),
        json!({"f:data": {"f:c": {}}, "f:spec": {"f:replicas": {}}}),
    );
    check_difference(
        Some(json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"containers": [{"name": "x"}]}})),
        json!({"metadata": {"finalizers": ["b", "c"]}, "spec": {"containers": [{"name": "y"}]}}),
        json!({"f:metadata": {"f:finalizers": {"v:\"c\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"y\"}": {".": {}, "f:name": {}}}}}),
        json!({"f:metadata": {"f:finalizers": {"v:\"a\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}}),
    );
    // No manager owns the order of a keyed list. An atomic list is one value.
    check_difference(
        Some(json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"tolerations": [{"key": "a"}]}})),
        json!({"metadata": {"finalizers": ["b", "a"]}, "spec": {"tolerations": [{"key": "b"}]}}),
        json!({"f:spec": {"f:tolerations": {}}}),
        json!({}),
    );
    // A struct that is always written may be empty or absent: the documents count as equal. A list that is null and an
    // absent list are equal too.
    check_difference(
        Some(json!({"status": {}})),
        json!({"spec": {"strategy": {}, "containers": null}}),
        json!({}),
        json!({}),
    );
    check_difference(
        Some(json!({"spec": {}})),
        json!({"spec": {"containers": []}}),
        json!({"f:spec": {"f:containers": {}}}),
        json!({}),
    );
    // The parts of unknown maps are compared separately, the items of unknown lists are not.
    check_difference(
        Some(json!({"extra": {"a": [1], "b": 1}})),
        json!({"extra": {"a": [2], "b": 1}}),
        json!({"f:extra": {"f:a": {}}}),
        json!({}),
    );
}

#[test]
fn paths_of_a_configuration() {
    let schema = testing::schema();
    let typed = Typed::new(Layout::Table(&schema, schema.id("test.Root").unwrap()));
    let config = json!({"metadata": {"labels": {"a": "b"}, "annotations": {}, "finalizers": ["f"]},
        "spec": {"strategy": {"type": "x"}, "containers": [{"name": "c", "args": ["1"]}], "raw": {"any": {"thing": 1}}}});
    assert_eq!(
        typed.paths(&config).into_value(),
        json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:annotations": {}, "f:finalizers": {"v:\"f\"": {}}},
            "f:spec": {"f:strategy": {"f:type": {}}, "f:raw": {},
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:args": {}}}},
        })
    );
}

#[test]
fn merges_of_lists_keep_both_orders() {
    let schema = testing::schema();
    let typed = Typed::new(Layout::Table(&schema, schema.id("test.Root").unwrap()));
    let rows = [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("ab", "cd", "abcd"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),
        ("axb", "ba", "xba"),
        ("abcd", "xbz", "axbzcd"),
        ("abcd", "dcba", "dcba"),
    ];
    let list = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
    for (live, config, expected) in rows {
        let document = |text| json!({"metadata": {"name": "x", "finalizers": list(text)}});
        let merged = merge(typed, &document(live), &document(config));
        let mut got = merged["metadata"]["finalizers"].clone();
        let mut wanted = json!(list(expected));
        if live == "abcd" && config == "xbz" {
            // The merge guarantees only the order inside each of the two lists, so all items are sorted before they are
            // compared.
            for list in [&mut got, &mut wanted] {
                list.as_array_mut().unwrap().sort_by_key(ToString::to_string);
            }
        }
        assert_eq!(got, wanted, "{live} with {config}");
    }
}

#[test]
fn faults_name_their_paths() {
    let schema = testing::schema();
    let typed = Typed::new(Layout::Table(&schema, schema.id("test.Root").unwrap()));
    let config = json!({
        "data": {"a": 1},
        "metadata": {"finalizers": [{}], "labels": "x"},
        "spec": {"replicas": "1", "foo": 1, "tolerations": 1, "containers": [
            {"image": "x"}, {"name": "a"}, {"name": "a"}, {"name": "b", "ports": [{"containerPort": 1, "x": 1}]}]},
    });
    assert_eq!(
        &*check(typed, &config),
        [
            ".data.a: expected string, got &value.valueUnstructured{Value:1}",
            ".metadata.finalizers: element 0: associative list without keys has an element that's a map type",
            ".metadata.labels: expected map, got &{x}",
            ".spec.containers: duplicate entries for key [name=\"a\"]",
            ".spec.containers[name=\"b\"].ports[containerPort=1,protocol=\"TCP\"].x: field not declared in schema",
            ".spec.foo: field not declared in schema",
            ".spec.replicas: expected numeric (int or float), got string",
            ".spec.tolerations: expected list, got &{1}",
        ]
    );
}

/// An unknown field is refused in every list, map and struct, whether managers own its parts or the whole.
#[test]
fn an_unknown_field_is_refused_wherever_it_stands() {
    struct Walk {
        layout: Layout<'static>,
        seen: std::collections::BTreeSet<(u32, String)>,
        checked: usize,
    }
    fn visit(walk: &mut Walk, message: crate::schema::MessageId, around: &dyn Fn(Value) -> Value) {
        let schema = crate::schema::schema();
        for field in &schema.message(message).fields {
            let Type::Message(inner) = field.ty else { continue };
            if field.json == "metadata" || field.json == "status" || !walk.seen.insert((message.0, field.json.clone()))
            {
                continue;
            }
            let keys: Vec<(String, Value)> = (field.list_map_keys.iter())
                .map(|key| {
                    let is_number =
                        schema.message(inner).field(key).is_some_and(|key| matches!(key.ty, Type::Int32 | Type::Int64));
                    (key.clone(), if is_number { json!(1) } else { json!("k") })
                })
                .collect();
            let put = |within: Value| {
                let mut value = within;
                keys.iter()
                    .for_each(|(key, known)| _ = value.as_object_mut().unwrap().insert(key.clone(), known.clone()));
                let value = match field.shape {
                    Shape::Single => value,
                    Shape::List => json!([value]),
                    Shape::Map => json!({"k": value}),
                };
                around(Value::Object([(field.json.clone(), value)].into_iter().collect()))
            };
            let document = put(json!({"noSuchField": 1}));
            let faults = check(Typed::new(walk.layout), &document);
            assert!(
                matches!(&faults[..], [fault] if fault.ends_with(".noSuchField: field not declared in schema")),
                "{document}: {faults:?}"
            );
            walk.checked += 1;
            visit(walk, inner, &put);
        }
    }
    let schema = crate::schema::schema();
    let mut walk = Walk { layout: Layout::of(schema.resources[0].message), seen: Default::default(), checked: 0 };
    for resource in &schema.resources {
        walk.layout = Layout::of(resource.message);
        visit(&mut walk, resource.message, &|document| document);
    }
    assert!(walk.checked > 300, "{}", walk.checked);
}

#[test]
fn parts_of_what_is_owned_as_a_whole_have_types() {
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "map": {"type": "object", "x-kubernetes-map-type": "atomic",
            "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        "nested": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
        "free": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"in": {"type": "object", "properties": {"b": {"type": "integer"}}}}}},
        "either": {"type": "array", "items": {"x-kubernetes-int-or-string": true}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}},
    }});
    let schema = structural::Structural::parse(&schema).unwrap();
    let typed = Typed::new(Layout::Custom(crate::schema::layout::Custom { schema: &schema, prunes: true }));
    let config = json!({
        "list": [{"a": "x"}, {"a": 1, "b": 1}, "x", null],
        "map": {"k": {"a": "x", "b": 1}},
        "nested": [[true, 1], {}],
        "free": [{"a": 1, "in": {"a": 1, "b": "x"}}],
        "either": [1, "x", {}],
        "keyed": [{"a": "x"}, {"c": 1}],
    });
    assert_eq!(
        &*check(typed, &config),
        [
            ".free[0].in.b: expected numeric (int or float), got string",
            ".keyed: element 1: associative list with keys has an element that omits all key fields [\"a\" \"b\"] (and \
             doesn't have default values for any key fields)",
            ".list[1].a: expected string, got &value.valueUnstructured{Value:1}",
            ".list[1].b: field not declared in schema",
            ".list[2]: expected map, got &{x}",
            ".map.k.a: expected numeric (int or float), got string",
            ".map.k.b: field not declared in schema",
            ".nested[0][1]: expected boolean, got &{1}",
            ".nested[1]: expected list, got &{map[]}",
        ]
    );
}

proptest! {
    #[test]
    fn a_difference_is_empty_exactly_between_equals(old in testing::any_document(), new in testing::any_document()) {
        let schema = testing::schema();
        let typed = Typed::new(Layout::Table(&schema, schema.id("test.Root").unwrap()));
        prop_assert!(typed.difference(Some(&old), &old).is_empty());
        prop_assert_eq!(typed.difference(Some(&old), &new).is_empty(), old == new);
    }

    #[test]
    fn what_was_merged_in_can_be_taken_out(live in testing::any_document(), config in testing::any_document()) {
        let schema = testing::schema();
        let typed = Typed::new(Layout::Table(&schema, schema.id("test.Root").unwrap()));
        let merged = merge(typed, &live, &config);
        prop_assert_eq!(&merge(typed, &merged, &config), &merged);
        // The merged document contains the whole configuration, except for empty values.
        let mut missing = typed.paths(&config);
        missing.remove_member(&["spec"]);
        missing.subtract(&typed.paths(&merged));
        prop_assert!(missing.paths().is_empty());
        prop_assert!(check(typed, &merged).is_empty());
        let rest = remove(typed, &merged, &typed.paths(&config));
        let mut left = typed.paths(&rest).intersection(&typed.paths(&config));
        // A struct that is always written is still there when all its fields have been removed.
        left.remove_member(&["spec"]);
        prop_assert!(left.paths().is_empty());
    }
}

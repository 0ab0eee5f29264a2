//! Tests of properties that hold for any schema and any object.

use super::{Structural, well_formed};
use crate::object::at::At;
use holdfast_value::{Map, Value, json};
use proptest::prelude::*;

/// Generates names. There are few, so that schemas and objects have some names in common.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "kind", "metadata"]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3i64).prop_map(Value::from),
        (-3.0..3.0f64).prop_map(Value::from),
        "[ab1]{0,3}".prop_map(Value::from),
    ]
}

fn fields(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(name(), of, 0..4).prop_map(|map| map.into_iter().collect::<Map>().into())
}

fn object() -> impl Strategy<Value = Value> {
    let value = scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![fields(inner.clone()), prop::collection::vec(inner, 0..4).prop_map(Value::from)]
    });
    fields(value)
}

/// Generates a schema whose keywords are valid. Each default fits the schema's type.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "default": "a", "pattern": "^[ab]*$"})),
        Just(json!({"type": "integer", "minimum": -1, "default": 1})),
        Just(json!({"type": "integer", "nullable": true, "enum": [1, 2]})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true, "default": 2})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let with = |schema: Value, extra: Value| {
            let mut schema = schema;
            if let (Value::Object(schema), Value::Object(extra)) = (&mut schema, extra) {
                schema.extend(extra);
            }
            schema
        };
        let extra = prop::sample::select(vec![
            json!({}),
            json!({"default": {}}),
            json!({"nullable": true}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"maxProperties": 5}),
        ]);
        prop_oneof![
            (fields(inner.clone()), extra)
                .prop_map(move |(of, extra)| with(json!({"type": "object", "properties": of}), extra)),
            inner.clone().prop_map(|of| json!({"type": "array", "items": of})),
            inner.prop_map(|of| json!({"type": "object", "additionalProperties": of})),
        ]
    })
}

/// Generates the properties of a root without `kind` and `metadata`, because a definition may restrict these two only
/// in a few ways.
fn root() -> impl Strategy<Value = Value> {
    fields(schema()).prop_map(|mut properties| {
        if let Value::Object(properties) = &mut properties {
            properties.retain(|name, _| !matches!(name.as_str(), "kind" | "metadata"));
        }
        json!({"type": "object", "properties": properties})
    })
}

/// Generates schema keywords with arbitrary values.
fn nonsense() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "additionalProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "default",
        "enum",
        "pattern",
        "minimum",
        "multipleOf",
        "maxLength",
        "required",
        "format",
        "nullable",
        "uniqueItems",
        "$ref",
        "definitions",
        "dependencies",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
        "rule",
        "messageExpression",
        "fieldPath",
        "metadata",
        "a",
    ]);
    let value = prop_oneof![
        4 => scalar(),
        2 => prop::sample::select(vec!["object", "array", "string", "map", "set", "date", "null"]).prop_map(Value::from),
        1 => prop::sample::select(vec!["self == oldSelf", "self.a > 1", "self.all(i, i != self[0])", ".a", "''"])
            .prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        1 => r"[\[\](){}*+?^$.|\\dwsab0-9:,&~-]{0,8}".prop_map(Value::from),
    ];
    value.prop_recursive(6, 64, 6, move |inner| {
        let map = prop::collection::btree_map(word.clone(), inner.clone(), 0..6);
        prop_oneof![
            3 => map.prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map>().into()),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

proptest! {
    #[test]
    fn settled_objects_stay(schema in root(), object in object()) {
        let schema = Structural::parse(&schema).expect("a good schema");
        let mut settled = object.clone();
        schema.prune(&mut settled);
        let mut again = settled.clone();
        prop_assert!(schema.prune(&mut again).is_empty());
        prop_assert_eq!(&again, &settled);
        let _ = schema.apply_defaults(&mut settled);
        let mut again = settled.clone();
        let _ = schema.apply_defaults(&mut again);
        prop_assert_eq!(&again, &settled);
        prop_assert!(schema.prune(&mut again).is_empty());
        if schema.validate(&object, None).is_empty() {
            prop_assert!(schema.validate(&settled, None).is_empty());
        }
        prop_assert!(schema.validate(&settled, Some(&settled)).is_empty());
    }

    #[test]
    fn nothing_panics(schema in nonsense(), object in object(), old in object()) {
        let _ = well_formed::faults(At::root(&schema), true, false);
        if let Ok(schema) = Structural::parse(&schema) {
            let mut settled = object.clone();
            schema.prune(&mut settled);
            let _ = schema.apply_defaults(&mut settled);
            schema.validate(&settled, Some(&old));
            schema.validate(&object, None);
        }
    }

    #[test]
    fn patterns_never_panic(pattern in r"[\[\](){}*+?^$.|\\dwsabpxQE0-9:,&~<>=!P-]{0,12}", text in "[ab1]{0,4}") {
        let checked = super::pattern::check(&pattern);
        let matched = super::pattern::Pattern::new(&pattern).is_match(&text).is_ok();
        prop_assert!(checked.is_ok() || !matched);
    }

    #[test]
    fn formats_never_panic(text in any::<String>(), plain in r#"[-0-9:.@/%\[\]a-fTZ"<>(), X]{0,24}"#) {
        for format in ["byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname",
            "isbn", "isbn10", "isbn13", "mac", "quantity", "rgbcolor", "ssn", "uri", "uuid", "uuid5"] {
            let format = super::Format::of("string", format).expect("a known format");
            format.accepts(&text);
            format.accepts(&plain);
        }
    }
}

/// An object with the maximum nesting of documents must not overflow the stack.
#[test]
fn depth_does_no_harm() {
    for word in ["not", "items", "additionalProperties", "default", "definitions", "anyOf"] {
        let mut schema = json!({});
        let mut object = json!({});
        for level in 0..110 {
            let inner = if word == "anyOf" { json!([schema]) } else { schema };
            schema = json!({"type": if word == "items" { "array" } else { "object" }, word: inner});
            object = if level % 2 == 0 { json!([object]) } else { json!({"a": object}) };
        }
        well_formed::faults(At::root(&schema), false, false);
        assert!(Structural::parse(&schema).is_err() || word == "default");
        let schema = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        let schema = Structural::parse(&schema).expect("a good schema");
        schema.validate(&object, None);
        let _ = schema.apply_defaults(&mut object);
        schema.prune(&mut object);
    }
}

/// Validating objects of many shapes by many rules must end soon.
#[test]
fn many_rules_end_soon() {
    let rules: Vec<Value> = (0..500).map(|n| json!({"rule": format!("!has(self.f{n}) || self.f{n} != 'x'")})).collect();
    let text = json!({"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != ''"}]});
    let fields: Map = (0..500).map(|n| (format!("f{n}"), text.clone())).collect();
    let schema = json!({"type": "object", "properties": fields, "x-kubernetes-validations": rules});
    let faults = well_formed::faults(At::root(&schema), false, false);
    assert!(faults.is_empty());
    let object = (0..500).map(|n| (format!("f{n}"), "a".into())).collect::<Map>().into();
    let schema = Structural::parse(&schema).expect("a good schema");
    assert!(schema.validate(&object, None).is_empty());
}

/// Validating alternatives inside alternatives must end soon, although each level validates everything below it twice:
/// first to count failures, then to make messages.
#[test]
fn alternatives_within_alternatives_end_soon() {
    let mut schema = json!({"required": ["b"]});
    for _ in 0..40 {
        schema = json!({"anyOf": [schema], "oneOf": [{"required": ["c"]}]});
    }
    let schema = Structural::parse(&json!({"type": "object", "properties": {"a": schema}})).expect("a good schema");
    assert!(!schema.validate(&json!({"a": {}}), None).is_empty());
}

//! Tests of the messages of failed validation.

use super::super::Structural;
use super::shown_limit;
use crate::refusal::{Cause, CauseReason};
use holdfast_value::{Value, json};

fn causes(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = Structural::parse(schema).expect("a good schema");
    schema.validate(value, old).iter().map(Cause::to_string).collect()
}

#[test]
fn each_check() {
    const X: &str = "spec.x";
    let cases: &[(Value, Value, &str)] = &[
        (
            json!({"type": "integer"}),
            json!("three"),
            r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            "spec.x: Invalid value: \"number\": spec.x in body must be of type integer: \"number\"\n\
             <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.x",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(2_147_483_648_u32),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x"#,
        ),
        (json!({"type": "integer", "format": "int32"}), json!(-2_147_483_648), ""),
        (json!({"type": "integer"}), json!(1.0), ""),
        (
            json!({"type": "number", "format": "float"}),
            json!(1e39),
            r#"<nil>: Invalid value: "": Checked value must be of type number with format float in spec.x"#,
        ),
        (json!({"type": "number", "format": "float"}), json!(3.4e38), ""),
        (json!({"type": "number", "format": "float"}), json!(-1e-60), ""),
        (json!({"type": "number", "format": "double"}), json!(1e39), ""),
        (
            json!({"type": "integer", "minimum": 0.5, "maximum": 2.5}),
            json!(3),
            "<nil>: Invalid value: \"\": Minimum boundary value must be of type integer (default format) in spec.x\n\
             <nil>: Invalid value: \"\": Maximum boundary value must be of type integer (default format) in spec.x\n\
             spec.x: Invalid value: 3: spec.x in body should be less than or equal to 2.5",
        ),
        (
            json!({"type": "integer", "format": "int32", "maximum": 4_294_967_296_u64}),
            json!(3),
            r#"<nil>: Invalid value: "": Maximum boundary value must be of type integer with format int32 in spec.x"#,
        ),
        (
            json!({"type": "integer", "multipleOf": 0.5}),
            json!(3),
            r#"<nil>: Invalid value: "": MultipleOf value must be of type integer (default format) in spec.x"#,
        ),
        (json!({"type": "number", "minimum": 1.5}), json!(1), ""),
        (json!({"type": "number", "minimum": 0}), json!(-0.0), ""),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(true),
            r#"spec.x: Invalid value: "": spec.x in body must be of type int32: """#,
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!("a"),
            r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
        ),
        (json!({"type": "number", "format": "double"}), json!(1), ""),
        (
            json!({"type": "string"}),
            json!(null),
            r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#,
        ),
        (json!({"type": "string", "nullable": true}), json!(null), ""),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!("50%"), ""),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            r#"spec.x: Unsupported value: "c": supported values: "a", "b""#,
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            r#"spec.x: Unsupported value: 3: supported values: "1", "2""#,
        ),
        (json!({"type": "number", "enum": [1]}), json!(1.0), ""),
        (json!({"type": "string", "maxLength": 2}), json!("äöü"), r#"spec.x: Too long: may not be more than 2 bytes"#),
        (json!({"type": "string", "maxLength": 3}), json!("äöü"), ""),
        (
            json!({"type": "string", "minLength": 1}),
            json!(""),
            r#"spec.x: Invalid value: "": spec.x in body should be at least 1 chars long"#,
        ),
        (
            json!({"type": "string", "pattern": "^a$"}),
            json!("b"),
            r#"spec.x: Invalid value: "b": spec.x in body should match '^a$'"#,
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("now"),
            r#"spec.x: Invalid value: "now": spec.x in body must be of type date-time: "now""#,
        ),
        (json!({"type": "string", "format": "made-up"}), json!("now"), ""),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            "spec.x: Invalid value: 1: spec.x in body should be greater than 1",
        ),
        (
            json!({"type": "integer", "maximum": 10}),
            json!(11),
            "spec.x: Invalid value: 11: spec.x in body should be less than or equal to 10",
        ),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            "spec.x: Invalid value: 1.5: spec.x in body should be less than 1.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 2}),
            json!(3),
            "spec.x: Invalid value: 3: spec.x in body should be a multiple of 2",
        ),
        (
            json!({"type": "number", "multipleOf": 0.5}),
            json!(1.25),
            "spec.x: Invalid value: 1.25: spec.x in body should be a multiple of 0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 0}),
            json!(i64::MIN),
            "spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0",
        ),
        (
            json!({"type": "integer", "multipleOf": -1}),
            json!(i64::MIN),
            "spec.x: Invalid value: -1: factor MultipleOf declared for spec.x must be positive: -1",
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {}}),
            json!([]),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {}}),
            json!([1, 2]),
            "spec.x: Too many: 2: must have at most 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            r#"spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "maxProperties": 1}),
            json!({"a": 1, "b": 2}),
            "spec.x: Too many: 2: must have at most 1 items",
        ),
        (json!({"type": "object", "required": ["a"]}), json!({}), "spec.x.a: Required value"),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"k": 1}),
            r#"spec.x.k: Invalid value: "integer": spec.x.k in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}}),
            json!({"a": 1}),
            r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#,
        ),
        (
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": 1, "b": 2}),
            r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({}),
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid\nspec.x.a: Required value",
        ),
        (json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({"b": 1}), ""),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
            json!({}),
            "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)\nspec.x.a: Required value",
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 5}]}),
            json!(6),
            "spec.x: Invalid value: 6: spec.x in body should be less than or equal to 5\n<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf)",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "a", "a"]),
            r#"spec.x[1]: Duplicate value: "a""#,
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": {"type": "object"}}),
            json!([{"n": "a"}, {"n": "b"}, {"n": "a", "v": 1}]),
            r#"spec.x[2]: Duplicate value: {"n":"a"}"#,
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            json!({"apiVersion": "v1", "metadata": {"name": "a/b"}}),
            "spec.x.kind: Required value\nspec.x.metadata.name: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            json!({"apiVersion": "v1", "kind": "P", "metadata": {"labels": {"a": "b"}}}),
            "",
        ),
    ];
    for (schema, value, expected) in cases {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}});
        let value = json!({"spec": {"x": value}});
        assert_eq!(causes(&schema, &value, None).join("\n"), *expected, "{schema} {value}");
        // An update does not fail because of violations that the old value has already.
        assert_eq!(
            causes(&schema, &value, Some(&value))
                .iter()
                .filter(|cause| !cause.contains(X) || cause.contains("in body"))
                .count(),
            0
        );
    }
}

#[test]
fn updates_answer_for_what_they_change() {
    let text = json!({"type": "string", "maxLength": 1});
    let schema = |list: Value| json!({"type": "object", "properties": {"a": text, "b": text, "list": list}});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": text}}});
    let atomic = json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": text});
    for (list, old, new, expected) in [
        (json!({}), json!({"a": "long", "b": "x"}), json!({"a": "long", "b": "y"}), ""),
        (json!({}), json!({"a": "long"}), json!({"a": "longer"}), "a: Too long: may not be more than 1 bytes"),
        (
            keyed,
            json!({"list": [{"n": "p", "v": "long"}, {"n": "q", "v": "long"}]}),
            json!({"list": [{"n": "q", "v": "long"}, {"n": "r", "v": "long"}]}),
            "list[1].v: Too long: may not be more than 1 bytes",
        ),
        (
            atomic,
            json!({"list": ["long"]}),
            json!({"list": ["long", "x"]}),
            "list[0]: Too long: may not be more than 1 bytes",
        ),
        // The update leaves the field `a` unchanged. If unchanged parts were skipped, the second alternative would
        // match.
        (
            json!({"type": "object", "properties": {"a": text, "b": text}, "oneOf": [
                {"properties": {"a": {"enum": ["x"]}, "b": {"enum": ["y"]}}},
                {"properties": {"a": {"not": {"enum": ["x"]}}}}]}),
            json!({"list": {"a": "x", "b": "y"}}),
            json!({"list": {"a": "x", "b": "z"}}),
            "<nil>: Invalid value: \"\": \"list\" must validate one and only one schema (oneOf). Found none valid\n\
             list.b: Unsupported value: \"z\": supported values: \"y\"",
        ),
    ] {
        assert_eq!(causes(&schema(list), &new, Some(&old)).join("\n"), expected, "{new}");
    }
}

#[test]
fn wrong_types_have_their_own_reason() {
    let schema = Structural::parse(&json!({"type": "object"})).expect("a good schema");
    let reasons: Vec<_> = schema.validate(&json!(1), None).iter().map(|cause| cause.reason).collect();
    assert_eq!(reasons, [CauseReason::TypeInvalid]);
}

#[test]
fn limits_are_shown_as_go_does() {
    for (number, expected) in
        [(1.0, "1"), (0.5, "0.5"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.5e-7, "1.5e-07")]
    {
        assert_eq!(shown_limit(number), expected);
    }
}

#[test]
fn many_faults_at_a_long_path_stay_small() {
    let key = "k".repeat(100_000);
    let schema = json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}});
    let object = json!({key: vec![1; 10_000]});
    let found = causes(&schema, &object, None);
    assert!(!found.is_empty() && found.len() < 100, "{}", found.len());
}

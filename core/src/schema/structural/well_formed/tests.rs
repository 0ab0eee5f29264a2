//! Tests of valid and invalid definitions. Each is made by one change of a schema.

use crate::kinds::rules::testing::{check_updates, faults};
use holdfast_value::{Value, json};

const SCHEMA: &str = "spec.validation.openAPIV3Schema";

fn definition(schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gizmos.example.test"},
        "spec": {
            "group": "example.test", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A definition whose `spec` has one field, `x`, with the given schema.
fn with(x: Value) -> Value {
    definition(json!({"type": "object", "properties": {"x": x}}))
}

fn found(definition: &Value) -> Vec<String> {
    faults(definition).into_iter().map(|fault| fault.replace(SCHEMA, "")).collect()
}

#[test]
fn good_schemas() {
    for x in [
        json!({"type": "string", "pattern": r"^[\w-.]+$", "default": "a-b"}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "default": {"a": 1}}),
        json!({"type": "object", "additionalProperties": true}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "default": "5%"}),
        json!({"x-kubernetes-int-or-string": true, "pattern": "^1",
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maxLength": 3}]}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": {"any": [1]}}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            "default": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}}}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "default": 80}}}}),
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        json!({"type": "array", "x-kubernetes-list-type": "set", "items":
            {"type": "object", "x-kubernetes-map-type": "atomic"}}),
        json!({"type": "object", "properties": {"a": {"type": "string"}, "metadata": {"type": "object"}},
            "oneOf": [{"required": ["a"]}, {"properties": {"a": {"enum": ["b"]}}}], "not": {"required": ["c"]}}),
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''", "message": "say something"}]}),
    ] {
        assert_eq!(found(&with(x.clone())), [""; 0], "{x}");
    }
    let metadata = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}});
    assert_eq!(found(&definition(json!({"type": "object", "properties": {"metadata": metadata}}))), [""; 0]);
}

#[test]
fn bad_roots() {
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &[".type: Required value: must not be empty at the root"]),
        (
            json!({"type": "string"}),
            &[
                ".type: Invalid value: \"string\": only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
                ".type: Invalid value: \"string\": must be object at the root",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            &[
                ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "string"}}}),
            &[".properties[metadata].type: Invalid value: \"string\": must be object"],
        ),
        (
            json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
            &[".properties[kind].type: Invalid value: \"integer\": must be string"],
        ),
        (
            json!({"type": "object", "properties": {"kind": {"type": "string", "default": "K"}}}),
            &[".properties[kind].default: Forbidden: must not be set in top-level kind"],
        ),
        (json!({"type": "object", "id": "x"}), &["Invalid value", ".id: Forbidden: id is not supported"]),
    ];
    for (schema, expected) in cases {
        let found = found(&definition(schema.clone()));
        assert_eq!(found.len(), expected.len(), "{schema}: {found:?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.contains(expected), "{schema}: {found}");
        }
    }
}

#[test]
fn junctors_at_the_root_speak_of_what_is_there() {
    for (junctor, expected) in [
        (
            json!({"oneOf": [{"properties": {"a": {"minimum": 1}}}]}),
            ".properties[a]: Required value: because it is defined in .oneOf[0].properties[a]",
        ),
        (
            json!({"not": {"properties": {"x": {"items": {"minimum": 1}}}}}),
            ".properties[x].items: Required value: because it is defined in .not.properties[x].items",
        ),
        (json!({"not": {"properties": {"x": {"minimum": 1}}}}), ""),
    ] {
        let mut schema = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        schema.as_object_mut().expect("an object").extend(junctor.as_object().expect("an object").clone());
        let mut definition = definition(schema);
        definition["spec"]["versions"][0]["subresources"] = Value::Null;
        assert_eq!(found(&definition).join("\n"), expected, "{junctor}");
    }
}

#[test]
fn bad_fields() {
    let cases: &[(Value, &str)] = &[
        (json!({}), ".type: Required value: must not be empty for specified object fields"),
        (json!({"type": "array"}), ".items: Required value: must be specified"),
        (
            json!({"type": "array", "items": {}}),
            ".items.type: Required value: must not be empty for specified array items",
        ),
        (
            json!({"type": "object", "additionalProperties": {}}),
            ".additionalProperties.type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            ".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
            ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "text"}),
            ".type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (json!({"type": "object", "$ref": "#/a"}), ".$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "object", "definitions": {"a": {"type": "string"}}}),
            ".definitions: Forbidden: definitions is not supported",
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            ".items: Forbidden: items must be a schema object and not an array",
        ),
        (
            json!({"type": "string", "pattern": "(?=a)"}),
            ".pattern: Invalid value: \"(?=a)\": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            ".anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "not": {"nullable": true}}),
            ".not.nullable: Forbidden: must be false to be structural",
        ),
        (
            json!({"type": "string", "allOf": [{"default": "a"}]}),
            ".allOf[0].default: Forbidden: must be undefined to be structural",
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true, "properties": {"metadata": {"type": "object"}}, "anyOf": [{"properties": {"metadata": {}}}]}),
            ".anyOf[0].properties[metadata]: Forbidden: must not be specified in a nested context",
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            ".x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            ".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            ".type: Required value: must be object if x-kubernetes-embedded-resource is true",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            ".properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "set"}),
            ".x-kubernetes-map-type: Unsupported value: \"set\": supported values: \"atomic\", \"granular\"",
        ),
        (
            json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
            ".type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            ".type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
            ".x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true}}),
            ".items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object"}}),
            ".x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
            ".x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}}),
            ".items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object"}}),
            ".x-kubernetes-list-map-keys: Invalid value: [\"a\"]: entries must all be names of item properties",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            ".items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            json!({"type": "string", "default": 1}),
            ".default: Invalid value: \"integer\": .default in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "string"}}}),
            ".default.a: Invalid value: \"integer\": a in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "default": {"b": 1}, "properties": {"a": {"type": "string"}}}),
            ".default: Invalid value: {\"b\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true, "default": {"kind": "Pod"}}),
            ".default.apiVersion: Required value",
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}),
            ".x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ),
    ];
    for (x, expected) in cases {
        let found: Vec<String> = found(&with(x.clone())).iter().map(|f| f.replacen(".properties[x]", "", 1)).collect();
        // If the default itself has the fault, and not a field in it, the message names no field.
        let expected = expected.replace(": .default in body", ":  in body");
        assert_eq!(found, [expected], "{x}");
    }
}

#[test]
fn what_was_wrong_before_binds_no_update() {
    let mut old = with(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}));
    old["status"] = json!({"storedVersions": ["v1"]});
    let x = "/spec/versions/0/schema/openAPIV3Schema/properties/x";
    let at = format!("{SCHEMA}.properties[x]");
    check_updates(
        &old,
        &[
            (&format!("{x}/description"), json!("new"), ""),
            (&format!("{x}/items/type"), json!(""), &format!("{at}.items.type: Required value")),
        ],
    );
}

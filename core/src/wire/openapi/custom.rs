//! The schemas of custom resources in OpenAPI version 2, which cannot express all that OpenAPI version 3 can.

use holdfast_value::{Map, Value, json};

/// The keywords that OpenAPI version 2 does not have, or that kubectl's validation would misread.
const DROPPED: &[&str] = &["default", "nullable", "oneOf", "anyOf", "not", "allOf", "x-kubernetes-validations"];

/// Weakens `schema` until OpenAPI version 2 can express it. All values that the schema allows stay allowed.
///
/// kubectl reads OpenAPI version 2 in its own way: a schema with properties forbids all other properties, an object
/// that preserves unknown fields counts as empty, and kubectl cannot read a list without an item schema. The type of
/// such schemas is removed, so that they allow any value.
pub(super) fn to_v2(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return json!({}) };
    let is_true = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let (keeps_unknown, nullable) = (is_true(KEEPS_UNKNOWN), is_true("nullable"));
    let loses_children = keeps_unknown || nullable;
    let loses_type = match schema.get("type").and_then(Value::as_str) {
        Some("array") => loses_children || !schema.contains_key("items"),
        Some("object") => loses_children,
        _ => nullable || is_true("x-kubernetes-int-or-string"),
    };
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match key.as_str() {
            key if DROPPED.contains(&key) => continue,
            "type" if loses_type => continue,
            "properties" | "items" if loses_children => continue,
            "properties" => properties_to_v2(value),
            "required" => match required_to_v2(schema, value) {
                Some(required) => required,
                None => continue,
            },
            "items" | "additionalProperties" if value.is_object() => to_v2(value),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

const KEEPS_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";

/// Whether the schema preserves unknown fields.
pub(super) fn keeps_unknown(schema: &Value) -> bool {
    schema[KEEPS_UNKNOWN] == true
}

/// Calls `visit` for each schema directly below this schema.
pub(super) fn each_child(schema: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(&mut *visit);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = schema.get_mut(key).filter(|child| child.is_object()) {
            visit(child);
        }
    }
}

fn properties_to_v2(properties: &Value) -> Value {
    let Some(properties) = properties.as_object() else { return json!({}) };
    properties.iter().map(|(name, schema)| (name.clone(), to_v2(schema))).collect::<Map>().into()
}

/// The required properties in the form of OpenAPI version 2; `None` if there are none. A property that may be null is
/// not among them, because kubectl reads a property with null as missing.
fn required_to_v2(schema: &Map, required: &Value) -> Option<Value> {
    let may_be_null = |schema: &Value| schema["nullable"] == true;
    if schema.get("additionalProperties").is_some_and(may_be_null) {
        return None;
    }
    let properties = schema.get("properties").unwrap_or(&Value::Null);
    let kept = required.as_array()?.iter().filter(|name| !may_be_null(&properties[name.as_str().unwrap_or_default()]));
    let kept: Vec<Value> = kept.cloned().collect();
    (!kept.is_empty()).then(|| kept.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weakens() {
        let cases = [
            (json!({"type": "string", "default": "a", "pattern": "^a"}), json!({"type": "string", "pattern": "^a"})),
            (json!({"type": "integer", "nullable": true}), json!({})),
            (
                json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
                json!({"x-kubernetes-int-or-string": true}),
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}}),
                json!({"x-kubernetes-preserve-unknown-fields": true}),
            ),
            (
                json!({"type": "object", "properties": {"default": {"type": "array", "items": {"oneOf": []}}}}),
                json!({"type": "object", "properties": {"default": {"type": "array", "items": {}}}}),
            ),
            (
                json!({"type": "array", "nullable": true, "description": "d", "items": {"type": "string"}}),
                json!({"description": "d"}),
            ),
            (
                json!({
                    "type": "object", "required": ["a", "b"],
                    "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "string"}},
                }),
                json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "string"}}}),
            ),
            (
                json!({
                    "type": "object", "required": ["a"],
                    "additionalProperties": {"type": "string", "nullable": true},
                }),
                json!({"type": "object", "additionalProperties": {}}),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(to_v2(&schema), expected, "{schema}");
        }
    }
}

//! Custom resources' schemas in version 2, which knows less than the version 3 that they are written in.

use serde_json::{Map, Value, json};

/// What version 2 has no words for, or what kubectl's validation would misread.
const DROPPED: &[&str] = &["default", "nullable", "oneOf", "anyOf", "not", "allOf", "x-kubernetes-validations"];

/// Weakens `schema` until version 2 can say it: whatever it allows stays allowed.
pub(super) fn to_v2(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return json!({}) };
    let keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let nullable = schema.get("nullable") == Some(&Value::Bool(true));
    let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (key, value) in schema {
        let untyped = nullable || int_or_string;
        let value = match key.as_str() {
            key if DROPPED.contains(&key) => continue,
            // Null is of no type here.
            "type" if untyped => continue,
            // Known properties would make all others unknown.
            "properties" | "items" | "additionalProperties" if keeps_unknown || nullable => continue,
            "required" if keeps_unknown || nullable => continue,
            "properties" => properties_to_v2(value),
            "items" | "additionalProperties" if value.is_object() => to_v2(value),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

fn properties_to_v2(properties: &Value) -> Value {
    let Some(properties) = properties.as_object() else { return json!({}) };
    properties.iter().map(|(name, schema)| (name.clone(), to_v2(schema))).collect::<Map<_, _>>().into()
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
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            ),
            (
                json!({"type": "object", "properties": {"default": {"type": "array", "items": {"oneOf": []}}}}),
                json!({"type": "object", "properties": {"default": {"type": "array", "items": {}}}}),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(to_v2(&schema), expected, "{schema}");
        }
    }
}

//! Whether a schema says the type of everything, so that objects can be pruned and merged by it.

use crate::kinds::rules::At;
use crate::refusal::Cause;
use serde_json::Value;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
/// Words of OpenAPI that definitions may not use.
const UNKNOWN: &[&str] = &["$ref", "definitions", "dependencies", "id", "patternProperties"];
const ANY: &str = "x-kubernetes-preserve-unknown-fields";
const NUMBER_OR_TEXT: &str = "x-kubernetes-int-or-string";

pub(super) fn root(schema: At, causes: &mut Vec<Cause>) {
    let ty = schema.get("type");
    if ty.is_empty() {
        causes.push(ty.required("must not be empty at the root"));
    } else if ty.text() != "object" {
        causes.push(ty.invalid("must be object at the root"));
    }
    if schema.get("nullable").is_true() {
        causes.push(schema.get("nullable").forbidden("nullable cannot be true at the root"));
    }
    within(schema, causes);
}

/// `place` is what a schema that says no type is of.
fn part(schema: At, place: &str, causes: &mut Vec<Cause>) {
    let ty = schema.get("type");
    let mixed = schema.get(NUMBER_OR_TEXT).is_true();
    if ty.is_empty() && !mixed && !schema.get(ANY).is_true() {
        causes.push(ty.required(&format!("must not be empty for specified {place}")));
    }
    if mixed && !ty.is_empty() {
        let detail = format!("must be empty if {NUMBER_OR_TEXT} is true");
        causes.push(ty.forbidden(&detail));
    }
    within(schema, causes);
}

fn within(schema: At, causes: &mut Vec<Cause>) {
    let (ty, items, properties) = (schema.get("type"), schema.get("items"), schema.get("properties"));
    let additional = schema.get("additionalProperties");
    if !ty.is_empty() && !TYPES.contains(&ty.text()) {
        causes.push(ty.not_supported(TYPES));
    }
    for word in UNKNOWN.iter().filter(|word| !schema.get(word).is_empty()) {
        causes.push(schema.get(word).forbidden(&format!("{word} is not supported")));
    }
    if schema.get("uniqueItems").is_true() {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(schema.get("uniqueItems").forbidden(detail));
    }
    if additional.value == &Value::Bool(false) {
        causes.push(additional.forbidden("additionalProperties cannot be set to false"));
    }
    if additional.is_set() && !properties.is_empty() {
        causes.push(schema.forbidden("additionalProperties and properties are mutual exclusive"));
    }
    if ty.text() == "array" && !items.is_set() {
        causes.push(items.required("must be specified"));
    }
    if items.is_set() {
        part(items, "array items", causes);
    }
    if additional.value.is_object() {
        part(additional, "additionalProperties", causes);
    }
    for (_, property) in properties.entries() {
        part(property, "object fields", causes);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::json;

    #[test]
    fn schemas() {
        let good = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gizmos.example.test"},
            "spec": {
                "group": "example.test", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": {
                        "list": {"type": "array", "items": {"type": "string"}},
                        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                        "port": {"x-kubernetes-int-or-string": true},
                        "any": {"x-kubernetes-preserve-unknown-fields": true},
                    }}},
                }}}],
            },
        });
        let schema = "spec.versions[0].schema.openAPIV3Schema";
        let of = |rest: &str| format!("{schema}{rest}");
        let at = "/spec/versions/0/schema/openAPIV3Schema";
        let to = |rest: &str| format!("{at}{rest}");
        check_rows(
            &good,
            &[
                (&to("/type"), json!(""), &of(".type: Required value: must not be empty at the root")),
                (&to("/type"), json!("string"), &of(".type: Invalid value: \"string\": must be object at the root")),
                (
                    &to("/properties/spec/type"),
                    json!(""),
                    &of(".properties[spec].type: Required value: must not be emp"),
                ),
                (
                    &to("/properties/spec/type"),
                    json!("text"),
                    &of(".properties[spec].type: Unsupported value: \"text\""),
                ),
                (
                    &to("/properties/spec/properties/list/items"),
                    json!(null),
                    &of(".properties[spec].properties[list].items: Required value: must be specified"),
                ),
                (
                    &to("/properties/spec/properties/list/uniqueItems"),
                    json!(true),
                    &of(".properties[spec].properties[list].uniqueItems: Forbidden: uniqueItems cannot be set to true"),
                ),
                (
                    &to("/properties/spec/properties/map/properties"),
                    json!({"a": {"type": "string"}}),
                    &of(".properties[spec].properties[map]: Forbidden: additionalProperties and properties are mutual"),
                ),
                (
                    &to("/properties/spec/properties/map/additionalProperties"),
                    json!(false),
                    &of(
                        ".properties[spec].properties[map].additionalProperties: Forbidden: additionalProperties canno",
                    ),
                ),
                (&to("/$ref"), json!("#/a"), &of(".$ref: Forbidden: $ref is not supported")),
            ],
        );
    }
}

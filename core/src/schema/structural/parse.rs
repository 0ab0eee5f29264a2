//! Compiles the `openAPIV3Schema` of a CustomResourceDefinition. A keyword whose value has the wrong type counts as
//! unset, because the schema table has checked the types before.

use super::default::whole_numbers;
use super::formats::Format;
use super::pattern::Pattern;
use super::rules::Rules;
use super::validate::enum_key;
use super::{Additional, Bound, Checks, ListType, Members, Structural, Type, ValueBounds};
use crate::object::at::At;
use crate::refusal::Causes;
use holdfast_value::Value;
use std::collections::BTreeSet;

/// The maximum number of nested levels of schemas. Documents have hardly more levels.
const DEPTH_MAX: usize = 100;

/// The keywords of JSON schema that structural schemas do not support.
const UNSUPPORTED: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

impl Structural {
    /// Compiles a schema. Fails for keywords that structural schemas do not support. The other rules for schemas are
    /// checked by `well_formed`.
    pub fn parse(schema: &Value) -> Result<Structural, Causes> {
        let mut causes = Causes::default();
        let parsed = parse(At::root(schema), 0, &mut causes);
        if causes.is_empty() { Ok(parsed) } else { Err(causes) }
    }
}

fn parse(at: At, depth: usize, causes: &mut Causes) -> Structural {
    if !is_supported(at, depth, causes) {
        return Structural::default();
    }
    let preserve = at.get("x-kubernetes-preserve-unknown-fields");
    let mut one = |at: At| parse(at, depth + 1, causes);
    let additional = at.get("additionalProperties");
    let items = at.get("items");
    let mut default = at.get("default").value.clone();
    // A default is changed in the same way as a value from a client, so that the two are equal.
    whole_numbers(&mut default);
    let ty = at.get("type").text();
    let mut schema = Structural {
        ty: Type::ALL.into_iter().find(|known| known.as_str() == ty),
        int_or_string: at.get("x-kubernetes-int-or-string").is_true(),
        nullable: at.get("nullable").is_true(),
        preserve_unknown_fields: preserve.is_true(),
        embedded_resource: at.get("x-kubernetes-embedded-resource").is_true(),
        properties: at.get("properties").entries().map(|(name, at)| (name.to_owned(), one(at))).collect(),
        additional_properties: match additional.value {
            Value::Bool(true) => Some(Additional::Anything),
            Value::Bool(false) => Some(Additional::Nothing),
            Value::Object(_) => Some(Additional::Like(Box::new(one(additional)))),
            _ => None,
        },
        items: items.value.is_object().then(|| Box::new(one(items))),
        list_type: match at.get("x-kubernetes-list-type").text() {
            "atomic" => Some(ListType::Atomic),
            "set" => Some(ListType::Set),
            "map" => Some(ListType::Map(texts(at.get("x-kubernetes-list-map-keys")))),
            _ => None,
        },
        atomic_map: at.get("x-kubernetes-map-type").text() == "atomic",
        rules: Rules::parse(at.get("x-kubernetes-validations")),
        has_rules: false,
        defaulted: Vec::new(),
        default_bytes: if default.is_null() { 0 } else { default.to_string().len() },
        default: Some(default).filter(|default| !default.is_null()),
        checks: checks(at, &mut one),
    };
    let defaulted = schema.properties.iter().filter(|(_, property)| property.default.is_some());
    schema.defaulted = defaulted.map(|(name, _)| name.clone()).collect();
    let additional = schema.additional_properties.as_ref().and_then(Additional::schema);
    let mut below = schema.properties.values().chain(additional).chain(schema.items.as_deref());
    schema.has_rules = schema.rules.is_some() || below.any(|schema| schema.has_rules);
    schema
}

/// Whether the schema can be compiled. Records the faults in its keywords.
fn is_supported(at: At, depth: usize, causes: &mut Causes) -> bool {
    let mut refuse = |detail: &str| causes.push_with(|| at.invalid_as("", detail));
    if depth > DEPTH_MAX {
        refuse("OpenAPIV3Schema is nested too deeply");
        return false;
    }
    if !at.value.is_object() {
        refuse("OpenAPIV3Schema must be an object");
        return false;
    }
    for word in UNSUPPORTED.iter().filter(|word| !at.get(word).is_empty()) {
        let name = if *word == "$schema" { "schema" } else { word };
        refuse(&format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if at.get("items").value.is_array() {
        refuse("OpenAPIV3Schema 'items' must be a schema, but is an array");
    }
    if at.get("x-kubernetes-preserve-unknown-fields").is_false() {
        refuse("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined");
    }
    true
}

/// The checks that a schema requires; `None` if it requires none, as most schemas.
fn checks(at: At, one: &mut impl FnMut(At) -> Structural) -> Option<Box<Checks>> {
    const WORDS: [&str; 19] = [
        "allOf",
        "anyOf",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "required",
        "uniqueItems",
        "exclusiveMinimum",
    ];
    WORDS.iter().any(|word| at.get(word).is_set()).then(|| {
        let limits = |min: &str, max: &str| ValueBounds { min: at.get(min).number(), max: at.get(max).number() };
        let bound = |limit: &str, exclusive: &str| {
            Some(Bound { limit: at.get(limit).value.as_f64()?, exclusive: at.get(exclusive).is_true() })
        };
        let members = at.get("enum");
        let not = at.get("not");
        Box::new(Checks {
            format: Format::of(at.get("type").text(), at.get("format").text()),
            members: (!members.is_empty()).then(|| Members {
                shown: members
                    .items()
                    .map(|at| at.value.as_str().map_or(at.value.to_string(), str::to_owned))
                    .collect(),
                keys: members.items().map(|at| enum_key(at.value)).collect(),
            }),
            pattern: Some(at.get("pattern").text()).filter(|text| !text.is_empty()).map(Pattern::new),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: at.get("multipleOf").value.as_f64(),
            length: limits("minLength", "maxLength"),
            items: limits("minItems", "maxItems"),
            properties: limits("minProperties", "maxProperties"),
            unique_items: at.get("uniqueItems").is_true(),
            required: once(texts(at.get("required"))),
            all_of: at.get("allOf").items().map(&mut *one).collect(),
            any_of: at.get("anyOf").items().map(&mut *one).collect(),
            one_of: at.get("oneOf").items().map(&mut *one).collect(),
            not: not.is_set().then(|| Box::new(one(not))),
        })
    })
}

/// Removes duplicate texts. The first of equal texts stays, and the order stays.
fn once(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut texts = texts;
    texts.retain(|text| seen.insert(text.clone()));
    texts
}

fn texts(list: At) -> Vec<String> {
    list.items().filter_map(|item| item.value.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Structural;
    use holdfast_value::json;

    #[test]
    fn what_no_structural_schema_says() {
        for (schema, expected) in [
            (json!(1), "OpenAPIV3Schema must be an object"),
            (json!({"$ref": "#"}), "OpenAPIV3Schema '$ref' is not supported"),
            (json!({"$schema": "x"}), "OpenAPIV3Schema 'schema' is not supported"),
            (
                json!({"properties": {"a": {"definitions": {"b": {}}}}}),
                "OpenAPIV3Schema 'definitions' is not supported",
            ),
            (json!({"items": [{}]}), "OpenAPIV3Schema 'items' must be a schema, but is an array"),
        ] {
            let causes = Structural::parse(&schema).expect_err("a bad schema");
            assert_eq!(causes.len(), 1, "{schema}");
            assert!(causes[0].message.ends_with(expected), "{schema}: {}", causes[0]);
        }
        let mut deep = json!({});
        for _ in 0..300 {
            deep = json!({"not": deep});
        }
        assert_eq!(Structural::parse(&deep).expect_err("too deep").len(), 1);
    }
}

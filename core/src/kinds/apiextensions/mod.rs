//! `apiextensions.k8s.io`: CustomResourceDefinitions.

pub mod approval;
pub mod columns;
mod convert;
pub mod defaults;
pub mod names;
mod paths;
mod validate;

use super::build::keep_old;
use super::{ApiGroup, Kind};
use crate::object::meta::Document;
use crate::refusal::Texts;
use crate::schema::structural::formats::Format;
use holdfast_value::{Value, json};
use std::collections::BTreeSet;

pub const GROUP: &str = "apiextensions.k8s.io";
/// The storage path of definitions below the prefix.
pub const STORAGE: &str = "apiextensions.k8s.io/customresourcedefinitions";
const PACKAGE: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_700, &[("v1", 15), ("v1beta1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("CustomResourceDefinition", "customresourcedefinitions")
            .versions(GROUP, PACKAGE, ["v1"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::DEFINITION)
            .short(["crd", "crds"])
            .category("api-extensions")
            .storage(STORAGE)
            .stored_in("v1beta1", u32::MAX)
            .stored_as_json()
            .columns(columns::of("CustomResourceDefinition"))
            .validate(validate::definition)
            .validate_in(["apiextensions.k8s.io/v1"], validate::newer_definition)
            .any_finalizers()
            .warnings(format_warnings)
            .claims(names::claims)
            .allocate(names::allocate)
            .begin_delete(names::begin_delete)
            .observe("CRDObservedGenerationTracking", names::observe)
            .conditional_update()
            .status()
            .generation()
            .agree(drop_empty_webhook)
            .prepare_create(prepare_create)
            .prepare_update(prepare_update),
    ]
}

/// Warns of formats that Kubernetes ignores, unless the definition had them before.
fn format_warnings(_: &Kind, definition: &Document, old: Option<&Document>) -> Texts {
    let of = |definition: &Document| {
        let versions = definition.get("spec").and_then(|spec| spec["versions"].as_array());
        let mut found = BTreeSet::new();
        for version in versions.into_iter().flatten() {
            unknown_formats(&version["schema"]["openAPIV3Schema"], &mut found);
        }
        found
    };
    let (new, before) = (of(definition), old.map(of).unwrap_or_default());
    new.difference(&before).map(|format| format!("unrecognized format \"{format}\"")).collect()
}

fn unknown_formats(schema: &Value, found: &mut BTreeSet<String>) {
    let text = |field: &str| schema[field].as_str().unwrap_or_default();
    let format = text("format");
    if !format.is_empty() && Format::of(text("type"), format).is_none() {
        found.insert(format.to_owned());
    }
    for field in ["allOf", "anyOf", "oneOf", "items"] {
        schema[field].as_array().into_iter().flatten().for_each(|within| unknown_formats(within, found));
    }
    for field in ["items", "not", "additionalProperties", "additionalItems"] {
        if schema[field].is_object() {
            unknown_formats(&schema[field], found);
        }
    }
    for field in ["properties", "patternProperties", "definitions", "dependencies"] {
        let within = schema[field].as_object().into_iter().flat_map(|fields| fields.values());
        within.for_each(|within| unknown_formats(within, found));
    }
}

/// Removes `spec.conversion.webhook` if it has neither a client configuration nor review versions.
fn drop_empty_webhook(definition: &mut Value) {
    let Some(Value::Object(conversion)) = definition.pointer_mut("/spec/conversion") else { return };
    let says_nothing = |webhook: &Value| {
        let versions = webhook["conversionReviewVersions"].as_array();
        webhook.is_object() && webhook["clientConfig"].is_null() && versions.is_none_or(Vec::is_empty)
    };
    if conversion.get("webhook").is_some_and(says_nothing) {
        conversion.remove("webhook");
    }
}

fn prepare_create(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    record_stored_version(object);
}

fn prepare_update(new: &mut Value, old: &Value) {
    keep_old(new, old, "status");
    record_stored_version(new);
}

/// Adds the storage version to `status.storedVersions`: later writes store objects in it.
fn record_stored_version(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let stored = versions.and_then(|all| all.iter().find(|v| v["storage"] == true)).map(|v| v["name"].clone());
    let Some(stored) = stored.filter(Value::is_string) else { return };
    let Some(fields) = object.as_object_mut() else { return };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    if !status["storedVersions"].is_array() {
        status["storedVersions"] = json!([]);
    }
    if let Some(names) = status["storedVersions"].as_array_mut()
        && !names.contains(&stored)
    {
        names.push(stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_say_nothing_are_told_of_once() {
        let with = |schema: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let told = |new: &Value, old: Option<&Value>| {
            let old = old.and_then(Value::as_object);
            format_warnings(&kinds().remove(0), new.as_object().expect("an object"), old).into_vec()
        };
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "format": "date-time"},
            "b": {"type": "string", "format": "odd"},
            "c": {"type": "array", "items": {"type": "integer", "format": "int32"}, "format": "set"},
            "d": {"type": "integer", "format": "int16"},
            "e": {"type": "object", "additionalProperties": {"type": "string", "format": "odd"}},
        }});
        let new = with(schema);
        let expected = ["int16", "odd", "set"].map(|format| format!("unrecognized format \"{format}\""));
        assert_eq!(told(&new, None), expected);
        let old = with(json!({"type": "object", "properties": {"x": {"type": "string", "format": "odd"}}}));
        assert_eq!(told(&new, Some(&old)), [expected[0].clone(), expected[2].clone()]);
    }
}

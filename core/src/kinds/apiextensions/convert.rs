//! Conversion of CustomResourceDefinitions. In `v1beta1`, some fields may be set once at the top of the spec; `v1` has
//! these fields in each version.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, ensure, items, rename, within};
use holdfast_value::{Value, json};

pub const DEFINITION: Convert = Convert { to_hub, from_hub };

/// The fields that `v1beta1` may have at the top of the spec: the name there, and the name in each version.
/// `selectableFields` move only with the schema: see [`from_hub`].
const SHARED: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("validation", "schema"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// The maximum number of bytes of all copies of one shared part: enough for several versions with the largest schema.
/// Versions for which no bytes are left get no copy. The limit is needed because the client chooses the number of
/// versions.
const COPIED_BYTES_MAX: usize = 8 << 20;

/// The field that makes objects keep unknown fields. Its default is true in `v1beta1` and false in `v1`.
const KEEPS: &str = "preserveUnknownFields";

fn to_hub(definition: &mut Fields) {
    let Some(spec) = within(definition, &["spec"]) else { return };
    let name = spec.remove("version");
    // The value false is the default in `v1`, so the field is left out.
    if spec.get(KEEPS) == Some(&Value::Bool(false)) {
        spec.remove(KEEPS);
    }
    let no_versions = spec.get("versions").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if let (true, Some(name)) = (no_versions, name) {
        spec.insert("versions", json!([{ "name": name, "served": true, "storage": true }]));
    }
    for (top, each) in SHARED {
        let Some(value) = spec.remove(top) else { continue };
        let copies_max = COPIED_BYTES_MAX / value.to_string().len();
        for version in items(spec, "versions").take(copies_max) {
            version.insert(each, value.clone());
        }
    }
    for version in items(spec, "versions") {
        items(version, "additionalPrinterColumns").for_each(|column| rename(column, "JSONPath", "jsonPath"));
    }
    if let Some(conversion) = within(spec, &["conversion"]) {
        for (older, hub) in
            [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
        {
            if let Some(value) = conversion.remove(older) {
                ensure(conversion, "webhook").insert(hub, value);
            }
        }
    }
}

fn from_hub(definition: &mut Fields) {
    let Some(spec) = within(definition, &["spec"]) else { return };
    // In `v1beta1` an absent field means true.
    spec.entry(KEEPS).or_insert(Value::Bool(false));
    for version in items(spec, "versions") {
        items(version, "additionalPrinterColumns").for_each(|column| rename(column, "jsonPath", "JSONPath"));
    }
    if let Some(first) = spec.get("versions").and_then(|versions| versions.get(0)).cloned() {
        if let Some(name) = first.get("name") {
            spec.insert("version", name.clone());
        }
        let mut schema_moved = false;
        for (top, each) in SHARED {
            let alike = items(spec, "versions").all(|version| version.get(each) == first.get(each));
            // Selectable fields must be next to the schema that declares them.
            if !alike || (top == "selectableFields" && !schema_moved) {
                continue;
            }
            schema_moved |= top == "validation";
            items(spec, "versions").for_each(|version| {
                version.remove(each);
            });
            spec.extend(first.get(each).map(|value| (top, value.clone())));
        }
    }
    if let Some(conversion) = within(spec, &["conversion"])
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        rename(&mut webhook, "clientConfig", "webhookClientConfig");
        conversion.extend(webhook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::{check_both_ways, check_to_hub};

    #[test]
    fn what_all_versions_share_stands_at_the_top() {
        let older = json!({ "spec": {
            "group": "example.com",
            "preserveUnknownFields": false,
            "version": "v1",
            "versions": [
                { "name": "v1", "served": true, "storage": true },
                { "name": "v2", "served": true, "storage": false },
            ],
            "validation": { "openAPIV3Schema": { "type": "object" } },
            "subresources": { "status": {} },
            "additionalPrinterColumns": [{ "name": "Size", "type": "integer", "JSONPath": ".spec.size" }],
            "selectableFields": [{ "jsonPath": ".spec.size" }],
            "conversion": {
                "strategy": "Webhook",
                "webhookClientConfig": { "url": "https://a.example" },
                "conversionReviewVersions": ["v1"],
            },
        } });
        let version = |name: &str, storage: bool| {
            json!({
                "name": name,
                "served": true,
                "storage": storage,
                "schema": { "openAPIV3Schema": { "type": "object" } },
                "subresources": { "status": {} },
                "additionalPrinterColumns": [{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }],
                "selectableFields": [{ "jsonPath": ".spec.size" }],
            })
        };
        let hub = json!({ "spec": {
            "group": "example.com",
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": { "clientConfig": { "url": "https://a.example" }, "conversionReviewVersions": ["v1"] },
            },
        } });
        check_both_ways(DEFINITION, &older, &hub);
    }

    #[test]
    fn versions_that_differ_keep_their_own() {
        let versions = json!([
            { "name": "v1", "schema": { "openAPIV3Schema": { "type": "object" } }, "selectableFields": [] },
            { "name": "v2", "schema": { "openAPIV3Schema": {} }, "selectableFields": [] },
        ]);
        check_both_ways(
            DEFINITION,
            &json!({ "spec": { "preserveUnknownFields": true, "version": "v1", "versions": versions } }),
            &json!({ "spec": { "preserveUnknownFields": true, "versions": versions } }),
        );
    }

    #[test]
    fn a_single_version_is_served_and_stored() {
        check_to_hub(
            DEFINITION,
            &json!({ "spec": { "version": "v1alpha1" } }),
            &json!({ "spec": { "versions": [{ "name": "v1alpha1", "served": true, "storage": true }] } }),
        );
    }
}

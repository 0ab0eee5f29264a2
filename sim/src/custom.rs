//! The custom kind of the simulation: the variants of its CustomResourceDefinition, and a simple model of each variant.

use holdfast_value::{Value, json};
use std::borrow::Cow;

pub const GROUP: &str = "sim.dev";
pub const PLURAL: &str = "widgets";
pub const KIND: &str = "Widget";
pub const STORAGE: &str = "sim.dev/widgets";
/// The name of the CustomResourceDefinition.
pub const DEFINITION: &str = "widgets.sim.dev";
pub const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// The finalizer that keeps a CustomResourceDefinition until the objects of its kind are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A variant of the CustomResourceDefinition: its versions, the version in which objects are stored, and the default of
/// the field `tier`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    versions: &'static [&'static str],
    stored: &'static str,
    tier: Option<&'static str>,
}

pub const VARIANTS: [Variant; 5] = [
    Variant { versions: &["v1"], stored: "v1", tier: None },
    Variant { versions: &["v1"], stored: "v1", tier: Some("basic") },
    Variant { versions: &["v1", "v2"], stored: "v1", tier: None },
    Variant { versions: &["v1", "v2"], stored: "v2", tier: Some("gold") },
    Variant { versions: &["v1", "v2"], stored: "v2", tier: None },
];

impl Variant {
    pub fn versions(&self) -> Value {
        let mut tier = json!({"type": "string"});
        if let Some(default) = self.tier {
            tier["default"] = default.into();
        }
        let spec = json!({"type": "object", "properties": {
            "replicas": {"type": "integer"}, "tier": tier, "holderIdentity": {"type": "string"},
        }, "default": {}});
        let status = json!({"type": "object", "properties": {
            "phase": {"type": "string"}, "replicas": {"type": "integer"},
        }});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        let version = |name: &&str| {
            json!({
                "name": name, "served": true, "storage": *name == self.stored,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            })
        };
        Value::Array(self.versions.iter().map(version).collect())
    }

    pub fn definition(&self) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": PLURAL, "singular": "widget", "kind": KIND, "listKind": "WidgetList"},
                "versions": self.versions(),
            },
        })
    }

    pub fn fingerprint(&self) -> String {
        fingerprint(&json!({"versions": self.versions()}))
    }

    /// Whether this variant has every version in which objects may already be stored.
    pub fn keeps(&self, definition: &Value) -> bool {
        let stored = definition["status"]["storedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        stored.into_iter().all(|version| self.versions.contains(&version))
    }
}

/// A short text that identifies the spec of a CustomResourceDefinition.
pub fn fingerprint(spec: &Value) -> String {
    let versions = spec["versions"].as_array().into_iter().flatten().map(|version| {
        let stored = if version["storage"] == true { "*" } else { "" };
        let tier = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tier"]["default"];
        format!("{}{stored} {}", version["name"].as_str().unwrap_or_default(), tier.as_str().unwrap_or("-"))
    });
    versions.collect::<Vec<_>>().join(", ")
}

/// What the CustomResourceDefinition of widgets contains at one offset of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Law<'a> {
    pub tier: Option<&'a str>,
    stored: &'a str,
    versions: &'a [Value],
}

impl Law<'_> {
    /// Reads the content of a CustomResourceDefinition.
    pub fn of(definition: &Value) -> Option<Law<'_>> {
        let versions = definition["spec"]["versions"].as_array()?;
        let stored = versions.iter().find(|version| version["storage"] == true)?;
        Some(Law {
            tier: stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tier"]["default"].as_str(),
            stored: stored["name"].as_str()?,
            versions,
        })
    }
}

/// A widget without the managed fields whose version is not served any more.
pub fn managed<'a>(law: Option<Law>, object: &'a Value) -> Cow<'a, Value> {
    let Some(law) = law else { return Cow::Borrowed(object) };
    let served = |entry: &Value| {
        let version = entry["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        version.is_some_and(|(_, version)| law.versions.iter().any(|served| served["name"] == version))
    };
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.iter().all(served) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.retain(served);
        // After the entries were removed, the core keeps one entry without fields.
        entries.push(json!({"fieldsV1": {}}));
    }
    Cow::Owned(object)
}

/// The form in which readers see a stored widget in one of its versions.
pub fn shown(law: Law, stored: &Value, version: Option<&str>) -> Value {
    let mut object = stored.clone();
    object["apiVersion"] = format!("{GROUP}/{}", version.unwrap_or(law.stored)).into();
    if object["spec"].is_null() {
        object["spec"] = json!({});
    }
    if let Some(tier) = law.tier
        && object["spec"]["tier"].is_null()
    {
        object["spec"]["tier"] = tier.into();
    }
    object
}

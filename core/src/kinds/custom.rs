//! Custom kinds: makes a kind from a CustomResourceDefinition, in the form of built-in kinds.
//!
//! Start at [`kind_of`]. A definition is read once when it changes. The schema of a version is compiled when one of its
//! objects is first written, because most definitions of a cluster are not in use.

use super::apiextensions::columns;
use super::build::{PART_RESETS, STATUS_RESETS_METADATA};
use super::registry::compare_versions;
use super::{Generation, Kind, Read, ScalePaths, Scope, Selectable, Shown, Subresource, Version};
use crate::event::Offset;
use crate::object::glance::Glance;
use crate::object::meta::{Document, metadata};
use crate::object::validate::bare_finalizers;
use crate::refusal::Texts;
use crate::schema::layout;
use crate::schema::structural::Structural;
use bytes::Bytes;
use holdfast_value::Value;
use std::sync::OnceLock;

/// The data that only custom kinds have.
pub struct Custom {
    pub uid: String,
    /// The `metadata.generation` of the definition.
    pub generation: i64,
    /// The accepted names, which may change when another definition is deleted.
    pub names: Value,
    /// The offset of the definition. Objects that were last written before the definition may have another schema or
    /// version.
    pub since: Offset,
    /// Whether the definition is being deleted, so that no new objects may be created.
    pub terminating: bool,
    /// The definition's `spec.conversion.webhook`; `None` if no webhook converts between versions.
    pub webhook: Option<Value>,
}

/// The data that only versions of custom kinds have.
pub struct CustomVersion {
    pub served: bool,
    /// The deprecation warning for all clients that use this version; `None` if the version is not deprecated.
    pub warning: Option<String>,
    pub subresources: Vec<Subresource>,
    pub shown: Shown,
    /// The kind's selectable fields in this version.
    pub selectable: Vec<String>,
    prunes: bool,
    /// The bytes in which the CustomResourceDefinition is stored.
    definition: Bytes,
    /// The index in the definition's `spec.versions`.
    index: usize,
    schema: OnceLock<Structural>,
}

impl CustomVersion {
    /// The schema, compiled on first use.
    pub fn schema(&self) -> &Structural {
        self.schema.get_or_init(|| {
            let everything = || holdfast_value::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let parsed = Structural::parse(&self.openapi().unwrap_or_else(everything));
            // The schema was accepted when the definition was written, so it parses. If the schema does not parse,
            // objects stay unchanged.
            parsed.unwrap_or_else(|_| Structural::anything())
        })
    }

    pub fn layout(&self) -> layout::Custom<'_> {
        layout::Custom { schema: self.schema(), prunes: self.prunes }
    }

    /// The schema in the definition; `None` if the definition has none, so that everything is allowed.
    pub fn openapi(&self) -> Option<Value> {
        let mut definition: Value = serde_json::from_slice(&self.definition).unwrap_or_default();
        let path = format!("/spec/versions/{}/schema/openAPIV3Schema", self.index);
        definition.pointer_mut(&path).map(Value::take)
    }
}

impl Custom {
    /// Whether an object that was last written at this offset may be stored under another schema or version.
    pub fn is_stale(&self, offset: Offset) -> bool {
        offset <= self.since
    }
}

/// Whether a storage path may belong to a custom kind. Such a path has a group before the resource.
pub fn is_storage(resource: &str) -> bool {
    resource.contains('/')
}

/// The identity of a definition's content, for detecting changes.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    uid: String,
    generation: i64,
    names: Value,
    terminating: bool,
}

impl Custom {
    pub fn identity(&self) -> Identity {
        Identity {
            uid: self.uid.clone(),
            generation: self.generation,
            names: self.names.clone(),
            terminating: self.terminating,
        }
    }
}

/// An object to be converted to another version of its kind by webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversion {
    /// The `apiVersion` to which the object is to be converted: `example.com/v2`.
    pub to: String,
    pub object: Value,
}

/// Fits a stored object to the present schema of its version. Returns the index of the version, and the object.
pub fn as_stored(kind: &Kind, object: Value) -> (usize, Value) {
    let mut object = object;
    // The named version may be missing only if the definition no longer has it: Kubernetes forbids removing a version
    // in which objects are stored.
    let named = object["apiVersion"].as_str().and_then(|version| kind.version_named(version));
    let stored = named.unwrap_or(0);
    if named.is_none() {
        // By removing the version, a user has declared that no objects are stored in it.
        object["apiVersion"] = kind.versions[stored].api_version().into();
    }
    if let Some(custom) = &kind.versions[stored].custom {
        custom.layout().prune(&mut object);
        // The stored object is within the size limit. Defaults that were added to the definition later are left out if
        // the object would exceed the limit.
        let _ = custom.layout().schema.apply_defaults(&mut object);
    }
    (stored, object)
}

/// Converts an object without a webhook: sets the new version's name, and removes fields that the schema of the new
/// version lacks.
pub fn relabelled(kind: &Kind, from: usize, to: usize, object: Value) -> Value {
    let mut object = object;
    if from != to
        && let Some(custom) = &kind.versions[to].custom
    {
        custom.layout().prune(&mut object);
        object["apiVersion"] = kind.versions[to].api_version().into();
    }
    object
}

/// The storage path of a definition's objects.
pub fn storage(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// The storage path for the definition with this name, which has the form `PLURAL.GROUP`; `None` for another form.
pub fn storage_of(definition: &str) -> Option<String> {
    let (plural, group) = definition.split_once('.')?;
    Some(storage(group, plural))
}

/// Whether a condition of a definition is true.
pub fn holds(definition: &Value, condition: &str) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["status"] == "True")
}

/// The definition's identity; `None` until the definition is established.
pub fn identity(definition: &Value) -> Option<Identity> {
    if !holds(definition, "Established") {
        return None;
    }
    let meta = &definition["metadata"];
    Some(Identity {
        uid: meta["uid"].as_str().unwrap_or_default().to_owned(),
        generation: meta["generation"].as_i64().unwrap_or(0),
        names: definition["status"]["acceptedNames"].clone(),
        terminating: meta.get("deletionTimestamp").is_some(),
    })
}

/// Makes the kind that a definition defines; `None` until the definition is established. `stored` has the definition's
/// stored bytes, and `since` is its offset.
pub fn kind_of(stored: &Bytes, since: Offset, definition: &Value) -> Option<Kind> {
    let Identity { uid, generation, names: accepted, terminating } = identity(definition)?;
    let spec = &definition["spec"];
    let group = text(spec, "group");
    // The accepted names are used, because the requested names may belong to another definition.
    let names = Some(&accepted).filter(|names| names.is_object()).unwrap_or(&spec["names"]);
    let (kind, plural) = (text(names, "kind"), text(names, "plural"));
    let scope = if text(spec, "scope") == "Cluster" { Scope::Cluster } else { Scope::Namespaced };
    let texts = |field: &str| {
        let texts = names[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut made = match scope {
        Scope::Cluster => Kind::cluster(kind, plural),
        Scope::Namespaced => Kind::namespaced(kind, plural),
    };
    made.singular = text(names, "singular").to_owned();
    made.short_names = texts("shortNames");
    made.categories = texts("categories");
    made.storage.path = storage(group, plural);
    made.storage.as_json = true;
    made.writes.generation = Generation::Changes { metadata: &[] };
    made.writes.needs_version = true;
    made.rules.any_finalizers = true;
    made.rules.warnings = Some(finalizer_warnings);
    let webhook = Some(&spec["conversion"]).filter(|conversion| conversion["strategy"] == "Webhook");
    made.custom = Some(Custom {
        uid,
        generation,
        names: accepted.clone(),
        since,
        terminating,
        webhook: webhook.map(|conversion| conversion["webhook"].clone()),
    });
    let prunes = spec["preserveUnknownFields"] != true;
    let declared = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut versions: Vec<(usize, &Value)> = declared.iter().enumerate().collect();
    // The storage version comes first, because the first version of a kind is its hub.
    versions.sort_by_key(|(_, version)| version["storage"] != true);
    for (index, version) in versions {
        let paths = version["selectableFields"].as_array().into_iter().flatten();
        let paths: Vec<&str> = paths.map(|field| text(field, "jsonPath")).collect();
        for path in &paths {
            let field = path.trim_start_matches('.');
            if made.selectors.fields.iter().all(|known| known.field != field) {
                let read = Read::at(field, "");
                made.selectors.fields.push(Selectable { field: field.to_owned(), group: None, read });
                made.selectors.indexed = Glance::default();
            }
        }
        let name = text(version, "name");
        made.versions.push(Version {
            group: group.to_owned(),
            version: name.to_owned(),
            message: message(group, name, kind),
            message_id: OnceLock::new(),
            convert: None,
            validate: None,
            orphans_dependents: false,
            deprecation: None,
            custom: Some(Box::new(CustomVersion {
                served: version["served"] == true,
                warning: warning(group, kind, version, declared),
                subresources: subresources(&version["subresources"]),
                shown: Shown { columns: columns::of_version(version), ..Shown::default() },
                selectable: paths.into_iter().map(|path| path.trim_start_matches('.').to_owned()).collect(),
                prunes,
                definition: stored.clone(),
                index,
                schema: OnceLock::new(),
            })),
        });
    }
    (!made.versions.is_empty()).then_some(made)
}

fn finalizer_warnings(_: &Kind, object: &Document, old: Option<&Document>) -> Texts {
    bare_finalizers(metadata(object), old.map(metadata))
}

/// The name of the OpenAPI definition: the group's labels in reverse, version and kind.
fn message(group: &str, version: &str, kind: &str) -> String {
    let labels: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", labels.join("."))
}

/// The warning for a deprecated version: the definition's own text, or a text that names the best version to use
/// instead.
fn warning(group: &str, kind: &str, version: &Value, versions: &[Value]) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let name = text(version, "name");
    let better = versions.iter().filter(|other| other["served"] == true && other["deprecated"] != true);
    let better = better.map(|other| text(other, "name")).filter(|other| compare_versions(other, name).is_lt());
    let instead = better.min_by(|a, b| compare_versions(a, b));
    let instead = instead.map_or_else(String::new, |better| format!("; use {group}/{better} {kind}"));
    Some(format!("{group}/{name} {kind} is deprecated{instead}"))
}

fn subresources(declared: &Value) -> Vec<Subresource> {
    let mut parts = Vec::new();
    let mut part = |name: &str, body: Option<[&str; 3]>, scale: Option<ScalePaths>| {
        let body = body.map(|[group, version, kind]| (group.to_owned(), version.to_owned(), kind.to_owned()));
        let verbs = super::build::VIEW.to_vec();
        let reset_fields = if name == "status" { STATUS_RESETS_METADATA } else { PART_RESETS };
        parts.push(Subresource { name: name.to_owned(), body, verbs, scale, validate: None, reset_fields });
    };
    if !declared["status"].is_null() {
        part("status", None, None);
    }
    if let Some(scale) = declared.get("scale").filter(|scale| !scale.is_null()) {
        let path = |field: &str| text(scale, field).trim_start_matches('.').to_owned();
        let paths = ScalePaths {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: Some(path("labelSelectorPath")).filter(|path| !path.is_empty()),
        };
        part("scale", Some(["autoscaling", "v1", "Scale"]), Some(paths));
    }
    parts
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn deprecated_versions_name_the_best_one_to_use() {
        let version = |name: &str, served: bool, deprecated: bool| {
            let mut version = json!({"name": name, "served": served});
            version["deprecated"] = deprecated.into();
            version
        };
        for (others, expected) in [
            (vec![version("v1", true, false)], "; use g/v1 K"),
            (
                vec![version("v1beta1", true, false), version("v2", true, false), version("v1", true, false)],
                "; use g/v2 K",
            ),
            // A version is not recommended if it is not served, is deprecated itself, or is older than the deprecated
            // version.
            (vec![version("v1", false, false), version("v2", true, true), version("v1alpha0", true, false)], ""),
            (Vec::new(), ""),
        ] {
            let old = version("v1alpha1", true, true);
            let found = warning("g", "K", &old, &others);
            assert_eq!(found, Some(format!("g/v1alpha1 K is deprecated{expected}")), "{others:?}");
        }
        let own = json!({"name": "v1", "deprecated": true, "deprecationWarning": "leave"});
        assert_eq!(warning("g", "K", &own, &[]).as_deref(), Some("leave"));
        assert_eq!(warning("g", "K", &version("v1", true, false), &[]), None);
    }
}

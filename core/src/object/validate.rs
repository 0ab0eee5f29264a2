//! Validation of `metadata`, which is the same for every kind: the content, and the changes that an update may make.
//!
//! A value of the wrong type counts as unset, because the schema has already refused wrong types.

pub use super::names::{NameRule, name};

use super::names;
use crate::refusal::{Cause, Causes, Texts, quoted};
use holdfast_value::{Map, Value};
use std::collections::BTreeSet;

/// The maximum number of bytes of all annotation keys and values together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
const FINALIZER_ORPHAN: &str = "orphan";
const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
/// The finalizers that Kubernetes itself uses and that have no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", FINALIZER_ORPHAN, FINALIZER_FOREGROUND];
/// The fields of `metadata` that only the server sets, in the order in which Kubernetes checks them.
const IMMUTABLE: [&str; 6] =
    ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The violations in a new object's metadata. If the name is generated, it is already in the metadata.
pub fn metadata(meta: &Map, rule: NameRule, namespaced: bool) -> Causes {
    let mut causes = object_names(meta, rule);
    if text(meta, "name").is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    }
    let namespace = text(meta, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => causes.push(Cause::required("metadata.namespace", "")),
        (true, false) => {
            for message in names::label(namespace) {
                causes.push(Cause::invalid("metadata.namespace", &Value::from(namespace), &message));
            }
        }
        (false, false) => causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type")),
        (false, true) => {}
    }
    common(meta, &mut causes);
    causes
}

/// The violations of an object's name and `generateName`.
pub fn object_names(meta: &Map, rule: NameRule) -> Causes {
    let mut causes = Causes::default();
    let (name, generate_name) = (text(meta, "name"), text(meta, "generateName"));
    if !generate_name.is_empty() {
        for message in names::generate_name(rule, generate_name) {
            causes.push(Cause::invalid("metadata.generateName", &Value::from(generate_name), &message));
        }
    }
    if !name.is_empty() {
        for message in names::name(rule, name) {
            causes.push(Cause::invalid("metadata.name", &Value::from(name), &message));
        }
    }
    causes
}

/// The violations in the metadata of an update. The caller need not call [`metadata`] too, because this function also
/// checks the rules of [`metadata`] that an update could violate.
pub fn metadata_update(new: &Map, old: &Map) -> Causes {
    let mut causes = Causes::default();
    if is_set(old.get("deletionTimestamp")) {
        no_new_finalizers(new, old, &mut causes);
    }
    let generation = |meta: &Map| meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new) < generation(old) {
        let value = Value::from(generation(new));
        causes.push(Cause::invalid("metadata.generation", &value, "must not be decremented"));
    }
    for field in IMMUTABLE {
        let (new_value, old_value) = (new.get(field), old.get(field));
        if new_value != old_value && (is_set(new_value) || is_set(old_value)) {
            let shown = new_value.cloned().unwrap_or(Value::Null);
            causes.push(Cause::invalid(format!("metadata.{field}"), &shown, "field is immutable"));
        }
    }
    common(new, &mut causes);
    causes
}

/// The finalizers that built-in kinds do not accept, because they have no domain and are not Kubernetes' own. Custom
/// resources accept them.
pub fn standard_finalizers(meta: &Map) -> Causes {
    let unknown = |finalizer: &&str| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer);
    let message = "name is neither a standard finalizer name nor is it fully qualified";
    finalizers(meta)
        .enumerate()
        .filter(|(_, finalizer)| unknown(finalizer))
        .map(|(at, finalizer)| Cause::invalid(format!("metadata.finalizers[{at}]"), &Value::from(finalizer), message))
        .collect()
}

/// Warnings about the finalizers that a write adds to a custom resource and that have no domain, because such names may
/// collide.
pub fn bare_finalizers(new: &Map, old: Option<&Map>) -> Texts {
    let had: BTreeSet<&str> = old.into_iter().flat_map(finalizers).collect();
    let is_bare = |name: &&str| !name.contains('/') && !STANDARD_FINALIZERS.contains(name) && !had.contains(name);
    let bare: BTreeSet<&str> = finalizers(new).filter(is_bare).collect();
    let told = bare.into_iter().map(|name| {
        let path = if name.contains('.') { "including a path (/) " } else { "" };
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name {path}to avoid accidental conflicts with \
             other finalizer writers",
            quoted(name)
        )
    });
    told.collect()
}

/// Checks labels. They may be at any path, such as `metadata.labels` or `spec.template.labels`.
pub fn labels(labels: &Map, path: &str, causes: &mut Causes) {
    for (key, value) in labels {
        for message in names::qualified_name(key) {
            causes.push(Cause::invalid(path, &Value::from(key.as_str()), &message));
        }
        let value = value.as_str().unwrap_or_default();
        for message in names::label_value(value) {
            causes.push(Cause::invalid(path, &Value::from(value), &message));
        }
    }
}

/// Checks annotations, which may be at any path.
pub fn annotations(annotations: &Map, path: &str, causes: &mut Causes) {
    let mut bytes = 0;
    for (key, value) in annotations {
        // The prefix of an annotation key may have upper case letters, unlike the prefix of a label key.
        let messages =
            if names::qualified_name(key).is_empty() { Vec::new() } else { names::qualified_name(&key.to_lowercase()) };
        for message in messages {
            causes.push(Cause::invalid(path, &Value::from(key.as_str()), &message));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(Cause::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}

/// Checks the rules that apply both to a new object and to an update.
fn common(meta: &Map, causes: &mut Causes) {
    if let Some(generation) = meta.get("generation").filter(|value| value.as_i64().is_some_and(|value| value < 0)) {
        causes.push(Cause::invalid("metadata.generation", generation, "must be greater than or equal to 0"));
    }
    if let Some(Value::Object(map)) = meta.get("labels") {
        labels(map, "metadata.labels", causes);
    }
    if let Some(Value::Object(map)) = meta.get("annotations") {
        annotations(map, "metadata.annotations", causes);
    }
    owner_references(meta, causes);
    let (mut orphan, mut foreground) = (false, false);
    for finalizer in finalizers(meta) {
        for message in names::qualified_name(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", &Value::from(finalizer), &message));
        }
        orphan |= finalizer == FINALIZER_ORPHAN;
        foreground |= finalizer == FINALIZER_FOREGROUND;
    }
    if orphan && foreground {
        let message = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        causes.push(Cause::invalid("metadata.finalizers", &meta["finalizers"], &message));
    }
}

fn owner_references(meta: &Map, causes: &mut Causes) {
    let Some(Value::Array(references)) = meta.get("ownerReferences") else { return };
    let mut controller: Option<(&str, &str)> = None;
    let mut is_told = false;
    for reference in references.iter().filter_map(Value::as_object) {
        let api_version = text(reference, "apiVersion");
        let parts: Vec<&str> = api_version.split('/').collect();
        // As in Kubernetes, the paths do not contain the item's index. An apiVersion with more than two parts counts as
        // having no version.
        if parts.len() > 2 || parts.last().is_none_or(|version| version.is_empty()) {
            let value = Value::from(api_version);
            causes.push(Cause::invalid("metadata.ownerReferences.apiVersion", &value, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(reference, field).is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(path, &Value::from(""), "must not be empty"));
            }
        }
        let (kind, name) = (text(reference, "kind"), text(reference, "name"));
        if api_version == "v1" && kind == "Event" {
            let message = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid("metadata.ownerReferences", &Value::Object(reference.clone()), message));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            if let Some((first_kind, first_name)) = controller {
                // The message shows the whole list, so this fault is reported only once for the list.
                if std::mem::replace(&mut is_told, true) {
                    continue;
                }
                let message = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for \
                     {first_kind}/{first_name} and {kind}/{name}"
                );
                causes.push(Cause::invalid("metadata.ownerReferences", &meta["ownerReferences"], &message));
            } else {
                controller = Some((kind, name));
            }
        }
    }
}

fn no_new_finalizers(new: &Map, old: &Map, causes: &mut Causes) {
    let present: BTreeSet<&str> = finalizers(old).collect();
    let added: BTreeSet<&str> = finalizers(new).filter(|finalizer| !present.contains(finalizer)).collect();
    if added.is_empty() {
        return;
    }
    let list = added.iter().map(|finalizer| Value::from(*finalizer).to_string()).collect::<Vec<_>>().join(", ");
    let message = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
    );
    causes.push(Cause::forbidden("metadata.finalizers", &message));
}

fn finalizers(meta: &Map) -> impl Iterator<Item = &str> {
    meta.get("finalizers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a field has a value. An empty string or null counts as absent.
fn is_set(value: Option<&Value>) -> bool {
    !matches!(value, None | Some(Value::Null)) && value.and_then(Value::as_str) != Some("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn object(value: Value) -> Map {
        match value {
            Value::Object(map) => map,
            other => panic!("not an object: {other}"),
        }
    }

    fn shown(causes: Causes) -> Vec<String> {
        causes.iter().map(Cause::to_string).collect()
    }

    #[test]
    fn good_metadata_passes() {
        let meta = json!({
            "name": "web", "generateName": "web-", "namespace": "default", "uid": "x",
            "labels": {"app.kubernetes.io/name": "web", "empty": ""},
            "annotations": {"Example.COM/Key": "any text, of any kind"},
            "finalizers": ["example.com/wait", "orphan"],
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "2", "controller": false},
            ],
        });
        let meta = object(meta);
        assert_eq!(shown(metadata(&meta, NameRule::Subdomain, true)), Vec::<String>::new());
        assert_eq!(shown(metadata_update(&meta, &meta)), Vec::<String>::new());
        assert_eq!(shown(standard_finalizers(&meta)), Vec::<String>::new());
    }

    #[test]
    fn each_broken_rule_has_its_cause() {
        let name = json!({"name": "a", "namespace": "n"});
        let rows = [
            (json!({"name": null}), "metadata.name: Required value: name or generateName is required"),
            (json!({"namespace": null}), "metadata.namespace: Required value"),
            (json!({"namespace": "a.b"}), "metadata.namespace: Invalid value: \"a.b\": must not contain dots"),
            (json!({"labels": {"": "x"}}), "metadata.labels: Invalid value: \"\": name part must be non-empty"),
            (
                json!({"labels": {"a": "x y"}}),
                "metadata.labels: Invalid value: \"x y\": a valid label must be an empty",
            ),
            (
                json!({"annotations": {"a/b/c": "x"}}),
                "metadata.annotations: Invalid value: \"a/b/c\": a valid label key",
            ),
            (
                json!({"annotations": {"a": "x".repeat(262_144)}}),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (json!({"finalizers": ["a b"]}), "metadata.finalizers: Invalid value: \"a b\": name part must consist"),
            (
                json!({"finalizers": ["orphan", "foregroundDeletion"]}),
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
                 foregroundDeletion cannot be both set",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "", "kind": "K", "name": "n", "uid": "u"}]}),
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}]}),
                "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n"}]}),
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ),
            (json!({"generation": -1}), "metadata.generation: Invalid value: -1: must be greater than or equal to 0"),
        ];
        for (change, expected) in rows {
            let mut meta = object(name.clone());
            meta.extend(object(change));
            let causes = shown(metadata(&meta, NameRule::Subdomain, true));
            assert!(causes[0].starts_with(expected), "{causes:?} does not start with {expected}");
        }
    }

    #[test]
    fn an_object_has_one_controller() {
        let reference =
            |name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
        let meta = object(json!({"name": "a", "ownerReferences": [reference("x"), reference("y")]}));
        let causes = shown(metadata(&meta, NameRule::Subdomain, false));
        assert_eq!(causes.len(), 1);
        assert!(causes[0].ends_with(
            "Only one reference can have Controller set to true. Found \"true\" in references for K/x and K/y"
        ));
    }

    #[test]
    fn a_cluster_object_has_no_namespace() {
        let meta = object(json!({"name": "a", "namespace": "n"}));
        assert_eq!(
            shown(metadata(&meta, NameRule::Subdomain, false)),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
    }

    #[test]
    fn new_finalizers_of_custom_resources_are_told_of_where_they_are_bare() {
        let meta = |finalizers: Value| object(json!({ "finalizers": finalizers }));
        let new = meta(json!(["mine", "a.b/c", "example.com", "orphan", "foregroundDeletion", "kubernetes"]));
        let told = |name: &str, path: &str| {
            format!(
                "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name {path}to avoid accidental \
                 conflicts with other finalizer writers"
            )
        };
        let named = told("example.com", "including a path (/) ");
        assert_eq!(bare_finalizers(&new, None).into_vec(), [named.clone(), told("mine", "")]);
        assert_eq!(bare_finalizers(&new, Some(&meta(json!(["mine"])))).into_vec(), [named]);
        assert!(bare_finalizers(&new, Some(&new)).is_empty());
    }

    #[test]
    fn built_in_kinds_want_finalizers_with_a_domain() {
        let meta = object(json!({"finalizers": ["kubernetes", "mine"]}));
        assert_eq!(
            shown(standard_finalizers(&meta)),
            ["metadata.finalizers[1]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it \
              fully qualified"]
        );
    }

    #[test]
    fn an_update_keeps_what_the_server_set() {
        let old = json!({"name": "a", "uid": "1", "generation": 3, "finalizers": ["x/y"]});
        let mut deleting = old.clone();
        deleting["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let change = |base: &Value, field: &str, value: Value| {
            let mut new = object(base.clone());
            new.insert(field.to_owned(), value);
            new
        };
        let rows = [
            (&old, "uid", json!("2"), vec!["metadata.uid: Invalid value: \"2\": field is immutable"]),
            (&old, "name", json!("b"), vec!["metadata.name: Invalid value: \"b\": field is immutable"]),
            (&old, "namespace", json!(""), vec![]),
            (&old, "generation", json!(2), vec!["metadata.generation: Invalid value: 2: must not be decremented"]),
            (&old, "generation", json!(4), vec![]),
            (&old, "finalizers", json!(["x/y", "x/z"]), vec![]),
            (
                &deleting,
                "deletionTimestamp",
                Value::Null,
                vec!["metadata.deletionTimestamp: Invalid value: null: field is immutable"],
            ),
            (&deleting, "finalizers", json!([]), vec![]),
            (
                &deleting,
                "finalizers",
                json!(["x/y", "x/z", "x/a"]),
                vec![
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
                      found new finalizers []string{\"x/a\", \"x/z\"}",
                ],
            ),
        ];
        for (base, field, value, expected) in rows {
            let new = change(base, field, value);
            assert_eq!(shown(metadata_update(&new, &object(base.clone()))), expected, "{field}");
        }
    }
}

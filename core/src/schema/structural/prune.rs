//! Removes the fields of custom resources that their schema does not declare.

use super::path::{Path, Step};
use super::{Structural, is_meta};
use crate::refusal::Texts;
use crate::schema::layout::object_meta;
use crate::schema::{check, schema};
use holdfast_value::Value;

impl Structural {
    /// Removes the fields that the schema does not declare. Returns their paths, up to a limit of text. At the root and
    /// in embedded resources, the fields that every resource has stay.
    pub fn prune(&self, object: &mut Value) -> Texts {
        self.prune_value(object, true)
    }

    /// Like [`Self::prune`], for a value inside an object, such as a default.
    pub(super) fn prune_value(&self, value: &mut Value, is_resource: bool) -> Texts {
        let mut paths = Texts::default();
        let is_resource = is_resource || self.embedded_resource;
        walk(Some(self), value, self.preserve_unknown_fields, is_resource, &Path::ROOT, &mut paths);
        paths.sort();
        paths
    }
}

/// Prunes a value. `keeps` is true where unknown fields are preserved.
fn walk(
    schema: Option<&Structural>,
    value: &mut Value,
    keeps: bool,
    is_resource: bool,
    path: &Path,
    pruned: &mut Texts,
) {
    let below = |schema: Option<&Structural>, keeps: bool, value: &mut Value, step: Step, pruned: &mut Texts| {
        let keeps = keeps || schema.is_some_and(|schema| schema.preserve_unknown_fields);
        let is_resource = schema.is_some_and(|schema| schema.embedded_resource);
        walk(schema, value, keeps, is_resource, &path.then(step), pruned);
    };
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            if is_resource && is_meta(name) {
                let within = path.parent.is_some();
                if within && name == "metadata" && value.is_object() {
                    fit_metadata(value, &path.then(Step::Field(name)), pruned);
                }
                return true;
            }
            let additional = schema.and_then(|schema| schema.additional_properties.as_ref());
            match (schema.and_then(|schema| schema.properties.get(name.as_str())), additional) {
                (Some(property), _) => below(Some(property), false, value, Step::Field(name), pruned),
                (None, Some(additional)) => below(additional.schema(), false, value, Step::Field(name), pruned),
                (None, None) if keeps => {}
                (None, None) => {
                    pruned.push_with(|| path.then(Step::Field(name)).text());
                    return false;
                }
            }
            true
        }),
        // If unknown fields are preserved and there is no item schema, the items stay unchanged.
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            if schema.is_none() && keeps {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                below(schema, keeps, item, Step::Index(index), pruned);
            }
        }
        _ => {}
    }
}

/// Checks and prunes the metadata of an embedded resource by the schema that all metadata has. If the value cannot be
/// metadata, it stays, and validation reports it. The metadata of the object itself was checked when the object was
/// decoded.
fn fit_metadata(metadata: &mut Value, path: &Path, pruned: &mut Texts) {
    let mut fitted = metadata.clone();
    if let Ok(unknown) = check(schema(), object_meta(), &mut fitted) {
        *metadata = fitted;
        let path = path.text();
        pruned.append(unknown.map(|unknown| format!("{path}.{unknown}")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Structural;
    use holdfast_value::{Value, json};

    #[test]
    fn what_goes_and_what_stays() {
        let text = json!({"type": "string"});
        let cases: [(Value, Value, Value, &[&str]); 8] = [
            (
                json!({"type": "object", "properties": {"a": text}}),
                json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "a": "1", "b": {"c": 1}}),
                json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "a": "1"}),
                &["b"],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": text}}}}),
                json!({"a": {"b": "1", "kind": "K", "metadata": {}}}),
                json!({"a": {"b": "1"}}),
                &["a.kind", "a.metadata"],
            ),
            (
                json!({"type": "object", "properties": {"list": {"type": "array", "items":
                    {"type": "object", "properties": {"a": text}}}}}),
                json!({"list": [{"a": "1"}, {"b": 1}, 5, [{"c": 1}]]}),
                json!({"list": [{"a": "1"}, {}, 5, [{}]]}),
                &["list[1].b", "list[3][0].c"],
            ),
            (
                json!({"type": "object", "properties": {"any": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"a": text}}}}}}),
                json!({"any": {"other": {"x": [{"y": 1}]}, "known": {"a": "1", "b": "2"}}}),
                json!({"any": {"other": {"x": [{"y": 1}]}, "known": {"a": "1"}}}),
                &["any.known.b"],
            ),
            (
                json!({"type": "object", "properties": {"map": {"type": "object", "additionalProperties":
                    {"type": "object", "properties": {"a": text}}}}}),
                json!({"map": {"k": {"a": "1", "b": "2"}}}),
                json!({"map": {"k": {"a": "1"}}}),
                &["map.k.b"],
            ),
            (
                json!({"type": "object", "properties": {"map": {"type": "object", "additionalProperties": true}}}),
                json!({"map": {"k": {"a": "1"}, "l": 1}}),
                json!({"map": {"k": {}, "l": 1}}),
                &["map.k.a"],
            ),
            (
                json!({"type": "object", "properties": {"pod": {"type": "object",
                    "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}),
                json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {"a": 1}, "b": 1}}),
                json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {}}}),
                &["pod.b", "pod.spec.a"],
            ),
            (
                json!({"type": "object", "properties": {"pods": {"type": "array", "items": {"type": "object",
                    "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}),
                json!({"metadata": {"a": 1}, "pods": [
                    {"kind": "Pod", "metadata": {"name": "n", "a": 1, "creationTimestamp": null}, "b": 1},
                    {"metadata": {"name": 1, "a": 1}}, {"metadata": null}, {"metadata": "x"}]}),
                json!({"metadata": {"a": 1}, "pods": [
                    {"kind": "Pod", "metadata": {"name": "n"}, "b": 1},
                    {"metadata": {"name": 1, "a": 1}}, {"metadata": null}, {"metadata": "x"}]}),
                &["pods[0].metadata.a"],
            ),
        ];
        for (schema, mut object, expected, paths) in cases {
            let schema = Structural::parse(&schema).expect("a good schema");
            assert_eq!(&*schema.prune(&mut object), paths);
            assert_eq!(object, expected);
        }
    }
}

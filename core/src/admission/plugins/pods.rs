//! Functions that read the parts of pods which several plug-ins need.

use crate::authz::nodes::references::{self, Reference};
use holdfast_value::Value;

pub(super) use crate::authz::nodes::references::MIRROR;

/// The items of a list; empty if the value is not a list.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn has_annotation(object: &Value, key: &str) -> bool {
    object["metadata"]["annotations"].get(key).is_some()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key).and_then(Value::as_str)
}

pub(super) fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["spec"]["volumes"])
}

/// All containers of a pod's spec: init containers first, ephemeral containers last.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().flat_map(|field| list(&spec[*field]))
}

pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Whether a pod refers to any Secret.
pub(super) fn names_secrets(pod: &Value) -> bool {
    let mut found = false;
    references::of_spec(&pod["spec"], &mut |reference| found |= matches!(reference, Reference::Secret(_)));
    found
}

//! The part of server-side apply that exists only for `kubectl`, whose users migrate from client-side apply.
//!
//! Client-side apply stores its last configuration in an annotation, and owns the fields of the configuration with the
//! operation `Update`. After its first server-side apply, kubectl itself moves the ownership to the operation `Apply`,
//! by a patch of the managed fields.

use holdfast_value::Value;

use crate::merge::field_set::FieldSet;
use crate::merge::managed::Writer;
use crate::merge::managed::entry::Entry;
use crate::merge::typed::check;

const MANAGER: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// Drops the conflicts over fields that still have the values of client-side apply. The user who now applies set these
/// values, so the conflicts would be with the user's own earlier writes.
pub(super) fn allow(conflicts: &mut Vec<(&Entry, FieldSet)>, live: Option<&Value>, writer: &Writer) {
    if writer.manager != MANAGER || conflicts.is_empty() {
        return;
    }
    let Some((live, config)) = live.and_then(|live| Some((live, annotated(live, writer)?))) else { return };
    let typed = writer.typed();
    let mut allowed = typed.paths(&config);
    let difference = typed.difference(Some(&config), live);
    allowed.subtract(&difference.changed);
    allowed.subtract(&difference.removed);
    conflicts.retain_mut(|(_, set)| {
        set.subtract(&allowed);
        !set.is_empty()
    });
}

/// Keeps the annotation of client-side apply up to date, so that users can return to client-side apply.
pub(super) fn update_annotation(merged: &mut Value, config: &Value, writer: &Writer) {
    if writer.manager != MANAGER {
        return;
    }
    let annotations = merged.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    let nested = config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(nested) = nested.and_then(Value::as_object_mut) {
        nested.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED, Value::from(format!("{config}\n")));
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATION_BYTES_MAX {
        annotations.remove(LAST_APPLIED);
    }
}

/// The configuration in the annotation; `None` if there is none, if its version is not the version of the request, or
/// if it does not match the schema.
fn annotated(live: &Value, writer: &Writer) -> Option<Value> {
    let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    let config: Value = serde_json::from_str(text).ok()?;
    let speaks = config.get("apiVersion").and_then(Value::as_str) == Some(writer.api_version);
    (speaks && check(writer.typed(), &config).is_empty()).then_some(config)
}

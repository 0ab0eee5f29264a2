//! Reads and writes object metadata directly in the document.

use holdfast_value::{Map, Value};

pub type Document = Map;

/// The finalizer that foreground deletion adds, so that the object stays until its dependents are deleted.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The finalizer of a deletion that orphans the dependents: the object stays until they no longer refer to it.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// The maximum number of levels of objects and lists inside each other in a stored document. Readers of the log, and
/// clients of lists and watches, stop at 128 levels, and a response has a few more levels than an object.
pub const DEPTH_MAX: usize = 120;

static EMPTY: std::sync::LazyLock<Document> = std::sync::LazyLock::new(Document::new);

/// The fields of a document; empty if the document is not an object.
pub fn fields(document: &Value) -> &Document {
    document.as_object().unwrap_or(&EMPTY)
}

/// The fields of a document, for changing them. A document that is not an object is replaced by an empty object.
pub fn fields_mut(document: &mut Value) -> &mut Document {
    if !document.is_object() {
        *document = Value::Object(Document::new());
    }
    match document {
        Value::Object(fields) => fields,
        _ => unreachable!("made an object just above"),
    }
}

/// The object's metadata; empty if missing.
pub fn metadata(document: &Document) -> &Document {
    document.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// The object's metadata, created if missing.
pub fn metadata_mut(document: &mut Document) -> &mut Document {
    object_mut(document, "metadata")
}

/// The object in a field. If the field is missing or not an object, it becomes an empty object.
pub fn object_mut<'a>(document: &'a mut Document, field: &str) -> &'a mut Document {
    let value = document.entry(field).or_insert_with(|| Value::Object(Document::new()));
    if !value.is_object() {
        *value = Value::Object(Document::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// The string in a field; empty if the field is absent or not a string.
pub fn text<'a>(document: &'a Document, field: &str) -> &'a str {
    document.get(field).and_then(Value::as_str).unwrap_or("")
}

pub fn name(document: &Document) -> &str {
    text(metadata(document), "name")
}

pub fn namespace(document: &Document) -> &str {
    text(metadata(document), "namespace")
}

pub fn uid(document: &Document) -> &str {
    text(metadata(document), "uid")
}

pub fn is_deleting(document: &Document) -> bool {
    metadata(document).get("deletionTimestamp").is_some_and(|v| !v.is_null())
}

pub fn finalizers(document: &Document) -> Vec<&str> {
    metadata(document)
        .get("finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub fn set_finalizers(document: &mut Document, finalizers: Vec<String>) {
    let meta = metadata_mut(document);
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers", finalizers.into());
    }
}

/// The value at a dotted path, such as `a.b.c`.
pub fn path<'a>(document: &'a Value, dotted: &str) -> Option<&'a Value> {
    dotted.split('.').try_fold(document, |value, field| value.get(field))
}

/// Sets the value at a dotted path, such as `a.b.c`. Objects on the path that do not exist are created.
pub fn set_path(document: &mut Document, dotted: &str, value: Value) {
    match dotted.split_once('.') {
        None => {
            document.insert(dotted, value);
        }
        Some((head, rest)) => set_path(object_mut(document, head), rest, value),
    }
}

/// The name that Go has for the type of a JSON value in error messages.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The number of levels of objects and lists inside each other; zero for a scalar.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// An object's key within its kind: `namespace/name`, or the name alone.
pub fn key(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => {
            let mut key = String::with_capacity(namespace.len() + 1 + name.len());
            key.push_str(namespace);
            key.push('/');
            key.push_str(name);
            key
        }
        _ => name.to_owned(),
    }
}

/// The namespace and the name in a key.
pub fn split_key(key: &str) -> (Option<&str>, &str) {
    match key.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, key),
    }
}

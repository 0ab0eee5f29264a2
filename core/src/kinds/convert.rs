//! Building blocks of conversions between versions. The folder of each group has the changes of its versions.

use crate::schema::{Field, MessageId, Shape, Type, schema};
use holdfast_value::{Map, Value};

/// A JSON object.
pub(super) type Fields = Map;

/// The name of a field in the older version, and its name in the hub version.
pub(super) type Renamed = (&'static str, &'static str);

pub(super) fn rename(fields: &mut Fields, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to, value);
    }
}

pub(super) fn rename_to_hub(fields: &mut Fields, names: &[Renamed]) {
    names.iter().for_each(|(older, hub)| rename(fields, older, hub));
}

pub(super) fn rename_from_hub(fields: &mut Fields, names: &[Renamed]) {
    names.iter().for_each(|(older, hub)| rename(fields, hub, older));
}

/// The object at a path of field names.
pub(super) fn within<'a>(fields: &'a mut Fields, path: &[&str]) -> Option<&'a mut Fields> {
    path.iter().try_fold(fields, |fields, name| fields.get_mut(*name)?.as_object_mut())
}

/// The objects in a list.
pub(super) fn items<'a>(fields: &'a mut Fields, list: &str) -> impl Iterator<Item = &'a mut Fields> {
    fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object in a field, created if missing.
pub(super) fn ensure<'a>(fields: &'a mut Fields, name: &str) -> &'a mut Fields {
    let value = fields.entry(name).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Fields::new());
    }
    value.as_object_mut().expect("just made an object")
}

/// Removes an annotation, and the map if it becomes empty.
pub(super) fn take_annotation(document: &mut Fields, name: &str) -> Option<String> {
    let metadata = within(document, &["metadata"])?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let taken = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    match taken {
        Value::String(text) => Some(text.into()),
        _ => None,
    }
}

pub(super) fn put_annotation(document: &mut Fields, name: &str, text: String) {
    ensure(ensure(document, "metadata"), "annotations").insert(name, text.into());
}

/// A list of messages as JSON text with fields in order of declaration, as Kubernetes writes it.
pub(super) fn declared(message: &str, list: Value) -> String {
    let Some(message) = schema().id(message) else { return list.to_string() };
    let mut list = list;
    let items = list.as_array_mut().into_iter().flatten();
    let shown = items.map(|item| {
        super::show_zeros(message, item);
        declared_message(message, item)
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

fn declared_message(message: MessageId, value: &Value) -> String {
    let Value::Object(fields) = value else { return value.to_string() };
    let mut known: Vec<&Field> = schema().message(message).fields.iter().collect();
    known.sort_by_key(|field| field.number);
    let shown = known.into_iter().filter_map(|field| {
        let value = fields.get(&field.json)?;
        let text = match (field.ty, field.shape, value) {
            (Type::Message(inner), Shape::Single, value) => declared_message(inner, value),
            (Type::Message(inner), Shape::List, Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(|item| declared_message(inner, item)).collect();
                format!("[{}]", items.join(","))
            }
            (_, _, value) => value.to_string(),
        };
        Some(format!("\"{}\":{text}", field.json))
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

/// Checks that two documents are the same object in two versions.
#[cfg(test)]
#[track_caller]
pub(super) fn check_both_ways(convert: super::Convert, older: &Value, hub: &Value) {
    check_to_hub(convert, older, hub);
    let mut back = hub.as_object().expect("an object").clone();
    (convert.from_hub)(&mut back);
    assert_eq!(&Value::Object(back), older, "from the hub");
}

#[cfg(test)]
#[track_caller]
pub(super) fn check_to_hub(convert: super::Convert, older: &Value, hub: &Value) {
    let mut document = older.as_object().expect("an object").clone();
    (convert.to_hub)(&mut document);
    assert_eq!(&Value::Object(document), hub, "to the hub");
}

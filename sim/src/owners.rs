//! Reads the managers of each field from `managedFields` in a simple way, and predicts the effect of server-side apply
//! on the managers.

use crate::shape::ObjectShape;
use holdfast_value::Value;
use std::collections::BTreeMap;

/// A field that several managers may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContestedField {
    Label(&'static str),
    Note(&'static str),
    Data(&'static str),
    Replicas,
    Holder,
    Tier,
}

pub const FIELDS: [ContestedField; 9] = [
    ContestedField::Label("app"),
    ContestedField::Label("tier"),
    ContestedField::Note("note"),
    ContestedField::Data("k0"),
    ContestedField::Data("k1"),
    ContestedField::Data("k2"),
    ContestedField::Replicas,
    ContestedField::Holder,
    ContestedField::Tier,
];

/// The manager, the operation and the subresource of an entry in `managedFields` that owns a field.
type Owner<'a> = (&'a str, &'a str, &'a str);

/// The manager to which an apply attributes the fields of an object that has no managed fields.
const BEFORE_FIRST_APPLY: Owner = ("before-first-apply", "Update", "");

/// Whether the object has managed fields. After an apply without fields, the object has none until the next apply.
fn is_managed(document: &Value) -> bool {
    document["metadata"]["managedFields"].as_array().is_some_and(|entries| !entries.is_empty())
}

impl ContestedField {
    fn path(self) -> Vec<&'static str> {
        match self {
            Self::Label(key) => vec!["metadata", "labels", key],
            Self::Note(key) => vec!["metadata", "annotations", key],
            Self::Data(key) => vec!["data", key],
            Self::Replicas => vec!["spec", "replicas"],
            Self::Holder => vec!["spec", "holderIdentity"],
            Self::Tier => vec!["spec", "tier"],
        }
    }

    pub fn of(self, document: &Value) -> &Value {
        self.path().into_iter().fold(document, |value, name| &value[name])
    }

    pub fn put(self, document: &mut Value, value: Value) {
        let place = self.path().into_iter().fold(document, |place, name| &mut place[name]);
        *place = value;
    }

    /// The owners of the field. If the object has no managed fields, the next apply attributes the field to
    /// `BEFORE_FIRST_APPLY`.
    pub fn owners(self, document: &Value) -> Vec<Owner<'_>> {
        if !is_managed(document) {
            let there = !self.of(document).is_null();
            return if there { vec![BEFORE_FIRST_APPLY] } else { Vec::new() };
        }
        let path: Vec<String> = self.path().into_iter().map(|name| format!("f:{name}")).collect();
        let entries = document["metadata"]["managedFields"].as_array().into_iter().flatten();
        let owns =
            |entry: &&Value| path.iter().try_fold(&entry["fieldsV1"], |set, name| set.get(name.as_str())).is_some();
        entries
            .filter(owns)
            .map(|entry| {
                let text = |field: &str| entry[field].as_str().unwrap_or("");
                (text("manager"), text("operation"), text("subresource"))
            })
            .collect()
    }
}

/// The shape with the values of these fields.
pub fn set(shape: ObjectShape, fields: &BTreeMap<ContestedField, Value>) -> ObjectShape {
    fields.iter().fold(shape, |shape, (field, value)| with(shape, *field, Some(value)))
}

fn with(shape: ObjectShape, field: ContestedField, value: Option<&Value>) -> ObjectShape {
    let mut shape = shape;
    let text = value.and_then(Value::as_str).map(str::to_owned);
    let put = |map: &mut BTreeMap<String, String>, key: &str, text: Option<String>| match text {
        Some(text) => drop(map.insert(key.to_owned(), text)),
        None => drop(map.remove(key)),
    };
    match field {
        ContestedField::Label(key) => put(&mut shape.labels, key, text),
        ContestedField::Note(key) => put(&mut shape.notes, key, text),
        ContestedField::Data(key) => put(&mut shape.data, key, text),
        ContestedField::Replicas => shape.replicas = value.and_then(Value::as_i64),
        ContestedField::Holder => shape.holder = text,
        ContestedField::Tier => shape.tier = text,
    }
    shape
}

/// The fields that an apply would change and that other managers own.
pub fn conflicts(document: &Value, fields: &BTreeMap<ContestedField, Value>, manager: &str) -> Vec<ContestedField> {
    let taken = |(field, value): &(&ContestedField, &Value)| {
        let found = field.of(document);
        !found.is_null()
            && found != *value
            && field.owners(document).iter().any(|owner| *owner != (manager, "Apply", ""))
    };
    fields.iter().filter(taken).map(|(field, _)| *field).collect()
}

/// The shape after an apply. The applied fields are set. The fields that the manager has applied before and does not
/// apply now are removed, unless another manager owns them, too.
pub fn applied(
    shape: ObjectShape,
    document: &Value,
    fields: &BTreeMap<ContestedField, Value>,
    manager: &str,
) -> ObjectShape {
    let mut after = set(shape, fields);
    for field in FIELDS.into_iter().filter(|field| !fields.contains_key(field)) {
        if field.owners(document) == [(manager, "Apply", "")] {
            after = with(after, field, None);
        }
    }
    after
}

/// As in Kubernetes, when an apply removes fields from a map, fields of this map without a manager may be removed, too.
/// A field loses its manager when a definition drops the version in which the field was set.
pub fn without_unowned(expected: ObjectShape, found: &ObjectShape, document: &Value) -> ObjectShape {
    FIELDS.into_iter().chain([ContestedField::Note("origin")]).fold(expected, |expected, field| {
        let is_gone = with(found.clone(), field, None) == *found;
        if is_gone && field.owners(document).is_empty() { with(expected, field, None) } else { expected }
    })
}

/// Checks the owners of each field. A manager that changed a field must be its only owner. A manager that applied the
/// value which the field already had must be a further owner. No other manager may gain or lose fields.
pub fn check(
    before: Option<&Value>,
    after: &Value,
    writer: Owner,
    applied: Option<&BTreeMap<ContestedField, Value>>,
) -> Result<(), String> {
    if before.is_some_and(|before| !is_managed(before)) && (applied.is_none() || !is_managed(after)) {
        return Ok(());
    }
    for field in FIELDS {
        let found = field.of(after);
        let old = before.map_or(&Value::Null, |before| field.of(before));
        let mut owners = if is_managed(after) { field.owners(after) } else { Vec::new() };
        let mut expected: Vec<Owner> = match () {
            () if found.is_null() => Vec::new(),
            () if found != old => vec![writer],
            () => before.map(|before| field.owners(before)).unwrap_or_default(),
        };
        // A value that comes from a default has no manager, or the manager that removed the value before it.
        if found != old && owners.is_empty() && applied.is_some_and(|fields| !fields.contains_key(&field)) {
            continue;
        }
        // As in Kubernetes, scaling is recorded only if a manager already owned the replicas. Zero replicas are not
        // recorded, because a Scale has no field for them.
        let unowned = before.is_some_and(|before| field.owners(before).is_empty());
        if writer.2 == "scale" && field == ContestedField::Replicas && (unowned || *found == 0) {
            continue;
        }
        if found == old
            && let Some(fields) = applied
        {
            expected.retain(|owner| *owner != writer);
            expected.extend((fields.contains_key(&field) && !found.is_null()).then_some(writer));
        }
        owners.sort_unstable();
        expected.sort_unstable();
        if owners != expected {
            let old = before.map_or(&Value::Null, |before| &before["metadata"]);
            let new = &after["metadata"];
            return Err(format!(
                "{field:?} belongs to {owners:?} and not to {expected:?}\n  before {old}\n  after  {new}"
            ));
        }
    }
    Ok(())
}

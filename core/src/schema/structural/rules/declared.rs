//! The CEL types of schemas, with size limits from which costs are estimated.

use crate::cel::Type as Seen;
use crate::cel::names::escape;
use crate::cel::types::{Declared, Field, ListKind, ObjectType};
use crate::schema::structural::{Additional, ListType, Structural, Type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum number of bytes of a request, and so of any value in a request.
pub const REQUEST_BYTES_MAX: u64 = 3 << 20;
/// The size, for cost estimates, of objects, map keys and values without a length. It is zero, as in Kubernetes.
const NO_SIZE: u64 = 0;
/// The maximum number of bytes of one character of a string.
const CHARACTER_BYTES_MAX: u64 = 4;
const DATE_BYTES: u64 = 12;
const DATE_TIME_BYTES_MAX: u64 = 32;
const DURATION_BYTES_MAX: u64 = 32;

/// A CEL type, and the number of bytes of its shortest value in JSON.
#[derive(Debug, Clone)]
pub struct Sized {
    pub ty: Seen,
    pub bytes_min: u64,
}

/// The CEL type of a schema. Returns `None` if expressions cannot access the schema: it has no type, or it is a list or
/// map of such schemas.
pub fn declared(schema: &Structural, is_resource: bool) -> Option<Sized> {
    one(schema, is_resource, &mut Names { path: ROOT.to_owned(), count: 0 })
}

/// Makes names for object types, because types with equal names are equal. The name of a type is its path in the
/// schema: `selfType.spec.ports.@idx`.
struct Names {
    path: String,
    /// The number of object types that have got a name. If a path becomes too long, because field names may be long,
    /// this number is used as the name.
    count: u32,
}

const ROOT: &str = "selfType";
const PATH_BYTES_MAX: usize = 500;

impl Names {
    fn below<T>(&mut self, step: &str, read: impl FnOnce(&mut Names) -> T) -> T {
        let length = self.path.len();
        if length < PATH_BYTES_MAX && step.len() < PATH_BYTES_MAX {
            self.path.push('.');
            self.path.push_str(step);
        } else if length < 2 * PATH_BYTES_MAX {
            self.path.push_str(&".".repeat(2 * PATH_BYTES_MAX - length));
        }
        let read = read(self);
        self.path.truncate(length);
        read
    }

    fn next(&mut self) -> String {
        self.count += 1;
        if self.path.len() < 2 * PATH_BYTES_MAX { self.path.clone() } else { format!("{ROOT}{}", self.count) }
    }
}

fn one(schema: &Structural, is_resource: bool, names: &mut Names) -> Option<Sized> {
    let (ty, bytes_min, max_size) = plain(schema, is_resource, names)?;
    let list = match &schema.list_type {
        Some(ListType::Set) => ListKind::Set,
        Some(ListType::Map(keys)) => ListKind::Map(keys.clone()),
        Some(ListType::Atomic) | None => ListKind::Atomic,
    };
    let ty = Seen::Declared(Arc::new(Declared { ty, max_size, nullable: schema.nullable, list }));
    Some(Sized { ty, bytes_min })
}

fn plain(schema: &Structural, is_resource: bool, names: &mut Names) -> Option<(Seen, u64, Option<u64>)> {
    let checks = schema.checks.as_deref();
    let length_max = checks.and_then(|checks| checks.length.max).map(not_negative);
    let characters_max = length_max.map(|max| max.saturating_mul(CHARACTER_BYTES_MAX));
    if schema.int_or_string {
        return Some((Seen::Dyn, 1, Some(characters_max.unwrap_or(REQUEST_BYTES_MAX - 2))));
    }
    Some(match schema.ty? {
        Type::Array => {
            let items = schema.items.as_deref()?;
            let item = names.below("@idx", |names| one(items, items.embedded_resource, names))?;
            let max = checks.and_then(|checks| checks.items.max).map(not_negative);
            let max = max.unwrap_or((REQUEST_BYTES_MAX - 2) / (item.bytes_min + 1));
            (Seen::list(item.ty), 2, Some(max))
        }
        Type::Object => match &schema.additional_properties {
            Some(Additional::Like(each)) => {
                let value = names.below("@elem", |names| one(each, each.embedded_resource, names))?;
                let max = checks.and_then(|checks| checks.properties.max).map(not_negative);
                let max = max.unwrap_or((REQUEST_BYTES_MAX - 2) / (value.bytes_min + 6));
                (Seen::map(Seen::String.sized(NO_SIZE), value.ty), 2, Some(max))
            }
            _ => object(schema, is_resource, names),
        },
        Type::Boolean => (Seen::Bool, 4, Some(NO_SIZE)),
        Type::Integer => (Seen::Int, 1, Some(NO_SIZE)),
        Type::Number => (Seen::Double, 1, Some(NO_SIZE)),
        Type::String => match checks.and_then(|checks| checks.format.as_ref()).map(|format| &*format.name) {
            Some("byte") => (Seen::Bytes, 2, Some(length_max.unwrap_or(REQUEST_BYTES_MAX - 2))),
            Some("duration") => (Seen::Duration, 3, Some(DURATION_BYTES_MAX)),
            Some("date") => (Seen::Timestamp, DATE_BYTES, Some(DATE_BYTES)),
            Some("date-time") => (Seen::Timestamp, 21, Some(DATE_TIME_BYTES_MAX)),
            _ => {
                let members = checks.and_then(|checks| checks.members.as_ref());
                let longest = members.and_then(|members| members.shown.iter().map(|text| text.len() as u64).max());
                (Seen::String, 2, Some(characters_max.or(longest).unwrap_or(REQUEST_BYTES_MAX - 2)))
            }
        },
    })
}

fn object(schema: &Structural, is_resource: bool, names: &mut Names) -> (Seen, u64, Option<u64>) {
    let checks = schema.checks.as_deref();
    let required: BTreeSet<&str> =
        checks.map(|checks| checks.required.iter().map(String::as_str).collect()).unwrap_or_default();
    let mut bytes_min = 2;
    let mut fields = Vec::new();
    let implied = is_resource && !says_own_names(schema);
    let mut add = |json: &str, field: Sized, has_default: bool| {
        if required.contains(json) && !has_default {
            bytes_min += json.len() as u64 + field.bytes_min + 4;
        }
        if let Some(name) = escape(json) {
            fields.push(Field { name, json: json.to_owned(), ty: field.ty });
        }
    };
    for (json, property) in &schema.properties {
        if implied && super::super::is_meta(json) {
            continue;
        }
        let step = escape(json).unwrap_or_else(|| json.clone());
        if let Some(field) = names.below(&step, |names| one(property, property.embedded_resource, names)) {
            add(json, field, property.default.is_some());
        }
    }
    if implied {
        let text = || Seen::String.sized(REQUEST_BYTES_MAX - 2);
        let metadata =
            Seen::object(&names.below("metadata", Names::next), [("name", text()), ("generateName", text())])
                .sized(NO_SIZE);
        add("apiVersion", Sized { ty: text(), bytes_min: 2 }, false);
        add("kind", Sized { ty: text(), bytes_min: 2 }, false);
        add("metadata", Sized { ty: metadata, bytes_min: 2 }, false);
    }
    (Seen::Object(Arc::new(ObjectType::new(names.next(), fields))), bytes_min, Some(NO_SIZE))
}

/// Whether the schema of a resource itself declares the fields that expressions can access in every resource.
fn says_own_names(schema: &Structural) -> bool {
    let is = |schema: &Structural, field: &str, ty: Type| {
        schema.properties.get(field).is_some_and(|property| property.ty == Some(ty))
    };
    is(schema, "kind", Type::String)
        && is(schema, "apiVersion", Type::String)
        && is(schema, "metadata", Type::Object)
        && schema
            .properties
            .get("metadata")
            .is_some_and(|metadata| is(metadata, "name", Type::String) && is(metadata, "generateName", Type::String))
}

fn not_negative(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

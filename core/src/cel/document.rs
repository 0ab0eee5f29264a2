//! Reads documents as CEL values of their schema's types, and accesses lists and maps in all representations.

use super::types::{ListKind, ObjectType, Type};
use super::value::{Duration, EvalError, Key, List, Text, Timestamp, Value};
use crate::schema::structural::formats;
use base64::Engine;
use holdfast_value::Value as Json;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

const DYN: &Type = &Type::Dyn;

impl<'a> Value<'a> {
    /// Reads JSON as a value of type `ty`. The parts of objects and arrays are converted when an expression accesses
    /// them.
    pub fn json(json: &'a Json, ty: &'a Type) -> Result<Value<'a>, EvalError> {
        let invalid = |expected: &str| {
            let got = match json {
                Json::Null => "null",
                Json::Bool(_) => "bool",
                Json::Number(number) if number.is_f64() => "float64",
                Json::Number(_) => "int64",
                Json::String(_) => "string",
                Json::Array(_) => "[]interface {}",
                Json::Object(_) => "map[string]interface {}",
            };
            EvalError::new(format!("invalid data, expected {expected}, got {got}"))
        };
        Ok(match (ty.plain(), json) {
            (_, Json::Null) => match ty.declared() {
                Some(declared) if !declared.nullable => {
                    return Err(EvalError::new("invalid data, got null for schema with nullable=false"));
                }
                _ => Value::Null,
            },
            (Type::Dyn, Json::Array(_) | Json::Object(_)) => Value::Json(json, DYN),
            (Type::List(_), Json::Array(_)) | (Type::Map(_) | Type::Object(_), Json::Object(_)) => {
                Value::Json(json, ty)
            }
            (Type::Dyn | Type::Bool, Json::Bool(value)) => Value::Bool(*value),
            (Type::Dyn | Type::String, Json::String(text)) => Value::String(Text::Borrowed(text)),
            (Type::Dyn, Json::Number(number)) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Value::Int(int),
                (None, Some(uint)) => Value::Uint(uint),
                (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            (Type::Int, Json::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => Value::Int(int),
                // A document may write a whole number with a fraction, such as `1.0`.
                (None, Some(float)) if float.fract() == 0.0 && float.abs() < 9.2e18 => Value::Int(float as i64),
                _ => return Err(invalid("int")),
            },
            (Type::Uint, Json::Number(number)) => Value::Uint(number.as_u64().ok_or_else(|| invalid("uint"))?),
            (Type::Double, Json::Number(number)) => Value::Double(number.as_f64().ok_or_else(|| invalid("double"))?),
            (Type::Bytes, Json::String(text)) => match base64::engine::general_purpose::STANDARD.decode(text) {
                Ok(bytes) => Value::Bytes(bytes.into()),
                Err(_) => return Err(EvalError::new(format!("{text:?} is not valid base64"))),
            },
            (Type::Duration, Json::String(text)) => {
                match Duration::parse(text).or_else(|| formats::worded_duration(text).map(Duration)) {
                    Some(duration) => Value::Duration(duration),
                    None => return Err(EvalError::new(format!("invalid duration {text}"))),
                }
            }
            (Type::Timestamp, Json::String(text)) => {
                match Timestamp::parse(text).or_else(|| Timestamp::parse_date(text)) {
                    Some(timestamp) => Value::Timestamp(timestamp),
                    None => return Err(EvalError::new(format!("failed to parse time {text}"))),
                }
            }
            (plain, _) => return Err(invalid(&plain.to_string())),
        })
    }

    /// The number of items, if the value is a list.
    pub fn list_len(&self) -> Option<u64> {
        match self {
            Value::List(list) => Some(list.len()),
            Value::Json(Json::Array(items), _) => Some(items.len() as u64),
            _ => None,
        }
    }

    /// The item of a list at `index`; `None` if the value is not a list or has no such item.
    pub fn item(&self, index: u64) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Value::List(List::Items(items) | List::Keyed(items, _)) => {
                items.get(usize::try_from(index).ok()?).cloned().map(Ok)
            }
            Value::List(List::Joined(joined)) => {
                // A chain of concatenations may be long, so this loop follows it, where recursion would exhaust the
                // stack.
                let (mut joined, mut index) = (joined, index);
                loop {
                    let left = joined.left.list_len()?;
                    let side = if index < left { &joined.left } else { &joined.right };
                    index = if index < left { index } else { index - left };
                    match side {
                        Value::List(List::Joined(inner)) => joined = inner,
                        side => return side.item(index),
                    }
                }
            }
            Value::Json(Json::Array(items), ty) => {
                let item = items.get(usize::try_from(index).ok()?)?;
                Some(Value::json(item, item_type(ty)))
            }
            _ => None,
        }
    }

    /// All items of a list, in order.
    pub fn items(&self) -> Items<'_, 'a> {
        Items { stack: vec![(self, 0)] }
    }

    pub fn is_map(&self) -> bool {
        matches!(self, Value::Map(_) | Value::Json(Json::Object(_), _))
    }

    /// The value that a map has for a key, or that an object has in a field; `None` if there is none.
    pub fn get(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
        match (self, key) {
            (Value::Json(Json::Object(_), _), Value::String(text)) => self.field(text),
            (Value::Json(Json::Object(_), _), _) => Ok(None),
            (Value::Map(map), key) => {
                let Some(key) = Key::of(key) else { return Ok(None) };
                Ok(key.alike().into_iter().flatten().chain([key]).find_map(|key| map.get(&key)).cloned())
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// The value that an object has in a field, or that a map has for a string key; `None` if there is none.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, EvalError> {
        match self {
            Value::Json(Json::Object(map), ty) => {
                let (json, ty) = match ty.plain() {
                    Type::Object(object) => match object.field(name) {
                        // A null field counts as absent.
                        Some(field) if map.get(&field.json).is_some_and(Json::is_null) => return Ok(None),
                        Some(field) => (field.json.as_str(), &field.ty),
                        None => return Ok(None),
                    },
                    Type::Map(entry) => (name, &entry.1),
                    _ => (name, DYN),
                };
                map.get(json).map(|value| Value::json(value, ty)).transpose()
            }
            Value::Map(map) => Ok(map.get(&Key::String(Text::from(name.to_owned()))).cloned()),
            Value::Made(made) => Ok(made.fields.get(name).cloned()),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// A map's keys, or the names of the fields present in an object.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Value::Map(map) => map.keys().map(Key::value).collect(),
            Value::Json(Json::Object(map), ty) => match ty.plain() {
                Type::Object(object) => {
                    let present = object.fields().iter().filter(|field| map.contains_key(&field.json));
                    present.map(|field| Value::text(field.name.as_str())).collect()
                }
                _ => map.keys().map(|key| Value::text(key.as_str())).collect(),
            },
            _ => Vec::new(),
        }
    }

    /// How the list is compared and concatenated. Only lists of documents declare a kind.
    pub fn list_kind(&self) -> &'a ListKind {
        match self {
            Value::Json(Json::Array(_), ty) => ty.declared().map_or(&ListKind::Atomic, |declared| &declared.list),
            Value::List(List::Keyed(_, kind)) => kind,
            _ => &ListKind::Atomic,
        }
    }

    /// The value's type without type parameters.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) | Value::Json(Json::Array(_), _) => Type::list(Type::Dyn),
            // An expression that asks for the type of an object gets the type of a map, as in Kubernetes.
            Value::Json(..) | Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Type(_) => Type::type_of(Type::Dyn),
            Value::Opaque(opaque) => Type::Opaque(opaque.type_name()),
            Value::Made(made) => Type::Object(Arc::new(ObjectType::open(made.name.as_str()))),
        }
    }

    pub fn map(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        Value::Map(Rc::new(entries))
    }
}

fn item_type(ty: &Type) -> &Type {
    match ty.plain() {
        Type::List(item) => item,
        _ => DYN,
    }
}

/// Iterates over the items of a list; see [`Value::items`].
pub struct Items<'v, 'a> {
    stack: Vec<(&'v Value<'a>, u64)>,
}

impl<'a> Iterator for Items<'_, 'a> {
    type Item = Result<Value<'a>, EvalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (list, at) = self.stack.pop()?;
            if let Value::List(List::Joined(joined)) = list {
                self.stack.push((&joined.right, 0));
                self.stack.push((&joined.left, 0));
            } else if let Some(item) = list.item(at) {
                self.stack.push((list, at + 1));
                return Some(item);
            }
        }
    }
}

impl<'a> Key<'a> {
    /// A value as the key of a map; `None` if values of its type cannot be keys.
    pub fn of(value: &Value<'a>) -> Option<Key<'a>> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(*value),
            Value::Uint(value) => Key::Uint(*value),
            Value::String(text) => Key::String(text.clone()),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => Key::Int(*value as i64),
            _ => return None,
        })
    }

    /// A key in a constant map, which may be null or have a fraction.
    pub fn of_constant(value: &Value<'a>) -> Result<Key<'a>, EvalError> {
        match value {
            Value::Null => Ok(Key::Null),
            Value::Double(number) if Key::of(value).is_none() => Ok(Key::Fraction(number.to_bits())),
            value => Key::of(value).ok_or_else(|| {
                let ty = value.type_of();
                EvalError::new(format!("unsupported key type: {}", ty.value_name()))
            }),
        }
    }

    pub fn value(&self) -> Value<'a> {
        match self {
            Key::Null => Value::Null,
            Key::Fraction(bits) => Value::Double(f64::from_bits(*bits)),
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::String(text) => Value::String(text.clone()),
        }
    }

    /// A number key as a key of the other integer type (int or uint). The outer option is `None` if the key is no
    /// integer; the inner option is `None` if the other type cannot represent the number.
    fn alike(&self) -> Option<Option<Key<'a>>> {
        match self {
            Key::Int(value) => Some(u64::try_from(*value).ok().map(Key::Uint)),
            Key::Uint(value) => Some(i64::try_from(*value).ok().map(Key::Int)),
            _ => None,
        }
    }
}

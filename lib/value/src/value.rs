//! A value of JSON.

use crate::{CompactString, Index, Map, Number};
use std::borrow::Cow;
use std::fmt;
use std::ops;
use std::str::FromStr;

/// A JSON value, which may be a whole document or a part of one.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(CompactString),
    Array(Vec<Value>),
    Object(Map),
}

static NULL: Value = Value::Null;

impl Value {
    /// The item or field; `None` if it does not exist, or if the value is neither an array nor an object.
    pub fn get<I: Index>(&self, index: I) -> Option<&Value> {
        index.of(self)
    }

    pub fn get_mut<I: Index>(&mut self, index: I) -> Option<&mut Value> {
        index.of_mut(self)
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn is_boolean(&self) -> bool {
        matches!(self, Value::Bool(_))
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Value::Number(_))
    }

    pub fn is_i64(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_i64())
    }

    pub fn is_u64(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_u64())
    }

    pub fn is_f64(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_f64())
    }

    pub fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    pub fn is_array(&self) -> bool {
        matches!(self, Value::Array(_))
    }

    pub fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }

    pub fn as_null(&self) -> Option<()> {
        self.is_null().then_some(())
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    pub fn as_number(&self) -> Option<&Number> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }

    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.as_i64()
    }

    pub fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    pub fn as_f64(&self) -> Option<f64> {
        self.as_number()?.as_f64()
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    pub fn as_object(&self) -> Option<&Map> {
        if let Value::Object(fields) = self { Some(fields) } else { None }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Value::Object(fields) = self { Some(fields) } else { None }
    }

    /// The value at a JSON pointer (RFC 6901).
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        tokens(pointer)?.try_fold(self, |value, token| match value {
            Value::Object(fields) => fields.get(token.as_ref()),
            Value::Array(items) => items.get(position(&token)?),
            _ => None,
        })
    }

    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        tokens(pointer)?.try_fold(self, |value, token| match value {
            Value::Object(fields) => fields.get_mut(token.as_ref()),
            Value::Array(items) => items.get_mut(position(&token)?),
            _ => None,
        })
    }

    /// The memory in bytes in addition to the value itself, including memory that clones share.
    pub fn footprint(&self) -> usize {
        match self {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) if text.is_heap_allocated() => text.capacity(),
            Value::String(_) => 0,
            Value::Array(items) => {
                items.capacity() * size_of::<Value>() + items.iter().map(Value::footprint).sum::<usize>()
            }
            Value::Object(fields) => fields.footprint(),
        }
    }

    /// Takes the value and leaves null.
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }
}

fn tokens(pointer: &str) -> Option<impl Iterator<Item = Cow<'_, str>>> {
    let rest = match pointer {
        "" => None,
        pointer => Some(pointer.strip_prefix('/')?),
    };
    Some(rest.into_iter().flat_map(|rest| rest.split('/')).map(|token| match token.contains('~') {
        true => Cow::Owned(token.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(token),
    }))
}

fn position(token: &str) -> Option<usize> {
    let plain = !token.starts_with('+') && (token == "0" || !token.starts_with('0'));
    plain.then(|| token.parse().ok()).flatten()
}

impl<I: Index> ops::Index<I> for Value {
    type Output = Value;

    fn index(&self, index: I) -> &Value {
        index.of(self).unwrap_or(&NULL)
    }
}

impl<I: Index> ops::IndexMut<I> for Value {
    fn index_mut(&mut self, index: I) -> &mut Value {
        index.of_mut_or_new(self)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("Null"),
            Value::Bool(value) => write!(f, "Bool({value})"),
            Value::Number(number) => number.fmt(f),
            Value::String(text) => write!(f, "String({text:?})"),
            Value::Array(items) => {
                f.write_str("Array ")?;
                items.fmt(f)
            }
            Value::Object(fields) => {
                f.write_str("Object ")?;
                fields.fmt(f)
            }
        }
    }
}

/// Writes JSON; `{:#}` writes it over many lines.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if f.alternate() { serde_json::to_string_pretty(self) } else { serde_json::to_string(self) };
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Value {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Value, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Converts a document for libraries that take `serde_json`'s values.
impl From<Value> for serde_json::Value {
    fn from(value: Value) -> serde_json::Value {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => serde_json::Value::Bool(value),
            Value::Number(number) => serde_json::Value::Number(number),
            Value::String(text) => serde_json::Value::String(text.into()),
            Value::Array(items) => serde_json::Value::Array(items.into_iter().map(Into::into).collect()),
            Value::Object(fields) => {
                serde_json::Value::Object(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
            }
        }
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::String(text.into()),
            serde_json::Value::Array(items) => Value::Array(items.into_iter().map(Into::into).collect()),
            serde_json::Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

macro_rules! from_numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Value {
            fn from(number: $number) -> Value {
                Value::Number(number.into())
            }
        }
    )*};
}

from_numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

/// Numbers that JSON cannot represent become null.
impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Number::from_f64(number).map_or(Value::Null, Value::Number)
    }
}

impl From<f32> for Value {
    fn from(number: f32) -> Value {
        Value::from(f64::from(number))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<()> for Value {
    fn from((): ()) -> Value {
        Value::Null
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Value {
        Value::Number(number)
    }
}

impl From<CompactString> for Value {
    fn from(text: CompactString) -> Value {
        Value::String(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}

impl From<Cow<'_, str>> for Value {
    fn from(text: Cow<'_, str>) -> Value {
        Value::String(text.into())
    }
}

impl From<Map> for Value {
    fn from(fields: Map) -> Value {
        Value::Object(fields)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Value {
        items.into_iter().collect()
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Value {
        items.into_iter().collect()
    }
}

impl<T: Clone + Into<Value>> From<&[T]> for Value {
    fn from(items: &[T]) -> Value {
        items.iter().cloned().collect()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Value {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<N: Into<CompactString>, T: Into<Value>> FromIterator<(N, T)> for Value {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(fields: I) -> Value {
        Value::Object(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(*other)
    }
}

impl PartialEq<String> for Value {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == Some(other.as_str())
    }
}

impl PartialEq<CompactString> for Value {
    fn eq(&self, other: &CompactString) -> bool {
        self.as_str() == Some(other.as_str())
    }
}

impl PartialEq<Value> for str {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

impl PartialEq<Value> for &str {
    fn eq(&self, other: &Value) -> bool {
        other == *self
    }
}

impl PartialEq<Value> for String {
    fn eq(&self, other: &Value) -> bool {
        other == self.as_str()
    }
}

macro_rules! equal_numbers {
    ($($number:ty, $wide:ty, $as:ident;)*) => {$(
        impl PartialEq<$number> for Value {
            fn eq(&self, other: &$number) -> bool {
                self.$as() == Some(<$wide>::from(*other))
            }
        }

        impl PartialEq<$number> for &Value {
            fn eq(&self, other: &$number) -> bool {
                *self == other
            }
        }
    )*};
}

equal_numbers! {
    i8, i64, as_i64; i16, i64, as_i64; i32, i64, as_i64; i64, i64, as_i64;
    u8, u64, as_u64; u16, u64, as_u64; u32, u64, as_u64; u64, u64, as_u64;
    f64, f64, as_f64; bool, bool, as_bool;
}

impl PartialEq<usize> for Value {
    fn eq(&self, other: &usize) -> bool {
        self.as_u64() == u64::try_from(*other).ok()
    }
}

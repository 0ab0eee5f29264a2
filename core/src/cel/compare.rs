//! Compares values of any types: whether they are equal, and which one is greater.

use super::types::{ListKind, ObjectType, Type};
use super::value::{EvalError, List, Made, Value};
use holdfast_value::Value as Json;
use std::cmp::Ordering;
use std::rc::Rc;

/// The number of comparisons inside lists and maps that an evaluation may still make. Values may contain one value many
/// times, so comparing values that take little memory can take endless time.
pub struct Fuel(pub u64);

impl Fuel {
    /// The limit for a call whose cost already covers the number of comparisons.
    pub const PLENTY: u64 = 1_000_000;

    fn burn(&mut self) -> Result<(), EvalError> {
        self.0 = self.0.checked_sub(1).ok_or(EvalError::Cost)?;
        Ok(())
    }
}

/// Whether two values are equal. Numbers are compared by their numeric value, even if their types differ. Other values
/// of different types are unequal, but the comparison fails if the left value is a list or an object of a document.
pub fn equal<'a>(a: &Value<'a>, b: &Value<'a>, fuel: &mut Fuel) -> Result<bool, EvalError> {
    fuel.burn()?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.value_name() == b.value_name(),
        (Value::Opaque(a), Value::Opaque(b)) => a.equals(&**b),
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b, fuel)?,
        (Value::List(List::Items(a)), Value::List(List::Items(b))) if Rc::ptr_eq(a, b) => true,
        (Value::Json(a, at), Value::Json(b, bt)) if std::ptr::eq(*a, *b) && std::ptr::eq(*at, *bt) => true,
        (a, b) if a.list_len().is_some() && b.list_len().is_some() => lists(a, b, fuel)?,
        (a, b) if a.is_map() && b.is_map() => maps(a, b, fuel)?,
        (Value::Made(a), Value::Made(b)) => made(a, b, fuel)?,
        (_, Value::Null) => false,
        // A list or an object of a document cannot be compared with a value of another type, except null.
        (Value::Json(..), _) => return Err(EvalError::no_such_overload()),
        (a, b) => numbers(a, b) == Some(Some(Ordering::Equal)),
    })
}

fn lists<'a>(a: &Value<'a>, b: &Value<'a>, fuel: &mut Fuel) -> Result<bool, EvalError> {
    if a.list_len() != b.list_len() {
        return Ok(false);
    }
    // The kind of the left list (atomic, set or map) determines how the two lists are compared.
    let kind = a.list_kind();
    if kind == &ListKind::Atomic {
        for (a, b) in a.items().zip(b.items()) {
            if !equal(&a?, &b?, fuel)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let mut rest: Vec<Option<Value<'a>>> = b.items().map(|item| item.map(Some)).collect::<Result<_, _>>()?;
    let mut start = 0;
    for item in a.items() {
        let item = item?;
        let mut found = None;
        for (at, other) in rest.iter().enumerate().skip(start) {
            if let Some(other) = other
                && equal(&item, other, fuel)?
            {
                found = Some(at);
                break;
            }
        }
        let Some(at) = found else { return Ok(false) };
        rest[at] = None;
        // Skips the items of the right list that already have an equal item, so that lists in the same order are
        // compared in one pass.
        while rest.get(start).is_some_and(Option::is_none) {
            start += 1;
        }
    }
    Ok(true)
}

fn made<'a>(a: &Made<'a>, b: &Made<'a>, fuel: &mut Fuel) -> Result<bool, EvalError> {
    if a.name != b.name || !a.fields.keys().eq(b.fields.keys()) {
        return Ok(false);
    }
    for (a, b) in a.fields.values().zip(b.fields.values()) {
        if !equal(a, b, fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps<'a>(a: &Value<'a>, b: &Value<'a>, fuel: &mut Fuel) -> Result<bool, EvalError> {
    if super::work::differ_in_length(a, b) {
        return Ok(false);
    }
    if let Value::Json(Json::Object(fields), ty) = a
        && let Type::Object(object) = ty.plain()
    {
        return objects((a, fields, object), b, fuel);
    }
    let keys = a.keys();
    if keys.len() != b.keys().len() {
        return Ok(false);
    }
    for key in keys {
        let (Some(a), Some(b)) = (a.get(&key)?, b.get(&key)?) else { return Ok(false) };
        if !equal(&a, &b, fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares an object of a document. Null fields count as absent. A field that the type does not declare must be equal
/// if both objects have the field.
fn objects<'a>(
    (a, fields, object): (&Value<'a>, &holdfast_value::Map, &ObjectType),
    b: &Value<'a>,
    fuel: &mut Fuel,
) -> Result<bool, EvalError> {
    if a.size() != b.size() {
        return Ok(false);
    }
    for (name, json) in fields {
        if let Some(field) = object.field_of_json(name) {
            let (Some(a), Some(b)) = (a.field(&field.name)?, b.field(&field.name)?) else { return Ok(false) };
            if !equal(&a, &b, fuel)? {
                return Ok(false);
            }
            continue;
        }
        fuel.burn()?;
        match b {
            Value::Json(Json::Object(others), _) if others.get(name).is_some_and(|other| other != json) => {
                return Ok(false);
            }
            Value::Json(..) => {}
            _ => return Err(EvalError::no_such_overload()),
        }
    }
    Ok(true)
}

/// The order of two values. Returns `None` if their types have no order, and `Some(None)` if one value is NaN.
pub fn order(a: &Value<'_>, b: &Value<'_>) -> Option<Option<Ordering>> {
    Some(Some(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (a, b) => return numbers(a, b),
    }))
}

fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Option<Ordering>> {
    Some(match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => double_and_whole(*a, whole(b)?),
        (a, Value::Double(b)) => double_and_whole(*b, whole(a)?).map(Ordering::reverse),
        (a, b) => Some(whole(a)?.cmp(&whole(b)?)),
    })
}

fn whole(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Compares a double with an integer. As in cel-go, the integer is converted to the nearest double.
fn double_and_whole(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    let beyond = if whole > i128::from(i64::MAX) { 2.0 * TWO_TO_63 } else { TWO_TO_63 };
    if double >= beyond { Some(Ordering::Greater) } else { double.partial_cmp(&(whole as f64)) }
}

//! Follows one step of a path: selects a field, a value by its key, or an item by its index.

use super::functions;
use super::types::Type;
use super::value::{EvalError, Value};

type EvalResult<'a> = Result<Value<'a>, EvalError>;

fn missing(name: &str) -> EvalError {
    EvalError::new(format!("no such key: {name}"))
}

fn find<'a>(value: &Value<'a>, field: &str) -> Result<Option<Value<'a>>, EvalError> {
    if value.is_map() || matches!(value, Value::Made(_)) { value.field(field) } else { Ok(None) }
}

/// Selects a field of a value. After an optional, all further steps of the path result in optionals.
pub fn select<'a>(value: &Value<'a>, field: &str, optional: bool) -> EvalResult<'a> {
    let value = match value {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => return Ok(as_optional(find(inner, field)?)),
        value => value,
    };
    match (find(value, field)?, optional) {
        (found, true) => Ok(as_optional(found)),
        (Some(found), false) => match found.failure() {
            Some(why) => Err(EvalError::new(why)),
            None => Ok(found),
        },
        (None, false) => Err(missing(field)),
    }
}

fn as_optional(value: Option<Value<'_>>) -> Value<'_> {
    match value {
        // If the field's value is an optional already, it is not wrapped in another optional.
        Some(value @ Value::Optional(_)) => value,
        Some(value) => Value::some(value),
        None => Value::Optional(None),
    }
}

pub fn test(value: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    match value {
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(inner)) => test(inner, field),
        Value::Json(holdfast_value::Value::Object(map), ty) => Ok(match ty.plain() {
            Type::Object(object) => {
                object.field(field).and_then(|found| map.get(&found.json)).is_some_and(|value| !value.is_null())
            }
            _ => map.contains_key(field),
        }),
        value => Ok(find(value, field)?.is_some()),
    }
}

pub fn at<'a>(value: Value<'a>, key: Value<'a>, optional: bool) -> EvalResult<'a> {
    let (container, optional) = match value {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => ((*inner).clone(), true),
        value => (value, optional),
    };
    if !optional {
        return functions::index(&[container, key]);
    }
    if container.list_len().is_some() {
        let item = match &key {
            Value::Int(index) => u64::try_from(*index).ok().and_then(|index| container.item(index)).transpose()?,
            _ => return functions::index(&[container, key]).map(Value::some),
        };
        return Ok(as_optional(item));
    }
    container.get(&key).map(as_optional)
}

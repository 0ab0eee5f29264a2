//! CEL's extension for optional values, such as `optional.of` and `orValue`.

use super::{Cost, Overload, overload};
use crate::cel::value::{EvalError, Value};

type EvalResult<'a> = Result<Value<'a>, EvalError>;

pub static TABLE: &[Overload] = &[
    overload("optional.of(A) -> optional(A)", of, Cost::One),
    overload("optional.ofNonZeroValue(A) -> optional(A)", of_non_zero, Cost::One),
    overload("optional.none() -> optional(A)", |_| Ok(Value::Optional(None)), Cost::One),
    overload("<optional(A)>.value() -> A", value, Cost::One),
    overload("<optional(A)>.hasValue() -> bool", has_value, Cost::One),
    overload("<optional(A)>.or(optional(A)) -> optional(A)", or, Cost::One),
    overload("<optional(A)>.orValue(A) -> A", or_value, Cost::One),
    overload("optional.unwrap(list(optional(A))) -> list(A)", unwrap, Cost::One),
    overload("<list(optional(A))>.unwrapOpt() -> list(A)", unwrap, Cost::One),
    overload("<list(A)>.first() -> optional(A)", |arguments| item(&arguments[0], 0), Cost::One),
    overload(
        "<list(A)>.last() -> optional(A)",
        |arguments| match arguments[0].size() {
            0 => Ok(Value::Optional(None)),
            size => item(&arguments[0], size - 1),
        },
        Cost::One,
    ),
];

fn of<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::some(arguments[0].clone()))
}

fn of_non_zero<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let is_zero = match &arguments[0] {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(value) => !value,
        Value::Int(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::Duration(duration) => duration.0 == 0,
        // Go's zero time, `0001-01-01T00:00:00Z`.
        Value::Timestamp(timestamp) => timestamp.seconds == -62_135_596_800 && timestamp.nanos == 0,
        // An object or list of a document never counts as a zero value. A scalar of a document may.
        Value::Made(made) => made.fields.is_empty(),
        Value::Type(_) | Value::Opaque(_) | Value::Optional(Some(_)) | Value::Json(..) => false,
        sized => sized.size() == 0,
    };
    Ok(if is_zero { Value::Optional(None) } else { Value::some(arguments[0].clone()) })
}

/// The list of the values of those optionals in a list that have a value.
fn unwrap<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let mut values = Vec::new();
    for item in arguments[0].items() {
        match item? {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                let ty = other.type_of();
                return Err(EvalError::new(format!("cannot unwrap non-optional value {}", ty.value_name())));
            }
        }
    }
    Ok(Value::list(values))
}

fn item<'a>(list: &Value<'a>, at: u64) -> EvalResult<'a> {
    Ok(Value::Optional(list.item(at).transpose()?.map(std::rc::Rc::new)))
}

fn value<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(EvalError::new("optional.none() dereference")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn has_value<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(EvalError::no_such_overload()),
    }
}

// The function of `or` and `orValue`. If the optional has a value, the evaluator does not evaluate the argument.
fn or<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Optional(None), other @ Value::Optional(_)] => Ok(other.clone()),
        [value @ Value::Optional(Some(_)), _] => Ok(value.clone()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn or_value<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Optional(None), other] => Ok(other.clone()),
        [Value::Optional(Some(value)), _] => Ok((**value).clone()),
        _ => Err(EvalError::no_such_overload()),
    }
}

//! Conversions between types.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::cost::{CallEstimate, Range, traversal};
use crate::cel::value::{Duration, EvalError, Timestamp, Value};

type EvalResult<'a> = Result<Value<'a>, EvalError>;

const TO_BYTES: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| {
        let size = arguments.size(0);
        // A character takes at most four bytes.
        let result = Range { min: size.min, max: size.max.saturating_mul(4) };
        CallEstimate { cost: size.traversal(), result: Some(result) }
    },
});

const FROM_BYTES: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| {
        let size = arguments.size(0);
        CallEstimate { cost: size.traversal(), result: Some(Range { min: size.min / 4, max: size.max }) }
    },
});

pub static TABLE: &[Overload] = &[
    overload("int(int) -> int", same, Cost::One),
    overload("int(uint) -> int", int, Cost::One),
    overload("int(double) -> int", int, Cost::One),
    overload("int(string) -> int", int, Cost::One),
    overload("int(timestamp) -> int", int, Cost::One),
    overload("int(duration) -> int", int, Cost::One),
    overload("uint(uint) -> uint", same, Cost::One),
    overload("uint(int) -> uint", uint, Cost::One),
    overload("uint(double) -> uint", uint, Cost::One),
    overload("uint(string) -> uint", uint, Cost::One),
    overload("double(double) -> double", same, Cost::One),
    overload("double(int) -> double", double, Cost::One),
    overload("double(uint) -> double", double, Cost::One),
    overload("double(string) -> double", double, Cost::One),
    overload("string(string) -> string", same, Cost::One),
    overload("string(int) -> string", string, Cost::One),
    overload("string(uint) -> string", string, Cost::One),
    overload("string(double) -> string", string, Cost::One),
    overload("string(bool) -> string", string, Cost::One),
    overload("string(bytes) -> string", string, FROM_BYTES),
    overload("string(timestamp) -> string", string, Cost::One),
    overload("string(duration) -> string", string, Cost::One),
    overload("bytes(bytes) -> bytes", same, Cost::One),
    overload("bytes(string) -> bytes", bytes, TO_BYTES),
    overload("bool(bool) -> bool", same, Cost::One),
    overload("bool(string) -> bool", bool, Cost::One),
    overload("timestamp(timestamp) -> timestamp", same, Cost::One),
    overload("timestamp(int) -> timestamp", timestamp, Cost::One),
    overload("timestamp(string) -> timestamp", timestamp, Cost::One),
    overload("duration(duration) -> duration", same, Cost::One),
    overload("duration(int) -> duration", duration, Cost::One),
    overload("duration(string) -> duration", duration, Cost::One),
    overload("dyn(A) -> dyn", same, Cost::One),
    overload("type(A) -> type(A)", |arguments| Ok(Value::Type(arguments[0].type_of())), Cost::One),
];

fn same<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(arguments[0].clone())
}

fn failed<'a>(from: &Value<'_>, to: &str) -> EvalResult<'a> {
    let from = from.type_of();
    Err(EvalError::new(format!("type conversion error from '{}' to '{to}'", from.value_name())))
}

fn int<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let overflow = || EvalError::new("integer overflow");
    Ok(Value::Int(match &arguments[0] {
        Value::Uint(value) => i64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) if *value > -(2f64.powi(63)) && *value < 2f64.powi(63) => *value as i64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => return failed(&arguments[0], "int"),
        },
        Value::Timestamp(timestamp) => timestamp.seconds,
        Value::Duration(duration) => duration.0,
        _ => return Err(EvalError::no_such_overload()),
    }))
}

fn uint<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let overflow = || EvalError::new("unsigned integer overflow");
    Ok(Value::Uint(match &arguments[0] {
        Value::Int(value) => u64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) if *value >= 0.0 && *value < 2f64.powi(64) => *value as u64,
        Value::Double(_) => return Err(overflow()),
        // Go's parser of unsigned integers accepts no sign.
        Value::String(text) => match text.parse().ok().filter(|_| !text.starts_with('+')) {
            Some(value) => value,
            None => return failed(&arguments[0], "uint"),
        },
        _ => return Err(EvalError::no_such_overload()),
    }))
}

fn double<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::Double(match &arguments[0] {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => match text.parse::<f64>() {
            // As in Go, a number that is too large is an error. Infinity is accepted only if the text spells it as a
            // word.
            Ok(value) if value.is_finite() || !text.bytes().any(|byte| byte.is_ascii_digit()) => value,
            _ => return failed(&arguments[0], "double"),
        },
        _ => return Err(EvalError::no_such_overload()),
    }))
}

fn string<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match &arguments[0] {
        Value::Bytes(bytes) => match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Ok(Value::text(text)),
            Err(_) => Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        value => Ok(Value::text(as_text(value))),
    }
}

/// The text into which `string()` converts a scalar.
pub fn as_text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double_text(*value),
        Value::String(text) => text.to_string(),
        Value::Duration(duration) => duration.to_string(),
        Value::Timestamp(timestamp) => timestamp.to_string(),
        Value::Type(ty) => ty.value_name().to_owned(),
        other => other.type_of().value_name().to_owned(),
    }
}

/// The shortest text that is read back as the same number, with an exponent in the form of Go's `%g`.
fn double_text(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn bytes<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match &arguments[0] {
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn bool<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments[0].as_str() {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Value::Bool(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Value::Bool(false)),
        _ => failed(&arguments[0], "bool"),
    }
}

fn timestamp<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match &arguments[0] {
        Value::Int(seconds) => match Timestamp::from_nanos(i128::from(*seconds) * 1_000_000_000) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => Err(EvalError::new("timestamp overflow")),
        },
        Value::String(text) => match Timestamp::parse(text) {
            Some(timestamp) if timestamp.is_in_range() => Ok(Value::Timestamp(timestamp)),
            Some(_) => Err(EvalError::new("timestamp overflow")),
            None => failed(&arguments[0], "google.protobuf.Timestamp"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn duration<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match &arguments[0] {
        Value::Int(_) => failed(&arguments[0], "google.protobuf.Duration"),
        Value::String(text) => match Duration::parse(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => failed(&arguments[0], "google.protobuf.Duration"),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

//! How a table looks.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::cost::{CallEstimate, Range, traversal};
use crate::cel::value::{EvalError, Value};

pub static TABLE: &[Overload] = &[
    overload("<string>.startsWith(string) -> bool", starts_with, Cost::Traverse(&[0])),
    overload(
        "<string>.reverse() -> string",
        reverse,
        Cost::Custom(CustomCost {
            actual: |arguments, _| traversal(arguments[0].size()),
            estimate: |arguments| {
                let size = arguments.size(0);
                CallEstimate { cost: size.traversal(), result: Some(size) }
            },
        }),
    ),
];

fn starts_with<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), Value::String(prefix)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(text.starts_with(&**prefix)))
}

fn reverse<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::text(text.chars().rev().collect::<String>()))
}

#[allow(dead_code)]
const UNKNOWN: Range = Range::UNKNOWN;

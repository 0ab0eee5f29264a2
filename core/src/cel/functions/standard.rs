//! Standard functions other than operators, conversions and times.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::cost::{Arguments, CallEstimate, REGEX_FACTOR, Range, scaled, traversal};
use crate::cel::value::{EvalError, Value};
use crate::schema::structural::pattern;

type EvalResult<'a> = Result<Value<'a>, EvalError>;

/// The cost of `startsWith` and `endsWith`. At run time cel-go computes it from the length of the text, but its
/// estimate from the length of the prefix or suffix.
const EDGE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| CallEstimate { cost: arguments.size(1).traversal(), result: None },
});

const SEARCH: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()).saturating_mul(traversal(arguments[1].size())),
    estimate: |arguments| {
        let cost = arguments.size(0).traversal().mul(arguments.size(1).traversal());
        CallEstimate { cost, result: None }
    },
});

const MATCH: Cost = Cost::Custom(CustomCost { actual: pattern_cost, estimate: pattern_estimate });

/// The cost of matching a text (the first argument) against a pattern (the second argument).
pub fn pattern_cost(arguments: &[Value<'_>], _result: &Value<'_>) -> u64 {
    traversal(arguments[0].size() + 1).saturating_mul(scaled(arguments[1].size(), REGEX_FACTOR))
}

pub fn pattern_estimate(arguments: &Arguments<'_>) -> CallEstimate {
    let text = arguments.size(0).add(Range::ONE).traversal();
    CallEstimate { cost: text.mul(arguments.size(1).scaled(REGEX_FACTOR)), result: None }
}

pub static TABLE: &[Overload] = &[
    overload("size(string) -> int", size, Cost::One),
    overload("size(bytes) -> int", size, Cost::One),
    overload("size(list(A)) -> int", size, Cost::One),
    overload("size(map(A, B)) -> int", size, Cost::One),
    overload("<string>.size() -> int", size, Cost::One),
    overload("<bytes>.size() -> int", size, Cost::One),
    overload("<list(A)>.size() -> int", size, Cost::One),
    overload("<map(A, B)>.size() -> int", size, Cost::One),
    overload("<string>.contains(string) -> bool", contains, SEARCH),
    overload("<string>.startsWith(string) -> bool", starts_with, EDGE),
    overload("<string>.endsWith(string) -> bool", ends_with, EDGE),
    overload("<string>.matches(string) -> bool", matches, MATCH),
    // The member function `matches` costs more, but Kubernetes counts one unit for this global function.
    overload("matches(string, string) -> bool", matches, Cost::One),
];

fn size<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::Int(i64::try_from(arguments[0].size()).unwrap_or(i64::MAX)))
}

fn contains<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(text), Value::String(part)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()))
}

fn starts_with<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(text), Value::String(prefix)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(text.starts_with(&**prefix)))
}

fn ends_with<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(text), Value::String(suffix)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(text.ends_with(&**suffix)))
}

fn matches<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(pattern_of(pattern)?.is_match(text)))
}

/// Compiles a pattern in Go's regular expression dialect. Literal patterns are compiled together with their expression.
pub fn pattern_of(source: &str) -> Result<regex::Regex, EvalError> {
    pattern::compile(source).map_err(EvalError::Message)
}

//! The library that searches texts with regular expressions: `find` and `findAll`.

use super::{Cost, CustomCost, Overload, no_overload};
use crate::cel::cost::{CallEstimate, REGEX_FACTOR, Range, scaled, traversal};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Value};
use crate::schema::structural::pattern;

pub static TABLE: &[Overload] = &[
    overload("<string>.find(string) -> string", find, SEARCH),
    overload("<string>.findAll(string) -> list(string)", find_all, SEARCH),
    overload("<string>.findAll(string, int) -> list(string)", find_all, SEARCH),
];

/// The cost of a search: the text's length plus one (so that an empty text is not free), times the length of the
/// expression.
const SEARCH: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| {
        traversal(arguments[0].size().saturating_add(1)).saturating_mul(scaled(arguments[1].size(), REGEX_FACTOR))
    },
    estimate: |arguments| {
        let text = arguments.size(0);
        let cost = text.add(Range::ONE).traversal().mul(arguments.size(1).scaled(REGEX_FACTOR));
        CallEstimate { cost, result: Some(Range { min: 0, max: text.max }) }
    },
});

fn find<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), Value::String(expression)] = arguments else { return no_overload() };
    let found = compile(expression)?.find(text).map_or("", |found| found.as_str());
    Ok(Value::text(found.to_owned()))
}

fn find_all<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, expression, limit) = match arguments {
        [Value::String(text), Value::String(expression)] => (text, expression, -1),
        [Value::String(text), Value::String(expression), Value::Int(limit)] => (text, expression, *limit),
        _ => return no_overload(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let expression = compile(expression)?;
    let found = expression.find_iter(text).take(limit);
    Ok(Value::list(found.map(|found| Value::text(found.as_str().to_owned())).collect()))
}

fn compile(expression: &str) -> Result<::regex::Regex, EvalError> {
    pattern::compile(expression).map_err(|error| EvalError::new(format!("Illegal regex: {error}")))
}

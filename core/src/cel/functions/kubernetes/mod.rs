//! Kubernetes' CEL libraries. Each file has one library: functions on Rust types, and the table that makes them CEL
//! functions.

mod address;
pub mod authorizer;
mod format;
mod lists;
mod patches;
mod quantity;
mod regex;
mod semver;
pub mod url;

use super::{Cost, CustomCost, Overload};
use crate::cel::value::{EvalError, Value};

/// The tables of all libraries.
pub static TABLES: &[&[Overload]] = &[
    address::TABLE,
    authorizer::TABLE,
    format::TABLE,
    lists::TABLE,
    patches::TABLE,
    quantity::TABLE,
    regex::TABLE,
    semver::TABLE,
    url::TABLE,
];

/// The cost of a function that reads its first argument, a text.
const READS_TEXT: Cost = Cost::Traverse(&[0]);

fn no_overload<T>() -> Result<T, EvalError> {
    Err(EvalError::no_such_overload())
}

/// The first argument of a function, which must be a text.
fn text<'v>(arguments: &'v [Value<'_>]) -> Result<&'v str, EvalError> {
    arguments.first().and_then(Value::as_str).ok_or_else(EvalError::no_such_overload)
}

/// The argument at `index`, as the Rust type with which a library represents its values.
fn own<'v, T: 'static>(arguments: &'v [Value<'_>], index: usize) -> Result<&'v T, EvalError> {
    arguments.get(index).and_then(Value::downcast).ok_or_else(EvalError::no_such_overload)
}

/// Quotes a text as Go's `%q` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;

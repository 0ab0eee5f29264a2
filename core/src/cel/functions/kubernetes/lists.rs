//! Functions on whole lists.

use super::{Cost, CustomCost, Overload, no_overload};
use crate::cel::Type;
use crate::cel::compare::{Fuel, equal, order};
use crate::cel::cost::{CallEstimate, Range, STRING_FACTOR};
use crate::cel::functions::overload;
use crate::cel::value::{Duration, EvalError, Value};
use std::cmp::Ordering;

pub static TABLE: &[Overload] = &[
    overload("<list(int)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(uint)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(double)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(bool)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(duration)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(timestamp)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(string)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(bytes)>.isSorted() -> bool", is_sorted, WALK),
    overload("<list(int)>.sum() -> int", |arguments| sum(arguments, Value::Int(0)), WALK),
    overload("<list(uint)>.sum() -> uint", |arguments| sum(arguments, Value::Uint(0)), WALK),
    overload("<list(double)>.sum() -> double", |arguments| sum(arguments, Value::Double(0.0)), WALK),
    overload("<list(duration)>.sum() -> duration", |arguments| sum(arguments, Value::Duration(Duration(0))), WALK),
    overload("<list(int)>.min() -> int", min, WALK),
    overload("<list(uint)>.min() -> uint", min, WALK),
    overload("<list(double)>.min() -> double", min, WALK),
    overload("<list(bool)>.min() -> bool", min, WALK),
    overload("<list(duration)>.min() -> duration", min, WALK),
    overload("<list(timestamp)>.min() -> timestamp", min, WALK),
    overload("<list(string)>.min() -> string", min, WALK),
    overload("<list(bytes)>.min() -> bytes", min, WALK),
    overload("<list(int)>.max() -> int", max, WALK),
    overload("<list(uint)>.max() -> uint", max, WALK),
    overload("<list(double)>.max() -> double", max, WALK),
    overload("<list(bool)>.max() -> bool", max, WALK),
    overload("<list(duration)>.max() -> duration", max, WALK),
    overload("<list(timestamp)>.max() -> timestamp", max, WALK),
    overload("<list(string)>.max() -> string", max, WALK),
    overload("<list(bytes)>.max() -> bytes", max, WALK),
    overload("<list(A)>.indexOf(A) -> int", |arguments| index_of(arguments, false), WALK),
    overload("<list(A)>.lastIndexOf(A) -> int", |arguments| index_of(arguments, true), WALK),
];

/// The cost of reading a list: one unit per item, plus the lengths of items that are strings.
const WALK: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| walk_cost(&arguments[0]),
    estimate: |arguments| {
        let Some(item) = arguments.arguments.first().and_then(|list| list.item_type) else {
            return CallEstimate { cost: arguments.size(0).traversal(), result: None };
        };
        let is_text = matches!(item.plain(), Type::String | Type::Bytes);
        let texts = if is_text { arguments.item_size(0).traversal() } else { Range::ZERO };
        CallEstimate { cost: arguments.size(0).mul(Range::ONE.add(texts)), result: None }
    },
});

/// The cost of walking through a value. Fractions of a unit for a text are dropped.
fn walk_cost(value: &Value) -> u64 {
    let of_text = |bytes: usize| (bytes as f64 * STRING_FACTOR) as u64;
    match value {
        Value::String(text) => of_text(text.len()),
        Value::Bytes(bytes) => of_text(bytes.len()),
        list if list.list_len().is_some() => {
            list.items().fold(0, |sum, item| sum.saturating_add(item.map_or(1, |item| walk_cost(&item))))
        }
        map if map.is_map() => map.keys().iter().fold(0, |sum, key| {
            let value = map.get(key).ok().flatten().map_or(1, |value| walk_cost(&value));
            sum.saturating_add(walk_cost(key)).saturating_add(value)
        }),
        _ => 1,
    }
}

fn is_sorted<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let mut before: Option<Value> = None;
    for item in arguments[0].items() {
        let item = item?;
        if let Some(before) = &before
            && compare(before, &item) == Some(Ordering::Greater)
        {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

/// Compares two items; `None` if the types of the items have no order, or if one item is NaN.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    order(a, b).flatten()
}

fn sum<'a>(arguments: &[Value<'a>], zero: Value<'a>) -> Result<Value<'a>, EvalError> {
    arguments[0].items().try_fold(zero, |sum, item| {
        let overflow = || EvalError::new("integer overflow");
        Ok(match (sum, item?) {
            (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(b).ok_or_else(overflow)?),
            (Value::Uint(a), Value::Uint(b)) => {
                Value::Uint(a.checked_add(b).ok_or_else(|| EvalError::new("unsigned integer overflow"))?)
            }
            (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
            (Value::Duration(a), Value::Duration(b)) => {
                Value::Duration(Duration(a.0.checked_add(b.0).ok_or_else(overflow)?))
            }
            _ => return no_overload(),
        })
    })
}

fn min<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    best(arguments, "min", Ordering::Greater)
}

fn max<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    best(arguments, "max", Ordering::Less)
}

/// Returns the minimum of a list if `worse` is `Greater`, and the maximum if `worse` is `Less`. Of several equal items
/// the first one is returned.
fn best<'a>(arguments: &[Value<'a>], name: &str, worse: Ordering) -> Result<Value<'a>, EvalError> {
    let mut best: Option<Value<'a>> = None;
    for item in arguments[0].items() {
        let item = item?;
        let wins = match &best {
            Some(best) => compare(best, &item) == Some(worse),
            None => true,
        };
        if wins {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn index_of<'a>(arguments: &[Value<'a>], last: bool) -> Result<Value<'a>, EvalError> {
    let [list, wanted] = arguments else { return no_overload() };
    let mut fuel = Fuel(Fuel::PLENTY);
    let mut found = -1;
    for (index, item) in (0..).zip(list.items()) {
        if equal(&item?, wanted, &mut fuel)? {
            found = index;
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

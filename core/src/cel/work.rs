//! The cost of work that Kubernetes' costs do not count.
//!
//! Some calls cost only a unit or two in Kubernetes, although their work has no bound: counting the characters of
//! megabytes, compiling a pattern, building a long text. A loop of such calls could run for hours within its budget.
//! Here this work has an additional cost above a free amount, so that ordinary expressions cost the same as in
//! Kubernetes.

use super::ast::Call;
use super::functions::{self, Compiled, Cost};
use super::types::Type;
use super::value::{Key, List, Value};
use crate::schema::structural::pattern;

/// The work that costs nothing extra in each call: states of a compiled pattern, units of reading cost, or bytes of a
/// result.
const FREE: u64 = 1_000;
/// The number of items and keys up to which looking up items and listing keys costs nothing extra.
const FREE_ITEMS: u64 = 100;
/// The extra cost of looking up one item in another list.
const LOOKED_UP: u64 = 5;
/// The number of characters that a call counts for one unit of extra cost.
const COUNTED: u64 = 1_000;
/// The number of keys that are listed, or of items that are built, for one unit of extra cost.
const LISTED: u64 = 10;
/// The number of bytes that a call writes for one unit of extra cost.
const WRITTEN: u64 = 10;

/// The extra cost that a call has because of its arguments. It is spent before the call runs.
pub fn before(call: &Call, overload: &Compiled, arguments: &[Value<'_>]) -> u64 {
    let pattern = match (call.function.as_str(), arguments) {
        ("matches" | "find" | "findAll", [_, Value::String(pattern), ..]) => beyond_free(pattern::weight(pattern)),
        _ => 0,
    };
    let reading = match (&overload.cost, arguments) {
        // In Kubernetes the global function `matches` costs one unit. Here it costs extra as much as the member
        // function, above the free amount.
        (Cost::One, [Value::String(_), Value::String(_)]) if call.function == "matches" => {
            beyond_free(functions::pattern_cost(arguments, &Value::Null))
        }
        (Cost::One, [Value::String(text), ..]) => text.len() as u64 / COUNTED,
        _ => 0,
    };
    pattern.saturating_add(reading)
}

/// The part of a cost that exceeds the free amount.
pub fn beyond_free(cost: u64) -> u64 {
    cost.saturating_sub(FREE)
}

/// The extra cost that a call has because of its result. It is spent after the call has run.
pub fn after(call: &Call, result: &Value<'_>) -> u64 {
    let written = match (call.function.as_str(), result) {
        ("_+_", Value::List(List::Keyed(items, _))) => {
            return (items.len() as u64).saturating_sub(FREE_ITEMS).saturating_mul(LOOKED_UP);
        }
        ("flatten" | "unwrap" | "unwrapOpt" | "optional.unwrap", list) => list.size(),
        ("replace" | "format", result) => bytes(result),
        (getter, result) if getter.starts_with("get") => bytes(result),
        _ => 0,
    };
    written.saturating_sub(FREE) / WRITTEN
}

/// The extra cost of a loop over a map, whose keys are listed before the first iteration.
pub fn keys(range: &Value<'_>) -> u64 {
    if range.is_map() { range.size().saturating_sub(FREE_ITEMS) / LISTED } else { 0 }
}

/// The extra cost of building a literal list or map.
pub fn items(count: usize) -> u64 {
    (count as u64).saturating_sub(FREE_ITEMS) / LISTED
}

fn bytes(value: &Value<'_>) -> u64 {
    let sum = |values: &mut dyn Iterator<Item = &Value<'_>>| values.map(bytes).fold(0, u64::saturating_add);
    match value {
        Value::String(text) => text.len() as u64,
        Value::List(List::Items(items)) => sum(&mut items.iter()),
        Value::Map(map) => map.keys().map(key_bytes).fold(sum(&mut map.values()), u64::saturating_add),
        _ => 1,
    }
}

fn key_bytes(key: &Key<'_>) -> u64 {
    match key {
        Key::String(text) => text.len() as u64,
        _ => 1,
    }
}

/// The smaller of the sizes of two values. Of a longer text, only as many characters are counted as are needed.
pub fn smaller(one: &Value<'_>, other: &Value<'_>) -> u64 {
    let (Value::String(a), Value::String(b)) = (one, other) else { return one.size().min(other.size()) };
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    // The text with fewer bytes may have more characters than the other text, but less than four times as many.
    let least = short.chars().count();
    least.min(long.chars().take(least).count()) as u64
}

/// Whether two maps certainly differ because they have different numbers of entries. Objects are excluded: fields that
/// the type of an object does not declare do not count when the object is compared with a map.
pub fn differ_in_length(one: &Value<'_>, other: &Value<'_>) -> bool {
    let is_object = |value: &Value<'_>| matches!(value, Value::Json(_, ty) if matches!(ty.plain(), Type::Object(_)));
    !is_object(one) && !is_object(other) && one.size() != other.size()
}

//! Work that the costs of Kubernetes do not show.
//!
//! Some calls cost a unit or two there, whatever they do: counting the characters of a text of megabytes, reading a
//! pattern, making a long text out of a short one. In a loop they would keep a request busy for hours within its budget.
//! Here such work costs besides; as much as any ordinary expression does of it is free, so that costs are as told.

use super::ast::Call;
use super::functions::{self, Compiled, Cost};
use super::types::Type;
use super::value::{Key, List, Value};
use crate::schema::structural::pattern;

/// States of a pattern and bytes of a result that are free in each call.
const FREE: u64 = 1_000;
/// Items that are compared, and keys that are listed, for nothing.
const FREE_ITEMS: u64 = 100;
/// What an item costs that is looked up among those of the other list.
const LOOKED_UP: u64 = 5;
/// Characters that are counted, and keys that are listed, in the time of a unit.
const COUNTED: u64 = 1_000;
const LISTED: u64 = 10;
/// Bytes that are written in the time of a unit.
const WRITTEN: u64 = 10;

/// Before a call: what it will read.
pub fn before(call: &Call, overload: &Compiled, arguments: &[Value<'_>]) -> u64 {
    let pattern = match (call.function.as_str(), arguments) {
        ("matches" | "find" | "findAll", [_, Value::String(pattern), ..]) => beyond_free(pattern::weight(pattern)),
        _ => 0,
    };
    let reading = match (&overload.cost, arguments) {
        // The function `matches`, which has no receiver, costs what the other does.
        (Cost::One, [Value::String(_), Value::String(_)]) if call.function == "matches" => {
            beyond_free(functions::pattern_cost(arguments, &Value::Null))
        }
        (Cost::One, [Value::String(text), ..]) => text.len() as u64 / COUNTED,
        _ => 0,
    };
    pattern.saturating_add(reading)
}

/// What costs nothing in Kubernetes, and here only when there is much of it.
pub fn beyond_free(cost: u64) -> u64 {
    cost.saturating_sub(FREE)
}

/// After a call: what it has written.
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

/// Before a loop: a map's keys are listed first.
pub fn keys(range: &Value<'_>) -> u64 {
    if range.is_map() { range.size().saturating_sub(FREE_ITEMS) / LISTED } else { 0 }
}

/// For a list or map that is written out: what it has so many of.
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

/// The size of the smaller of two values, without counting more of the larger than the smaller one has.
pub fn smaller(one: &Value<'_>, other: &Value<'_>) -> u64 {
    let (Value::String(a), Value::String(b)) = (one, other) else { return one.size().min(other.size()) };
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    // A text with fewer bytes can have more characters, but not four times as many.
    let least = short.chars().count();
    least.min(long.chars().take(least).count()) as u64
}

/// Whether two maps surely differ, because one has more entries. Objects have only the fields that their type knows.
pub fn differ_in_length(one: &Value<'_>, other: &Value<'_>) -> bool {
    let is_object = |value: &Value<'_>| matches!(value, Value::Json(_, ty) if matches!(ty.plain(), Type::Object(_)));
    !is_object(one) && !is_object(other) && one.size() != other.size()
}

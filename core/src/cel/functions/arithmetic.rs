//! Operators: arithmetic, comparisons, `in`, concatenation.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::compare::{Fuel, equal, order};
use crate::cel::cost::{Arguments, CallEstimate, Range, traversal};
use crate::cel::types::{ListKind, Type};
use crate::cel::value::{Duration, EvalError, Joined, Key, List, Timestamp, Value};
use crate::cel::work::smaller;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

type EvalResult<'a> = Result<Value<'a>, EvalError>;

/// The cost of comparing two texts or byte strings, which reads at most the length of the shorter one.
const SMALLER: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(smaller(&arguments[0], &arguments[1])),
    estimate: estimate_smaller,
});

fn estimate_smaller(arguments: &Arguments<'_>) -> CallEstimate {
    let max = arguments.size(0).max.min(arguments.size(1).max);
    CallEstimate { cost: Range { min: u64::from(max > 0), max }.traversal(), result: None }
}

/// The cost of `==` and `!=`. The estimate assumes that comparing opaque values takes about constant time.
const EQUAL: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(smaller(&arguments[0], &arguments[1])),
    estimate: |arguments| {
        let [left, right] = arguments.arguments else { return estimate_smaller(arguments) };
        let max = match (left.ty.plain(), right.ty.plain()) {
            (Type::Opaque(left), Type::Opaque(right)) if left == right => match *left {
                "kubernetes.NamedFormat" => NAMED_FORMAT_SIZE,
                "kubernetes.URL" => right_size(arguments),
                _ => 1,
            },
            _ => return estimate_smaller(arguments),
        };
        CallEstimate { cost: Range { min: 1, max: max.max(1) }.traversal(), result: None }
    },
});

const NAMED_FORMAT_SIZE: u64 = 64;

/// The size that Kubernetes' estimate assumes for comparing two URLs: the maximum size of the right argument.
fn right_size(arguments: &Arguments<'_>) -> u64 {
    arguments.arguments[1].size.map_or(1, |size| size.max)
}

const CONCATENATE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size().saturating_add(arguments[1].size())),
    estimate: |arguments| {
        let size = arguments.size(0).add(arguments.size(1));
        CallEstimate { cost: size.traversal(), result: Some(size) }
    },
});

const JOIN: Cost = Cost::Custom(CustomCost {
    actual: |_, _| 1,
    estimate: |arguments| CallEstimate { cost: Range::ONE, result: Some(arguments.size(0).add(arguments.size(1))) },
});

const LOOK_THROUGH: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| arguments[1].size(),
    estimate: |arguments| CallEstimate { cost: arguments.size(1), result: None },
});

pub static TABLE: &[Overload] = &[
    overload("!_(bool) -> bool", not, Cost::One),
    overload("-_(int) -> int", negate, Cost::One),
    overload("-_(double) -> double", negate, Cost::One),
    overload("_+_(int, int) -> int", add, Cost::One),
    overload("_+_(uint, uint) -> uint", add, Cost::One),
    overload("_+_(double, double) -> double", add, Cost::One),
    overload("_+_(string, string) -> string", concatenate, CONCATENATE),
    overload("_+_(bytes, bytes) -> bytes", concatenate, CONCATENATE),
    overload("_+_(list(A), list(A)) -> list(A)", join, JOIN),
    overload("_+_(duration, duration) -> duration", add_time, Cost::One),
    overload("_+_(timestamp, duration) -> timestamp", add_time, Cost::One),
    overload("_+_(duration, timestamp) -> timestamp", add_time, Cost::One),
    overload("_-_(int, int) -> int", subtract, Cost::One),
    overload("_-_(uint, uint) -> uint", subtract, Cost::One),
    overload("_-_(double, double) -> double", subtract, Cost::One),
    overload("_-_(duration, duration) -> duration", subtract_time, Cost::One),
    overload("_-_(timestamp, duration) -> timestamp", subtract_time, Cost::One),
    overload("_-_(timestamp, timestamp) -> duration", subtract_time, Cost::One),
    overload("_*_(int, int) -> int", multiply, Cost::One),
    overload("_*_(uint, uint) -> uint", multiply, Cost::One),
    overload("_*_(double, double) -> double", multiply, Cost::One),
    overload("_/_(int, int) -> int", divide, Cost::One),
    overload("_/_(uint, uint) -> uint", divide, Cost::One),
    overload("_/_(double, double) -> double", divide, Cost::One),
    overload("_%_(int, int) -> int", remainder, Cost::One),
    overload("_%_(uint, uint) -> uint", remainder, Cost::One),
    overload("_==_(A, A) -> bool", equals, EQUAL),
    overload("_!=_(A, A) -> bool", differs, SMALLER),
    overload("@in(A, list(A)) -> bool", in_list, LOOK_THROUGH),
    overload("@in(A, map(A, B)) -> bool", in_map, Cost::One),
    overload("_[_](list(A), int) -> A", index, Cost::One),
    overload("_[_](map(A, B), A) -> B", index, Cost::One),
    overload("_[?_](list(A), int) -> optional(A)", index, Cost::One),
    overload("_[?_](optional(list(A)), int) -> optional(A)", index, Cost::One),
    overload("_[?_](map(A, B), A) -> optional(B)", index, Cost::One),
    overload("_[?_](optional(map(A, B)), A) -> optional(B)", index, Cost::One),
    overload("_[_](optional(list(A)), int) -> optional(A)", index, Cost::One),
    overload("_[_](optional(map(A, B)), A) -> optional(B)", index, Cost::One),
];

/// The overloads of the operators `<`, `<=`, `>` and `>=`. Each of these operators has the same pairs of types.
macro_rules! ordered {
    ($($operator:literal $run:ident;)*) => {
        pub static ORDER: &[Overload] = &[$(
            overload(concat!($operator, "(bool, bool) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(int, int) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(int, double) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(int, uint) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(uint, uint) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(uint, double) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(uint, int) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(double, double) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(double, int) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(double, uint) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(string, string) -> bool"), $run, SMALLER),
            overload(concat!($operator, "(bytes, bytes) -> bool"), $run, SMALLER),
            overload(concat!($operator, "(timestamp, timestamp) -> bool"), $run, Cost::One),
            overload(concat!($operator, "(duration, duration) -> bool"), $run, Cost::One),
        )*];
    };
}

ordered! {
    "_<_" less;
    "_<=_" at_most;
    "_>_" greater;
    "_>=_" at_least;
}

fn overflow(what: &str) -> EvalError {
    EvalError::new(format!("{what} overflow"))
}

fn not<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn negate<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Int(value)] => value.checked_neg().map(Value::Int).ok_or_else(|| overflow("integer")),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Applies an operator to two numbers of the same type.
fn numbers<'a>(
    arguments: &[Value<'a>],
    int: fn(i64, i64) -> Option<i64>,
    uint: fn(u64, u64) -> Option<u64>,
    double: fn(f64, f64) -> f64,
) -> EvalResult<'a> {
    match arguments {
        [Value::Int(a), Value::Int(b)] => int(*a, *b).map(Value::Int).ok_or_else(|| overflow("integer")),
        [Value::Uint(a), Value::Uint(b)] => uint(*a, *b).map(Value::Uint).ok_or_else(|| overflow("unsigned integer")),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(double(*a, *b))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn add<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    numbers(arguments, i64::checked_add, u64::checked_add, |a, b| a + b)
}

fn subtract<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    numbers(arguments, i64::checked_sub, u64::checked_sub, |a, b| a - b)
}

fn multiply<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    numbers(arguments, i64::checked_mul, u64::checked_mul, |a, b| a * b)
}

fn divide<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    if let [_, Value::Int(0) | Value::Uint(0)] = arguments {
        return Err(EvalError::new("division by zero"));
    }
    numbers(arguments, i64::checked_div, u64::checked_div, |a, b| a / b)
}

fn remainder<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [_, Value::Int(0) | Value::Uint(0)] => Err(EvalError::new("modulus by zero")),
        [Value::Double(_), _] => Err(EvalError::no_such_overload()),
        _ => numbers(arguments, i64::checked_rem, u64::checked_rem, |a, _| a),
    }
}

fn concatenate<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::String(a), Value::String(b)] => {
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Ok(Value::text(text))
        }
        [Value::Bytes(a), Value::Bytes(b)] => Ok(Value::Bytes([&**a, &**b].concat().into())),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// The maximum number of items of a concatenated list. The cost of a concatenation hardly depends on the size of the
/// lists, so costs do not limit it. No list of a document has this many items.
const MAX_LIST: u64 = 1 << 22;

fn join<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [left, right] = arguments else { return Err(EvalError::no_such_overload()) };
    let (Some(left_len), Some(right_len)) = (left.list_len(), right.list_len()) else {
        return Err(EvalError::no_such_overload());
    };
    match left.list_kind() {
        ListKind::Atomic => {
            let len = left_len.saturating_add(right_len);
            if len > MAX_LIST {
                return Err(EvalError::Cost);
            }
            Ok(Value::List(List::Joined(Rc::new(Joined { left: left.clone(), right: right.clone(), len }))))
        }
        kind => unite(left, right, kind),
    }
}

/// Concatenates two lists of a document: the items of the left list, then the items of the right list that are new. In
/// a keyed list, an item of the right list replaces the item of the left list with the same keys.
fn unite<'a>(left: &Value<'a>, right: &Value<'a>, kind: &'a ListKind) -> EvalResult<'a> {
    let mut items: Vec<Value<'a>> = left.items().collect::<Result<_, _>>()?;
    // Identities are compared as text: equal items of a set, and equal keys, have equal texts.
    let identity = |item: &Value<'a>| -> Result<String, EvalError> {
        match kind {
            ListKind::Map(keys) => {
                let mut text = String::new();
                for key in keys {
                    let value = item.field(&crate::cel::names::escape(key).unwrap_or_default())?;
                    text.push_str(&value.map(|value| as_identity(&value)).unwrap_or_default());
                    text.push('\n');
                }
                Ok(text)
            }
            _ => Ok(as_identity(item)),
        }
    };
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        places.insert(identity(item)?, at);
    }
    for item in right.items() {
        let item = item?;
        match places.entry(identity(&item)?) {
            std::collections::btree_map::Entry::Occupied(place) => items[*place.get()] = item,
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(items.len());
                items.push(item);
            }
        }
    }
    Ok(Value::List(List::Keyed(Rc::new(items), kind)))
}

fn as_identity(value: &Value<'_>) -> String {
    match value {
        Value::Json(json, _) => json.to_string(),
        value => format!("{value:?}"),
    }
}

fn add_time<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Duration(Duration(a)), Value::Duration(Duration(b))] => {
            a.checked_add(*b).map(|nanos| Value::Duration(Duration(nanos))).ok_or_else(|| overflow("integer"))
        }
        [Value::Timestamp(timestamp), Value::Duration(duration)]
        | [Value::Duration(duration), Value::Timestamp(timestamp)] => shift(*timestamp, i128::from(duration.0)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn subtract_time<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match arguments {
        [Value::Duration(Duration(a)), Value::Duration(Duration(b))] => {
            a.checked_sub(*b).map(|nanos| Value::Duration(Duration(nanos))).ok_or_else(|| overflow("integer"))
        }
        [Value::Timestamp(timestamp), Value::Duration(duration)] => shift(*timestamp, -i128::from(duration.0)),
        [Value::Timestamp(a), Value::Timestamp(b)] => match i64::try_from(a.since_1970() - b.since_1970()) {
            Ok(nanos) => Ok(Value::Duration(Duration(nanos))),
            Err(_) => Err(overflow("integer")),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn shift<'a>(timestamp: Timestamp, nanos: i128) -> EvalResult<'a> {
    let shifted = Timestamp::from_nanos(timestamp.since_1970() + nanos).ok_or_else(|| overflow("timestamp"))?;
    Ok(Value::Timestamp(Timestamp { offset_seconds: timestamp.offset_seconds, ..shifted }))
}

fn equals<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    equal(&arguments[0], &arguments[1], &mut Fuel(Fuel::PLENTY)).map(Value::Bool)
}

fn differs<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    equal(&arguments[0], &arguments[1], &mut Fuel(Fuel::PLENTY)).map(|equal| Value::Bool(!equal))
}

fn ordered<'a>(arguments: &[Value<'a>], accept: fn(Ordering) -> bool) -> EvalResult<'a> {
    match order(&arguments[0], &arguments[1]) {
        Some(Some(ordering)) => Ok(Value::Bool(accept(ordering))),
        Some(None) => Err(EvalError::new("NaN values cannot be ordered")),
        None => Err(EvalError::no_such_overload()),
    }
}

fn less<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    ordered(arguments, Ordering::is_lt)
}

fn at_most<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    ordered(arguments, Ordering::is_le)
}

fn greater<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    ordered(arguments, Ordering::is_gt)
}

fn at_least<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    ordered(arguments, Ordering::is_ge)
}

fn in_list<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let mut fuel = Fuel(Fuel::PLENTY);
    for item in arguments[1].items() {
        if equal(&arguments[0], &item?, &mut fuel)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn in_map<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    match &arguments[1] {
        Value::Json(..) if Key::of(&arguments[0]).is_none() => Ok(Value::Bool(false)),
        map => map.get(&arguments[0]).map(|value| Value::Bool(value.is_some())),
    }
}

/// Computes `list[index]` or `map[key]`. The evaluator counts the cost of indexing as part of a path.
pub fn index<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [container, key] = arguments else { return Err(EvalError::no_such_overload()) };
    if container.list_len().is_some() {
        let at = match key {
            Value::Int(at) => i128::from(*at),
            Value::Uint(at) => i128::from(*at),
            Value::Double(at) if at.fract() == 0.0 => *at as i128,
            key => {
                let ty = key.type_of();
                return Err(EvalError::new(format!("unsupported index type '{}' in list", ty.value_name())));
            }
        };
        let item = u64::try_from(at).ok().and_then(|at| container.item(at));
        return item.unwrap_or_else(|| Err(EvalError::new(format!("index out of bounds: {at}"))));
    }
    // Only lists and maps have parts that can be indexed.
    let found = if container.is_map() { container.get(key)? } else { None };
    found.ok_or_else(|| EvalError::new(format!("no such key: {}", super::as_text(key))))
}

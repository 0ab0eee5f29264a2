//! CEL's extension for lists, in the version that Kubernetes uses.

use super::{Beforehand, Cost, Overload, overload, unguarded};
use crate::cel::compare::{Fuel, equal, order};
use crate::cel::cost::{Argument, CallEstimate, Range, scaled};
use crate::cel::value::{EvalError, Value};
use std::cmp::Ordering;

type EvalResult<'a> = Result<Value<'a>, EvalError>;

pub static TABLE: &[Overload] = &[
    overload("<list(A)>.slice(int, int) -> list(A)", slice, SLICE),
    unguarded("<list(list(A))>.flatten() -> list(A)", flatten, FLATTEN),
    unguarded("<list(dyn)>.flatten(int) -> list(dyn)", flatten, FLATTEN),
    overload("<list(A)>.reverse() -> list(A)", reverse, REVERSE),
    overload("<list(A)>.distinct() -> list(A)", distinct, DISTINCT),
    overload("lists.range(int) -> list(int)", range, RANGE),
    unguarded("<list(int)>.sort() -> list(int)", sort, SORT),
    unguarded("<list(uint)>.sort() -> list(uint)", sort, SORT),
    unguarded("<list(double)>.sort() -> list(double)", sort, SORT),
    unguarded("<list(bool)>.sort() -> list(bool)", sort, SORT),
    unguarded("<list(duration)>.sort() -> list(duration)", sort, SORT),
    unguarded("<list(timestamp)>.sort() -> list(timestamp)", sort, SORT),
    unguarded("<list(string)>.sort() -> list(string)", sort, SORT_TEXTS),
    unguarded("<list(bytes)>.sort() -> list(bytes)", sort, SORT_TEXTS),
    // The macro `sortBy` calls this function with the keys of all items.
    unguarded("<list(A)>.@sortByAssociatedKeys(list(int)) -> list(A)", sort_by, SORT_BY),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(uint)) -> list(A)", sort_by, SORT_BY),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(double)) -> list(A)", sort_by, SORT_BY),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(bool)) -> list(A)", sort_by, SORT_BY),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(duration)) -> list(A)", sort_by, SORT_BY),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(timestamp)) -> list(A)", sort_by, SORT_BY),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(string)) -> list(A)", sort_by, SORT_BY_TEXTS),
    unguarded("<list(A)>.@sortByAssociatedKeys(list(bytes)) -> list(A)", sort_by, SORT_BY_TEXTS),
];

/// The maximum number of items of a list that a function creates. A longer list would cost more than any evaluation's
/// budget.
const ITEMS_MAX: usize = 2_000_000;
/// The cost of a call that creates a list.
const MAKING: u64 = 11;
/// The cost of comparing two items in a function that compares each item with every other item.
const COMPARED: f64 = 2.0;
/// Like [`COMPARED`], for items that are texts, which are compared character by character.
const TEXTS_COMPARED: f64 = 2.1;

const SLICE: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| match arguments {
        [_, Value::Int(start), Value::Int(end)] => made(1.0, u64::try_from(end.saturating_sub(*start)).unwrap_or(0)),
        _ => MAKING,
    },
    estimate: |arguments| {
        let start = number(arguments.arguments.get(1), 0);
        let end = number(arguments.arguments.get(2), arguments.size(0).max);
        estimate(1.0, Range::exactly(end.wrapping_sub(start)))
    },
});

const REVERSE: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| made(1.0, arguments[0].size()),
    estimate: |arguments| estimate(1.0, arguments.size(0)),
});

const RANGE: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| match arguments {
        [Value::Int(count)] => made(1.0, u64::try_from(*count).unwrap_or(0)),
        _ => MAKING,
    },
    estimate: |arguments| estimate(1.0, Range::exactly(number(arguments.arguments.first(), u64::MAX))),
});

const FLATTEN: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| {
        let depth = match arguments.get(1) {
            Some(Value::Int(depth)) => depth.max(&0).to_owned() as f64,
            _ => 1.0,
        };
        made(depth, arguments[0].size())
    },
    estimate: |arguments| {
        let depth = match arguments.arguments {
            [_, depth] => number(Some(depth), u64::MAX),
            _ => 1,
        };
        estimate(depth as f64, arguments.size(0))
    },
});

const DISTINCT: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| pairs(&arguments[0]),
    estimate: |arguments| estimate(COMPARED, squared(arguments.size(0))),
});

const SORT: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| pairs(&arguments[0]),
    estimate: |arguments| estimate(COMPARED, squared(arguments.size(0))),
});

const SORT_TEXTS: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| pairs(&arguments[0]),
    estimate: |arguments| estimate(TEXTS_COMPARED, squared(arguments.size(0))),
});

const SORT_BY: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| pairs(&arguments[1]),
    estimate: |arguments| estimate(COMPARED, squared(arguments.size(1))),
});

const SORT_BY_TEXTS: Cost = Cost::Beforehand(Beforehand {
    actual: |arguments| pairs(&arguments[1]),
    estimate: |arguments| estimate(TEXTS_COMPARED, squared(arguments.size(1))),
});

/// The cost of a function that creates a list of `size` items. Unlike other costs, the product is rounded down.
fn made(factor: f64, size: u64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(MAKING)
}

fn pairs(list: &Value<'_>) -> u64 {
    let is_text = matches!(list.item(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let size = list.size();
    made(if is_text { TEXTS_COMPARED } else { COMPARED }, size.saturating_mul(size))
}

fn squared(size: Range) -> Range {
    size.mul(size)
}

fn estimate(factor: f64, size: Range) -> CallEstimate {
    let cost = Range { min: scaled(size.min, factor), max: scaled(size.max, factor) };
    CallEstimate { cost: cost.add(Range::exactly(MAKING)), result: Some(size) }
}

/// The value of an argument that is a number literal, and zero if the literal is negative. The value is `otherwise` for
/// other arguments.
fn number(argument: Option<&Argument<'_>>, otherwise: u64) -> u64 {
    match argument.and_then(|argument| argument.number) {
        Some(number) => u64::try_from(number).unwrap_or(0),
        None => otherwise,
    }
}

fn items<'a>(list: &Value<'a>) -> Result<Vec<Value<'a>>, EvalError> {
    if list.list_len().is_none() {
        return Err(EvalError::no_such_overload());
    }
    list.items().collect()
}

fn slice<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [list, Value::Int(start), Value::Int(end)] = arguments else { return Err(EvalError::no_such_overload()) };
    let refuse = |why: &str| Err(EvalError::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (u64::try_from(*start), u64::try_from(*end)) else {
        return refuse("negative indexes not supported");
    };
    if from > to {
        return refuse("start index must be less than or equal to end index");
    }
    let length = list.size();
    if length < to {
        return refuse(&format!("list is length {length}"));
    }
    Ok(Value::list((from..to).filter_map(|at| list.item(at)).collect::<Result<_, _>>()?))
}

fn flatten<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let depth = match arguments {
        [_] => 1,
        [_, Value::Int(depth)] => u64::try_from(*depth).map_err(|_| EvalError::new("level must be non-negative"))?,
        _ => return Err(EvalError::no_such_overload()),
    };
    let mut flat = items(&arguments[0])?;
    for _ in 0..depth {
        if flat.iter().all(|item| item.list_len().is_none()) {
            break;
        }
        let mut next = Vec::new();
        for item in flat {
            if item.list_len().is_none() {
                next.push(item);
                continue;
            }
            for inner in item.items() {
                next.push(inner?);
                if next.len() > ITEMS_MAX {
                    return Err(EvalError::Cost);
                }
            }
        }
        flat = next;
    }
    Ok(Value::list(flat))
}

fn reverse<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let mut items = items(&arguments[0])?;
    items.reverse();
    Ok(Value::list(items))
}

fn range<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Int(count)] = arguments else { return Err(EvalError::no_such_overload()) };
    if usize::try_from(*count).is_ok_and(|count| count > ITEMS_MAX) {
        return Err(EvalError::Cost);
    }
    Ok(Value::list((0..*count).map(Value::Int).collect()))
}

fn distinct<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let items = items(&arguments[0])?;
    let mut fuel = Fuel((items.len() as u64).saturating_mul(items.len() as u64).saturating_add(Fuel::PLENTY));
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in items {
        let mut seen = false;
        for other in &kept {
            if equal(&item, other, &mut fuel)? {
                seen = true;
                break;
            }
        }
        if !seen {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

fn sort<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let keys = items(&arguments[0])?;
    sorted(keys.clone(), &keys)
}

fn sort_by<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let [list, keys] = arguments else { return Err(EvalError::no_such_overload()) };
    sorted(items(list)?, &items(keys)?)
}

/// Sorts `items` by `keys`, which has one key for each item.
fn sorted<'a>(items: Vec<Value<'a>>, keys: &[Value<'a>]) -> EvalResult<'a> {
    if items.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            items.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.first() else { return Ok(Value::list(items)) };
    if !is_comparable(first) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    let ty = first.type_of();
    if keys.iter().any(|key| key.type_of() != ty) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| compare(&keys[*a], &keys[*b]));
    Ok(Value::list(order.into_iter().map(|at| items[at].clone()).collect()))
}

fn is_comparable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

/// Compares two keys. NaN sorts after all numbers, so that all keys have an order.
fn compare(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    let is_nan = |value: &Value<'_>| matches!(value, Value::Double(number) if number.is_nan());
    is_nan(a).cmp(&is_nan(b)).then_with(|| order(a, b).flatten().unwrap_or(Ordering::Equal))
}

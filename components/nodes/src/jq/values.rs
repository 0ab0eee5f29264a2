//! The functions and operators of queries.

use super::{Fault, Filter, Function, Results};
use crate::budget::Budget;
use holdfast_value::{Number, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

pub fn product<'a>(
    first: &Filter,
    second: &Filter,
    input: Cow<'a, Value>,
    budget: &Budget,
    combine: impl Fn(&Value, &Value) -> Result<Value, Fault>,
) -> Results<'a> {
    let (left, right) = (first.run(copy(&input, budget)?, budget)?, second.run(input, budget)?);
    budget.step(left.len().saturating_mul(right.len()))?;
    let mut found = Vec::new();
    for b in &right {
        for a in &left {
            found.push(Cow::Owned(combine(a, b)?));
        }
    }
    Ok(found)
}

pub fn call<'a>(function: Function, arguments: &[Filter], input: Cow<'a, Value>, budget: &Budget) -> Results<'a> {
    let one = |value: Value| Ok(vec![Cow::Owned(value)]);
    let argument = || -> Result<Cow<'a, Value>, Fault> {
        let filter = arguments.first().ok_or(Fault)?;
        filter.run(copy(&input, budget)?, budget)?.into_iter().next().ok_or(Fault)
    };
    // The functions in the last three arms read their whole input, so its whole size counts as work.
    match function {
        Function::Not | Function::Empty | Function::Values | Function::First | Function::Last | Function::Type => {}
        Function::Has | Function::Select => {}
        Function::Any | Function::All | Function::AnyOf | Function::AllOf | Function::Map => {}
        Function::Length | Function::Keys | Function::Min | Function::Max | Function::Add => budget.whole(&input)?,
        Function::Lower | Function::StartsWith | Function::EndsWith | Function::Contains | Function::Split => {
            budget.whole(&input)?;
        }
        Function::Join | Function::ToEntries | Function::ToString | Function::ToNumber => budget.whole(&input)?,
    }
    match function {
        Function::Empty => Ok(Vec::new()),
        Function::Not => one(Value::Bool(!truth(&input))),
        Function::Values => Ok(if input.is_null() { Vec::new() } else { vec![input] }),
        Function::Select => {
            let verdicts = arguments.first().ok_or(Fault)?.run(copy(&input, budget)?, budget)?;
            verdicts.into_iter().filter(|verdict| truth(verdict)).map(|_| copy(&input, budget)).collect()
        }
        Function::Map => {
            let filter = arguments.first().ok_or(Fault)?;
            let mut found = Vec::new();
            for part in elements(input, budget)? {
                found.extend(filter.run(part, budget)?);
            }
            one(gathered(found, budget)?)
        }
        Function::Any | Function::All | Function::AnyOf | Function::AllOf => {
            let wanted = matches!(function, Function::Any | Function::AnyOf);
            for part in elements(input, budget)? {
                let verdicts = match arguments.first() {
                    Some(filter) => filter.run(part, budget)?,
                    None => vec![part],
                };
                if verdicts.iter().any(|verdict| truth(verdict) == wanted) {
                    return one(Value::Bool(wanted));
                }
            }
            one(Value::Bool(!wanted))
        }
        Function::Length => one(match &*input {
            Value::Null => 0.into(),
            Value::String(text) => text.chars().count().into(),
            Value::Array(items) => items.len().into(),
            Value::Object(fields) => fields.len().into(),
            number @ Value::Number(_) => number.clone(),
            Value::Bool(_) => return Err(Fault),
        }),
        Function::Keys => one(match &*input {
            Value::Object(fields) => fields.keys().cloned().collect(),
            Value::Array(items) => (0..items.len()).map(Value::from).collect(),
            _ => return Err(Fault),
        }),
        Function::ToEntries => one(match &*input {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| holdfast_value::json!({"key": key, "value": value})).collect()
            }
            _ => return Err(Fault),
        }),
        Function::Has => one(Value::Bool(match (&*input, &*argument()?) {
            (Value::Object(fields), Value::String(name)) => fields.contains_key(name),
            (Value::Array(items), Value::Number(index)) => {
                index.as_u64().is_some_and(|index| index < items.len() as u64)
            }
            _ => return Err(Fault),
        })),
        Function::First => Ok(vec![at(input, &Value::from(0))?]),
        Function::Last => Ok(vec![at(input, &Value::from(-1))?]),
        Function::Min | Function::Max => {
            // The best value so far is compared with the next value, so each comparison counts the size of the best
            // value.
            let parts = elements(input, budget)?.into_iter();
            let mut chosen: Option<Cow<'a, Value>> = None;
            for part in parts {
                let Some(best) = &chosen else {
                    chosen = Some(part);
                    continue;
                };
                budget.whole(best)?;
                let is_better = match (function, order(&part, best)) {
                    (Function::Min, ordering) => ordering.is_lt(),
                    (_, ordering) => ordering.is_ge(),
                };
                if is_better {
                    chosen = Some(part);
                }
            }
            Ok(vec![chosen.unwrap_or(Cow::Owned(Value::Null))])
        }
        Function::Add => {
            let mut sum = Value::Null;
            for part in elements(input, budget)? {
                sum = match (sum, &*part) {
                    // The existing text is not copied when text is appended, so only the new part counts as work.
                    (Value::String(mut sum), Value::String(part)) => {
                        sum.push_str(part);
                        Value::String(sum)
                    }
                    (Value::Array(mut sum), Value::Array(part)) => {
                        sum.extend(part.iter().cloned());
                        Value::Array(sum)
                    }
                    (sum, part) => add(true, &sum, part, budget)?,
                };
            }
            one(sum)
        }
        Function::Type => one(Value::from(match &*input {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        })),
        Function::ToString => one(match &*input {
            Value::String(text) => Value::from(text.as_str()),
            other => Value::from(other.to_string()),
        }),
        Function::ToNumber => match &*input {
            Value::Number(_) => Ok(vec![input]),
            Value::String(text) => one(serde_json::from_str::<Number>(text).map_err(|_| Fault)?.into()),
            _ => Err(Fault),
        },
        Function::Lower => one(Value::from(input.as_str().ok_or(Fault)?.to_ascii_lowercase())),
        Function::StartsWith | Function::EndsWith => {
            let part = argument()?;
            let (text, part) = texts(&input, &part)?;
            let is_there = if function == Function::StartsWith { text.starts_with(part) } else { text.ends_with(part) };
            one(Value::Bool(is_there))
        }
        Function::Contains => one(Value::Bool(contains(&input, &*argument()?, budget)?)),
        Function::Split => {
            let by = argument()?;
            let (text, by) = texts(&input, &by)?;
            let mut parts = Vec::new();
            for part in text.split(by) {
                budget.values(1)?;
                parts.push(Value::from(part));
            }
            one(Value::Array(parts))
        }
        Function::Join => {
            let by = argument()?;
            let by = by.as_str().ok_or(Fault)?;
            let parts: Vec<String> = elements(copy(&input, budget)?, budget)?
                .iter()
                .map(|part| match &**part {
                    Value::String(text) => text.to_string(),
                    Value::Null => String::new(),
                    other => other.to_string(),
                })
                .collect();
            budget.bytes(by.len().saturating_mul(parts.len()))?;
            one(Value::from(parts.join(by)))
        }
    }
}

/// Copies a value within the budget. A part of the document is borrowed instead, which costs nothing.
pub fn copy<'a>(value: &Cow<'a, Value>, budget: &Budget) -> Result<Cow<'a, Value>, Fault> {
    if let Cow::Owned(value) = value {
        budget.whole(value)?;
    }
    Ok(value.clone())
}

fn texts<'v>(one: &'v Value, other: &'v Value) -> Result<(&'v str, &'v str), Fault> {
    Ok((one.as_str().ok_or(Fault)?, other.as_str().ok_or(Fault)?))
}

fn contains(whole: &Value, part: &Value, budget: &Budget) -> Result<bool, Fault> {
    budget.values(1)?;
    Ok(match (whole, part) {
        (Value::String(whole), Value::String(part)) => {
            budget.bytes(whole.len() + part.len())?;
            whole.contains(part.as_str())
        }
        (Value::Array(whole), Value::Array(parts)) => {
            for part in parts {
                let mut is_there = false;
                for item in whole {
                    is_there = is_there || contains(item, part, budget)?;
                }
                if !is_there {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(whole), Value::Object(parts)) => {
            for (name, part) in parts {
                let Some(value) = whole.get(name) else { return Ok(false) };
                if !contains(value, part, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (whole, part) => whole == part,
    })
}

pub fn gathered(found: Vec<Cow<'_, Value>>, budget: &Budget) -> Result<Value, Fault> {
    let mut borrowed = found.iter().filter(|value| matches!(value, Cow::Borrowed(_)));
    borrowed.try_for_each(|value| budget.whole(value))?;
    Ok(found.into_iter().map(Cow::into_owned).collect())
}

pub fn truth(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

pub fn at<'a>(value: Cow<'a, Value>, key: &Value) -> Result<Cow<'a, Value>, Fault> {
    let null = || Cow::Owned(Value::Null);
    let place = |length: usize| -> Option<usize> {
        let index = key.as_i64()?;
        let index = if index < 0 { index.checked_add(i64::try_from(length).ok()?)? } else { index };
        usize::try_from(index).ok()
    };
    match (value, key) {
        (value, _) if value.is_null() => Ok(null()),
        (Cow::Borrowed(Value::Object(fields)), Value::String(name)) => {
            Ok(fields.get(name).map_or_else(null, Cow::Borrowed))
        }
        (Cow::Owned(Value::Object(mut fields)), Value::String(name)) => {
            Ok(fields.remove(name).map_or_else(null, Cow::Owned))
        }
        (Cow::Borrowed(Value::Array(items)), Value::Number(_)) => {
            Ok(place(items.len()).and_then(|place| items.get(place)).map_or_else(null, Cow::Borrowed))
        }
        (Cow::Owned(Value::Array(mut items)), Value::Number(_)) => Ok(place(items.len())
            .filter(|place| *place < items.len())
            .map_or_else(null, |place| Cow::Owned(items.swap_remove(place)))),
        _ => Err(Fault),
    }
}

pub fn elements<'a>(value: Cow<'a, Value>, budget: &Budget) -> Result<Vec<Cow<'a, Value>>, Fault> {
    budget.values(match &*value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => return Err(Fault),
    })?;
    Ok(match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(fields)) => fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        _ => return Err(Fault),
    })
}

pub fn add(plus: bool, one: &Value, other: &Value, budget: &Budget) -> Result<Value, Fault> {
    budget.whole(one)?;
    budget.whole(other)?;
    match (one, other) {
        (Value::Null, value) | (value, Value::Null) if plus => Ok(value.clone()),
        (Value::Number(one), Value::Number(other)) => {
            if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
                let sum = if plus { one.checked_add(other) } else { one.checked_sub(other) };
                if let Some(sum) = sum {
                    return Ok(sum.into());
                }
            }
            let (one, other) = (one.as_f64().ok_or(Fault)?, other.as_f64().ok_or(Fault)?);
            Ok(Number::from_f64(if plus { one + other } else { one - other }).ok_or(Fault)?.into())
        }
        (Value::String(one), Value::String(other)) if plus => Ok(Value::from(format!("{one}{other}"))),
        (Value::Array(one), Value::Array(other)) if plus => Ok(one.iter().chain(other).cloned().collect()),
        (Value::Array(one), Value::Array(other)) => {
            // Two elements are equal if their JSON texts are equal.
            let others: BTreeSet<String> = other.iter().map(Value::to_string).collect();
            Ok(one.iter().filter(|item| !others.contains(&item.to_string())).cloned().collect())
        }
        _ => Err(Fault),
    }
}

pub fn compare(operator: &str, one: &Value, other: &Value) -> bool {
    let ordering = order(one, other);
    match operator {
        "==" => ordering.is_eq(),
        "!=" => ordering.is_ne(),
        "<" => ordering.is_lt(),
        "<=" => ordering.is_le(),
        ">" => ordering.is_gt(),
        _ => ordering.is_ge(),
    }
}

/// The order of two values in jq: null, booleans, numbers, strings, arrays, objects.
fn order(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    rank(one).cmp(&rank(other)).then_with(|| match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let parts = one.iter().zip(other).map(|(one, other)| order(one, other));
            parts.fold(Ordering::Equal, Ordering::then).then(one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) if one == other => Ordering::Equal,
        (Value::Object(one), Value::Object(other)) => format!("{one:?}").cmp(&format!("{other:?}")),
        _ => Ordering::Equal,
    })
}

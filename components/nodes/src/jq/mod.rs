//! Queries in the subset of jq that selectors of Stages use: paths, `[]`, `select`, comparisons, alternatives and
//! common functions. The subset has no function definitions and no loops, so each query ends and its results are
//! bounded.

mod parse;
#[cfg(test)]
mod tests;
mod values;

use crate::budget::{Budget, Spent};
use holdfast_value::Value;
use std::borrow::Cow;
use values::{add, at, call, compare, copy, elements, gathered, product, truth};

/// The deepest nesting of a query.
const DEPTH_MAX: usize = 48;
/// The longest query, in bytes.
const LENGTH_MAX: usize = 4096;
/// The maximum number of values that a Stage's queries may read for one object. `BYTES_MAX` is the maximum number of
/// bytes that the queries may make or read.
const STEPS_MAX: usize = 20_000;
const BYTES_MAX: usize = 8 << 20;

/// A parsed query.
#[derive(Debug, Clone)]
pub struct Query(Filter);

#[derive(Debug, Clone)]
enum Filter {
    Identity,
    Literal(Value),
    /// The part of the first filter's value that the second filter names: `.name`, `["name"]`, `[0]`.
    At(Box<Filter>, Box<Filter>),
    Each(Box<Filter>),
    /// `f?`: the filter `f`, except that a fault of `f` gives no values instead of failing the query.
    Try(Box<Filter>),
    Pipe(Box<Filter>, Box<Filter>),
    Both(Box<Filter>, Box<Filter>),
    /// `a // b`: the values of `a`, or the values of `b` if `a` gives no value except null and false.
    Or(Box<Filter>, Box<Filter>),
    Any(Box<Filter>, Box<Filter>),
    All(Box<Filter>, Box<Filter>),
    Compare(&'static str, Box<Filter>, Box<Filter>),
    Add(bool, Box<Filter>, Box<Filter>),
    If(Box<Filter>, Box<Filter>, Box<Filter>),
    Array(Option<Box<Filter>>),
    Call(Function, Vec<Filter>),
}

/// Defines the functions of queries, each with its name and its number of arguments.
macro_rules! functions {
    ($($name:ident $text:literal $arity:literal),* $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Function { $($name),* }
        const FUNCTIONS: &[(&str, usize, Function)] = &[$(($text, $arity, Function::$name)),*];
    };
}

functions! {
    Add "add" 0, All "all" 0, AllOf "all" 1, Any "any" 0, AnyOf "any" 1, Contains "contains" 1, Empty "empty" 0,
    EndsWith "endswith" 1, First "first" 0, Has "has" 1, Join "join" 1, Keys "keys" 0, Last "last" 0,
    Length "length" 0, Lower "ascii_downcase" 0, Map "map" 1, Max "max" 0, Min "min" 0, Not "not" 0, Select "select" 1,
    Split "split" 1, StartsWith "startswith" 1, ToEntries "to_entries" 0, ToNumber "tonumber" 0, ToString "tostring" 0,
    Type "type" 0, Values "values" 0,
}

/// The query cannot handle a value, such as `null` when the query asks for the value's elements.
struct Fault;

impl From<Spent> for Fault {
    fn from(_: Spent) -> Fault {
        Fault
    }
}

type Results<'a> = Result<Vec<Cow<'a, Value>>, Fault>;

impl Query {
    pub fn parse(text: &str) -> Result<Query, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("the query is longer than {LENGTH_MAX} bytes"));
        }
        parse::filter(text).map(Query)
    }

    /// The budget that all queries about one object share.
    pub fn budget() -> Budget {
        Budget::new(STEPS_MAX, BYTES_MAX)
    }

    /// The values that the query gives for a document. If the query meets a value that it cannot handle, it gives no
    /// values.
    pub fn values<'a>(&self, document: &'a Value, budget: &Budget) -> Result<Vec<Cow<'a, Value>>, Spent> {
        let found = self.0.run(Cow::Borrowed(document), budget).unwrap_or_default();
        if budget.is_spent() { Err(Spent) } else { Ok(found) }
    }

    /// The names at the beginning of the query, such as `metadata` and `labels` for `.metadata.labels["a"]`.
    pub fn path(&self) -> Vec<&str> {
        fn walk<'f>(filter: &'f Filter, path: &mut Vec<&'f str>) -> bool {
            match filter {
                Filter::Identity => true,
                Filter::At(from, key) => match &**key {
                    Filter::Literal(Value::String(name)) if walk(from, path) => {
                        path.push(name);
                        true
                    }
                    Filter::Literal(Value::String(_)) => false,
                    _ => {
                        walk(from, path);
                        false
                    }
                },
                Filter::Each(from) | Filter::Try(from) | Filter::Pipe(from, _) => {
                    walk(from, path);
                    false
                }
                _ => false,
            }
        }
        let mut path = Vec::new();
        walk(&self.0, &mut path);
        path
    }
}

impl Filter {
    fn run<'a>(&self, input: Cow<'a, Value>, budget: &Budget) -> Results<'a> {
        budget.step(1)?;
        Ok(match self {
            Filter::Identity => vec![input],
            Filter::Literal(value) => {
                budget.whole(value)?;
                vec![Cow::Owned(value.clone())]
            }
            Filter::At(from, key) => {
                let keys = match &**key {
                    // A literal does not read its input, so the input need not be copied.
                    Filter::Literal(_) => key.run(Cow::Owned(Value::Null), budget)?,
                    _ => key.run(copy(&input, budget)?, budget)?,
                };
                let mut found = Vec::new();
                for value in from.run(input, budget)? {
                    match &keys[..] {
                        [key] => found.push(at(value, key)?),
                        keys => {
                            for key in keys {
                                found.push(at(copy(&value, budget)?, key)?);
                            }
                        }
                    }
                }
                found
            }
            Filter::Each(from) => {
                let mut found = Vec::new();
                for value in from.run(input, budget)? {
                    let parts = elements(value, budget)?;
                    budget.step(parts.len())?;
                    found.extend(parts);
                }
                found
            }
            Filter::Try(filter) => filter.run(input, budget).unwrap_or_default(),
            Filter::Pipe(first, second) => {
                let mut found = Vec::new();
                for value in first.run(input, budget)? {
                    found.extend(second.run(value, budget)?);
                }
                found
            }
            Filter::Both(first, second) => {
                let mut found = first.run(copy(&input, budget)?, budget)?;
                found.extend(second.run(input, budget)?);
                found
            }
            Filter::Or(first, second) => {
                let mut found = first.run(copy(&input, budget)?, budget).unwrap_or_default();
                found.retain(|value| truth(value));
                if found.is_empty() { second.run(input, budget)? } else { found }
            }
            Filter::Any(first, second) => self.logic(true, first, second, input, budget)?,
            Filter::All(first, second) => self.logic(false, first, second, input, budget)?,
            Filter::Compare(operator, first, second) => product(first, second, input, budget, |a, b| {
                budget.whole(a)?;
                budget.whole(b)?;
                Ok(Value::Bool(compare(operator, a, b)))
            })?,
            Filter::Add(plus, first, second) => product(first, second, input, budget, |a, b| add(*plus, a, b, budget))?,
            Filter::If(condition, then, otherwise) => {
                let mut found = Vec::new();
                for value in condition.run(copy(&input, budget)?, budget)? {
                    let branch = if truth(&value) { then } else { otherwise };
                    found.extend(branch.run(copy(&input, budget)?, budget)?);
                }
                found
            }
            Filter::Array(None) => vec![Cow::Owned(Value::Array(Vec::new()))],
            Filter::Array(Some(filter)) => vec![Cow::Owned(gathered(filter.run(input, budget)?, budget)?)],
            Filter::Call(function, arguments) => call(*function, arguments, input, budget)?,
        })
    }

    fn logic<'a>(
        &self,
        decided: bool,
        first: &Filter,
        second: &Filter,
        input: Cow<'a, Value>,
        budget: &Budget,
    ) -> Results<'a> {
        let mut found = Vec::new();
        for value in first.run(copy(&input, budget)?, budget)? {
            if truth(&value) == decided {
                found.push(Cow::Owned(Value::Bool(decided)));
            } else {
                let others = second.run(copy(&input, budget)?, budget)?;
                found.extend(others.into_iter().map(|other| Cow::Owned(Value::Bool(truth(&other)))));
            }
        }
        Ok(found)
    }
}

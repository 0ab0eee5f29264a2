//! Queries in the part of jq that selectors of Stages are written in: paths, `[]`, `select`, comparisons, alternatives
//! and the common functions. Nothing in it can define a function or loop, so a query ends, and what it may give is bounded.

use serde_json::{Number, Value};
use std::borrow::Cow;
use std::cmp::Ordering;

/// How deeply a query may nest.
const DEPTH_MAX: usize = 48;
/// How long the text of a query may be.
const LENGTH_MAX: usize = 4096;
/// How many values a query may look at.
const STEPS_MAX: usize = 20_000;

/// A query that was understood.
#[derive(Debug, Clone)]
pub struct Query(Filter);

#[derive(Debug, Clone)]
enum Filter {
    Identity,
    Literal(Value),
    /// `.name`, `["name"]`, `[0]`: of the input what the other filter names.
    At(Box<Filter>, Box<Filter>),
    Each(Box<Filter>),
    /// `f?`: faults give nothing.
    Try(Box<Filter>),
    Pipe(Box<Filter>, Box<Filter>),
    Both(Box<Filter>, Box<Filter>),
    /// `a // b`
    Or(Box<Filter>, Box<Filter>),
    Any(Box<Filter>, Box<Filter>),
    All(Box<Filter>, Box<Filter>),
    Compare(&'static str, Box<Filter>, Box<Filter>),
    Add(bool, Box<Filter>, Box<Filter>),
    If(Box<Filter>, Box<Filter>, Box<Filter>),
    Array(Option<Box<Filter>>),
    Call(Function, Vec<Filter>),
}

/// Functions with how many arguments they take.
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

/// The query meets what it cannot work with, as jq's `null` has no elements.
struct Fault;

type Found<'a> = Result<Vec<Cow<'a, Value>>, Fault>;

impl Query {
    pub fn parse(text: &str) -> Result<Query, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("the query is longer than {LENGTH_MAX} bytes"));
        }
        let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
        let filter = parser.pipe()?;
        match parser.peek() {
            None => Ok(Query(filter)),
            Some(token) => Err(format!("unexpected {token} in query {text:?}")),
        }
    }

    /// What the query gives of a document; nothing, where it meets what it cannot work with.
    pub fn values<'a>(&self, document: &'a Value) -> Vec<Cow<'a, Value>> {
        let mut steps = STEPS_MAX;
        self.0.run(Cow::Borrowed(document), &mut steps).unwrap_or_default()
    }

    /// The fields that the query begins with: `metadata`, `labels` of `.metadata.labels["a"]`.
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
    fn run<'a>(&self, input: Cow<'a, Value>, steps: &mut usize) -> Found<'a> {
        *steps = steps.checked_sub(1).ok_or(Fault)?;
        Ok(match self {
            Filter::Identity => vec![input],
            Filter::Literal(value) => vec![Cow::Owned(value.clone())],
            Filter::At(from, key) => {
                let keys = key.run(input.clone(), steps)?;
                let mut found = Vec::new();
                for value in from.run(input, steps)? {
                    for key in &keys {
                        found.push(at(value.clone(), key)?);
                    }
                }
                found
            }
            Filter::Each(from) => {
                let mut found = Vec::new();
                for value in from.run(input, steps)? {
                    let parts = elements(value)?;
                    *steps = steps.checked_sub(parts.len()).ok_or(Fault)?;
                    found.extend(parts);
                }
                found
            }
            Filter::Try(filter) => filter.run(input, steps).unwrap_or_default(),
            Filter::Pipe(first, second) => {
                let mut found = Vec::new();
                for value in first.run(input, steps)? {
                    found.extend(second.run(value, steps)?);
                }
                found
            }
            Filter::Both(first, second) => {
                let mut found = first.run(input.clone(), steps)?;
                found.extend(second.run(input, steps)?);
                found
            }
            Filter::Or(first, second) => {
                let mut found = first.run(input.clone(), steps).unwrap_or_default();
                found.retain(|value| truth(value));
                if found.is_empty() { second.run(input, steps)? } else { found }
            }
            Filter::Any(first, second) => self.logic(true, first, second, input, steps)?,
            Filter::All(first, second) => self.logic(false, first, second, input, steps)?,
            Filter::Compare(operator, first, second) => {
                product(first, second, input, steps, |a, b| Ok(Value::Bool(compare(operator, a, b))))?
            }
            Filter::Add(plus, first, second) => product(first, second, input, steps, |a, b| add(*plus, a, b))?,
            Filter::If(condition, then, otherwise) => {
                let mut found = Vec::new();
                for value in condition.run(input.clone(), steps)? {
                    let branch = if truth(&value) { then } else { otherwise };
                    found.extend(branch.run(input.clone(), steps)?);
                }
                found
            }
            Filter::Array(None) => vec![Cow::Owned(Value::Array(Vec::new()))],
            Filter::Array(Some(filter)) => vec![Cow::Owned(gathered(filter.run(input, steps)?))],
            Filter::Call(function, arguments) => call(*function, arguments, input, steps)?,
        })
    }

    fn logic<'a>(
        &self,
        decided: bool,
        first: &Filter,
        second: &Filter,
        input: Cow<'a, Value>,
        steps: &mut usize,
    ) -> Found<'a> {
        let mut found = Vec::new();
        for value in first.run(input.clone(), steps)? {
            if truth(&value) == decided {
                found.push(Cow::Owned(Value::Bool(decided)));
            } else {
                let others = second.run(input.clone(), steps)?;
                found.extend(others.into_iter().map(|other| Cow::Owned(Value::Bool(truth(&other)))));
            }
        }
        Ok(found)
    }
}

fn product<'a>(
    first: &Filter,
    second: &Filter,
    input: Cow<'a, Value>,
    steps: &mut usize,
    combine: impl Fn(&Value, &Value) -> Result<Value, Fault>,
) -> Found<'a> {
    let (left, right) = (first.run(input.clone(), steps)?, second.run(input, steps)?);
    *steps = steps.checked_sub(left.len().saturating_mul(right.len())).ok_or(Fault)?;
    let mut found = Vec::new();
    for b in &right {
        for a in &left {
            found.push(Cow::Owned(combine(a, b)?));
        }
    }
    Ok(found)
}

fn call<'a>(function: Function, arguments: &[Filter], input: Cow<'a, Value>, steps: &mut usize) -> Found<'a> {
    let one = |value: Value| Ok(vec![Cow::Owned(value)]);
    let argument = |steps: &mut usize| -> Result<Value, Fault> {
        let filter = arguments.first().ok_or(Fault)?;
        Ok(filter.run(input.clone(), steps)?.into_iter().next().ok_or(Fault)?.into_owned())
    };
    match function {
        Function::Empty => Ok(Vec::new()),
        Function::Not => one(Value::Bool(!truth(&input))),
        Function::Values => Ok(if input.is_null() { Vec::new() } else { vec![input] }),
        Function::Select => {
            let verdicts = arguments.first().ok_or(Fault)?.run(input.clone(), steps)?;
            Ok(verdicts.into_iter().filter(|verdict| truth(verdict)).map(|_| input.clone()).collect())
        }
        Function::Map => {
            let filter = arguments.first().ok_or(Fault)?;
            let mut found = Vec::new();
            for part in elements(input)? {
                found.extend(filter.run(part, steps)?);
            }
            one(gathered(found))
        }
        Function::Any | Function::All | Function::AnyOf | Function::AllOf => {
            let wanted = matches!(function, Function::Any | Function::AnyOf);
            for part in elements(input)? {
                let verdicts = match arguments.first() {
                    Some(filter) => filter.run(part, steps)?,
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
            Value::Object(fields) => {
                let mut keys: Vec<&String> = fields.keys().collect();
                keys.sort();
                keys.into_iter().map(|key| Value::from(key.as_str())).collect()
            }
            Value::Array(items) => (0..items.len()).map(Value::from).collect(),
            _ => return Err(Fault),
        }),
        Function::ToEntries => one(match &*input {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| serde_json::json!({"key": key, "value": value})).collect()
            }
            _ => return Err(Fault),
        }),
        Function::Has => one(Value::Bool(match (&*input, argument(steps)?) {
            (Value::Object(fields), Value::String(name)) => fields.contains_key(&name),
            (Value::Array(items), Value::Number(index)) => {
                index.as_u64().is_some_and(|index| index < items.len() as u64)
            }
            _ => return Err(Fault),
        })),
        Function::First => Ok(vec![at(input, &Value::from(0))?]),
        Function::Last => Ok(vec![at(input, &Value::from(-1))?]),
        Function::Min | Function::Max => {
            let parts = elements(input)?.into_iter();
            let chosen = if function == Function::Min {
                parts.min_by(|a, b| order(a, b))
            } else {
                parts.max_by(|a, b| order(a, b))
            };
            Ok(vec![chosen.unwrap_or(Cow::Owned(Value::Null))])
        }
        Function::Add => {
            let mut sum = Value::Null;
            for part in elements(input)? {
                sum = add(true, &sum, &part)?;
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
        Function::StartsWith => {
            one(Value::Bool(texts(&input, &argument(steps)?)?.0.starts_with(texts(&input, &argument(steps)?)?.1)))
        }
        Function::EndsWith => {
            one(Value::Bool(texts(&input, &argument(steps)?)?.0.ends_with(texts(&input, &argument(steps)?)?.1)))
        }
        Function::Contains => one(Value::Bool(contains(&input, &argument(steps)?))),
        Function::Split => {
            let by = argument(steps)?;
            let (text, by) = texts(&input, &by)?;
            one(text.split(by).map(Value::from).collect())
        }
        Function::Join => {
            let by = argument(steps)?;
            let parts: Vec<String> = elements(input.clone())?
                .iter()
                .map(|part| match &**part {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    other => other.to_string(),
                })
                .collect();
            one(Value::from(parts.join(by.as_str().ok_or(Fault)?)))
        }
    }
}

fn texts<'v>(one: &'v Value, other: &'v Value) -> Result<(&'v str, &'v str), Fault> {
    Ok((one.as_str().ok_or(Fault)?, other.as_str().ok_or(Fault)?))
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::String(whole), Value::String(part)) => whole.contains(part.as_str()),
        (Value::Array(whole), Value::Array(parts)) => {
            parts.iter().all(|part| whole.iter().any(|item| contains(item, part)))
        }
        (Value::Object(whole), Value::Object(parts)) => {
            parts.iter().all(|(name, part)| whole.get(name).is_some_and(|value| contains(value, part)))
        }
        (whole, part) => whole == part,
    }
}

fn gathered(found: Vec<Cow<'_, Value>>) -> Value {
    found.into_iter().map(Cow::into_owned).collect()
}

fn truth(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn at<'a>(value: Cow<'a, Value>, key: &Value) -> Result<Cow<'a, Value>, Fault> {
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

fn elements(value: Cow<'_, Value>) -> Result<Vec<Cow<'_, Value>>, Fault> {
    Ok(match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(fields)) => fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        _ => return Err(Fault),
    })
}

fn add(plus: bool, one: &Value, other: &Value) -> Result<Value, Fault> {
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
            Ok(one.iter().filter(|item| !other.contains(item)).cloned().collect())
        }
        _ => Err(Fault),
    }
}

fn compare(operator: &str, one: &Value, other: &Value) -> bool {
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

/// jq's order of all values: null, booleans, numbers, texts, arrays, objects.
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

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Sign(&'static str),
    Word(String),
    Text(String),
    Number(Number),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Sign(sign) => f.write_str(sign),
            Token::Word(word) => f.write_str(word),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Longer signs before those that they begin with.
const SIGNS: &[&str] = &["//", "==", "!=", "<=", ">=", "<", ">", "|", ",", "(", ")", "[", "]", ".", "?", "+", "-", ";"];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let used = if first == '"' {
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            match stream.next() {
                Some(Ok(found)) => tokens.push(Token::Text(found)),
                _ => return Err(format!("unfinished text in query {text:?}")),
            }
            stream.byte_offset()
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
            let number =
                rest[..end].parse().map_err(|_| format!("{:?} in query {text:?} is no number", &rest[..end]))?;
            tokens.push(Token::Number(number));
            end
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            sign.len()
        } else {
            return Err(format!("{first:?} in query {text:?} is not supported"));
        };
        rest = rest[used..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

type Parsed = Result<Filter, String>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.peek() {
            Some(token) => format!("the query has {token} where {wanted} should be"),
            None => format!("the query ends where {wanted} should be"),
        }
    }

    fn pipe(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("the query nests deeper than {DEPTH_MAX}"));
        }
        let mut filter = self.comma()?;
        let mut stages = Vec::new();
        while self.sign("|") {
            stages.push(self.comma()?);
        }
        for stage in stages {
            filter = Filter::Pipe(filter.into(), stage.into());
        }
        self.depth -= 1;
        Ok(filter)
    }

    fn comma(&mut self) -> Parsed {
        let mut filter = self.alternative()?;
        while self.sign(",") {
            filter = Filter::Both(filter.into(), self.alternative()?.into());
        }
        Ok(filter)
    }

    fn alternative(&mut self) -> Parsed {
        let mut filter = self.any()?;
        while self.sign("//") {
            filter = Filter::Or(filter.into(), self.any()?.into());
        }
        Ok(filter)
    }

    fn any(&mut self) -> Parsed {
        let mut filter = self.all()?;
        while self.word("or") {
            filter = Filter::Any(filter.into(), self.all()?.into());
        }
        Ok(filter)
    }

    fn all(&mut self) -> Parsed {
        let mut filter = self.comparison()?;
        while self.word("and") {
            filter = Filter::All(filter.into(), self.comparison()?.into());
        }
        Ok(filter)
    }

    fn comparison(&mut self) -> Parsed {
        let filter = self.sum()?;
        let operator = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|operator| self.sign(operator));
        Ok(match operator {
            Some(operator) => Filter::Compare(operator, filter.into(), self.sum()?.into()),
            None => filter,
        })
    }

    fn sum(&mut self) -> Parsed {
        let mut filter = self.postfix()?;
        loop {
            let plus = self.sign("+");
            if !plus && !self.sign("-") {
                return Ok(filter);
            }
            filter = Filter::Add(plus, filter.into(), self.postfix()?.into());
        }
    }

    fn postfix(&mut self) -> Parsed {
        let mut filter = self.term()?;
        let mut length = 0;
        loop {
            if self.sign("?") {
                filter = Filter::Try(filter.into());
            } else if self.sign("[") {
                filter = self.bracket(filter)?;
            } else if self.sign(".") {
                filter = self.after_dot(filter)?;
            } else {
                return Ok(filter);
            }
            length += 1;
            if length > DEPTH_MAX {
                return Err(format!("a path of the query is longer than {DEPTH_MAX}"));
            }
        }
    }

    /// After `.`: a name, a text, or a bracket.
    fn after_dot(&mut self, filter: Filter) -> Parsed {
        let name = match self.peek() {
            Some(Token::Word(name) | Token::Text(name)) => name.clone(),
            Some(Token::Sign("[")) => {
                self.next += 1;
                return self.bracket(filter);
            }
            _ => return Err(self.unexpected("a name")),
        };
        self.next += 1;
        Ok(Filter::At(filter.into(), Filter::Literal(name.into()).into()))
    }

    /// After `[`: `]`, or what names an element.
    fn bracket(&mut self, filter: Filter) -> Parsed {
        if self.sign("]") {
            return Ok(Filter::Each(filter.into()));
        }
        let key = self.pipe()?;
        self.expect("]")?;
        Ok(Filter::At(filter.into(), key.into()))
    }

    fn term(&mut self) -> Parsed {
        let token = self.peek().cloned().ok_or_else(|| self.unexpected("a term"))?;
        self.next += 1;
        match token {
            Token::Text(text) => Ok(Filter::Literal(text.into())),
            Token::Number(number) => Ok(Filter::Literal(number.into())),
            Token::Sign("-") => match self.peek().cloned() {
                Some(Token::Number(number)) => {
                    self.next += 1;
                    let negative = format!("-{number}").parse::<Number>().map_err(|error| error.to_string())?;
                    Ok(Filter::Literal(negative.into()))
                }
                _ => Err(self.unexpected("a number")),
            },
            Token::Sign(".") => match self.peek() {
                Some(Token::Word(name)) if !matches!(name.as_str(), "and" | "or" | "then" | "else" | "end") => {
                    self.after_dot(Filter::Identity)
                }
                Some(Token::Text(_) | Token::Sign("[")) => self.after_dot(Filter::Identity),
                _ => Ok(Filter::Identity),
            },
            Token::Sign("(") => {
                let filter = self.pipe()?;
                self.expect(")")?;
                Ok(filter)
            }
            Token::Sign("[") => {
                if self.sign("]") {
                    return Ok(Filter::Array(None));
                }
                let filter = self.pipe()?;
                self.expect("]")?;
                Ok(Filter::Array(Some(filter.into())))
            }
            Token::Word(word) => self.named(&word),
            Token::Sign(_) => {
                self.next -= 1;
                Err(self.unexpected("a term"))
            }
        }
    }

    fn named(&mut self, word: &str) -> Parsed {
        match word {
            "true" | "false" => return Ok(Filter::Literal(Value::Bool(word == "true"))),
            "null" => return Ok(Filter::Literal(Value::Null)),
            "if" => return self.condition(),
            _ => {}
        }
        let mut arguments = Vec::new();
        if self.sign("(") {
            arguments.push(self.pipe()?);
            while self.sign(";") {
                arguments.push(self.pipe()?);
            }
            self.expect(")")?;
        }
        let known = FUNCTIONS.iter().find(|(name, arity, _)| *name == word && *arity == arguments.len());
        match known {
            Some((_, _, function)) => Ok(Filter::Call(*function, arguments)),
            None => Err(format!("the function {word}/{} of jq is not supported", arguments.len())),
        }
    }

    fn condition(&mut self) -> Parsed {
        let condition = self.pipe()?;
        if !self.word("then") {
            return Err(self.unexpected("then"));
        }
        let then = self.pipe()?;
        let otherwise = if self.word("else") {
            self.pipe()?
        } else if self.word("elif") {
            return Ok(Filter::If(condition.into(), then.into(), self.condition()?.into()));
        } else {
            Filter::Identity
        };
        if !self.word("end") {
            return Err(self.unexpected("end"));
        }
        Ok(Filter::If(condition.into(), then.into(), otherwise.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn queries_give_what_jq_gives() {
        let pod = json!({
            "metadata": {"labels": {"a.b/c": "x"}, "ownerReferences": [{"kind": "Job"}, {"kind": "Other"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
                "count": 3},
        });
        let rows = [
            (".", json!([pod])),
            (".metadata.labels[\"a.b/c\"]", json!(["x"])),
            (".metadata.labels.\"a.b/c\"", json!(["x"])),
            (".metadata.ownerReferences.[].kind", json!(["Job", "Other"])),
            (".metadata.ownerReferences[0].kind", json!(["Job"])),
            (".metadata.ownerReferences[-1].kind", json!(["Other"])),
            (".status.conditions.[] | select( .type == \"Ready\" ) | .status", json!(["True"])),
            (".status.conditions[] | select(.type == \"Ready\" and .status != \"True\")", json!([])),
            (".metadata.deletionTimestamp", json!([null])),
            (".missing.deep.er", json!([null])),
            // Nothing has no elements: the query gives nothing.
            (".missing.[].kind", json!([])),
            (".missing[]?", json!([])),
            (".missing // \"none\"", json!(["none"])),
            (".status.count > 2, (.status.count | tostring)", json!([true, "3"])),
            ("[.status.conditions[].type] | length", json!([2])),
            (".status.conditions | map(.type) | join(\",\")", json!(["Ready,Other"])),
            (".status.conditions | any(.status == \"False\")", json!([true])),
            ("if .status.count == 3 then \"three\" else \"other\" end", json!(["three"])),
            (".metadata.labels | keys", json!([["a.b/c"]])),
            (".status.count - 1", json!([2])),
            (".status | has(\"count\") | not", json!([false])),
        ];
        for (text, wanted) in rows {
            let query = Query::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            let found: Value = query.values(&pod).into_iter().map(Cow::into_owned).collect();
            assert_eq!(found, wanted, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (text, complaint) in [
            ("def f: f; f", "':' in query"),
            ("input", "function input/0"),
            ("range(10)", "function range/1"),
            (".a | ", "ends where a term"),
            (".a[", "ends where a term"),
            (".a b", "unexpected b"),
            ("{a: 1}", "'{' in query"),
            ("$x", "'$' in query"),
        ] {
            let error = Query::parse(text).expect_err(text);
            assert!(error.contains(complaint), "{text}: {error}");
        }
        assert!(Query::parse(&"(".repeat(2000)).is_err());
        assert!(Query::parse(&"[".repeat(2000)).is_err());
        assert!(Query::parse(&".a".repeat(1000)).is_err());
        assert!(Query::parse(&"if ".repeat(1000)).is_err());
    }

    #[test]
    fn a_query_that_multiplies_gives_nothing() {
        let many: Value = (0..2000).map(Value::from).collect();
        let query = Query::parse("[.[] == .[]] | length").expect("a query");
        assert!(query.values(&many).is_empty());
    }

    #[test]
    fn the_path_of_a_query_is_its_leading_names() {
        let path = |text| Query::parse(text).expect("a query").path().join(".");
        assert_eq!(path(".metadata.labels[\"a.b/c\"]"), "metadata.labels.a.b/c");
        assert_eq!(path(".status.conditions.[] | select(.type == \"Ready\") | .status"), "status.conditions");
        assert_eq!(path("1"), "");
    }
}

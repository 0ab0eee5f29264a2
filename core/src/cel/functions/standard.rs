//! The standard functions that are no operators, conversions or times.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::cost::{Arguments, CallEstimate, REGEX_FACTOR, Range, scaled, traversal};
use crate::cel::value::{EvalError, Value};

type Outcome<'a> = Result<Value<'a>, EvalError>;

/// cel-go counts the text when it runs, and what is looked for when it estimates.
const EDGE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| CallEstimate { cost: arguments.size(1).traversal(), result: None },
});

const SEARCH: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()).saturating_mul(traversal(arguments[1].size())),
    estimate: |arguments| {
        let cost = arguments.size(0).traversal().mul(arguments.size(1).traversal());
        CallEstimate { cost, result: None }
    },
});

const MATCH: Cost = Cost::Custom(CustomCost { actual: pattern_cost, estimate: pattern_estimate });

/// Of running a pattern, the second argument, over a text, the first.
pub fn pattern_cost(arguments: &[Value<'_>], _result: &Value<'_>) -> u64 {
    traversal(arguments[0].size() + 1).saturating_mul(scaled(arguments[1].size(), REGEX_FACTOR))
}

pub fn pattern_estimate(arguments: &Arguments<'_>) -> CallEstimate {
    let text = arguments.size(0).add(Range::ONE).traversal();
    CallEstimate { cost: text.mul(arguments.size(1).scaled(REGEX_FACTOR)), result: None }
}

pub static TABLE: &[Overload] = &[
    overload("size(string) -> int", size, Cost::One),
    overload("size(bytes) -> int", size, Cost::One),
    overload("size(list(A)) -> int", size, Cost::One),
    overload("size(map(A, B)) -> int", size, Cost::One),
    overload("<string>.size() -> int", size, Cost::One),
    overload("<bytes>.size() -> int", size, Cost::One),
    overload("<list(A)>.size() -> int", size, Cost::One),
    overload("<map(A, B)>.size() -> int", size, Cost::One),
    overload("<string>.contains(string) -> bool", contains, SEARCH),
    overload("<string>.startsWith(string) -> bool", starts_with, EDGE),
    overload("<string>.endsWith(string) -> bool", ends_with, EDGE),
    overload("<string>.matches(string) -> bool", matches, MATCH),
    overload("matches(string, string) -> bool", matches, MATCH),
];

fn size<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::try_from(arguments[0].size()).unwrap_or(i64::MAX)))
}

fn contains<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(part)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()))
}

fn starts_with<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(prefix)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(text.starts_with(&**prefix)))
}

fn ends_with<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(suffix)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(text.ends_with(&**suffix)))
}

fn matches<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(pattern_of(pattern)?.is_match(text)))
}

/// A pattern as RE2 reads it. Patterns that are literals of an expression were read when it was compiled.
pub fn pattern_of(pattern: &str) -> Result<regex::Regex, EvalError> {
    let invalid = |error: regex::Error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        EvalError::new(format!("error parsing regexp: {reason}: `{pattern}`"))
    };
    // RE2's classes are those of ASCII unless a pattern names one of Unicode.
    let translated = ascii_classes(pattern);
    regex::RegexBuilder::new(&translated).size_limit(1 << 20).build().map_err(invalid)
}

/// `\d`, `\s`, `\w`, `\b` and their opposites mean ASCII in RE2 and Unicode in `regex`.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut characters = pattern.chars();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let next = characters.next();
                match next {
                    Some('d') => out.push_str("[0-9]"),
                    Some('D') => out.push_str("[^0-9]"),
                    Some('s') => out.push_str(r"[\t\n\f\r ]"),
                    Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                    Some('w') => out.push_str("[0-9A-Za-z_]"),
                    Some('W') => out.push_str("[^0-9A-Za-z_]"),
                    Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
                    Some('Q') => {
                        // Everything up to \E stands for itself.
                        let rest = characters.as_str();
                        let end = rest.find("\\E").unwrap_or(rest.len());
                        out.push_str(&regex::escape(&rest[..end]));
                        characters = rest[end..].strip_prefix("\\E").unwrap_or("").chars();
                    }
                    Some(next) => {
                        out.push('\\');
                        out.push(next);
                    }
                    None => out.push('\\'),
                }
                continue;
            }
            // Within a class `regex` knows operators and nested classes that RE2 does not.
            '[' if in_class && !characters.as_str().starts_with(':') => out.push_str("\\["),
            '[' => {
                in_class = true;
                out.push('[');
                let rest = characters.as_str();
                let negated = rest.starts_with('^');
                let rest = rest.strip_prefix('^').unwrap_or(rest);
                if negated {
                    out.push('^');
                }
                characters = rest.chars();
                // A bracket that comes first stands for itself.
                if let Some(rest) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    characters = rest.chars();
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            ':' if in_class && out.ends_with('[') => {
                // A named class: up to its own end.
                let rest = characters.as_str();
                match rest.find(":]") {
                    Some(end) => {
                        out.push(':');
                        out.push_str(&rest[..end + 2]);
                        characters = rest[end + 2..].chars();
                    }
                    None => out.push(':'),
                }
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out
}

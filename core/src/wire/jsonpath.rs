//! JSONPath for the printer columns of custom resources.
//!
//! The paths are in Kubernetes' dialect: fields with `\.` for a dot, quoted keys, indexes and slices, wildcards,
//! recursive descent, unions, and filters with one comparison. It is not an error if a path finds nothing.

use holdfast_value::{Number, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;

const BYTES_MAX: usize = 4096;
/// The maximum number of filters inside each other. It is limited, so that parsing cannot exhaust the stack.
const FILTERS_NESTED_MAX: usize = 8;

/// A path that was parsed once and is evaluated on many documents.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// The item of a list with this index. A negative index counts from the end: -1 is the last item.
    Index(i64),
    Slice(Option<i64>, Option<i64>, usize),
    Wildcard,
    /// The value itself, and all values below it.
    Descend,
    Filter(Operand, Option<(Comparison, Operand)>),
    Union(Vec<Step>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Literal(Value),
    Path(JsonPath),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The operators with two characters come first, so that `<=` is not parsed as `<`.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl JsonPath {
    /// Parses a path such as `.spec.replicas`. The path may be in braces and may begin with `$`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("path is longer than {BYTES_MAX} bytes"));
        }
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix('$').unwrap_or(text);
        Ok(Self { steps: steps(text, FILTERS_NESTED_MAX)? })
    }

    /// The values to which the path leads, without duplicates, in the order in which the path reaches them. `looks` is
    /// the number of values that may still be visited. If the path would visit more, it finds nothing, and `looks`
    /// becomes zero.
    pub fn find<'a>(&self, document: &'a Value, looks: &mut usize) -> Vec<&'a Value> {
        self.find_within(document, looks).unwrap_or_default()
    }

    /// Like [`Self::find`], but the result is `None` if the path would visit more than `looks` values.
    fn find_within<'a>(&self, document: &'a Value, looks: &mut usize) -> Option<Vec<&'a Value>> {
        let mut found = vec![document];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                spend(looks, 1)?;
                step.follow(value, &mut next, looks)?;
            }
            if matches!(step, Step::Descend | Step::Union(_)) {
                // A chain of such steps can reach one value several times. Without this set, the number of found values
                // would grow exponentially with the number of steps.
                let mut seen = BTreeSet::new();
                next.retain(|value| seen.insert(std::ptr::from_ref(*value)));
            }
            found = next;
        }
        Some(found)
    }
}

/// Subtracts the cost of some work from `looks`; the caller does the work afterwards. If `looks` is less than the cost,
/// `looks` becomes zero and the result is `None`.
pub(super) fn spend(looks: &mut usize, cost: usize) -> Option<()> {
    let left = looks.checked_sub(cost);
    *looks = left.unwrap_or_default();
    left.map(|_| ())
}

impl Step {
    fn follow<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>, looks: &mut usize) -> Option<()> {
        match self {
            Self::Field(name) => found.extend(value.as_object().and_then(|map| map.get(name))),
            Self::Index(index) => {
                let list = value.as_array().map_or(&[][..], Vec::as_slice);
                found.extend(usize::try_from(from_start(*index, list.len())).ok().and_then(|index| list.get(index)));
            }
            Self::Slice(start, end, by) => {
                let list = value.as_array().map_or(&[][..], Vec::as_slice);
                let bound = |index: i64| from_start(index, list.len()).clamp(0, list.len() as i64) as usize;
                let (start, end) = (start.map_or(0, bound), end.map_or(list.len(), bound));
                let slice = list.get(start..end).unwrap_or_default();
                spend(looks, slice.len())?;
                found.extend(slice.iter().step_by(*by));
            }
            Self::Wildcard => found.extend(children(value, looks)?),
            Self::Descend => descend(value, found, looks)?,
            Self::Filter(left, right) => {
                for item in value.as_array().map_or(&[][..], Vec::as_slice) {
                    spend(looks, 1)?;
                    if holds(item, left, right.as_ref(), looks)? {
                        found.push(item);
                    }
                }
            }
            Self::Union(steps) => {
                for step in steps {
                    spend(looks, 1)?;
                    step.follow(value, found, looks)?;
                }
            }
        }
        Some(())
    }
}

fn from_start(index: i64, length: usize) -> i64 {
    if index < 0 { index.saturating_add(length as i64) } else { index }
}

/// The values directly below a value. The entries of a map are ordered by key, so that the result does not depend on
/// how the map stores them.
fn children<'a>(value: &'a Value, looks: &mut usize) -> Option<Vec<&'a Value>> {
    Some(match value {
        Value::Array(list) => {
            spend(looks, list.len())?;
            list.iter().collect()
        }
        Value::Object(map) => {
            spend(looks, map.len())?;
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            entries.into_iter().map(|(_, value)| value).collect()
        }
        _ => Vec::new(),
    })
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>, looks: &mut usize) -> Option<()> {
    found.push(value);
    children(value, looks)?.into_iter().try_for_each(|child| descend(child, found, looks))
}

fn holds(item: &Value, left: &Operand, right: Option<&(Comparison, Operand)>, looks: &mut usize) -> Option<bool> {
    let left = left.of(item, looks)?;
    let Some((comparison, right)) = right else { return Some(left.is_some()) };
    let (Some(left), Some(right)) = (left, right.of(item, looks)?) else { return Some(false) };
    let order = compare(left, right);
    Some(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

impl Operand {
    /// The value of the operand for an item. The outer `None` means that `looks` is used up.
    fn of<'a>(&'a self, item: &'a Value, looks: &mut usize) -> Option<Option<&'a Value>> {
        match self {
            Self::Literal(value) => Some(Some(value)),
            Self::Path(path) => Some(path.find_within(item, looks)?.into_iter().next()),
        }
    }
}

fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
        (left, right) => (left == right).then_some(Ordering::Equal),
    }
}

fn steps(mut rest: &str, filters: usize) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    while let Some(first) = rest.chars().next() {
        match first {
            '[' => {
                let (inside, after) = bracket(rest)?;
                steps.push(bracketed(inside, filters)?);
                rest = after;
            }
            '.' => {
                rest = &rest[1..];
                if let Some(after) = rest.strip_prefix('.') {
                    steps.push(Step::Descend);
                    rest = after;
                }
                let (name, after) = field(rest);
                if name == "*" {
                    steps.push(Step::Wildcard);
                } else if !name.is_empty() {
                    steps.push(Step::Field(name));
                }
                rest = after;
            }
            _ => return Err(format!("unrecognized character in path: {rest}")),
        }
    }
    Ok(steps)
}

/// Reads the name of a field up to the next separator. A backslash before a separator makes it a part of the name.
/// Returns the name, and the text after it.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' | ']' | ',' | ' ' => return (name, &text[index..]),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// The text inside the brackets at the beginning of `text`, and the text after them. Brackets in quotes do not count.
fn bracket(text: &str) -> Result<(&str, &str), String> {
    let mut depth = 0;
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 1 => return Ok((&text[1..index], &text[index + 1..])),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    Err(format!("unterminated array: {text}"))
}

fn bracketed(inside: &str, filters: usize) -> Result<Step, String> {
    let inside = inside.trim();
    if let Some(filter) = inside.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        return self::filter(filter, filters);
    }
    let parts = split_outside_quotes(inside, ',');
    if parts.len() > 1 {
        return Ok(Step::Union(parts.into_iter().map(|part| bracketed(part, filters)).collect::<Result<_, _>>()?));
    }
    if inside == "*" {
        return Ok(Step::Wildcard);
    }
    if let Some(key) = quoted(inside) {
        return Ok(Step::Field(key.replace("\\.", ".")));
    }
    let invalid = || format!("invalid array index {inside}");
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| invalid());
    let optional = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
    match inside.split(':').collect::<Vec<_>>()[..] {
        [index] => Ok(Step::Index(number(index)?)),
        [start, end] => Ok(Step::Slice(optional(start)?, optional(end)?, 1)),
        [start, end, by] => {
            let by = usize::try_from(optional(by)?.unwrap_or(1)).ok().filter(|by| *by > 0).ok_or_else(invalid)?;
            Ok(Step::Slice(optional(start)?, optional(end)?, by))
        }
        _ => Err(invalid()),
    }
}

/// Parses a filter. `filters` is the number of filters that may be inside each other, including this one.
fn filter(text: &str, filters: usize) -> Result<Step, String> {
    let filters = filters.checked_sub(1).ok_or_else(|| format!("filters are nested too deeply: {text}"))?;
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            _ => {
                let sign = COMPARISONS.iter().find(|(sign, _)| text[index..].starts_with(sign));
                if let Some((sign, comparison)) = sign {
                    let right = operand(&text[index + sign.len()..], filters)?;
                    return Ok(Step::Filter(operand(&text[..index], filters)?, Some((*comparison, right))));
                }
            }
        }
    }
    Ok(Step::Filter(operand(text, filters)?, None))
}

fn operand(text: &str, filters: usize) -> Result<Operand, String> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix('@') {
        return Ok(Operand::Path(JsonPath { steps: steps(path, filters)? }));
    }
    if let Some(literal) = quoted(text) {
        return Ok(Operand::Literal(literal.into()));
    }
    match text {
        "true" => Ok(Operand::Literal(true.into())),
        "false" => Ok(Operand::Literal(false.into())),
        "null" | "nil" => Ok(Operand::Literal(Value::Null)),
        _ => match text.parse::<Number>() {
            Ok(number) => Ok(Operand::Literal(Value::Number(number))),
            Err(_) => Err(format!("unrecognized identifier {text}")),
        },
    }
}

fn quoted(text: &str) -> Option<&str> {
    let strip = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    strip('\'').or_else(|| strip('"'))
}

fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let mut quote = None;
    text.split(|character| {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            _ => return quote.is_none() && character == separator,
        }
        false
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use proptest::prelude::*;

    fn find<'a>(path: &JsonPath, document: &'a Value) -> Vec<&'a Value> {
        path.find(document, &mut 200_000)
    }

    #[test]
    fn paths() {
        let document = json!({
            "metadata": {"name": "x", "labels": {"app.kubernetes.io/name": "web", "plain": "p"}},
            "spec": {"replicas": 3, "list": [10, 20, 30, 40], "empty": null, "on": true},
            "status": {"conditions": [
                {"type": "Progressing", "status": "True", "n": 1},
                {"type": "Ready", "status": "False", "n": 2, "reason": "a == [b], 'c'"},
            ]},
        });
        let cases = [
            (".metadata.name", json!(["x"])),
            ("{.metadata.name}", json!(["x"])),
            ("$.metadata.name", json!(["x"])),
            (".spec.missing.deeper", json!([])),
            (".metadata.name.deeper", json!([])),
            (".spec.empty", json!([null])),
            (r".metadata.labels.app\.kubernetes\.io/name", json!(["web"])),
            (r".metadata.labels['app\.kubernetes\.io/name']", json!(["web"])),
            (r#".metadata.labels["plain"]"#, json!(["p"])),
            (".metadata.labels['plain','none']", json!(["p"])),
            (".spec.list[0]", json!([10])),
            (".spec.list[-1]", json!([40])),
            (".spec.list[9]", json!([])),
            (".spec.list[-9]", json!([])),
            (".spec.list[1:3]", json!([20, 30])),
            (".spec.list[:-1]", json!([10, 20, 30])),
            (".spec.list[::2]", json!([10, 30])),
            (".spec.list[3:1]", json!([])),
            (".spec.list[0,2]", json!([10, 30])),
            (".spec.list[*]", json!([10, 20, 30, 40])),
            (".metadata.labels.*", json!(["web", "p"])),
            (".status.conditions[*].type", json!(["Progressing", "Ready"])),
            ("..type", json!(["Progressing", "Ready"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["False"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["False"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["True"])),
            (".status.conditions[?(@.n<2)].type", json!(["Progressing"])),
            (".status.conditions[?(@.n>=1.5)].type", json!(["Ready"])),
            (".status.conditions[?(@.reason)].type", json!(["Ready"])),
            (r#".status.conditions[?(@.reason=="a == [b], 'c'")].n"#, json!([2])),
            (".status.conditions[?(@.type=='Gone')].status", json!([])),
            (".spec[?(@.type=='Gone')]", json!([])),
        ];
        for (path, expected) in cases {
            let path = JsonPath::parse(path).unwrap_or_else(|message| panic!("{path}: {message}"));
            assert_eq!(json!(find(&path, &document)), expected, "{path:?}");
        }
    }

    #[test]
    fn paths_of_strangers_stay_cheap() {
        let nested = (0..100).fold(json!([]), |inner, _| json!([inner]));
        let descents = JsonPath::parse(&"..*".repeat(20)).unwrap();
        assert_eq!(find(&descents, &nested).len(), 81);
        let nested_filters = JsonPath::parse(&format!("{}@{}", "..[?(@".repeat(8), ")]".repeat(8)).replace("@@", "@"));
        assert_eq!(find(&nested_filters.unwrap(), &nested), Vec::<&Value>::new());
        let unions = JsonPath::parse(&"[0,-1]".repeat(60)).unwrap();
        assert_eq!(find(&unions, &nested).len(), 1);
        let numbers: Value = (0..1000).collect();
        let slices = JsonPath::parse(&format!("[{}]", ["0:1000"; 500].join(","))).unwrap();
        assert_eq!(find(&slices, &numbers), Vec::<&Value>::new());
        let mut looks = 999;
        for path in ["[*]", "[0:1000]", "..b", "[?(1==2)]", "[0]"] {
            assert_eq!(JsonPath::parse(path).unwrap().find(&numbers, &mut looks), Vec::<&Value>::new(), "{path}");
            assert_eq!(looks, 0, "what is not enough is gone");
        }
        assert!(JsonPath::parse(&"[?(@".repeat(100_000)).is_err());
    }

    #[test]
    fn broken_paths() {
        let cases = [
            ("spec", "unrecognized character in path: spec"),
            (".a[", "unterminated array: ["),
            (".a[x]", "invalid array index x"),
            (".a[1:2:0]", "invalid array index 1:2:0"),
            (".a[1:2:3:4]", "invalid array index 1:2:3:4"),
            (".a[?(@.b==c)]", "unrecognized identifier c"),
            ("[?(@[?(@[?(@[?(@[?(@[?(@[?(@[?(@[?(@.a)])])])])])])])])]", "filters are nested too deeply: @.a"),
        ];
        for (path, expected) in cases {
            assert_eq!(JsonPath::parse(path), Err(expected.to_owned()), "{path}");
        }
    }

    proptest! {
        /// Users write the paths of columns, so parsing and evaluating must end without a panic for any text.
        #[test]
        fn never_panics(text in r#"[.\[\]@?()'"*:,=<>!0-9a-c\\ {}$é-]{0,24}"#) {
            if let Ok(path) = JsonPath::parse(&text) {
                find(&path, &json!({"a": [1, {"b": "c"}], "b": {"c": [[]]}, "é": null}));
            }
        }

        /// Any key can be a part of a path if its dots are escaped.
        #[test]
        fn escaped_keys(key in "[a-z./-]{1,12}") {
            let path = JsonPath::parse(&format!(".m['{}']", key.replace('.', "\\."))).unwrap();
            let document = json!({"m": {key: 7}});
            prop_assert_eq!(json!(find(&path, &document)), json!([7]));
        }
    }
}

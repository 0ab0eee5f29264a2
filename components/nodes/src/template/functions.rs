//! The functions of templates: Go's own functions, the functions of KWOK, and the common functions of sprig.

use holdfast_core::object::yaml;
use holdfast_value::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The maximum width of padding and indentation, in characters.
const PAD_MAX: usize = 128;
/// The longest text that a function may make, in bytes.
pub const TEXT_MAX: usize = 1 << 20;

/// A function, by its index in [`TABLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(usize);

/// The data that templates can read in addition to the document.
pub trait Surroundings {
    /// The present time, with nanoseconds.
    fn now(&self) -> String;
    fn start_time(&self) -> String;
    fn node_ip(&self, node: Option<&str>) -> String;
    fn node_name(&self) -> String;
    fn pod_ip(&self, node: Option<&str>, host_network: bool, uid: &str) -> String;
    /// A random number.
    fn chance(&self) -> u64;
}

type FunctionBody = fn(&[Value], &dyn Surroundings) -> Result<Value, String>;

/// The functions: the name of each, its minimum and maximum number of arguments, and its body.
const TABLE: &[(&str, usize, usize, FunctionBody)] = &[
    // The functions of Go. `and` and `or` are evaluated in `run`, because they stop at the operand that decides their
    // result.
    ("and", 1, 99, |_, _| Ok(Value::Null)),
    ("or", 1, 99, |_, _| Ok(Value::Null)),
    ("not", 1, 1, |a, _| Ok((!truth(&a[0])).into())),
    ("eq", 2, 99, |a, _| {
        let mut equal = false;
        for other in &a[1..] {
            equal |= same(&a[0], other)?;
        }
        Ok(equal.into())
    }),
    ("ne", 2, 2, |a, _| Ok((!same(&a[0], &a[1])?).into())),
    ("lt", 2, 2, |a, _| Ok(order(&a[0], &a[1])?.is_lt().into())),
    ("le", 2, 2, |a, _| Ok(order(&a[0], &a[1])?.is_le().into())),
    ("gt", 2, 2, |a, _| Ok(order(&a[0], &a[1])?.is_gt().into())),
    ("ge", 2, 2, |a, _| Ok(order(&a[0], &a[1])?.is_ge().into())),
    ("len", 1, 1, |a, _| {
        Ok(match &a[0] {
            Value::String(text) => text.len(),
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => return Err("wants a text, a list or a map".into()),
        }
        .into())
    }),
    ("index", 1, 99, |a, _| {
        let mut value = &a[0];
        for key in &a[1..] {
            value = match (value, key) {
                (Value::Null, _) => &Value::Null,
                (Value::Object(fields), Value::String(name)) => fields.get(name).unwrap_or(&Value::Null),
                (Value::Array(items), key) => {
                    let place = usize::try_from(integer(key)?).map_err(|_| "the index is negative")?;
                    items.get(place).ok_or_else(|| format!("index {place} out of {} elements", items.len()))?
                }
                _ => return Err("needs a list or a map".into()),
            };
        }
        Ok(value.clone())
    }),
    ("slice", 1, 3, |a, _| {
        let bound = |at: usize, otherwise: usize| -> Result<usize, String> {
            a.get(at)
                .map_or(Ok(otherwise), |key| usize::try_from(integer(key)?).map_err(|_| "a bound is negative".into()))
        };
        match &a[0] {
            Value::Array(items) => {
                let part = items.get(bound(1, 0)?..bound(2, items.len())?);
                Ok(part.ok_or("a bound is out of the list")?.iter().cloned().collect())
            }
            Value::String(text) => {
                let part = text.get(bound(1, 0)?..bound(2, text.len())?);
                Ok(part.ok_or("a bound is out of the text")?.into())
            }
            _ => Err("wants a list or a text".into()),
        }
    }),
    ("print", 0, 99, |a, _| Ok(a.iter().map(shown).collect::<String>().into())),
    ("println", 0, 99, |a, _| Ok((a.iter().map(shown).collect::<Vec<_>>().join(" ") + "\n").into())),
    ("printf", 1, 99, |a, _| printf(&shown(&a[0]), &a[1..]).map(Value::from)),
    // Functions that KWOK adds to the functions of Go templates.
    ("Quote", 1, 1, |a, _| {
        let text = a[0].to_string();
        Ok(if a[0].is_string() { text } else { Value::from(text).to_string() }.into())
    }),
    ("Now", 0, 0, |_, s| Ok(s.now().into())),
    ("StartTime", 0, 0, |_, s| Ok(s.start_time().into())),
    ("YAML", 1, 2, |a, _| {
        let text = yaml::write(&a[0]).map_err(|error| error.to_string())?;
        let indent = a.get(1).map_or(Ok(0), integer)?.clamp(0, 64);
        let pad = " ".repeat(usize::try_from(indent * 2).unwrap_or(0));
        Ok(if indent == 0 { text } else { format!("\n{text}").replace('\n', &format!("\n{pad}")) }.into())
    }),
    ("Version", 0, 0, |_, _| Ok(env!("CARGO_PKG_VERSION").into())),
    ("NodeConditions", 0, 0, |_, _| {
        Ok(crate::node::conditions()
            .map(|c| json!({"type": c.0, "status": c.1, "reason": c.2, "message": c.3}))
            .collect())
    }),
    ("NodeIP", 0, 0, |_, s| Ok(s.node_ip(None).into())),
    ("NodeIPWith", 1, 1, |a, s| Ok(s.node_ip(a[0].as_str()).into())),
    ("NodeName", 0, 0, |_, s| Ok(s.node_name().into())),
    ("NodePort", 0, 0, |_, _| Ok(crate::node::PORT.into())),
    ("PodIP", 0, 0, |_, s| Ok(s.pod_ip(None, false, "").into())),
    ("PodIPWith", 3, 5, |a, s| Ok(s.pod_ip(a[0].as_str(), truth(&a[1]), a[2].as_str().unwrap_or_default()).into())),
    // The functions of sprig that Stages use.
    ("add", 1, 99, |a, _| fold(a, i64::checked_add)),
    ("add1", 1, 1, |a, _| Ok(integer(&a[0])?.saturating_add(1).into())),
    ("append", 2, 2, |a, _| Ok(items(&a[0])?.iter().chain([&a[1]]).cloned().collect())),
    ("atoi", 1, 1, |a, _| Ok(integer(&a[0]).unwrap_or(0).into())),
    ("b64enc", 1, 1, |a, _| Ok(base64(shown(&a[0]).as_bytes()).into())),
    ("ceil", 1, 1, |a, _| Ok(number(&a[0])?.ceil().into())),
    ("coalesce", 1, 99, |a, _| Ok(a.iter().find(|value| truth(value)).cloned().unwrap_or_default())),
    ("contains", 2, 2, |a, _| Ok(shown(&a[1]).contains(&shown(&a[0])).into())),
    ("default", 1, 2, |a, _| Ok(a.iter().rev().find(|value| truth(value)).unwrap_or(&a[0]).clone())),
    ("dict", 0, 99, |a, _| {
        Ok(a.chunks(2).map(|pair| (shown(&pair[0]), pair.get(1).cloned().unwrap_or_default())).collect::<Map>().into())
    }),
    ("div", 2, 2, |a, _| Ok(integer(&a[0])?.checked_div(integer(&a[1])?).ok_or("division by zero")?.into())),
    ("empty", 1, 1, |a, _| Ok((!truth(&a[0])).into())),
    ("fail", 1, 1, |a, _| Err(shown(&a[0]))),
    ("first", 1, 1, |a, _| Ok(items(&a[0])?.first().cloned().unwrap_or_default())),
    ("float64", 1, 1, |a, _| Ok(number(&a[0])?.into())),
    ("floor", 1, 1, |a, _| Ok(number(&a[0])?.floor().into())),
    ("fromJson", 1, 1, |a, _| Ok(serde_json::from_str(&shown(&a[0])).unwrap_or_default())),
    ("get", 2, 2, |a, _| Ok(a[0].get(shown(&a[1])).cloned().unwrap_or_default())),
    ("has", 2, 2, |a, _| Ok(items(&a[1])?.contains(&a[0]).into())),
    ("hasKey", 2, 2, |a, _| Ok(a[0].get(shown(&a[1])).is_some().into())),
    ("hasPrefix", 2, 2, |a, _| Ok(shown(&a[1]).starts_with(&shown(&a[0])).into())),
    ("hasSuffix", 2, 2, |a, _| Ok(shown(&a[1]).ends_with(&shown(&a[0])).into())),
    ("indent", 2, 2, |a, _| indent(&a[0], &a[1]).map(Value::from)),
    ("int", 1, 1, |a, _| Ok(integer(&a[0]).unwrap_or(0).into())),
    ("int64", 1, 1, |a, _| Ok(integer(&a[0]).unwrap_or(0).into())),
    ("join", 2, 2, |a, _| Ok(items(&a[1])?.iter().map(shown).collect::<Vec<_>>().join(&shown(&a[0])).into())),
    ("keys", 1, 1, |a, _| {
        Ok(a[0].as_object().ok_or("wants a map")?.keys().map(|key| Value::from(key.as_str())).collect())
    }),
    ("kindIs", 2, 2, |a, _| Ok((shown(&a[0]) == kind(&a[1])).into())),
    ("kindOf", 1, 1, |a, _| Ok(kind(&a[0]).into())),
    ("last", 1, 1, |a, _| Ok(items(&a[0])?.last().cloned().unwrap_or_default())),
    ("list", 0, 99, |a, _| Ok(a.iter().cloned().collect())),
    ("lower", 1, 1, |a, _| Ok(shown(&a[0]).to_lowercase().into())),
    ("max", 1, 99, |a, _| fold(a, |one, other| Some(one.max(other)))),
    ("merge", 1, 99, |a, _| {
        let mut merged = Map::new();
        for map in a.iter().rev().filter_map(Value::as_object) {
            merged.extend(map.clone());
        }
        Ok(merged.into())
    }),
    ("min", 1, 99, |a, _| fold(a, |one, other| Some(one.min(other)))),
    ("mod", 2, 2, |a, _| Ok(integer(&a[0])?.checked_rem(integer(&a[1])?).ok_or("division by zero")?.into())),
    ("mul", 1, 99, |a, _| fold(a, i64::checked_mul)),
    ("nindent", 2, 2, |a, _| Ok(format!("\n{}", indent(&a[0], &a[1])?).into())),
    ("now", 0, 0, |_, s| Ok(s.now().into())),
    ("quote", 0, 99, |a, _| {
        Ok(a.iter()
            .filter(|v| !v.is_null())
            .map(|v| Value::from(shown(v)).to_string())
            .collect::<Vec<_>>()
            .join(" ")
            .into())
    }),
    ("randAlphaNum", 1, 1, |a, s| Ok(random(&a[0], s)?.into())),
    ("randInt", 2, 2, |a, s| {
        let (from, to) = (integer(&a[0])?, integer(&a[1])?);
        let span = to.checked_sub(from).and_then(|span| u64::try_from(span).ok()).filter(|span| *span > 0);
        let span = span.ok_or("the second number must be the larger one")?;
        Ok(from.saturating_add((s.chance() % span) as i64).into())
    }),
    ("repeat", 2, 2, |a, _| Ok(repeated(&shown(&a[1]), usize::try_from(integer(&a[0])?).unwrap_or(0))?.into())),
    ("replace", 3, 3, |a, _| {
        let (from, to, text) = (shown(&a[0]), shown(&a[1]), shown(&a[2]));
        if text.len().saturating_mul(to.len().max(1)) > 1 << 20 {
            return Err("the text is too long".into());
        }
        Ok(text.replace(&from, &to).into())
    }),
    ("round", 2, 2, |a, _| {
        let scale = 10f64.powi(i32::try_from(integer(&a[1])?).unwrap_or(0).clamp(0, 12));
        Ok(((number(&a[0])? * scale).round() / scale).into())
    }),
    ("set", 3, 3, |a, _| {
        let mut map = a[0].as_object().cloned().ok_or("wants a map")?;
        map.insert(shown(&a[1]), a[2].clone());
        Ok(map.into())
    }),
    ("sha256sum", 1, 1, |a, _| Ok(hex(&Sha256::digest(shown(&a[0]))).into())),
    ("splitList", 2, 2, |a, _| Ok(shown(&a[1]).split(&shown(&a[0])).map(Value::from).collect())),
    ("squote", 0, 99, |a, _| {
        Ok(a.iter().filter(|v| !v.is_null()).map(|v| format!("'{}'", shown(v))).collect::<Vec<_>>().join(" ").into())
    }),
    ("sub", 2, 2, |a, _| fold(a, i64::checked_sub)),
    ("ternary", 3, 3, |a, _| Ok(if truth(&a[2]) { &a[0] } else { &a[1] }.clone())),
    ("title", 1, 1, |a, _| {
        let text = shown(&a[0]);
        Ok(text
            .split(' ')
            .map(|word| {
                let mut letters = word.chars();
                letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
            })
            .collect::<Vec<String>>()
            .join(" ")
            .into())
    }),
    ("toJson", 1, 1, |a, _| Ok(a[0].to_string().into())),
    ("toString", 1, 1, |a, _| Ok(shown(&a[0]).into())),
    ("toYaml", 1, 1, |a, _| Ok(yaml::write(&a[0]).map_err(|error| error.to_string())?.trim_end().into())),
    ("trim", 1, 1, |a, _| Ok(shown(&a[0]).trim().into())),
    ("trimAll", 2, 2, |a, _| {
        let set = shown(&a[0]);
        Ok(shown(&a[1]).trim_matches(|c| set.contains(c)).into())
    }),
    ("trimPrefix", 2, 2, |a, _| {
        let (part, text) = (shown(&a[0]), shown(&a[1]));
        Ok(text.strip_prefix(&part).unwrap_or(&text).into())
    }),
    ("trimSuffix", 2, 2, |a, _| {
        let (part, text) = (shown(&a[0]), shown(&a[1]));
        Ok(text.strip_suffix(&part).unwrap_or(&text).into())
    }),
    ("trunc", 2, 2, |a, _| {
        let (length, text) = (integer(&a[0])?, shown(&a[1]));
        let count = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
        let kept: String = if length >= 0 {
            text.chars().take(count).collect()
        } else {
            text.chars().skip(text.chars().count().saturating_sub(count)).collect()
        };
        Ok(kept.into())
    }),
    ("uniq", 1, 1, |a, _| {
        let mut seen = BTreeSet::new();
        let new = |item: &&Value| seen.insert(item.to_string());
        Ok(items(&a[0])?.iter().take(1000).filter(new).cloned().collect())
    }),
    ("until", 1, 1, |a, _| Ok((0..integer(&a[0])?.clamp(0, 10_000)).map(Value::from).collect())),
    ("untilStep", 3, 3, |a, _| {
        let (from, to, step) = (integer(&a[0])?, integer(&a[1])?, integer(&a[2])?);
        let step = usize::try_from(step).ok().filter(|step| *step > 0).ok_or("the step must be positive")?;
        Ok((from..to).step_by(step).take(10_000).map(Value::from).collect())
    }),
    ("upper", 1, 1, |a, _| Ok(shown(&a[0]).to_uppercase().into())),
    ("uuidv4", 0, 0, |_, s| {
        let (high, low) = (s.chance(), s.chance());
        let id = format!("{high:016x}{low:016x}");
        Ok(format!("{}-{}-4{}-a{}-{}", &id[..8], &id[8..12], &id[13..16], &id[17..20], &id[20..]).into())
    }),
    ("values", 1, 1, |a, _| Ok(a[0].as_object().ok_or("wants a map")?.values().cloned().collect())),
];

pub fn find(name: &str) -> Option<Function> {
    TABLE.iter().position(|row| row.0 == name).map(Function)
}

pub fn name(function: Function) -> &'static str {
    TABLE[function.0].0
}

/// The truth value with which an operand decides the result of `and` or `or`; `None` for all other functions.
pub fn decides(function: Function) -> Option<bool> {
    match name(function) {
        "and" => Some(false),
        "or" => Some(true),
        _ => None,
    }
}

/// How many bytes a function may read or make in addition to the size of its arguments, if the number is a product of
/// sizes of arguments.
pub fn grows_by(function: Function, arguments: &[Value]) -> usize {
    let of = |at: usize| arguments.get(at).unwrap_or(&Value::Null);
    let length = |at: usize| match of(at) {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    // A printed value has at most one line for each character, so its size in lines is bounded by its size in bytes.
    let lines = |at: usize| match of(at) {
        Value::String(text) => text.bytes().filter(|byte| *byte == b'\n').count(),
        other => other.to_string().len(),
    };
    let pad = |at: usize| integer(of(at)).map_or(0, |count| usize::try_from(count).unwrap_or(0).min(PAD_MAX));
    match name(function) {
        "indent" | "nindent" => lines(1).saturating_mul(pad(0)),
        "YAML" if arguments.len() > 1 => lines(0).saturating_mul(2 * pad(1)),
        "join" | "trimAll" => length(0).saturating_mul(length(1)),
        _ => 0,
    }
}

pub fn call(function: Function, arguments: Vec<Value>, surroundings: &dyn Surroundings) -> Result<Value, String> {
    let (_, least, most, body) = TABLE[function.0];
    if !(least..=most).contains(&arguments.len()) {
        return Err(format!("{} arguments, and it takes {least} to {most}", arguments.len()));
    }
    body(&arguments, surroundings)
}

/// Whether `if` counts a value as true. Zero and empty values count as false.
pub fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// The text that an action prints for a value.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".into(),
        Value::String(text) => text.to_string(),
        Value::Bool(_) => value.to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}:{}", shown(value))).collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
    }
}

fn same(one: &Value, other: &Value) -> Result<bool, String> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => Ok(one.as_f64() == other.as_f64()),
        (Value::Null, other) | (other, Value::Null) => Ok(other.is_null()),
        (one, other) if std::mem::discriminant(one) == std::mem::discriminant(other) => Ok(one == other),
        _ => Err("incompatible types for comparison".into()),
    }
}

fn order(one: &Value, other: &Value) -> Result<Ordering, String> {
    match (one, other) {
        (Value::String(one), Value::String(other)) => Ok(one.cmp(other)),
        (Value::Number(one), Value::Number(other)) => {
            one.as_f64().partial_cmp(&other.as_f64()).ok_or_else(|| "numbers that have no order".into())
        }
        _ => Err("incompatible types for comparison".into()),
    }
}

fn integer(value: &Value) -> Result<i64, String> {
    match value {
        Value::Number(number) => Ok(number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or(0.0) as i64)),
        Value::String(text) => text.trim().parse().map_err(|_| format!("{text:?} is not a number")),
        Value::Bool(value) => Ok(i64::from(*value)),
        Value::Null => Ok(0),
        _ => Err("wants a number".into()),
    }
}

fn number(value: &Value) -> Result<f64, String> {
    match value {
        Value::Number(number) => Ok(number.as_f64().unwrap_or(0.0)),
        Value::String(text) => text.trim().parse().map_err(|_| format!("{text:?} is not a number")),
        other => integer(other).map(|number| number as f64),
    }
}

fn fold(arguments: &[Value], combine: fn(i64, i64) -> Option<i64>) -> Result<Value, String> {
    let mut numbers = arguments.iter().map(integer);
    let first = numbers.next().unwrap_or(Ok(0))?;
    let result = numbers
        .try_fold(first, |sum, number| combine(sum, number?).ok_or_else(|| "the number is too large".to_owned()));
    result.map(Value::from)
}

fn items(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        _ => Err("wants a list".into()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

fn indent(count: &Value, text: &Value) -> Result<String, String> {
    let pad = " ".repeat(usize::try_from(integer(count)?).unwrap_or(0).min(PAD_MAX));
    Ok(format!("{pad}{}", shown(text).replace('\n', &format!("\n{pad}"))))
}

fn random(length: &Value, surroundings: &dyn Surroundings) -> Result<String, String> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let length = integer(length)?.clamp(0, 256);
    Ok((0..length).map(|_| char::from(LETTERS[(surroundings.chance() % 62) as usize])).collect())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// `printf` with the verbs `%s %d %v %q %f %t %x %%`, widths and precision.
fn printf(format: &str, arguments: &[Value]) -> Result<String, String> {
    let (mut text, mut rest, mut arguments) = (String::new(), format, arguments.iter());
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic() || c == '%').ok_or("a verb is not finished")?;
        let (flags, verb) = (&after[..end], after[end..].chars().next().unwrap_or('%'));
        rest = &after[end + 1..];
        if verb == '%' {
            text.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            text.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        let (width, precision) = flags.split_once('.').unwrap_or((flags, ""));
        let precision = precision.parse::<usize>().ok().map(|precision| precision.min(64));
        let body = match verb {
            's' | 'v' | 't' => shown(argument),
            'd' => integer(argument)?.to_string(),
            'q' => Value::from(shown(argument)).to_string(),
            'f' => format!("{:.*}", precision.unwrap_or(6), number(argument)?),
            'x' => format!("{:x}", integer(argument)?),
            other => return Err(format!("the verb %{other} is not supported")),
        };
        let zeros = width.starts_with('0') && verb != 's';
        let left = width.starts_with('-');
        let width = width.trim_start_matches(['-', '+', '0', ' ']).parse::<usize>().unwrap_or(0).min(1024);
        let missing = width.saturating_sub(body.chars().count());
        let pad = if zeros { "0" } else { " " }.repeat(missing);
        text.push_str(&if left { body + &pad } else { pad + &body });
    }
    text.push_str(rest);
    Ok(text)
}

/// Repeats a text, unless the result would be longer than [`TEXT_MAX`].
fn repeated(text: &str, count: usize) -> Result<String, String> {
    if text.len().saturating_mul(count) > TEXT_MAX {
        return Err(format!("more than {TEXT_MAX} bytes"));
    }
    let mut repeated = String::new();
    for _ in 0..count {
        repeated.push_str(text);
    }
    Ok(repeated)
}

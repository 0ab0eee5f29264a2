//! CEL's extension for strings, in the version that Kubernetes uses. Indexes count characters.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::cost::{Arguments, CallEstimate, Range, scaled, traversal};
use crate::cel::value::{EvalError, Value};

type EvalResult<'a> = Result<Value<'a>, EvalError>;

/// The cost of searching a text: a tenth of the number of the text's bytes. Unlike for other costs, Kubernetes counts
/// bytes and rounds down.
const FIND: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| arguments[0].as_str().map_or(1, |text| (text.len() as f64 * 0.1) as u64),
    estimate: |arguments| CallEstimate { cost: arguments.size(0).traversal(), result: None },
});

const REWRITE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| {
        let size = arguments.size(0);
        CallEstimate { cost: size.traversal(), result: Some(size) }
    },
});

const REPLACE: Cost =
    Cost::Custom(CustomCost { actual: |arguments, _| scaled(arguments[0].size(), 0.2), estimate: replaced });

const SPLIT: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| scaled(arguments[0].size(), 0.2),
    estimate: |arguments| {
        let size = arguments.size(0);
        let limit = arguments.arguments.get(2).and_then(|limit| limit.number);
        let max = limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(size.max);
        CallEstimate { cost: size.scaled(0.2), result: Some(Range { min: 0, max }) }
    },
});

const JOIN: Cost = Cost::Custom(CustomCost {
    actual: |_, result| scaled(result.size(), 0.2),
    estimate: |arguments| {
        let list = arguments.size(0);
        let item = arguments.arguments.first().and_then(|list| list.item_type);
        let mut size = item.map_or(Range::ZERO, |_| list.mul(arguments.item_size(0)));
        if arguments.arguments.len() > 1 {
            let gaps = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
            size = size.add(arguments.size(1).mul(gaps));
        }
        CallEstimate { cost: size.traversal(), result: Some(size) }
    },
});

const QUOTE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| {
        let size = arguments.size(0);
        let quotes = Range::exactly(2);
        let result = Range { min: size.min, max: size.max.saturating_mul(2) }.add(quotes);
        CallEstimate { cost: size.traversal(), result: Some(result) }
    },
});

pub static TABLE: &[Overload] = &[
    overload("<string>.charAt(int) -> string", char_at, Cost::One),
    overload("<string>.indexOf(string) -> int", index_of, FIND),
    overload("<string>.indexOf(string, int) -> int", index_of, FIND),
    overload("<string>.lastIndexOf(string) -> int", last_index_of, FIND),
    overload("<string>.lastIndexOf(string, int) -> int", last_index_of, FIND),
    overload("<list(string)>.join() -> string", join, JOIN),
    overload("<list(string)>.join(string) -> string", join, JOIN),
    overload("<string>.lowerAscii() -> string", lower, REWRITE),
    overload("<string>.upperAscii() -> string", upper, REWRITE),
    overload("<string>.trim() -> string", trim, REWRITE),
    overload("<string>.substring(int) -> string", substring, REWRITE),
    overload("<string>.substring(int, int) -> string", substring, REWRITE),
    overload("<string>.replace(string, string) -> string", replace, REPLACE),
    overload("<string>.replace(string, string, int) -> string", replace, REPLACE),
    overload("<string>.split(string) -> list(string)", split, SPLIT),
    overload("<string>.split(string, int) -> list(string)", split, SPLIT),
    overload("strings.quote(string) -> string", quote, QUOTE),
];

/// Estimates the size of the result of `replace`. The longest result replaces the shortest old text by the longest new
/// text as often as possible, or keeps the text.
fn replaced(arguments: &Arguments<'_>) -> CallEstimate {
    let (size, old, new) = (arguments.size(0), arguments.size(1), arguments.size(2));
    let divided = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
    // The maximum number of times that the new text occurs in the result, and the length of the part that is not
    // replaced.
    let (most, kept_most) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (divided(size.max, old.min), 0)
    };
    let (least, kept_least) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (divided(size.min, old.max), 0)
    };
    let Range { min, max } = Range { min: least, max: most }.mul(new).add(Range { min: kept_least, max: kept_most });
    // For the shortest result, an old text that is longer than the text counts as occurring once.
    CallEstimate { cost: size.scaled(0.2), result: Some(Range { min: min.min(max), max }) }
}

fn text<'v>(arguments: &'v [Value<'_>], index: usize) -> Result<&'v str, EvalError> {
    arguments.get(index).and_then(Value::as_str).ok_or_else(EvalError::no_such_overload)
}

fn int(arguments: &[Value<'_>], index: usize) -> Option<i64> {
    match arguments.get(index) {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    }
}

/// The byte offset of the character at `index`. The index after the last character is the end of the text.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

fn char_at<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let text = text(arguments, 0)?;
    let index = int(arguments, 1).ok_or_else(EvalError::no_such_overload)?;
    let at = byte_of(text, index).ok_or_else(|| out_of_range(index))?;
    Ok(Value::text(text[at..].chars().next().map(String::from).unwrap_or_default()))
}

fn characters_before(text: &str, byte: Option<usize>) -> Value<'static> {
    Value::Int(byte.map_or(-1, |byte| text[..byte].chars().count() as i64))
}

fn index_of<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let (text, part) = (text(arguments, 0)?, text(arguments, 1)?);
    let from = int(arguments, 2).unwrap_or(0);
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    // A search that starts after the end of the text finds nothing.
    let Some(start) = byte_of(text, from) else { return Ok(Value::Int(-1)) };
    let found = memchr::memmem::find(&text.as_bytes()[start..], part.as_bytes());
    Ok(characters_before(text, found.map(|at| at + start)))
}

fn last_index_of<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let (text, part) = (text(arguments, 0)?, text(arguments, 1)?);
    let limit = match int(arguments, 2) {
        None => text.len(),
        Some(from) if part.is_empty() => return Ok(Value::Int(from)),
        Some(from) if from < 0 => return Err(out_of_range(from)),
        // The search covers the parts of the text that start at or before the character with this index.
        Some(from) => match byte_of(text, from) {
            Some(start) if start < text.len() => (start + part.len()).min(text.len()),
            _ => return Ok(Value::Int(-1)),
        },
    };
    Ok(characters_before(text, memchr::memmem::rfind(&text.as_bytes()[..limit], part.as_bytes())))
}

fn join<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let separator = arguments.get(1).and_then(Value::as_str).unwrap_or_default();
    let mut joined = String::new();
    for (at, item) in arguments[0].items().enumerate() {
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(item?.as_str().ok_or_else(EvalError::no_such_overload)?);
    }
    Ok(Value::text(joined))
}

fn lower<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::text(text(arguments, 0)?.to_ascii_lowercase()))
}

fn upper<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::text(text(arguments, 0)?.to_ascii_uppercase()))
}

fn trim<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::text(text(arguments, 0)?.trim().to_owned()))
}

fn substring<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let text = text(arguments, 0)?;
    let start = int(arguments, 1).ok_or_else(EvalError::no_such_overload)?;
    let start_byte = byte_of(text, start);
    let end = int(arguments, 2);
    if let Some(end) = end
        && start > end
    {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let start_byte = start_byte.ok_or_else(|| out_of_range(start))?;
    let end_byte = match end {
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(Value::text(text[start_byte..end_byte].to_owned()))
}

/// The maximum number of bytes of a text that a function computes. It limits the memory of an evaluation.
const MAX_TEXT: usize = 64 << 20;

fn replace<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let (text, old, new) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    let limit = int(arguments, 3).and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let count = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).take(limit).count() };
    if count.min(limit).saturating_mul(new.len()) > MAX_TEXT {
        return Err(EvalError::Cost);
    }
    Ok(Value::text(text.replacen(old, new, limit)))
}

fn split<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let (text, separator) = (text(arguments, 0)?, text(arguments, 1)?);
    let limit = int(arguments, 2).and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let part = |part: &str| Value::text(part.to_owned());
    let parts: Vec<Value<'a>> = if !separator.is_empty() {
        if limit == 0 { Vec::new() } else { text.splitn(limit, separator).map(part).collect() }
    } else {
        // An empty separator separates all characters. If there are more parts than the limit, the last part contains
        // the rest.
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).take(limit).collect();
        let ends = starts.iter().copied().skip(1).chain([text.len()]);
        starts.iter().copied().zip(ends).map(|(start, end)| part(&text[start..end])).collect()
    };
    Ok(Value::list(parts))
}

fn quote<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    Ok(Value::text(quoted(text(arguments, 0)?)))
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

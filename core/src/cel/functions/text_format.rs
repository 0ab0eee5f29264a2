//! `'%s has %d'.format([name, number])`: parses the template and formats values.
//!
//! The checker parses literal templates with the same code. A clause that cannot format the type of its argument is
//! then an error in the expression.

use super::{Cost, CustomCost, Overload, as_text, overload};
use crate::cel::cost::{CallEstimate, traversal};
use crate::cel::functions::kubernetes::quoted;
use crate::cel::types::Type;
use crate::cel::value::{EvalError, Value};

pub static TABLE: &[Overload] = &[overload("<string>.format(list(dyn)) -> string", format, FORMAT)];

const FORMAT: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| CallEstimate { cost: arguments.size(0).traversal(), result: None },
});

/// The maximum number of bytes of a formatted text. It limits the memory of an evaluation.
const TEXT_MAX: usize = 64 << 20;
/// The maximum precision, in digits after the point. No number has so many digits.
const PRECISION_MAX: usize = 1_000;
/// The number of digits after the point if the clause names none. A number inside a list is always written with this
/// many.
const PRECISION: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clause {
    Text,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Octal,
    Hex { upper: bool },
}

/// A clause of a template, such as `%.3f`: how it formats, its precision, and the index of the argument that it
/// formats.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub clause: Clause,
    pub precision: Option<usize>,
    pub argument: usize,
}

pub enum Piece<'t> {
    Plain(&'t str),
    Asked(Asked),
}

/// Parses a template that has `arguments` arguments, and calls `each` with each of its pieces. Returns the number of
/// arguments that the template uses.
pub fn read<'t, E>(
    template: &'t str,
    arguments: usize,
    mut each: impl FnMut(Piece<'t>) -> Result<(), E>,
    fail: impl Fn(String) -> E,
) -> Result<usize, E> {
    let mut rest = template;
    let mut argument = 0;
    while let Some(at) = rest.find('%') {
        each(Piece::Plain(&rest[..at]))?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            each(Piece::Plain("%"))?;
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err(fail("unexpected end of string".into()));
        }
        if argument >= arguments {
            return Err(fail(format!("index {argument} out of range")));
        }
        let unread = |why: String| fail(format!("could not parse formatting clause: {why}"));
        let (precision, after) =
            precision(rest).map_err(|why| unread(format!("error while parsing precision: {why}")))?;
        let verb = after.chars().next().unwrap_or_default();
        let clause = match verb {
            's' => Clause::Text,
            'd' => Clause::Decimal,
            'f' => Clause::Fixed,
            'e' => Clause::Scientific,
            'b' => Clause::Binary,
            'o' => Clause::Octal,
            'x' | 'X' => Clause::Hex { upper: verb == 'X' },
            other => return Err(unread(format!("unrecognized formatting clause \"{other}\""))),
        };
        each(Piece::Asked(Asked { clause, precision, argument }))?;
        rest = &after[1..];
        argument += 1;
    }
    each(Piece::Plain(rest))?;
    Ok(argument)
}

fn precision(text: &str) -> Result<(Option<usize>, &str), String> {
    let Some(after) = text.strip_prefix('.') else { return Ok((None, text)) };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = after.split_at(digits);
    if rest.is_empty() {
        return Err("could not find end of precision specifier".into());
    }
    let fail = |why: &str| {
        format!("error while converting precision to integer: strconv.Atoi: parsing {}: {why}", quoted(number))
    };
    if number.is_empty() {
        return Err(fail("invalid syntax"));
    }
    let precision = number.parse().map_err(|_| fail("value out of range"))?;
    Ok((Some(precision), rest))
}

impl Clause {
    /// The error for a value of type `ty`, which the clause cannot format.
    pub fn refusal(self, ty: &str) -> String {
        match self {
            Clause::Text => {
                let shown = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
                format!("string clause can only be used on {shown}, was given {ty}")
            }
            Clause::Decimal => format!("decimal clause can only be used on integers, was given {ty}"),
            Clause::Fixed => format!("fixed-point clause can only be used on doubles, was given {ty}"),
            Clause::Scientific => format!("scientific clause can only be used on doubles, was given {ty}"),
            Clause::Binary => format!("only integers and bools can be formatted as binary, was given {ty}"),
            Clause::Octal => format!("octal clause can only be used on integers, was given {ty}"),
            Clause::Hex { .. } => {
                format!("only integers, byte buffers, and strings can be formatted as hex, was given {ty}")
            }
        }
    }

    /// Whether the clause can format at least one value of the type.
    pub fn accepts(self, ty: &Type) -> bool {
        let ty = ty.plain();
        let is_whole = matches!(ty, Type::Int | Type::Uint);
        matches!(ty, Type::Dyn | Type::Error)
            || match self {
                Clause::Text => !matches!(ty, Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Param(_)),
                Clause::Decimal | Clause::Octal => is_whole,
                // The numbers NaN and infinity may be passed as strings.
                Clause::Fixed | Clause::Scientific => matches!(ty, Type::Double | Type::String),
                Clause::Binary => is_whole || *ty == Type::Bool,
                Clause::Hex { .. } => is_whole || matches!(ty, Type::String | Type::Bytes),
            }
    }
}

fn format<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(template), list] = arguments else { return Err(EvalError::no_such_overload()) };
    let size = usize::try_from(list.list_len().ok_or_else(EvalError::no_such_overload)?).unwrap_or(usize::MAX);
    let mut out = String::new();
    let piece = |piece: Piece<'_>| {
        match piece {
            Piece::Plain(text) => out.push_str(text),
            Piece::Asked(asked) => {
                let value = list.item(asked.argument as u64).transpose()?.unwrap_or(Value::Null);
                show(&mut out, asked, &value)
                    .map_err(|why| EvalError::new(format!("error during formatting: {why}")))?;
            }
        }
        if out.len() > TEXT_MAX { Err(EvalError::Cost) } else { Ok(()) }
    };
    read(template, size, piece, EvalError::new)?;
    Ok(Value::text(out))
}

fn show(out: &mut String, asked: Asked, value: &Value<'_>) -> Result<(), String> {
    let refuse = || Err(asked.clause.refusal(value.type_of().value_name()));
    match (asked.clause, value) {
        (Clause::Text, value) => return text(out, value),
        (Clause::Decimal, Value::Int(_) | Value::Uint(_)) => out.push_str(&as_text(value)),
        (Clause::Fixed | Clause::Scientific, value) => {
            let number = match value {
                Value::Double(number) => *number,
                Value::String(text) => match &**text {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return refuse(),
                },
                _ => return refuse(),
            };
            let is_fixed = asked.clause == Clause::Fixed;
            let precision = asked.precision.unwrap_or(PRECISION).min(PRECISION_MAX);
            out.push_str(&if is_fixed { fixed(number, precision) } else { scientific(number) });
        }
        (Clause::Binary, Value::Bool(value)) => out.push(if *value { '1' } else { '0' }),
        (Clause::Binary | Clause::Octal | Clause::Hex { .. }, Value::Int(_) | Value::Uint(_)) => {
            let (negative, size) = match value {
                Value::Int(value) => (*value < 0, value.unsigned_abs()),
                Value::Uint(value) => (false, *value),
                _ => (false, 0),
            };
            if negative {
                out.push('-');
            }
            out.push_str(&match asked.clause {
                Clause::Binary => format!("{size:b}"),
                Clause::Octal => format!("{size:o}"),
                Clause::Hex { upper: true } => format!("{size:X}"),
                _ => format!("{size:x}"),
            });
        }
        (Clause::Hex { upper }, Value::String(text)) => hex(out, text.as_bytes(), upper),
        (Clause::Hex { upper }, Value::Bytes(bytes)) => hex(out, bytes, upper),
        _ => return refuse(),
    }
    Ok(())
}

fn hex(out: &mut String, bytes: &[u8], upper: bool) {
    for byte in bytes {
        out.push_str(&if upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
    }
}

fn unlimited(number: f64) -> Option<String> {
    if number.is_finite() {
        return None;
    }
    Some(
        if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "∞"
        } else {
            "-∞"
        }
        .to_owned(),
    )
}

/// Formats a number with commas between thousands, as in English.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(text) = unlimited(number) {
        return text;
    }
    let text = format!("{number:.precision$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = sign.to_owned();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Formats a number as `1.5×10⁰³`. The exponent has at least two digits.
fn scientific(number: f64) -> String {
    if let Some(text) = unlimited(number) {
        return text;
    }
    let text = format!("{number:.PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised = format!("{exponent:0>2}");
    let raised = raised.bytes().filter_map(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(usize::from(digit - b'0')));
    format!("{digits}×10{sign}{}", raised.collect::<String>())
}

/// Formats an argument of the template.
fn text(out: &mut String, value: &Value<'_>) -> Result<(), String> {
    match value {
        Value::Optional(_) | Value::Opaque(_) | Value::Made(_) => {
            Err(Clause::Text.refusal(value.type_of().value_name()))
        }
        value if value.list_len().is_some() || value.is_map() => part(out, value),
        Value::Bytes(bytes) => {
            out.push_str(&String::from_utf8_lossy(bytes));
            Ok(())
        }
        scalar => {
            out.push_str(&as_text(scalar));
            Ok(())
        }
    }
}

/// Formats a value inside a list or map.
fn part(out: &mut String, value: &Value<'_>) -> Result<(), String> {
    if out.len() > TEXT_MAX {
        return Err("the text becomes too long".to_owned());
    }
    match value {
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Bytes(bytes) => out.push_str(&format!("b{}", quoted(&String::from_utf8_lossy(bytes)))),
        Value::Timestamp(_) => out.push_str(&format!("timestamp({})", quoted(&as_text(value)))),
        Value::Duration(_) => out.push_str(&format!("duration({})", quoted(&as_text(value)))),
        Value::Double(number) if number.is_finite() => out.push_str(&format!("{number:.PRECISION$}")),
        Value::Double(_) => out.push_str(&quoted(&as_text(value))),
        Value::Optional(_) | Value::Opaque(_) | Value::Made(_) => {
            return Err(format!("no formatting function for {}", value.type_of().value_name()));
        }
        list if list.list_len().is_some() => {
            out.push('[');
            for (at, item) in list.items().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                part(out, &item.map_err(|error| error.to_string())?)?;
            }
            out.push(']');
        }
        map if map.is_map() => entries(out, map)?,
        scalar => out.push_str(&as_text(scalar)),
    }
    Ok(())
}

/// Writes the entries of a map, sorted by the texts of their keys.
fn entries(out: &mut String, map: &Value<'_>) -> Result<(), String> {
    let mut keys = Vec::new();
    for key in map.keys() {
        let shown = match &key {
            Value::String(text) => quoted(text),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) => as_text(&key),
            other => {
                return Err(format!("no formatting function for map key of type {}", other.type_of().value_name()));
            }
        };
        keys.push((shown, key));
    }
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    out.push('{');
    for (at, (shown, key)) in keys.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        out.push_str(shown);
        out.push(':');
        if let Some(value) = map.get(key).map_err(|error| error.to_string())? {
            part(out, &value)?;
        }
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{fixed, scientific};

    #[test]
    fn numbers_read_as_in_english() {
        for (number, precision, expected) in [
            (1234567.891, 2, "1,234,567.89"),
            (-1234.5, 0, "-1,234"),
            (999.0, 6, "999.000000"),
            (f64::INFINITY, 2, "∞"),
            (f64::NEG_INFINITY, 2, "-∞"),
        ] {
            assert_eq!(fixed(number, precision), expected);
        }
        for (number, expected) in
            [(1234.5678, "1.234568×10⁰³"), (0.00012, "1.200000×10⁻⁰⁴"), (-1.5e100, "-1.500000×10¹⁰⁰")]
        {
            assert_eq!(scientific(number), expected);
        }
    }
}

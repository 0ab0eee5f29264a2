//! Durations in Go's format, such as `1h30m`, `-1.5s` and `0`.

use std::time::Duration;

/// The units, each with the number of nanoseconds in it.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Checks that Go can parse `text` as a duration; otherwise returns Go's error.
pub fn check(text: &str) -> Result<(), String> {
    nanos(text).map(|_| ())
}

/// The number of nanoseconds in a duration. As in Go, the number must fit a signed 64-bit integer.
pub fn nanos(text: &str) -> Result<i64, String> {
    i64::try_from(total(text)?).map_err(|_| invalid(text))
}

fn invalid(text: &str) -> String {
    format!("time: invalid duration {}", quoted(text))
}

/// The number of nanoseconds in a duration, which may be longer than Go's longest duration (about 292 years).
pub fn total(text: &str) -> Result<i128, String> {
    let invalid = || invalid(text);
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut total: i128 = 0;
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(rest);
        let fraction = rest[whole..].strip_prefix('.').map_or(0, |fraction| 1 + digits(fraction));
        let (number, after) = rest.split_at(whole + fraction);
        if !number.contains(|c: char| c.is_ascii_digit()) {
            return Err(invalid());
        }
        let begins_number = |c: char| c.is_ascii_digit() || c == '.';
        let (unit, after) = after.split_at(after.find(begins_number).unwrap_or(after.len()));
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quoted(text)));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {} in duration {}", quoted(unit), quoted(text)));
        };
        total = total.saturating_add(amount(number, *scale));
        rest = after;
    }
    Ok(if text.starts_with('-') { -total } else { total })
}

/// The maximum number of digits of a fraction that are read. The digits after them are less than a nanosecond in every
/// unit.
const FRACTION_DIGITS: usize = 18;

/// The nanoseconds in `number` units, where a unit has `scale` nanoseconds and `number` is a decimal number.
fn amount(number: &str, scale: i128) -> i128 {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(i128::MAX) };
    // The digits that are left out are less than a nanosecond.
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let digits: i128 = if fraction.is_empty() { 0 } else { fraction.parse().unwrap_or(0) };
    let fraction = digits * scale / 10_i128.pow(fraction.len() as u32);
    whole.saturating_mul(scale).saturating_add(fraction)
}

/// A duration in nanoseconds as Go prints it: `15s`, `1m0s`, `1h0m0.5s`, `1.5ms`.
pub fn text(nanos: i64) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    // As in Go, the unit is the largest one in which the number before the decimal point is not zero.
    let (unit, name) = match nanos {
        0 => return "0s".into(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, part) = (nanos / unit, nanos % unit);
    let digits = unit.ilog10() as usize;
    let part = format!("{part:0digits$}");
    let part = part.trim_end_matches('0');
    let point = if unit == 1 || part.is_empty() { String::new() } else { format!(".{part}") };
    if name != "s" {
        return format!("{sign}{whole}{point}{name}");
    }
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}{point}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}{point}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}{point}s"),
    }
}

/// Like [`text`]. A time longer than Go's longest duration is printed as the longest duration.
pub fn text_of(time: Duration) -> String {
    text(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

/// Quotes as Go's time package does: bytes other than printable ASCII are escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' | 0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("1h30m", ""),
            ("-1.5s", ""),
            ("0", ""),
            (".5s", ""),
            ("1µs", ""),
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("x", r#"time: invalid duration "x""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("..5s", r#"time: invalid duration "..5s""#),
            ("1h-5m", r#"time: unknown unit "h-" in duration "1h-5m""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            (
                "99999999999999999999999999999999999999999999h",
                r#"time: invalid duration "99999999999999999999999999999999999999999999h""#,
            ),
            ("5", r#"time: missing unit in duration "5""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1é", r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#),
        ];
        for (text, problem) in cases {
            assert_eq!(check(text).err().unwrap_or_default(), problem, "{text}");
        }
        let amounts = [
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            (".5s", 500_000_000),
            ("0", 0),
            ("1µs2ns", 1_002),
            ("0.000000000009h", 32),
            ("0.0000000000000000000000000000000000000000001h", 0),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ];
        for (text, expected) in amounts {
            assert_eq!(nanos(text), Ok(expected), "{text}");
        }
    }
    #[test]
    fn durations_show_as_gos() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (900, "900ns"),
            (1_500, "1.5µs"),
            (2_000_000, "2ms"),
            (512_000_001, "512.000001ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (61_500_000_000, "1m1.5s"),
            (3_600_000_001_000, "1h0m0.000001s"),
            (-2_000_000_000, "-2s"),
            (-3_661_000_000_001, "-1h1m1.000000001s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (duration, shown) in cases {
            assert_eq!(text(duration), shown);
            assert_eq!(nanos(shown), Ok(duration), "{shown}");
        }
        assert_eq!(text_of(Duration::MAX), text(i64::MAX));
    }
}

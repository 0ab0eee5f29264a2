//! Go's durations: `1h30m`, `-1.5s`, `0`.

/// Units with their nanoseconds.
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

/// The nanoseconds of a duration, within 64 bits.
pub fn nanos(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quoted(text));
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
    let total = if text.starts_with('-') { -total } else { total };
    i64::try_from(total).map_err(|_| invalid())
}

/// A decimal number of units of `scale` nanoseconds.
fn amount(number: &str, scale: i128) -> i128 {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(i128::MAX) };
    let mut part = scale;
    let fraction: i128 = fraction
        .bytes()
        .map(|digit| {
            part /= 10;
            part * i128::from(digit - b'0')
        })
        .sum();
    whole.saturating_mul(scale).saturating_add(fraction)
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
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ];
        for (text, expected) in amounts {
            assert_eq!(nanos(text), Ok(expected), "{text}");
        }
    }
}

//! Go's durations: `1h30m`, `-1.5s`, `0`.

const UNITS: [&str; 8] = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];

/// Whether Go reads `text` as a duration, and if not, in its words why.
pub fn check(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {}", quoted(text));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
            return Err(invalid());
        }
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quoted(text)));
        }
        if !UNITS.contains(&unit) {
            return Err(format!("time: unknown unit {} in duration {}", quoted(unit), quoted(text)));
        }
        rest = after;
    }
    Ok(())
}

/// As Go's time package quotes: what is not printable ASCII shows as its bytes.
pub(super) fn quoted(text: &str) -> String {
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
            ("1.2.3s", r#"time: invalid duration "1.2.3s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1é", r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#),
        ];
        for (text, problem) in cases {
            assert_eq!(check(text).err().unwrap_or_default(), problem, "{text}");
        }
    }
}

//! Checks times in documents. They are in RFC 3339 as Go's `time.Parse` reads it, and errors have the text of Go's
//! errors.

use jiff::{
    SignedDuration,
    civil::{Date, DateTime},
};

use crate::object::duration::quoted;

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Checks a `Time`. A fraction of a second is accepted and dropped. Returns the form in which Kubernetes writes the
/// time if it differs from the text.
pub fn seconds(text: &str) -> Result<Option<String>, String> {
    let time = parse(text, SECONDS)?;
    // No other valid spelling has this length, because a one-digit hour or a fraction would change it.
    let canonical = text.len() == "2006-01-02T15:04:05Z".len() && text.ends_with('Z');
    Ok((!canonical).then(|| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
}

/// Checks a `MicroTime`, whose seconds must have exactly six digits of fraction. Returns the form in which Kubernetes
/// writes the time if it differs from the text.
pub fn micros(text: &str) -> Result<Option<String>, String> {
    let time = parse(text, MICROS)?;
    let canonical = text.len() == "2006-01-02T15:04:05.000000Z".len() && text.ends_with('Z') && !text.contains(',');
    Ok((!canonical).then(|| time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))
}

/// Parses a time and converts it to UTC.
fn parse(text: &str, layout: &'static str) -> Result<DateTime, String> {
    let mut reader = Reader { text, rest: text, layout };
    let year = reader.number("2006", 4, 4)?;
    reader.literal("-")?;
    let month = reader.number("01", 2, 2)?;
    reader.range("month", (1..=12).contains(&month))?;
    reader.literal("-")?;
    let day = reader.number("02", 2, 2)?;
    reader.literal("T")?;
    // Unlike RFC 3339, Go accepts an hour with one digit.
    let hour = reader.number("15", 1, 2)?;
    reader.range("hour", hour < 24)?;
    reader.literal(":")?;
    let minute = reader.number("04", 2, 2)?;
    reader.range("minute", minute < 60)?;
    reader.literal(":")?;
    let second = reader.number("05", 2, 2)?;
    reader.range("second", second < 60)?;
    let nanosecond = if layout == MICROS {
        reader.six_digits()?
    } else {
        reader.skip_fraction();
        0
    };
    let offset_seconds = reader.zone()?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", quoted(text), quoted(reader.rest)));
    }
    let day_out_of_range = || format!("parsing time {}: day out of range", quoted(text));
    let date = Date::new(year as i16, month as i8, day as i8).map_err(|_| day_out_of_range())?;
    date.at(hour as i8, minute as i8, second as i8, nanosecond)
        .checked_sub(SignedDuration::from_secs(offset_seconds))
        .ok()
        // In UTC, the year of the time may be outside of 0 to 9999, which no reader of documents accepts.
        .filter(|time| (0..=9999).contains(&time.year()))
        .ok_or_else(|| format!("parsing time {}: year out of range", quoted(text)))
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn cannot<T>(&self, element: &str) -> Result<T, String> {
        let (text, rest) = (quoted(self.text), quoted(self.rest));
        Err(format!("parsing time {text} as \"{}\": cannot parse {rest} as \"{element}\"", self.layout))
    }

    fn range(&self, what: &str, holds: bool) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("parsing time {}: {what} out of range", quoted(self.text))) }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => self.rest = rest,
            None => return self.cannot(literal),
        }
        Ok(())
    }

    fn number(&mut self, element: &str, least: usize, most: usize) -> Result<u32, String> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return self.cannot(element);
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Ok(number.bytes().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    /// Skips the fraction of the seconds, because a `Time` in a document has none.
    fn skip_fraction(&mut self) {
        if let Some(fraction) = self.rest.strip_prefix(['.', ',']) {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                self.rest = &fraction[digits..];
            }
        }
    }

    /// Reads the six digits of the fraction. Returns the fraction in nanoseconds.
    fn six_digits(&mut self) -> Result<i32, String> {
        let digits = self.rest.strip_prefix(['.', ',']).and_then(|fraction| fraction.as_bytes().get(..6));
        match digits {
            Some(digits) if digits.iter().all(u8::is_ascii_digit) => {
                self.rest = &self.rest[7..];
                Ok(digits.iter().fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0')) * 1_000)
            }
            _ => self.cannot(".000000"),
        }
    }

    /// Reads the offset from UTC, in seconds to the east.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let Some([sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]) = self.rest.as_bytes().first_chunk::<6>() else {
            return self.cannot("Z07:00");
        };
        if ![h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit()) {
            return self.cannot("Z07:00");
        }
        let two = |tens: &u8, ones: &u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
        let (hours, minutes) = (two(h1, h2), two(m1, m2));
        // As in Go, 24 hours and 60 minutes are accepted, because offsets of a whole day occur.
        self.range("time zone offset hour", hours <= 24)?;
        self.range("time zone offset minute", minutes <= 60)?;
        self.rest = &self.rest[6..];
        let seconds = hours * 3_600 + minutes * 60;
        Ok(if *sign == b'-' { -seconds } else { seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_times() {
        let cases = [
            ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"),
            ("2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00Z"),
            ("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z"),
            ("2024-01-01T5:04:05-00:30", "2024-01-01T05:34:05Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text).map(|t| t.unwrap_or(text.to_string())).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(seconds("2024-02-29T23:59:59Z"), Ok(None));
        assert_eq!(micros("2024-01-01T00:00:00.123456Z"), Ok(None));
        assert_eq!(micros("2024-01-01T00:00:00,120000Z"), Ok(Some("2024-01-01T00:00:00.120000Z".to_string())));
        assert_eq!(micros("2024-01-01T01:00:00.000001+01:00"), Ok(Some("2024-01-01T00:00:00.000001Z".to_string())));
    }

    #[test]
    fn complaints() {
        let layout = r#"" as "2006-01-02T15:04:05Z07:00": cannot parse "#;
        let cases = [
            ("x", format!(r#"parsing time "x{layout}"x" as "2006""#)),
            ("", format!(r#"parsing time "{layout}"" as "2006""#)),
            ("2024-01-01", format!(r#"parsing time "2024-01-01{layout}"" as "T""#)),
            ("2024-01-01T00:00:00", format!(r#"parsing time "2024-01-01T00:00:00{layout}"" as "Z07:00""#)),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#.to_string()),
            ("2023-02-29T00:00:00Z", r#"parsing time "2023-02-29T00:00:00Z": day out of range"#.to_string()),
            ("2023-02-28T24:00:00Z", r#"parsing time "2023-02-28T24:00:00Z": hour out of range"#.to_string()),
            ("0000-01-01T00:00:00+01:00", r#"parsing time "0000-01-01T00:00:00+01:00": year out of range"#.to_string()),
            ("9999-12-31T23:59:59-01:00", r#"parsing time "9999-12-31T23:59:59-01:00": year out of range"#.to_string()),
            ("2023-02-28T00:00:00Zx", r#"parsing time "2023-02-28T00:00:00Zx": extra text: "x""#.to_string()),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), Err(expected), "{text}");
        }
        assert_eq!(
            micros("2024-01-01T00:00:00Z"),
            Err("parsing time \"2024-01-01T00:00:00Z\" as \"2006-01-02T15:04:05.000000Z07:00\": \
                 cannot parse \"Z\" as \".000000\""
                .to_string())
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,+Zö-]{0,30}") {
            let _ = (seconds(&text), micros(&text));
        }

        #[test]
        fn the_canonical_form_is_stable(text in "[0-9]{4}-0[1-9]-[0-2][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](Z|[+-][01][0-9]:[0-5][0-9])") {
            if let Ok(Some(canonical)) = seconds(&text) {
                proptest::prop_assert_eq!(seconds(&canonical), Ok(None));
            }
        }
    }
}

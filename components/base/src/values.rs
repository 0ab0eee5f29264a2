//! Parses the values of options as Go's `strconv` and `time` do, because existing scripts are written for Go's formats.

use holdfast_core::object::duration;
use holdfast_core::schema::quantity;
use std::time::Duration;

pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// Parses `5s`, `1h30m`, `1.5ms`. A negative duration is refused, since no option can use one.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let nanos = duration::nanos(text)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| format!("time: invalid duration {text:?}"))
}

/// Like [`parse_duration`], and also accepts days and weeks: `7d`, `1w2d12h`. Go has no such units because their length
/// varies.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut days = 0f64;
    for (unit, length) in [('w', 7.0), ('d', 1.0)] {
        if let Some((number, after)) = rest.split_once(unit) {
            let number: f64 = number.parse().map_err(|_| format!("invalid duration {text:?}: give 7d, 168h or 90m"))?;
            days += number * length;
            rest = after;
        }
    }
    let hours = if rest.is_empty() && rest != text { Duration::ZERO } else { parse_duration(rest)? };
    let days = Duration::try_from_secs_f64(days * 86_400.0).map_err(|_| format!("invalid duration {text:?}"))?;
    days.checked_add(hours).ok_or_else(|| format!("invalid duration {text:?}"))
}

/// Parses a number of bytes in the form of a quantity: `10Gi`, `500M`, `1048576`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let invalid = || format!("{text:?} is not a size: give 10Gi, 500M or a number of bytes");
    let nanos = quantity::nanos(text).filter(|nanos| nanos % 1_000_000_000 == 0).ok_or_else(invalid)?;
    u64::try_from(nanos / 1_000_000_000).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_those_of_go() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Ok(true), "{text}");
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Ok(false), "{text}");
        }
        assert_eq!(parse_bool("yes"), Err("strconv.ParseBool: parsing \"yes\": invalid syntax".into()));
        assert!(parse_bool("").is_err());
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, milliseconds) in
            [("5s", 5_000), ("5m0s", 300_000), ("1h30m", 5_400_000), ("1.5s", 1_500), ("250ms", 250), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for (text, expected) in [
            ("", "time: invalid duration \"\""),
            ("-5s", "time: invalid duration \"-5s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("9999999h", "time: invalid duration \"9999999h\""),
        ] {
            assert_eq!(parse_duration(text), Err(expected.into()), "{text}");
        }
    }

    #[test]
    fn ages_have_days_and_weeks() {
        for (text, seconds) in
            [("0", 0), ("7d", 604_800), ("168h", 604_800), ("1w", 604_800), ("1w1d1h1m", 694_860), ("0.5d", 43_200)]
        {
            assert_eq!(parse_age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "-1d", "7", "7x", "1d2", "1dd", "1d1w", "99999999999999999999d", "nan d", "infd"] {
            assert!(parse_age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_quantities() {
        for (text, bytes) in
            [("0", 0), ("1048576", 1 << 20), ("10Gi", 10 << 30), ("500M", 500_000_000), ("1.5Ki", 1536)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "10GB", "100m", "many", "1e30"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}

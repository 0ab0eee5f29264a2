//! The type of the times that objects contain.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A time. Its text has the form in which Kubernetes writes times: whole seconds in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Timestamp);

impl Time {
    pub fn from_second(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap_or(if second < 0 { Timestamp::MIN } else { Timestamp::MAX }))
    }

    pub fn parse(text: &str) -> Option<Time> {
        text.parse().ok().map(Time)
    }

    /// The number of milliseconds since 1970.
    pub fn millis(self) -> i64 {
        self.0.as_millisecond()
    }

    pub fn seconds(self) -> i64 {
        self.0.as_second()
    }

    /// The time `millis` milliseconds after this time, or before it if `millis` is negative. The result is limited to
    /// the range of times.
    pub fn plus_millis(self, millis: i64) -> Time {
        let bound = if millis < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Time(Timestamp::from_millisecond(self.millis().saturating_add(millis)).unwrap_or(bound))
    }

    pub fn plus_seconds(self, seconds: i64) -> Time {
        self.plus_millis(seconds.saturating_mul(1000))
    }

    /// The number of milliseconds from `earlier` to this time.
    pub fn millis_since(self, earlier: Time) -> i64 {
        self.millis() - earlier.millis()
    }

    /// The text of the time with microseconds, as in Leases and Events.
    pub fn micros(self) -> String {
        let micros = self.0.as_microsecond().rem_euclid(1_000_000);
        let whole = self.to_string();
        format!("{}.{micros:06}Z", whole.trim_end_matches('Z'))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&holdfast_core::stamp::rfc3339(self.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Time).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

//! The time and the random seed of one command. They are chosen outside the core and passed in with the command.

use jiff::Timestamp;
use jiff::tz::Offset;

/// The time at which a command was received, and a seed that no other command shares.
///
/// A decision derives all its names, UIDs and times from the stamp, so that judging again results in the same decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub time: Timestamp,
    pub seed: u64,
}

/// The purpose of a random stream. Each purpose has its own stream, so that a draw from one stream does not change the
/// next draws from another stream.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Uid = 1,
    Name = 2,
    Address = 3,
    Token = 4,
    /// The name of a volume that admission adds to a pod.
    Volume = 5,
}

/// The characters of generated name suffixes. Vowels are left out, so that no words arise by chance.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LENGTH: usize = 5;
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

impl Stamp {
    /// The time in whole seconds, as object metadata shows it: `2026-11-21T10:00:00Z`.
    pub fn rfc3339(&self) -> String {
        rfc3339(self.time)
    }

    pub fn seconds(&self) -> i64 {
        self.time.as_second()
    }

    /// A random (version 4) UUID; `nth` distinguishes the UUIDs of one command.
    pub fn uid(&self, nth: u64) -> String {
        let mut stream = self.stream(Purpose::Uid, nth);
        let high = stream.next() & !0xf000 | 0x4000;
        let low = stream.next() & !(0xc000 << 48) | 0x8000 << 48;
        // Every create makes a UID, and `format!` would take ten times as long.
        let mut text = *b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
        let mut bits = u128::from(high) << 64 | u128::from(low);
        for place in text.iter_mut().rev().filter(|place| **place == b'x') {
            *place = HEXADECIMAL[(bits & 0xf) as usize];
            bits >>= 4;
        }
        ascii(&text)
    }

    /// The five characters that follow a `generateName`. `nth` numbers the tries to find a free name.
    pub fn name_suffix(&self, nth: u64) -> String {
        self.suffix(Purpose::Name, nth)
    }

    /// Five characters of `NAME_ALPHABET` for a purpose other than an object's name.
    pub fn suffix(&self, purpose: Purpose, nth: u64) -> String {
        let mut stream = self.stream(purpose, nth);
        (0..NAME_SUFFIX_LENGTH)
            .map(|_| NAME_ALPHABET[(stream.next() % NAME_ALPHABET.len() as u64) as usize] as char)
            .collect()
    }

    pub fn stream(&self, purpose: Purpose, nth: u64) -> Stream {
        let mut stream = Stream(self.seed ^ (purpose as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        stream.0 = stream.next() ^ nth.wrapping_mul(0xa076_1d64_78bd_642f);
        stream
    }
}

/// A time in whole seconds in UTC, as in RFC 3339.
pub fn rfc3339(time: Timestamp) -> String {
    let Some(mut text) = date_and_time(time) else { return time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() };
    text[19] = b'Z';
    ascii(&text[..20])
}

/// A time with microseconds in UTC, as in RFC 3339.
pub fn rfc3339_micros(time: Timestamp) -> String {
    let Some(mut text) = date_and_time(time) else { return time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string() };
    // Before 1970 the fraction of a timestamp is negative.
    let nanoseconds = time.subsec_nanosecond().rem_euclid(1_000_000_000).unsigned_abs();
    digits(&mut text[20..26], nanoseconds / 1000);
    ascii(&text)
}

/// Date and time with microseconds; `None` for years before 0. Parsing a format string in each call would take ten
/// times as long, and every object contains several timestamps.
fn date_and_time(time: Timestamp) -> Option<[u8; 27]> {
    let date_time = Offset::UTC.to_datetime(time);
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    digits(&mut text[..4], u32::try_from(date_time.year()).ok()?);
    let parts =
        [date_time.month(), date_time.day(), date_time.hour(), date_time.minute(), date_time.second()].into_iter();
    for (number, at) in parts.zip([5, 8, 11, 14, 17]) {
        digits(&mut text[at..at + 2], u32::from(number.unsigned_abs()));
    }
    Some(text)
}

fn digits(places: &mut [u8], mut number: u32) {
    for place in places.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn ascii(text: &[u8]) -> String {
    std::str::from_utf8(text).unwrap_or_default().to_owned()
}

/// A SplitMix64 generator. It gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Stream(u64);

impl Stream {
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seed: u64) -> Stamp {
        Stamp { time: Timestamp::from_second(1_795_000_000).unwrap(), seed }
    }

    #[test]
    fn the_same_stamp_makes_the_same_names() {
        assert_eq!(stamp(7).uid(0), stamp(7).uid(0));
        assert_ne!(stamp(7).uid(0), stamp(8).uid(0));
        assert_ne!(stamp(7).uid(0), stamp(7).uid(1));
        assert_eq!(stamp(7).name_suffix(3), stamp(7).name_suffix(3));
        assert_ne!(stamp(7).name_suffix(3), stamp(7).name_suffix(4));
    }

    #[test]
    fn uids_are_version_four() {
        for seed in 0..200 {
            let uid = stamp(seed).uid(0);
            assert_eq!(uid.len(), 36, "{uid}");
            assert_eq!(&uid[14..15], "4", "{uid}");
            assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        }
    }

    #[test]
    fn a_seed_keeps_its_uid() {
        assert_eq!(stamp(7).uid(0), "a924ea4a-1483-407a-badd-2665b5d3965c");
        assert_eq!(stamp(7).uid(u64::MAX), "2651f7f8-bd7f-45a4-bd31-a41641732151");
    }

    #[test]
    fn times_show_whole_seconds() {
        assert_eq!(stamp(0).rfc3339(), "2026-11-18T11:06:40Z");
        let times = [i64::from(i32::MIN), -62_167_219_200, -62_167_219_201, -1, 0, 951_782_400, 253_402_207_200];
        for second in times {
            let time = Timestamp::from_second(second).unwrap();
            assert_eq!(rfc3339(time), time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        let within_a_second = Timestamp::from_millisecond(-1).unwrap();
        assert_eq!(rfc3339(within_a_second), within_a_second.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        for nanoseconds in [-1_500_000_000, -1, 0, 999, 1_000, 1_795_000_000_123_456_789] {
            let time = Timestamp::from_nanosecond(nanoseconds).unwrap();
            assert_eq!(rfc3339_micros(time), time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string());
        }
    }
}

//! Time and entropy, chosen once outside and carried in with a command.

use jiff::Timestamp;
use jiff::tz::Offset;

/// What a command knows of the world: when it was received and a seed that no other command shares.
///
/// Names, uids and times that a decision makes come from here alone, so a decision can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub time: Timestamp,
    pub seed: u64,
}

/// One stream of numbers a purpose: drawing from one never shifts another.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Uid = 1,
    Name = 2,
    Address = 3,
    Token = 4,
    /// Of a volume that admission adds to a pod.
    Volume = 5,
}

/// Letters and digits that a generated name ends with: no vowels, so no words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LENGTH: usize = 5;
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

impl Stamp {
    /// Whole seconds, as object metadata shows them: `2026-11-21T10:00:00Z`.
    pub fn rfc3339(&self) -> String {
        rfc3339(self.time)
    }

    pub fn seconds(&self) -> i64 {
        self.time.as_second()
    }

    /// A random (version 4) UUID; `nth` tells apart several in one command.
    pub fn uid(&self, nth: u64) -> String {
        let mut stream = self.stream(Purpose::Uid, nth);
        let high = stream.next();
        let low = stream.next();
        let groups = [
            (high >> 32, 8),
            (high >> 16 & 0xffff, 4),
            (0x4000 | high & 0xfff, 4),
            (0x8000 | low >> 48 & 0x3fff, 4),
            (low & 0xffff_ffff_ffff, 12),
        ];
        // Every request has one of these, and `format!` takes ten times as long.
        let mut text = String::with_capacity(36);
        for (group, digits) in groups {
            if !text.is_empty() {
                text.push('-');
            }
            text.extend((0..digits).rev().map(|digit| HEXADECIMAL[(group >> (4 * digit) & 0xf) as usize] as char));
        }
        text
    }

    /// The five characters that follow a `generateName`; `nth` counts the tries.
    pub fn name_suffix(&self, nth: u64) -> String {
        self.suffix(Purpose::Name, nth)
    }

    /// The same for another purpose than an object's name.
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

/// Whole seconds in UTC.
pub fn rfc3339(time: Timestamp) -> String {
    let date_time = Offset::UTC.to_datetime(time);
    let Ok(year) = u32::try_from(date_time.year()) else {
        return time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    };
    let two = |number: i8| u32::from(number.unsigned_abs());
    let parts = [
        (year, 1000, '-'),
        (two(date_time.month()), 10, '-'),
        (two(date_time.day()), 10, 'T'),
        (two(date_time.hour()), 10, ':'),
        (two(date_time.minute()), 10, ':'),
        (two(date_time.second()), 10, 'Z'),
    ];
    // Every object shows some of these, and a format that is read each time takes ten times as long.
    let mut text = String::with_capacity(20);
    for (number, highest, end) in parts {
        let mut unit = highest;
        while unit > 0 {
            text.extend(char::from_digit(number / unit % 10, 10));
            unit /= 10;
        }
        text.push(end);
    }
    text
}

/// SplitMix64: small, well mixed, and the same everywhere.
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
    }
}

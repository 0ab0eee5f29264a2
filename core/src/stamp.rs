//! Time and entropy, chosen once outside and carried in with a command.

use jiff::Timestamp;

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
}

/// Letters and digits that a generated name ends with: no vowels, so no words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LENGTH: usize = 5;

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
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48 & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// The five characters that follow a `generateName`; `nth` counts the tries.
    pub fn name_suffix(&self, nth: u64) -> String {
        let mut stream = self.stream(Purpose::Name, nth);
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
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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
    fn times_show_whole_seconds() {
        assert_eq!(stamp(0).rfc3339(), "2026-11-18T11:06:40Z");
    }
}

//! Sets of completion indexes, in the form in which Jobs write them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt;

/// Disjoint intervals of indexes in ascending order, both ends included. Adjacent intervals are joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// The indexes below `completions` that a text lists. Invalid parts of the text are ignored.
    pub fn parse(text: &str, completions: i64) -> Indexes {
        let mut found = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { continue };
            let last = last.min(completions - 1);
            if 0 <= first && first <= last {
                found.push((first, last));
            }
        }
        Indexes::joined(found)
    }

    fn joined(mut intervals: Vec<(i64, i64)>) -> Indexes {
        intervals.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (first, last) in intervals {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Indexes(joined)
    }

    /// The set with these indexes added.
    pub fn with(&self, others: impl IntoIterator<Item = i64>) -> Indexes {
        let others = others.into_iter().map(|index| (index, index));
        Indexes::joined(self.0.iter().copied().chain(others).collect())
    }

    pub fn and(&self, other: &Indexes) -> Indexes {
        Indexes::joined(self.0.iter().chain(&other.0).copied().collect())
    }

    pub fn has(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub fn count(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many of this set's indexes are also in `other`.
    pub fn count_in(&self, other: &Indexes) -> i64 {
        let (mut at, mut beside, mut count) = (0, 0, 0);
        while let (Some(one), Some(two)) = (self.0.get(at), other.0.get(beside)) {
            count += (one.1.min(two.1) - one.0.max(two.0) + 1).max(0);
            if one.1 < two.1 {
                at += 1;
            } else {
                beside += 1;
            }
        }
        count
    }

    /// The `count` smallest indexes below `completions` that are not in the set.
    pub fn missing(&self, count: usize, completions: i64) -> Vec<i64> {
        let mut gaps = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            gaps.push(next..first.min(completions));
            next = last.saturating_add(1);
        }
        gaps.into_iter().flatten().take(count).collect()
    }
}

impl FromIterator<i64> for Indexes {
    fn from_iter<I: IntoIterator<Item = i64>>(indexes: I) -> Indexes {
        Indexes::default().with(indexes.into_iter().collect::<BTreeSet<_>>())
    }
}

/// Two adjacent indexes are written separately, three or more as a range.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for (text, completions, expected) in [
            ("", 10, ""),
            ("1,3-5,7", 10, "1,3-5,7"),
            ("1,2", 10, "1,2"),
            ("0-1", 10, "0,1"),
            ("0,1,2,4", 10, "0-2,4"),
            ("0-9", 3, "0-2"),
            ("2,5", 5, "2"),
            ("x,1-,-2,3", 5, "3"),
            ("9223372036854775807", 5, ""),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn sets_are_counted_joined_and_compared() {
        let some = Indexes::parse("1,3-5,7", 10);
        assert_eq!(some.count(), 5);
        assert_eq!(some.with([2, 6, 6]).to_string(), "1-7");
        assert!(some.has(4) && some.has(1) && !some.has(0) && !some.has(6) && !some.has(8));
        assert_eq!(some.missing(3, 10), [0, 2, 6]);
        assert_eq!(some.missing(9, 9), [0, 2, 6, 8]);
        assert_eq!(Indexes::default().missing(2, 1), [0]);
        assert_eq!(some.count_in(&Indexes::parse("0-3,7-9", 10)), 3);
        assert_eq!(some.and(&Indexes::parse("2,9", 10)).to_string(), "1-5,7,9");
    }
}

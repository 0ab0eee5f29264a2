//! Limits the log lines that clients can cause: ten lines a second are written, and further lines are only counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The maximum number of lines that are written in one second.
const LINES: u64 = 10;

pub struct Sparing {
    second: AtomicU64,
    /// The number of lines that were written in the current second.
    lines: AtomicU64,
    left_out: AtomicU64,
}

impl Sparing {
    pub const fn new() -> Sparing {
        Sparing { second: AtomicU64::new(0), lines: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Whether a line may be written now, and how many lines were left out before it.
    pub fn line(&self) -> Option<u64> {
        self.line_in(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    /// Two concurrent calls may each find that a new second has begun, and reset the count. One line more or less does
    /// not matter.
    fn line_in(&self, second: u64) -> Option<u64> {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.lines.store(0, Ordering::Relaxed);
        }
        if self.lines.fetch_add(1, Ordering::Relaxed) < LINES {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_are_written_and_all_are_counted() {
        let sparing = Sparing::new();
        let written = |second| (0..1_000).filter_map(|_| sparing.line_in(second)).collect::<Vec<_>>();
        assert_eq!(written(1), [0; LINES as usize]);
        let next = written(2);
        assert_eq!((next.len() as u64, next[0]), (LINES, 1_000 - LINES));
        assert_eq!(next[1..].iter().sum::<u64>(), 0);
    }
}

//! The Retry-After of refused requests. It grows while many requests are refused.

use super::Moment;

const SECOND: Moment = 1_000_000_000;
const SECONDS_MAX: u32 = 32;
/// Retry-After doubles if the number of refusals per second is at least this many times the seconds of Retry-After.
const MANY: u32 = 3;

/// The Retry-After, in seconds, of the refused requests of one priority level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter {
    seconds: u32,
    /// The time at which `seconds` was last adjusted.
    since: Moment,
    /// The number of refusals since the last adjustment.
    refused: u32,
}

impl Default for RetryAfter {
    fn default() -> Self {
        RetryAfter { seconds: 1, since: 0, refused: 0 }
    }
}

impl RetryAfter {
    /// Counts a refusal, and returns the seconds after which the request may be repeated.
    pub fn refuse(&mut self, now: Moment) -> u32 {
        let passed = now.saturating_sub(self.since) / SECOND;
        // Adjusts only after the clients that got the current Retry-After have had time to retry.
        if passed >= u64::from(self.seconds) {
            let a_second = u64::from(self.refused) / passed;
            if a_second >= u64::from(MANY * self.seconds) {
                self.seconds = (self.seconds * 2).min(SECONDS_MAX);
            } else if a_second < u64::from(self.seconds) {
                self.seconds = (self.seconds / 2).max(1);
            }
            (self.since, self.refused) = (now, 0);
        }
        self.refused = self.refused.saturating_add(1);
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_grows_while_many_are_refused_and_shrinks_again() {
        let mut retry = RetryAfter::default();
        let mut now = 0;
        let mut told = Vec::new();
        // For 90 seconds, the level refuses a hundred requests per second.
        for _ in 0..9000 {
            now += SECOND / 100;
            told.push(retry.refuse(now));
        }
        assert!(told.is_sorted());
        told.dedup();
        assert_eq!(told, [1, 2, 4, 8, 16, 32]);
        for _ in 0..10 {
            now += 40 * SECOND;
            told.push(retry.refuse(now));
        }
        assert_eq!(told[5..11], [32, 32, 16, 8, 4, 2]);
        assert_eq!(told.last(), Some(&1));
    }

    #[test]
    fn few_refusals_keep_it_short() {
        let mut retry = RetryAfter::default();
        assert!((1..500).all(|second| retry.refuse(second * SECOND) == 1));
    }
}

//! Computes which times of a CronJob's schedule have passed without a Job.

use holdfast_world::Time;

/// If more times than this were missed, an Event reports them.
const MANY: i64 = 100;

/// The times of a schedule that passed without a Job: the newest of them, and whether they are more than [`MANY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The newest time that passed, the only time for which a Job may still be started.
    pub newest: Option<Time>,
    pub is_many: bool,
}

impl Missed {
    /// The times after `since` up to `now`. Their number is estimated from the interval between the first two times, so
    /// that the work does not grow with the length of the gap. `next` must be monotonic.
    pub fn since(since: Time, now: Time, next: impl Fn(Time) -> Option<Time>) -> Result<Missed, &'static str> {
        let nothing = "time difference between two schedules is less than 1 second";
        let first = next(since).ok_or(nothing)?;
        if now < first {
            return Ok(Missed { newest: None, is_many: false });
        }
        let Some(second) = next(first).filter(|second| *second <= now) else {
            return Ok(Missed { newest: Some(first), is_many: false });
        };
        let interval = second.seconds() - first.seconds();
        if interval < 1 {
            return Err(nothing);
        }
        let count = (now.seconds() - first.seconds()) / interval + 1;
        let passed = |time: Time| next(time).filter(|time| *time <= now);
        // If the times are evenly spaced, this is the time before the newest passed time. Otherwise it may be later
        // than the newest passed time.
        let mut since = first.plus_seconds((count - 2).saturating_mul(interval));
        if passed(since).is_none() {
            since = last_before(first, since, |time| passed(time).is_some());
        }
        let newest = std::iter::successors(passed(since), |time| passed(*time)).last();
        Ok(Missed { newest, is_many: count > MANY })
    }
}

/// The last second at which `holds` is true, if it is true at `yes` and false at the later time `no`.
fn last_before(mut yes: Time, mut no: Time, holds: impl Fn(Time) -> bool) -> Time {
    while no.seconds() - yes.seconds() > 1 {
        let middle = yes.plus_seconds((no.seconds() - yes.seconds()) / 2);
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    yes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(since: i64, now: i64, next: impl Fn(i64) -> Option<i64>) -> Result<(Option<i64>, bool), &'static str> {
        let next = |time: Time| next(time.seconds()).map(Time::from_second);
        let found = Missed::since(Time::from_second(since), Time::from_second(now), next)?;
        Ok((found.newest.map(Time::seconds), found.is_many))
    }

    #[test]
    fn the_newest_time_that_passed() {
        let hourly = |time: i64| Some((time / 3600 + 1) * 3600);
        assert_eq!(missed(0, 3599, hourly), Ok((None, false)));
        assert_eq!(missed(0, 3600, hourly), Ok((Some(3600), false)));
        assert_eq!(missed(0, 7300, hourly), Ok((Some(7200), false)));
        assert_eq!(missed(0, 100 * 3600, hourly), Ok((Some(100 * 3600), false)));
        assert_eq!(missed(0, 101 * 3600 + 5, hourly), Ok((Some(101 * 3600), true)));
        assert!(missed(0, 10, |_| None).is_err());
        // The times are unevenly spaced: two times close together, then a time far away.
        let uneven = |time: i64| [10, 11, 1000].into_iter().find(|other| *other > time);
        assert_eq!(missed(0, 1500, uneven), Ok((Some(1000), true)));
    }
}

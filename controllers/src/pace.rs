//! How fast an owner makes pods that do not stay.
//!
//! Whatever takes pods away as soon as they are made (a taint that they do not tolerate, somebody who deletes them) leaves
//! nothing to count, and an owner would make others for ever, as fast as they can be written. So each has a purse, out of
//! which a rollout, and another after it, is paid at once.

use holdfast_world::Time;
use std::collections::HashMap;

/// What an owner may make at once, of the number that it keeps, and at least.
const AT_ONCE_TIMES: i64 = 8;
const AT_ONCE_MIN: i64 = 20;
/// The purse is full again after so many seconds for each time that the number was made anew.
const SECONDS_A_TIME: i64 = 5;
/// An owner with an empty purse is looked at once in so long.
const LOOK_MILLIS: i64 = 1_000;
/// Pods are counted in thousandths, as time is.
const POD: i64 = 1_000;

/// What owners have made lately, by their uids.
#[derive(Default)]
pub struct Paces(HashMap<String, Spent>);

struct Spent {
    millipods: i64,
    at: Time,
}

impl Paces {
    /// How many of the missing pods an owner that keeps `wanted` makes now, and when to look again for the others.
    pub fn take(&mut self, uid: &str, wanted: usize, missing: usize, now: Time) -> (usize, Option<Time>) {
        let wanted = i64::try_from(wanted).unwrap_or(i64::MAX / POD / AT_ONCE_TIMES);
        let purse = wanted.saturating_mul(AT_ONCE_TIMES).max(AT_ONCE_MIN).saturating_mul(POD);
        let per_milli = (wanted / SECONDS_A_TIME).max(1);
        let spent = self.0.entry(uid.to_owned()).or_insert(Spent { millipods: 0, at: now });
        let back = now.millis_since(spent.at).max(0).saturating_mul(per_milli);
        *spent = Spent { millipods: spent.millipods.saturating_sub(back).max(0), at: now };
        let room = usize::try_from(purse.saturating_sub(spent.millipods) / POD).unwrap_or(0);
        let made = missing.min(room);
        let cost = i64::try_from(made).unwrap_or(i64::MAX).saturating_mul(POD);
        spent.millipods = spent.millipods.saturating_add(cost);
        (made, (made < missing).then(|| now.plus_millis(LOOK_MILLIS)))
    }

    /// An owner that is gone needs nothing remembered.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_stay_is_made_ever_more_slowly() {
        let mut paces = Paces::default();
        let at = |millis: i64| Time::from_second(1_795_255_200).plus_millis(millis);
        // One that is always gone again.
        let made: usize = (0..60_000).step_by(10).map(|millis| paces.take("one", 1, 1, at(millis)).0).sum();
        assert!((75..=80).contains(&made), "{made}");
        assert_eq!(paces.take("one", 1, 1, at(60_000)).0, 1);
        assert_eq!(paces.take("one", 1, 1, at(60_000)), (0, Some(at(61_000))));
        // Others are not held up, nor is who grows, nor who has many and makes them anew.
        assert_eq!(paces.take("two", 1, 1, at(60_000)), (1, None));
        assert_eq!(paces.take("one", 1000, 999, at(60_000)), (999, None));
        for millis in 0..8 {
            assert_eq!(paces.take("many", 500, 500, at(millis)), (500, None));
        }
        assert_eq!(paces.take("many", 500, 500, at(8)).0, 0);
        assert_eq!(paces.take("many", 500, 500, at(5_008)), (500, None));
        let (made, _) = paces.take("huge", usize::MAX, usize::MAX, at(0));
        assert!(made > 1_000_000);
        _ = paces.take("huge", usize::MAX, usize::MAX, at(i64::MAX / 4));
        paces.forget("one");
        assert_eq!(paces.take("one", 1, 1, at(60_000)), (1, None));
    }
}

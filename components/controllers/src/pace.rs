//! Limits how fast an owner creates pods that are deleted at once.
//!
//! If pods are deleted as soon as they are created, for example because of a NoExecute taint, no failed pods are left
//! to count, and the owner would create pods for ever, as fast as they can be written. So each owner has a budget of
//! pods, which is large enough for two rollouts, one directly after the other.

use holdfast_world::Time;
use std::collections::HashMap;

/// The size of a full budget, as a multiple of the number of pods that the owner wants.
const AT_ONCE_TIMES: i64 = 8;
/// A full budget has at least this many pods.
const AT_ONCE_MIN: i64 = 20;
/// In this many seconds, a budget regains the number of pods that the owner wants.
const SECONDS_A_TIME: i64 = 5;
/// An owner with an empty budget is planned again after this many milliseconds.
const LOOK_MILLIS: i64 = 1_000;
/// One pod, in thousandths of a pod: budgets count thousandths, so that the refill in a millisecond is a whole number.
const POD: i64 = 1_000;

/// How much of its budget each owner has spent, by the owner's uid.
#[derive(Default)]
pub struct Paces(HashMap<String, SpentPods>);

struct SpentPods {
    millipods: i64,
    at: Time,
}

impl Paces {
    /// How many of its `missing` pods an owner that wants `wanted` pods may create now, and the time at which to plan
    /// it again for the rest.
    pub fn take(&mut self, uid: &str, wanted: usize, missing: usize, now: Time) -> (usize, Option<Time>) {
        let wanted = i64::try_from(wanted).unwrap_or(i64::MAX / POD / AT_ONCE_TIMES);
        let purse = wanted.saturating_mul(AT_ONCE_TIMES).max(AT_ONCE_MIN).saturating_mul(POD);
        let per_milli = (wanted / SECONDS_A_TIME).max(1);
        let spent = self.0.entry(uid.to_owned()).or_insert(SpentPods { millipods: 0, at: now });
        let back = now.millis_since(spent.at).max(0).saturating_mul(per_milli);
        *spent = SpentPods { millipods: spent.millipods.saturating_sub(back).max(0), at: now };
        let room = usize::try_from(purse.saturating_sub(spent.millipods) / POD).unwrap_or(0);
        let made = missing.min(room);
        let cost = i64::try_from(made).unwrap_or(i64::MAX).saturating_mul(POD);
        spent.millipods = spent.millipods.saturating_add(cost);
        (made, (made < missing).then(|| now.plus_millis(LOOK_MILLIS)))
    }

    /// Drops the entry of a deleted owner.
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
        // Every ten milliseconds for a minute, the owner's only pod is deleted and missing again.
        let made: usize = (0..60_000).step_by(10).map(|millis| paces.take("one", 1, 1, at(millis)).0).sum();
        assert!((75..=80).contains(&made), "{made}");
        assert_eq!(paces.take("one", 1, 1, at(60_000)).0, 1);
        assert_eq!(paces.take("one", 1, 1, at(60_000)), (0, Some(at(61_000))));
        // Other owners, an owner that scales up, and a large owner that replaces its pods are not delayed.
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

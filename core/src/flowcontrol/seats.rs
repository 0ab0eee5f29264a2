//! The number of seats of each priority level: its share of the total, and the seats that levels lend each other.

use super::{Level, Moment};
use std::collections::BTreeMap;

/// The interval, in nanoseconds, at which the seats of the levels are adjusted to demand.
pub const ADJUSTMENT_PERIOD: Moment = 10_000_000_000;
/// The part of a demand peak that remains after one period. Half of the peak remains after five minutes.
const DECAY: f64 = 0.977;
/// The minimum of a level's target, in seats, so that levels without demand get a share as well.
const TARGET_MIN: f64 = 0.001;

/// The bounds of a level's number of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of seats of the level when it neither lends nor borrows seats.
    pub nominal: u32,
    /// The seats of the level when it lends as many as it may.
    pub lower: u32,
    /// The seats of the level when it borrows as many as it may.
    pub upper: u32,
}

/// The bounds of all levels for a server with `total` seats.
pub fn bounds(total: u32, levels: &BTreeMap<String, Level>) -> BTreeMap<String, Bounds> {
    let shares: u64 = levels.values().map(|level| u64::from(level.shares)).sum();
    let of = |level: &Level| {
        let nominal = (u64::from(total) * u64::from(level.shares)).div_ceil(shares.max(1));
        let nominal = u32::try_from(nominal).unwrap_or(u32::MAX);
        let lower = nominal - percent_of(nominal, level.lendable_percent).min(nominal);
        let upper = match level.borrowing_percent {
            Some(percent) => nominal.saturating_add(percent_of(nominal, percent)),
            None => nominal.max(total),
        };
        Bounds { nominal, lower, upper }
    };
    levels.iter().map(|(name, level)| (name.clone(), of(level))).collect()
}

/// A percentage of the seats, rounded to the nearest number; halves are rounded up.
fn percent_of(seats: u32, percent: u32) -> u32 {
    u32::try_from((u64::from(seats) * u64::from(percent) + 50) / 100).unwrap_or(u32::MAX)
}

/// The number of seats that a level demands, and the bounds of the number that it may get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    pub target: f64,
    pub lower: f64,
    pub upper: f64,
}

impl Claim {
    /// The seats of the level if every level gets this part of its target.
    fn at(&self, part: f64) -> f64 {
        (self.target.max(TARGET_MIN) * part).max(self.lower).min(self.upper)
    }
}

/// Gives every level the same part of its target, but no less than its lower bound and no more than its upper bound, so
/// that the sum is `total`. Returns the seats and the part. Lower bounds apply even if their sum exceeds `total`.
pub fn allot(total: f64, claims: &[Claim]) -> (Vec<f64>, f64) {
    let given = |part: f64| claims.iter().map(|claim| claim.at(part)).sum::<f64>();
    // With this part or a larger part, every level is at its upper bound.
    let most = claims.iter().map(|claim| claim.upper / claim.target.max(TARGET_MIN)).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, most);
    // The sum grows with the part, so a binary search finds the part. After about this many halvings a floating-point
    // number no longer changes.
    for _ in 0..100 {
        let middle = low + (high - low) / 2.0;
        if given(middle) < total { low = middle } else { high = middle }
    }
    (claims.iter().map(|claim| claim.at(high)).collect(), high)
}

/// The demand for seats over a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    began: Moment,
    last: Moment,
    seats: u64,
    /// The integral of the demanded seats over time.
    sum: f64,
    /// The integral of the square of the demanded seats over time.
    squares: f64,
    max: u64,
}

impl Demand {
    pub fn new(now: Moment) -> Demand {
        Demand { began: now, last: now, seats: 0, sum: 0.0, squares: 0.0, max: 0 }
    }

    /// Records that this many seats are demanded, beginning `now`.
    pub fn note(&mut self, now: Moment, seats: u64) {
        let elapsed = now.saturating_sub(self.last) as f64;
        self.sum += elapsed * self.seats as f64;
        self.squares += elapsed * (self.seats as f64).powi(2);
        self.last = self.last.max(now);
        self.seats = seats;
        self.max = self.max.max(seats);
    }

    /// The demand of the following period, which begins with the current number of seats.
    pub fn next(&self, now: Moment) -> Demand {
        Demand { seats: self.seats, max: self.seats, ..Demand::new(now) }
    }

    pub fn average(&self) -> f64 {
        self.over_time(self.sum)
    }

    pub fn deviation(&self) -> f64 {
        (self.over_time(self.squares) - self.average().powi(2)).max(0.0).sqrt()
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    fn over_time(&self, sum: f64) -> f64 {
        let time = self.last.saturating_sub(self.began) as f64;
        if time > 0.0 { sum / time } else { 0.0 }
    }
}

/// The smoothed demand. It rises at once with a peak, and then decays slowly.
pub fn smoothed(before: f64, demand: &Demand) -> f64 {
    let envelope = demand.average() + demand.deviation();
    envelope.max(DECAY * before + (1.0 - DECAY) * envelope)
}

/// Computes the seats of each level until the next adjustment, in the order of `levels`, and the part of their targets
/// that the levels get. Exempt levels keep the seats that they use; the other levels share the rest.
pub fn adjust(levels: &[(Bounds, Wish)]) -> (Vec<u32>, f64) {
    let all: f64 = levels.iter().map(|(bounds, _)| f64::from(bounds.nominal)).sum();
    let exempt = |(bounds, wish): &(Bounds, Wish)| match wish {
        Wish::Exempt { peak } => Some(f64::from(bounds.lower).max(*peak as f64)),
        Wish::Limited { .. } => None,
    };
    let taken: f64 = levels.iter().filter_map(exempt).sum();
    let claim = |(bounds, wish): &(Bounds, Wish)| match wish {
        Wish::Exempt { .. } => None,
        Wish::Limited { target } => {
            let (lower, upper) = (f64::from(bounds.lower), f64::from(bounds.upper));
            Some(Claim { target: target.max(lower), lower, upper: upper.max(lower) })
        }
    };
    let claims: Vec<Claim> = levels.iter().filter_map(claim).collect();
    let (given, part) = allot((all - taken).max(0.0), &claims);
    let mut given = given.into_iter();
    let seats = levels.iter().map(|level| match exempt(level) {
        Some(seats) => seats as u32,
        None => (given.next().unwrap_or_default().round() as u32).max(1),
    });
    (seats.collect(), part)
}

/// The seats that a level demands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wish {
    Exempt { peak: u64 },
    Limited { target: f64 },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flowcontrol::Configuration;
    use expect_test::expect;
    use proptest::prelude::*;
    use std::fmt::Write;

    #[test]
    fn the_seats_of_a_server() {
        let mut shown = String::new();
        for (name, Bounds { nominal, lower, upper }) in bounds(600, &Configuration::built_in().levels) {
            writeln!(shown, "{name}: {nominal} ({lower} to {upper})").unwrap();
        }
        expect![[r#"
            catch-all: 13 (13 to 600)
            exempt: 0 (0 to 600)
            global-default: 49 (24 to 600)
            leader-election: 25 (25 to 600)
            node-high: 98 (73 to 600)
            system: 74 (50 to 600)
            workload-high: 98 (49 to 600)
            workload-low: 245 (24 to 600)
        "#]]
        .assert_eq(&shown);
    }

    #[test]
    fn demand_over_a_time() {
        let mut demand = Demand::new(100);
        demand.note(100, 4);
        demand.note(200, 0);
        demand.note(300, 0);
        assert_eq!((demand.average(), demand.deviation(), demand.max()), (2.0, 2.0, 4));
        // The smoothed demand rises at once to the peak of the demand.
        assert_eq!(smoothed(0.0, &demand), 4.0);
        let quiet = demand.next(300);
        assert_eq!((quiet.max(), quiet.average()), (0, 0.0));
        let later = smoothed(4.0, &quiet);
        assert!(later > 3.8 && later < 4.0, "{later}");
    }

    #[test]
    fn a_busy_level_borrows_from_idle_ones() {
        let idle = |nominal, lower| (Bounds { nominal, lower, upper: 100 }, Wish::Limited { target: 0.0 });
        let busy = (Bounds { nominal: 20, lower: 20, upper: 100 }, Wish::Limited { target: 500.0 });
        let (seats, _) = adjust(&[idle(40, 10), busy, idle(40, 40)]);
        assert_eq!(seats, [10, 50, 40]);
        let (seats, _) = adjust(&[busy, busy, idle(40, 0)]);
        assert_eq!(seats[..2], [40, 40]);
        // Seats of exempt levels are subtracted before the rest is shared.
        let exempt = (Bounds { nominal: 0, lower: 0, upper: 100 }, Wish::Exempt { peak: 30 });
        let (seats, _) = adjust(&[exempt, busy, idle(40, 0), idle(40, 0)]);
        assert_eq!((seats[0], seats[1]), (30, 70));
        let flooded = (Bounds { nominal: 0, lower: 0, upper: 100 }, Wish::Exempt { peak: 9000 });
        let (seats, _) = adjust(&[flooded, busy, idle(40, 0)]);
        assert_eq!(seats[1..], [20, 1]);
    }

    proptest! {
        #[test]
        fn all_is_given_within_bounds(
            total in 0.0..1000.0_f64,
            wants in prop::collection::vec((0.0..300.0_f64, 0.0..300.0_f64, 0.0..300.0_f64), 1..9)
        ) {
            let claims: Vec<Claim> =
                wants.iter().map(|(target, lower, more)| Claim { target: target.max(*lower), lower: *lower, upper: lower + more }).collect();
            let (given, part) = allot(total, &claims);
            let (least, most) = claims.iter().fold((0.0, 0.0), |(least, most), claim| (least + claim.lower, most + claim.upper));
            prop_assert!((given.iter().sum::<f64>() - total.clamp(least, most)).abs() < 1e-3);
            for (claim, given) in claims.iter().zip(&given) {
                prop_assert!(*given >= claim.lower && *given <= claim.upper);
                // Every level that is not at a bound gets the same part of its target.
                if *given > claim.lower && *given < claim.upper {
                    prop_assert!((given / claim.target.max(TARGET_MIN) - part).abs() < 1e-6);
                }
            }
        }
    }
}

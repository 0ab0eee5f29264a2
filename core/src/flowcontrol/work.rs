//! The seats that one request takes while it is executed, and for a while afterwards.

use super::Moment;

/// The number of listed objects that count as one seat.
const OBJECTS_A_SEAT: usize = 100;
/// The number of notified watchers that count as one seat after a write.
const WATCHERS_A_SEAT: usize = 10;
/// How long such a seat is held, in nanoseconds.
const TELLING: Moment = 5_000_000;
/// The maximum number of seats of one request.
const SEATS_MAX: u32 = 10;
/// The maximum number of seats of one request as a percentage of its level's seats.
const SHARE_OF_LEVEL: u32 = 15;
/// The assumed duration of a request that has not ended, in nanoseconds.
const EXPECTED: Moment = 3_000_000;

/// The seats that one request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The number of seats that the request holds during its execution.
    pub initial_seats: u32,
    /// The number of seats that the request holds after its execution, while watchers are notified.
    pub final_seats: u32,
    /// The time for which the request holds the final seats, in nanoseconds.
    pub lingering: Moment,
}

impl Work {
    /// The seats of most requests: one seat during execution, and none afterwards.
    pub const LEAST: Work = Work { initial_seats: 1, final_seats: 0, lingering: 0 };

    /// The seats of a list of `objects` objects, or of a watch that begins with them.
    pub fn list(objects: usize, seats_max: u32) -> Work {
        let seats = u32::try_from(objects.div_ceil(OBJECTS_A_SEAT)).unwrap_or(u32::MAX);
        Work { initial_seats: seats.clamp(1, bounded(seats_max)), ..Work::LEAST }
    }

    /// The seats of a write of which `watchers` watchers are notified. If the write would need more seats than
    /// `seats_max`, it holds its final seats for a longer time.
    pub fn write(watchers: usize, seats_max: u32) -> Work {
        if watchers < WATCHERS_A_SEAT {
            return Work::LEAST;
        }
        let seats = u32::try_from(watchers.div_ceil(WATCHERS_A_SEAT)).unwrap_or(u32::MAX);
        let final_seats = seats.min(bounded(seats_max));
        let lingering = u64::from(seats) * TELLING / u64::from(final_seats);
        Work { initial_seats: 1, final_seats, lingering }
    }

    /// The seats that must be free for the request to start.
    pub fn seats(&self) -> u32 {
        self.initial_seats.max(self.final_seats)
    }

    /// The seat time in nanoseconds of one seat, assuming the expected duration.
    pub fn expected(&self) -> i128 {
        self.total(EXPECTED)
    }

    /// The seat time of a request that took `duration`.
    pub fn total(&self, duration: Moment) -> i128 {
        i128::from(self.initial_seats) * i128::from(duration)
            + i128::from(self.final_seats) * i128::from(self.lingering)
    }
}

fn bounded(seats_max: u32) -> u32 {
    seats_max.clamp(1, SEATS_MAX)
}

/// The maximum number of a level's seats that one request may take. `hand` is the hand size of a flow, if the level has
/// queues.
pub fn seats_max(nominal: u32, hand: Option<u32>) -> u32 {
    let share = (u64::from(nominal) * u64::from(SHARE_OF_LEVEL)).div_ceil(100) as u32;
    hand.map_or(share, |hand| share.min(nominal / hand.max(1))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        for (objects, seats_max, seats) in [
            (0, 10, 1),
            (1, 10, 1),
            (100, 10, 1),
            (101, 10, 2),
            (950, 10, 10),
            (100_000, 10, 10),
            (900, 3, 3),
            (900, 0, 1),
        ] {
            assert_eq!(Work::list(objects, seats_max).initial_seats, seats, "{objects} {seats_max}");
        }
        assert_eq!(Work::list(usize::MAX, u32::MAX).initial_seats, SEATS_MAX);
    }

    #[test]
    fn writes() {
        const MS: u64 = 1_000_000;
        for (watchers, seats_max, final_seats, lingering) in [
            (0, 10, 0, 0),
            (9, 10, 0, 0),
            (10, 10, 1, 5),
            (11, 10, 2, 5),
            (100, 10, 10, 5),
            (400, 10, 10, 20),
            (100, 1, 1, 50),
        ] {
            let work = Work::write(watchers, seats_max);
            let seen = (work.initial_seats, work.final_seats, work.lingering);
            assert_eq!(seen, (1, final_seats, lingering * MS), "{watchers} {seats_max}");
        }
    }

    #[test]
    fn one_request_takes_a_part_of_its_level() {
        for (nominal, hand, seats) in [
            (0, None, 1),
            (100, None, 15),
            (101, None, 16),
            (245, Some(6), 37),
            (24, Some(6), 4),
            (5, Some(6), 1),
            (10, Some(0), 2),
        ] {
            assert_eq!(seats_max(nominal, hand), seats, "{nominal} {hand:?}");
        }
    }
}

//! The simulated clock. The simulation sets it forwards or backwards, and each stamp advances it by a millisecond.

use crate::random::step_seed;
use holdfast_core::stamp::Stamp;
use holdfast_engine::Clock;
use jiff::Timestamp;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

/// The time at which simulations start, in milliseconds since 1970: 2026-11-21 10:00 UTC.
const START_MS: i64 = 1_795_255_200_000;

pub struct SimulatedClock {
    inner: Mutex<ClockState>,
}

struct ClockState {
    now_ms: i64,
    /// The seed of the present step. Stamps are made from it, so that they do not depend on the random numbers of other
    /// steps.
    seed: u64,
    stamps: u64,
}

impl SimulatedClock {
    pub fn new(seed: u64) -> SimulatedClock {
        SimulatedClock { inner: Mutex::new(ClockState { now_ms: START_MS, seed, stamps: 0 }) }
    }

    /// Sets the seed of the step, from which the next stamps are made.
    pub fn enter(&self, seed: u64) {
        let mut inner = self.lock();
        inner.seed = seed;
        inner.stamps = 0;
    }

    pub fn advance(&self, milliseconds: i64) {
        // The clock is never set to a time more than an hour before the start.
        let mut inner = self.lock();
        inner.now_ms = (inner.now_ms + milliseconds).max(START_MS - 3_600_000);
    }

    pub fn now_ms(&self) -> i64 {
        self.lock().now_ms
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClockState> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Clock for SimulatedClock {
    fn stamp(&self) -> Stamp {
        let mut inner = self.lock();
        inner.now_ms += 1;
        inner.stamps += 1;
        // The number of milliseconds since 1970 is always far within the bounds of jiff.
        let time = Timestamp::from_millisecond(inner.now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        Stamp { time, seed: step_seed(inner.seed, inner.stamps) }
    }

    /// The sleep never ends, because the simulation has no timeouts. The order of steps decides how long an operation
    /// takes.
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

//! Simulated time: it moves when the simulation says so, and a little with every stamp.

use holdfast_core::stamp::Stamp;
use holdfast_engine::Clock;
use jiff::Timestamp;
use std::sync::Mutex;

/// When simulations begin: 2026-11-21 10:00 UTC.
const START_MS: i64 = 1_795_255_200_000;

pub struct SimulatedClock {
    inner: Mutex<Inner>,
}

struct Inner {
    now_ms: i64,
    seed: u64,
    stamps: u64,
}

impl SimulatedClock {
    pub fn new(seed: u64) -> SimulatedClock {
        SimulatedClock { inner: Mutex::new(Inner { now_ms: START_MS, seed, stamps: 0 }) }
    }

    pub fn advance(&self, milliseconds: i64) {
        self.lock().now_ms += milliseconds;
    }

    pub fn now_ms(&self) -> i64 {
        self.lock().now_ms
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Clock for SimulatedClock {
    fn stamp(&self) -> Stamp {
        let mut inner = self.lock();
        inner.now_ms += 1;
        inner.stamps += 1;
        // Milliseconds since 1970 stay far below jiff's bounds.
        let time = Timestamp::from_millisecond(inner.now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        Stamp { time, seed: inner.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ inner.stamps }
    }
}

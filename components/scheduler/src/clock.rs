//! The clock by which searches with a time limit measure how long they take.

use std::time::Duration;

/// Returns the time that has passed since a fixed moment.
///
/// By default the clock stands still, so that a decision depends on its inputs alone: in tests, in the simulation, and
/// when a decision is explained later. A running scheduler has a real clock. Only searches with a time limit read the
/// clock. If a search takes too long, its pod is rejected for that reason; all other decisions do not depend on the
/// clock.
#[derive(Clone, Copy, Default)]
pub struct Clock(Option<fn() -> Duration>);

impl Clock {
    pub fn new(now: fn() -> Duration) -> Clock {
        Clock(Some(now))
    }

    pub fn now(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |now| now())
    }

    /// Whether this is a real clock, whose time passes.
    pub fn goes(&self) -> bool {
        self.0.is_some()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

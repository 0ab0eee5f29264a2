//! The clock by which searches with a time limit measure how long they take.

use std::time::Duration;

/// Returns the time that has passed since a fixed moment.
///
/// By default the clock stands still, so that a decision depends on its inputs alone: in tests, in the simulation, and
/// when a decision is explained later. A running scheduler has a real clock. A decision depends on it only through the
/// limits of the search for devices: a node is rejected if the search on it takes too long, or if the budget of the
/// pod's namespace is used up.
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

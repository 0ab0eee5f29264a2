//! Time for searches that must end.

use std::time::Duration;

/// How much time has passed since some moment.
///
/// By itself it stands still, so that a decision rests on nothing but what it is made from: in tests, in the simulation,
/// and for whoever explains a decision later. A scheduler at work is given a clock that goes, and only a search that
/// takes too long ever looks at it: its pod is told so, and the decisions about all others stay what they were.
#[derive(Clone, Copy)]
pub struct Clock(fn() -> Duration);

impl Clock {
    pub fn new(now: fn() -> Duration) -> Clock {
        Clock(now)
    }

    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock(|| Duration::ZERO)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

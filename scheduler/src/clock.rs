//! Time for searches that must end.

use std::time::Duration;

/// How much time has passed since some moment.
///
/// By itself it stands still, so that a decision rests on nothing but what it is made from: in tests, in the simulation,
/// and for whoever explains a decision later. A scheduler at work is given a clock that goes, and only searches that take
/// too long ever look at it: their pods are told so, and the decisions about all others stay what they were.
#[derive(Clone, Copy, Default)]
pub struct Clock(Option<fn() -> Duration>);

impl Clock {
    pub fn new(now: fn() -> Duration) -> Clock {
        Clock(Some(now))
    }

    pub fn now(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |now| now())
    }

    /// Whether it does not stand still.
    pub fn goes(&self) -> bool {
        self.0.is_some()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

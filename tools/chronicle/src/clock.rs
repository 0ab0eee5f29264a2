//! Makes stamps from the system's time and random numbers.

use holdfast_core::stamp::Stamp;
use holdfast_engine::Clock;

pub struct SystemClock;

impl Clock for SystemClock {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::now(), seed: rand::random() }
    }
}

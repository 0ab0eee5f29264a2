//! Shows the progress of a long command in one line of the terminal. Without a terminal it shows nothing.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(200);
const BAR: usize = 30;
/// How many events pass between two reads of the clock.
const GLANCE_EVENTS: u64 = 256;

pub struct Progress {
    what: &'static str,
    shown: bool,
    last: Instant,
}

impl Progress {
    pub fn new(what: &'static str) -> Progress {
        Progress { what, shown: std::io::stderr().is_terminal(), last: Instant::now() }
    }

    /// Shows the number of events, and the finished part of the total if the total is known.
    pub fn at(&mut self, events: u64, done: u64, whole: Option<u64>) {
        if !self.shown || !events.is_multiple_of(GLANCE_EVENTS) || self.last.elapsed() < PERIOD {
            return;
        }
        self.last = Instant::now();
        let bar = whole.filter(|whole| *whole > 0).map_or(String::new(), |whole| {
            let part = done.min(whole) as f64 / whole as f64;
            let filled = (part * BAR as f64) as usize;
            format!("[{}{}] {:3.0}% ", "=".repeat(filled), " ".repeat(BAR - filled), part * 100.0)
        });
        // A failure to write does not stop the work.
        let _ = write!(std::io::stderr(), "\r\x1b[K{} {bar}{events} events", self.what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

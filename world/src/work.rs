//! How much work the plans of this thread have been, in units of about a microsecond: counted by what is done, never by a
//! clock, so that whoever does the same work again counts the same.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
    /// Where the work of this thread ends, whatever is left to do.
    static END: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// So many bytes of a document are read or written in the time that one object is looked at.
const BYTES: usize = 256;

/// Why work has ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was more than it may be.
    TooMuch,
    Panicked,
}

/// Counts so many units, with whoever plans now.
pub fn count(units: u64) {
    let done = DONE.get().saturating_add(units);
    DONE.set(done);
    if done > END.get() {
        END.set(u64::MAX);
        // Nobody is told as of a panic: it is expected, and caught where the bound was set.
        resume_unwind(Box::new(Ended::TooMuch));
    }
}

/// Counts the reading or writing of so many bytes.
pub fn count_bytes(bytes: usize) {
    count((bytes / BYTES) as u64);
}

/// Works up to so many units; answers what came of it, and how many they were.
pub fn up_to<T>(units: u64, work: impl FnOnce() -> T) -> (Result<T, Ended>, u64) {
    let before = DONE.get();
    END.set(before.saturating_add(units));
    let worked = catch_unwind(AssertUnwindSafe(work));
    END.set(u64::MAX);
    let why = |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref().copied().unwrap_or(Ended::Panicked);
    (worked.map_err(why), DONE.get() - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_ends_at_its_bound() {
        assert_eq!(up_to(100, || (0..10).for_each(|_| count(10))), (Ok(()), 100));
        assert_eq!(up_to(100, || (0..u64::MAX).for_each(|_| count(10))), (Err(Ended::TooMuch), 110));
        count(1_000_000);
        assert_eq!(up_to(100, || count_bytes(7 * BYTES)), (Ok(()), 7));
    }
}

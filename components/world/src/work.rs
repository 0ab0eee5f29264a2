//! Counts the work that plans on this thread do, in units of about a microsecond. The count depends only on the work
//! and never on a clock, so the same work always has the same count.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
    /// The count at which the work of this thread is ended by a panic.
    static END: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// How many bytes of a document take about as long to read or write as looking at one object: one unit.
const BYTES: usize = 256;

/// Why work ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkAborted {
    /// The work exceeded its limit.
    TooMuch,
    Panicked,
}

/// Adds units to the work of the plan that this thread is making.
pub fn count(units: u64) {
    let done = DONE.get().saturating_add(units);
    DONE.set(done);
    if done > END.get() {
        END.set(u64::MAX);
        // `resume_unwind` does not call the panic hook. The hook is not needed, because this unwinding is expected and
        // is caught in [`limited`].
        resume_unwind(Box::new(WorkAborted::TooMuch));
    }
}

/// Counts reading or writing `bytes` bytes.
pub fn count_bytes(bytes: usize) {
    count((bytes / BYTES) as u64);
}

/// Does work until it has taken `units` units. Returns the work's result, and the number of units that it has taken.
pub fn limited<T>(units: u64, work: impl FnOnce() -> T) -> (Result<T, WorkAborted>, u64) {
    let before = DONE.get();
    END.set(before.saturating_add(units));
    let worked = catch_unwind(AssertUnwindSafe(work));
    END.set(u64::MAX);
    let why = |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref().copied().unwrap_or(WorkAborted::Panicked);
    (worked.map_err(why), DONE.get() - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_ends_at_its_bound() {
        assert_eq!(limited(100, || (0..10).for_each(|_| count(10))), (Ok(()), 100));
        assert_eq!(limited(100, || (0..u64::MAX).for_each(|_| count(10))), (Err(WorkAborted::TooMuch), 110));
        count(1_000_000);
        assert_eq!(limited(100, || count_bytes(7 * BYTES)), (Ok(()), 7));
    }
}

//! Delays wake-ups until all events of a commit are queued.
//!
//! A connection that carries many watches is one task. If the task were woken at its first event, it would run on
//! another thread and write this event alone while the next event is still being queued, and so on for each watch. So a
//! task that reads several watches is woken through [`wake`]. During a delivery, `wake` waits for the end of that
//! delivery.

use std::cell::RefCell;
use std::task::Waker;

thread_local! {
    /// The delayed wakers; `None` while this thread delivers nothing.
    static HELD: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Wakes the task at once. If this thread is delivering events, wakes the task after all these events are queued.
pub fn wake(waker: &Waker) {
    let held = HELD.with_borrow_mut(|held| held.as_mut().map(|held| held.push(waker.clone())).is_some());
    if !held {
        waker.wake_by_ref();
    }
}

/// Runs `queue` and delays wake-ups meanwhile; then wakes all tasks.
pub(crate) fn together(queue: impl FnOnce()) {
    /// Wakes the tasks even if `queue` panics: a watch whose waker is lost would hang.
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            let held = HELD.with_borrow_mut(Option::take);
            held.into_iter().flatten().for_each(Waker::wake);
        }
    }
    if HELD.with_borrow(Option::is_some) {
        return queue();
    }
    HELD.set(Some(Vec::new()));
    let release = Release;
    queue();
    drop(release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_wait_for_the_end_of_a_delivery() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let count = || woken.0.load(Ordering::Relaxed);
        together(|| {
            wake(&waker);
            assert_eq!(count(), 0);
        });
        assert_eq!(count(), 1);
        wake(&waker);
        assert_eq!(count(), 2, "nothing is being delivered");
    }
}

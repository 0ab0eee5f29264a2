//! Wakes held back until all events of a commit are queued.
//!
//! A connection that carries many watches is one task. Woken by the first of its events, it would run on another
//! thread and write that one out while the next is still being queued, once for each watch. So whoever reads several
//! watches is woken through [`wake`]: in the middle of a delivery that waits for its end.

use std::cell::RefCell;
use std::task::Waker;

thread_local! {
    /// `None` where this thread delivers nothing.
    static HELD: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Wakes at once, or when the delivery that this thread is in the middle of has queued everything.
pub fn wake(waker: &Waker) {
    let held = HELD.with_borrow_mut(|held| held.as_mut().map(|held| held.push(waker.clone())).is_some());
    if !held {
        waker.wake_by_ref();
    }
}

/// Does what wakes many, and wakes them behind it.
pub(crate) fn together(queue: impl FnOnce()) {
    /// Wakes even where queueing panics: a waker that is lost is a watch that hangs.
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            let held = HELD.with_borrow_mut(Option::take);
            held.into_iter().flatten().for_each(Waker::wake);
        }
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

//! The causes that have woken a connection's task, so that the task handles only these causes.
//!
//! Each stream has a waker of its own that marks the stream. Marking wakes the task, unless the task runs or is about
//! to run. The task finds marks that are made while it runs, because it checks them before it rests.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};

/// A cause that wakes a connection's task, other than the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Timer,
    /// The server stops, so the connection must end.
    Stop,
    /// A task has sent something, or so much of the request bodies was read that the connection's window should be
    /// widened.
    Mail,
    /// The stream in this slot, or in another slot with the same mark.
    Stream(usize),
}

const WORDS: usize = 8;
const MARKS: usize = WORDS * 64;
/// The number of marks that precede the marks of streams.
const FIRST_STREAM: usize = 3;

impl Cause {
    fn mark(self) -> usize {
        match self {
            Cause::Timer => 0,
            Cause::Stop => 1,
            Cause::Mail => 2,
            Cause::Stream(slot) => (FIRST_STREAM + slot) % MARKS,
        }
    }
}

/// The marks of one connection, each of which stands for a cause that has woken its task.
#[derive(Debug, Default)]
pub struct Wakes {
    marks: [AtomicU64; WORDS],
    /// Whether the connection's task runs, or was woken and is about to run.
    is_awake: AtomicBool,
    task: AtomicWaker,
}

impl Wakes {
    pub fn waker(self: &Arc<Self>, cause: Cause) -> Waker {
        Waker::from(Arc::new(Mark { wakes: self.clone(), cause }))
    }

    /// Sets the mark of a cause, and wakes the task unless it is awake.
    pub fn wake(&self, cause: Cause) {
        let mark = cause.mark();
        self.marks[mark / 64].fetch_or(1 << (mark % 64), Ordering::SeqCst);
        if !self.is_awake.swap(true, Ordering::SeqCst)
            && let Some(task) = self.task.take()
        {
            // During a delivery of events to many watches, the task is woken after all watches have their events.
            holdfast_engine::wakes::wake(&task);
        }
    }

    /// Called when the connection's task begins to run.
    pub fn begin(&self, task: &Waker) {
        self.task.register(task);
        self.is_awake.store(true, Ordering::SeqCst);
    }

    /// Called when the task is about to rest. Returns false if a cause was marked in the meantime, because then the
    /// task must run again.
    pub fn rest(&self, task: &Waker) -> bool {
        // The flag is lowered before the marks are read. A waker sets its mark before it reads the flag: so either the
        // waker wakes the task, or the mark is seen here.
        self.is_awake.store(false, Ordering::SeqCst);
        let is_marked = self.is_marked();
        if is_marked && !self.is_awake.swap(true, Ordering::SeqCst) {
            task.wake_by_ref();
        }
        !is_marked
    }

    pub fn is_marked(&self) -> bool {
        self.marks.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Clears the marks, and calls `look` with each cause for which a mark may have been set. If several of the `slots`
    /// stream slots share a mark, `look` is called for all of them.
    pub fn take(&self, slots: usize, mut look: impl FnMut(Cause)) {
        for (place, word) in self.marks.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut word = word.swap(0, Ordering::SeqCst);
            while word != 0 {
                let mark = place * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                match mark {
                    0 => look(Cause::Timer),
                    1 => look(Cause::Stop),
                    2 => look(Cause::Mail),
                    _ => {}
                }
                let first = (mark + MARKS - FIRST_STREAM) % MARKS;
                (first..slots).step_by(MARKS).for_each(|slot| look(Cause::Stream(slot)));
            }
        }
    }
}

/// A waker for a cause, which sets the mark of the cause.
struct Mark {
    wakes: Arc<Wakes>,
    cause: Cause,
}

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        self.wakes.wake(self.cause);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.wake(self.cause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_works_is_not_woken_and_finds_what_was_marked() {
        let (wakes, woken) = (Arc::new(Wakes::default()), Arc::new(Woken::default()));
        let task = Waker::from(woken.clone());
        let count = || woken.0.load(Ordering::Relaxed);
        let taken = |slots: usize| {
            let mut taken = Vec::new();
            wakes.take(slots, |cause| taken.push(cause));
            taken
        };
        wakes.begin(&task);
        wakes.wake(Cause::Stream(0));
        assert_eq!(count(), 0);
        assert!(!wakes.rest(&task));
        assert_eq!(count(), 1);
        wakes.waker(Cause::Stream(200)).wake();
        assert_eq!(count(), 1, "it was woken already");
        wakes.begin(&task);
        assert_eq!(taken(300), [Cause::Stream(0), Cause::Stream(200)]);
        assert_eq!(taken(300), []);
        assert!(wakes.rest(&task));
        wakes.waker(Cause::Timer).wake_by_ref();
        wakes.wake(Cause::Mail);
        assert_eq!(count(), 2);
        assert_eq!(taken(0), [Cause::Timer, Cause::Mail]);
    }

    #[test]
    fn streams_of_more_slots_than_marks_share_them() {
        let wakes = Arc::new(Wakes::default());
        wakes.wake(Cause::Stream(MARKS + 7));
        let mut taken = Vec::new();
        wakes.take(2 * MARKS, |cause| taken.push(cause));
        assert_eq!(taken, [Cause::Stream(7), Cause::Stream(MARKS + 7)]);
        wakes.wake(Cause::Stream(MARKS - FIRST_STREAM));
        taken.clear();
        wakes.take(2 * MARKS, |cause| taken.push(cause));
        assert_eq!(taken, [Cause::Timer, Cause::Stream(MARKS - FIRST_STREAM), Cause::Stream(2 * MARKS - FIRST_STREAM)]);
    }
}

//! Makes the server die in the middle of a commit, at a moment when it wakes somebody.
//!
//! The writer's order can be seen from outside by whom it wakes when: watchers while events are delivered, those who
//! wait for commits when all are, clients when they are answered. A fuse is the waker that they wait with.

use crate::disk::die;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The state is published, and some watcher gets an event.
    Deliver,
    /// Every watcher has what concerns it, and nobody is answered.
    Delivered,
    /// The first of the clients has its answer.
    Answer,
}

#[derive(Default)]
pub struct Fuse {
    lit: AtomicBool,
}

impl Fuse {
    pub fn light(&self) {
        self.lit.store(true, Ordering::Relaxed);
    }

    pub fn put_out(&self) {
        self.lit.store(false, Ordering::Relaxed);
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }
}

impl Wake for Fuse {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Once: what is dropped while the panic unwinds wakes others.
        if self.lit.swap(false, Ordering::Relaxed) {
            die();
        }
    }
}

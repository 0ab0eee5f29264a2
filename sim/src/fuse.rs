//! Makes the server die in the middle of a commit, at a moment when it wakes somebody.
//!
//! The writer's order can be seen from outside by whom it wakes when: watchers while events are delivered, those who
//! wait for commits when all are, clients when they are answered. A fuse is the waker that they wait with. One that is
//! not lit looks whether all that is durable is there to be read, as it should be for whoever is woken.

use crate::disk::die;
use holdfast_engine::Engine;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
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
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    engine: Weak<Engine>,
    early: Option<String>,
}

impl Fuse {
    pub fn light(&self) {
        self.lit.store(true, Ordering::Relaxed);
    }

    pub fn put_out(&self) {
        self.lit.store(false, Ordering::Relaxed);
    }

    /// From now on this is the engine that is to have published what it tells of.
    pub fn watch(&self, engine: &Arc<Engine>) {
        *self.watched() = Watched { engine: Arc::downgrade(engine), early: None };
    }

    /// Who was woken too early, and why it was.
    pub fn early(&self) -> Option<String> {
        self.watched().early.take()
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        let mut watched = self.watched();
        let Some(engine) = watched.engine.upgrade() else { return };
        let shown = engine.snapshot().offset;
        if let Ok(durable) = engine.log().last()
            && durable != shown
        {
            let why = || format!("somebody is woken while version {shown} is shown, and {durable} is durable");
            watched.early.get_or_insert_with(why);
        }
    }
}

//! Crashes the server in the middle of a commit, at the time at which the commit wakes a waiter.
//!
//! Wakers make the steps of a commit observable: watchers are woken while events are delivered, waiters for commits are
//! woken after all deliveries, and clients are woken when they are answered. A fuse is the waker of all these waiters.
//! If a fuse is lit, it crashes the server when it is woken. If it is not lit, it checks that all durable events can be
//! read at this time, because a woken reader must find them.

use crate::disk::die;
use holdfast_engine::Engine;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Wake, Waker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The new state is published, and a watcher gets an event.
    Deliver,
    /// All watchers have got their events, and no client has been answered yet.
    Delivered,
    /// The first client gets its answer.
    Answer,
}

#[derive(Default)]
pub struct Fuse {
    lit: AtomicBool,
    watched: Mutex<GuardedEngine>,
}

#[derive(Default)]
struct GuardedEngine {
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

    /// Sets the engine whose published state the fuse checks.
    pub fn watch(&self, engine: &Arc<Engine>) {
        *self.watched() = GuardedEngine { engine: Arc::downgrade(engine), early: None };
    }

    /// Why a fuse was woken too early; `None` if none was.
    pub fn early(&self) -> Option<String> {
        self.watched().early.take()
    }

    fn watched(&self) -> MutexGuard<'_, GuardedEngine> {
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
        // The fuse acts only once, because values that are dropped while the panic unwinds wake other waiters, too.
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

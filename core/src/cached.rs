//! Values inside of immutable values that may change, because they only save work.

#![expect(clippy::disallowed_types, reason = "no result depends on a cached value")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that saves work, such as the packed bytes of an object. Threads that share the value around it may change it
/// at any time.
///
/// A cached value changes no result: whatever it is, its readers return the same. The type around it says why, and
/// `tests/caches.rs` compares the results of requests with and without cached values.
#[derive(Default)]
pub(crate) struct Cached<T>(Mutex<T>);

impl<T> Cached<T> {
    pub(crate) fn new(value: T) -> Cached<T> {
        Cached(Mutex::new(value))
    }

    /// Locks the value. The caller does only short work, and never locks another value, while it holds the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

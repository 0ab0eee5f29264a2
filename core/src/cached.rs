//! Caches inside immutable values. The content of a cache may change, because a cache only saves work and changes no
//! result.

#![expect(clippy::disallowed_types, reason = "no result depends on a cached value")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cache inside a larger value, such as the packed bytes of an object. Threads that share the larger value may change
/// the cache at any time.
///
/// The content of a cache changes no result. The comment of the larger type gives the reason, and
/// `tests/custom_resources/caches.rs` compares the results of requests with and without cached values.
#[derive(Default)]
pub(crate) struct Cached<T>(Mutex<T>);

impl<T> Cached<T> {
    pub(crate) fn new(value: T) -> Cached<T> {
        Cached(Mutex::new(value))
    }

    /// Locks the value. The caller does only short work while it holds the lock. A thread that has locked a packer may
    /// also lock bodies of objects, and a thread that has locked any other value locks no second value, so no thread
    /// waits for ever.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

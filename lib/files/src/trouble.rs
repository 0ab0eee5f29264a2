//! The error of a followed file whose last good content stays in use, for health checks.

use std::sync::{Arc, Mutex, PoisonError};

/// Clones share the same error.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// Notes the result of the last look at the file.
    pub fn note<T>(&self, outcome: &Result<T, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = outcome.as_ref().err().cloned();
    }

    /// Why the file's present content is not used, if so.
    pub fn check(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

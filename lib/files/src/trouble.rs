//! The error of a file that is read again when it changes. The last good content stays in use; health checks report the
//! error.

use std::sync::{Arc, Mutex, PoisonError};

/// The error of a file, if its current content is not used. Clones share the same error.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// Records the result of the last attempt to read the file.
    pub fn note<T>(&self, outcome: &Result<T, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = outcome.as_ref().err().cloned();
    }

    /// Fails with the reason if the current content of the file is not used.
    pub fn check(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

//! What is wrong with a file that is followed, while what it said before goes on: for those who ask how a server is.

use std::sync::{Arc, Mutex, PoisonError};

/// Cloning gives the same.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// What came of the last look at the file.
    pub fn note<T>(&self, outcome: &Result<T, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = outcome.as_ref().err().cloned();
    }

    /// Why the file does not count.
    pub fn check(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

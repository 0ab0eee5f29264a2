//! What searches for devices leave to the ones after them: what they found out, and what their namespaces have spent.

use super::effort::Purses;
use super::expression::Expressions;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Searches {
    pub(super) expressions: Expressions,
    pub(super) purses: Purses,
    pub(super) tried: AtomicU64,
}

impl Searches {
    /// How many times any expression was evaluated for a device: each once for each version of a slice, while it is of
    /// use.
    pub fn evaluated(&self) -> u64 {
        self.expressions.evaluated()
    }

    /// How many times any device was tried for a request.
    pub fn tried(&self) -> u64 {
        self.tried.load(Ordering::Relaxed)
    }
}

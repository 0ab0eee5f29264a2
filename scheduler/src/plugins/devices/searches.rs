//! What searches for devices leave to later searches: cached expressions, and what namespaces have spent.

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
    /// How often expressions were evaluated for devices: once for each expression and version of a slice, while both
    /// are cached.
    pub fn evaluated(&self) -> u64 {
        self.expressions.evaluated()
    }

    /// How often devices were tried for requests.
    pub fn tried(&self) -> u64 {
        self.tried.load(Ordering::Relaxed)
    }
}

//! What searches for devices leave to later searches: compiled expressions with their results, and how much of its
//! budget each namespace has spent.

use super::expression::Expressions;
use super::limits::NamespaceBudgets;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct SharedSearchState {
    pub(super) expressions: Expressions,
    pub(super) budgets: NamespaceBudgets,
    pub(super) tries: AtomicU64,
}

impl SharedSearchState {
    /// How many times an expression was evaluated for a device: once for each expression and each version of a slice,
    /// while both are cached.
    pub fn evaluated(&self) -> u64 {
        self.expressions.evaluated()
    }

    /// How many times a device was tried for a request.
    pub fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }
}

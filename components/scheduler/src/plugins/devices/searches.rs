//! State that searches for devices leave to later searches: cached expressions, and the spent budgets of namespaces.

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
    /// How many times expressions were evaluated for devices: once for each expression and version of a slice, while
    /// both are cached.
    pub fn evaluated(&self) -> u64 {
        self.expressions.evaluated()
    }

    /// How many times devices were tried for requests.
    pub fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }
}

//! The state that all searches for devices share: compiled expressions with their results, and how much of its budget
//! each namespace has spent.

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
    /// How many times an expression was evaluated for a device. A result is cached, so as long as the expression is
    /// cached and the slice does not change, each device of the slice counts once for each expression.
    pub fn evaluated(&self) -> u64 {
        self.expressions.evaluated()
    }

    /// How many times a device was tried for a request.
    pub fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }
}

//! A budget of work for evaluating one object. Work is counted rather than timed, so the same evaluation always stops
//! at the same point.

use holdfast_value::Value;
use std::cell::Cell;

/// The remaining budget of an evaluation. Once it is exceeded, all further work fails.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<usize>,
    bytes: Cell<usize>,
    is_spent: Cell<bool>,
}

/// An error: the evaluation has exceeded its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

/// How many bytes a value costs in addition to its text.
pub const VALUE_BYTES: usize = 24;

impl Budget {
    /// A budget that allows this many steps, and this many bytes of values that are made or read.
    pub fn new(steps: usize, bytes: usize) -> Budget {
        Budget { steps: Cell::new(steps), bytes: Cell::new(bytes), is_spent: Cell::new(false) }
    }

    /// Whether the evaluation has exceeded the budget.
    pub fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// Marks the budget as exceeded because of work that another limit counts.
    pub fn end(&self) -> Spent {
        self.is_spent.set(true);
        Spent
    }

    pub fn step(&self, count: usize) -> Result<(), Spent> {
        self.take(&self.steps, count)
    }

    pub fn bytes(&self, count: usize) -> Result<(), Spent> {
        self.take(&self.bytes, count)
    }

    /// Counts values that the evaluation makes or reads.
    pub fn values(&self, count: usize) -> Result<(), Spent> {
        self.bytes(count.saturating_mul(VALUE_BYTES))
    }

    /// Counts a value that is copied, compared or printed as a whole. Fails as soon as the budget is exceeded.
    pub fn whole(&self, value: &Value) -> Result<(), Spent> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.values(1),
            Value::String(text) => self.bytes(VALUE_BYTES + text.len()),
            Value::Array(items) => {
                self.values(1)?;
                items.iter().try_for_each(|item| self.whole(item))
            }
            Value::Object(fields) => {
                self.values(1)?;
                fields.iter().try_for_each(|(name, value)| {
                    self.bytes(VALUE_BYTES + name.len())?;
                    self.whole(value)
                })
            }
        }
    }

    fn take(&self, what: &Cell<usize>, count: usize) -> Result<(), Spent> {
        match what.get().checked_sub(count) {
            Some(left) if !self.is_spent.get() => {
                what.set(left);
                Ok(())
            }
            _ => {
                self.is_spent.set(true);
                Err(Spent)
            }
        }
    }
}

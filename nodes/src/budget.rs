//! How much work one evaluation for one object may be, counted, so that the same work always ends at the same place.

use holdfast_value::Value;
use std::cell::Cell;

/// What is left of the work that an evaluation may be. Once something was too much, all is.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<usize>,
    bytes: Cell<usize>,
    is_spent: Cell<bool>,
}

/// The evaluation is more work than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

/// What a value counts for besides its text.
pub const VALUE_BYTES: usize = 24;

impl Budget {
    /// So many steps, and so many bytes of values that are made or gone through.
    pub fn new(steps: usize, bytes: usize) -> Budget {
        Budget { steps: Cell::new(steps), bytes: Cell::new(bytes), is_spent: Cell::new(false) }
    }

    /// Whether something was too much.
    pub fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// Work that is counted elsewhere was too much.
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

    /// The values are made or gone through.
    pub fn values(&self, count: usize) -> Result<(), Spent> {
        self.bytes(count.saturating_mul(VALUE_BYTES))
    }

    /// The value is copied, compared or written out. It is looked at no further than there is room.
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

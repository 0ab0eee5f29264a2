//! Costs of expressions, in the units in which cel-go counts costs.

use super::types::Type;
use super::value::{EvalError, Value};

/// The number of cost units that an evaluation may still spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub left: u64,
}

impl Budget {
    pub fn new(left: u64) -> Self {
        Budget { left }
    }

    pub fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(EvalError::Cost)
            }
        }
    }
}

/// A size or a cost of which only a lower and an upper bound are known. Arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };
    pub const ZERO: Range = Range::exactly(0);
    pub const ONE: Range = Range::exactly(1);

    pub const fn exactly(value: u64) -> Range {
        Range { min: value, max: value }
    }

    #[allow(clippy::should_implement_trait)]
    pub fn add(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    #[allow(clippy::should_implement_trait)]
    pub fn mul(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The cost of visiting each character of a value of this size.
    pub fn traversal(self) -> Range {
        self.scaled(STRING_FACTOR)
    }

    pub fn scaled(self, factor: f64) -> Range {
        Range { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }
}

pub const STRING_FACTOR: f64 = 0.1;
pub const REGEX_FACTOR: f64 = 0.25;

/// The cost of visiting each character of a value of this size.
pub fn traversal(size: u64) -> u64 {
    scaled(size, STRING_FACTOR)
}

/// The size times the factor, rounded up. The conversion from float saturates.
pub fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The estimated cost of a call, and the size of its result, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallEstimate {
    pub cost: Range,
    pub result: Option<Range>,
}

/// The sizes and types of a call's arguments, as far as they are known before evaluation. The receiver of a member call
/// is the first argument.
pub struct Arguments<'a> {
    pub arguments: &'a [Argument<'a>],
}

pub struct Argument<'a> {
    pub ty: &'a Type,
    pub size: Option<Range>,
    /// The type of a list's items, if known.
    pub item_type: Option<&'a Type>,
    /// The size of the items, if the argument is a list in a document.
    pub item_size: Option<Range>,
    /// The text of the argument, if it is a string literal.
    pub literal: Option<&'a str>,
    /// The value of the argument, if it is a number literal.
    pub number: Option<i64>,
}

impl Arguments<'_> {
    /// The size of the argument at `index`. An unknown size is an unlimited range; a scalar has size one.
    pub fn size(&self, index: usize) -> Range {
        self.arguments.get(index).and_then(|argument| argument.size).unwrap_or(Range::UNKNOWN)
    }

    pub fn item_size(&self, index: usize) -> Range {
        self.arguments.get(index).and_then(|argument| argument.item_size).unwrap_or(Range::UNKNOWN)
    }
}

impl Value<'_> {
    /// The number of characters of a string, bytes of a bytes value, or items of a list or map; one for other values.
    pub fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len(),
            Value::Map(map) => map.len() as u64,
            Value::Json(holdfast_value::Value::Array(items), _) => items.len() as u64,
            Value::Json(holdfast_value::Value::Object(map), _) => map.len() as u64,
            _ => 1,
        }
    }
}

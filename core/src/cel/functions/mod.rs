//! Functions as tables of overloads: a signature, what runs, what it costs.
//!
//! A signature reads `<string>.contains(string) -> bool` for a member, `optional.of(A) -> optional(A)` for a global
//! function. Types are spelled as in CEL (`list(A)`, `map(K, V)`, `optional(A)`, `type(A)`, `dyn`, `timestamp`);
//! a single capital letter is a placeholder, any other name the full name of an opaque type (`kubernetes.Quantity`).

pub mod example;

use super::cost::{Arguments, CallEstimate};
use super::value::{EvalError, Value};

/// One overload. For a member the receiver is the first argument.
#[derive(Debug)]
pub struct Overload {
    pub signature: &'static str,
    pub run: Run,
    pub cost: Cost,
}

/// The arguments have the types of the signature when those are known before evaluation; where the checker saw `dyn`
/// the first overload is called whose parameters fit the values.
pub type Run = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// What a call costs, beside its arguments.
#[derive(Debug, Clone, Copy)]
pub enum Cost {
    /// One unit, whatever the arguments.
    One,
    Fixed(u64),
    /// A tenth of the sum of the sizes of these arguments, rounded up.
    Traverse(&'static [usize]),
    Custom(CustomCost),
}

#[derive(Debug, Clone, Copy)]
pub struct CustomCost {
    /// At run time, with what the call gave.
    pub actual: for<'a> fn(&[Value<'a>], &Value<'a>) -> u64,
    /// Before evaluation, from the sizes that the arguments can have.
    pub estimate: fn(&Arguments<'_>) -> CallEstimate,
}

pub const fn overload(signature: &'static str, run: Run, cost: Cost) -> Overload {
    Overload { signature, run, cost }
}

/// All tables of the Kubernetes environment. A later table may add overloads to a function of an earlier one.
pub static TABLES: &[&[Overload]] = &[example::TABLE];

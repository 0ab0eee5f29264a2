//! Leader election: of several processes that could do the same work, one does it.
//!
//! [`elector`] decides, and is pure: time, chance and answers come in, what to ask and how long to wait comes out.
//! [`lock`] is the object that says who leads, in each of the forms that it ever had. [`run`](mod@run) has the two meet.

pub mod elector;
pub mod lock;
pub mod run;
#[cfg(test)]
mod tests;

pub use elector::{Elector, Record, Terms};
pub use lock::{Form, Lock};
pub use run::{Election, Outcome, Standing};

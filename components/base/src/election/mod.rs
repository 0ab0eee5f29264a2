//! Leader election: among several processes that could do the same work, one process does it.
//!
//! [`elector`] decides, and is pure: time, random numbers and answers are inputs, requests and waits are outputs.
//! [`lock`] is the object with the leader's record, in each of its forms. [`run`](mod@run) carries out the elector's
//! steps on the lock.

pub mod elector;
pub mod lock;
pub mod run;
#[cfg(test)]
mod tests;

pub use elector::{Elector, Record, Terms};
pub use lock::{Lock, LockKind};
pub use run::{Election, ElectionOutcome, Standing};

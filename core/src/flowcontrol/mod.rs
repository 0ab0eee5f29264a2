//! Priority and fairness: decides which requests start first when more requests arrive than the server can handle.
//!
//! [`Configuration`] is read from the objects of `flowcontrol.apiserver.k8s.io`. It determines the flow of a request
//! ([`schemas`]) and the number of the server's seats for each priority level ([`seats`]). A priority level is a
//! [`Queues`]: it starts requests, queues them, or refuses them. [`work`] computes how many seats a request takes,
//! [`deal`] chooses the queues of a flow, and [`upkeep`] keeps the objects up to date.
//!
//! This module never waits and reads no clock: each call carries the time, in nanoseconds since the server's start.

pub mod configuration;
pub mod deal;
pub mod queues;
pub mod retry;
pub mod schemas;
pub mod seats;
pub mod upkeep;
pub mod work;

#[cfg(test)]
mod simulation;

pub use configuration::{Configuration, Level};
pub use queues::{Arrival, Queues, Shape, Ticket};
pub use schemas::{Distinguisher, Schema, Schemas};
pub use work::Work;

/// Nanoseconds since the server's start.
pub type Moment = u64;

//! Priority and fairness: which requests go first when there are more than the server can take.
//!
//! [`Configuration`] is what the objects of `flowcontrol.apiserver.k8s.io` come to. It tells which flow a request belongs
//! to ([`schemas`]) and how many of the server's seats each level has ([`seats`]). A level is a [`Queues`]: it starts
//! requests, has them wait in turn, or refuses them. [`work`] says how many seats a request takes, [`deal`] which queues
//! are a flow's, [`upkeep`] what is to be done about the objects themselves.
//!
//! Nothing here waits or knows a clock: time comes in with each call, in nanoseconds since the server's start.

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

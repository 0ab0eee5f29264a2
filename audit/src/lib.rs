//! The audit trail: who asked for what, when, and how it ended.
//!
//! A [`Policy`] says how much of a request is told, if anything. An [`Auditor`] holds the policy and the backends that
//! events go to; [`Trail`] is one request on its way, and tells each stage as it is reached.

pub mod backend;
mod event;
mod latency;
mod policy;
mod trail;

pub use backend::{Backend, Mode};
pub use event::{Event, Level, ObjectReference, Stage};
pub use latency::Spent;
pub use policy::{Asked, Policy, Ruling, Subject};
pub use trail::{Auditor, Begun, Counts, Deadline, Ended, NotStored, Trail};

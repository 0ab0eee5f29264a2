//! The audit log, which records which user requested what and when, and how the request ended.
//!
//! A [`Policy`] determines how much of a request is recorded, if anything. An [`Auditor`] has the policy and the
//! backends that store events. A [`Trail`] accompanies one request, and records each stage as it is reached.

pub mod backend;
mod event;
mod latency;
mod policy;
mod trail;

pub use backend::{Backend, Mode};
pub use event::{Event, Level, ObjectReference, Stage};
pub use latency::Spent;
pub use policy::{Policy, RequestTarget, Ruling, Subject};
pub use trail::{AuditCounts, Auditor, Begun, Deadline, NotStored, RequestEnd, Trail};

//! The service between transports and the engine. Every request passes the service.
//!
//! A transport converts a request into a [`Call`] by a user that it has authenticated, passes it to [`Service::call`],
//! and renders the [`Reply`]. A caller in the same process makes the call itself, without parsing or rendering. In both
//! cases the call passes the same layers, which have one file each; [`layers::all`](layers) lists them in order.
//!
//! This crate does not use HTTP, so replies and refusals are data. For its answers, the transport converts replies and
//! refusals to codes and `Status` documents. Through [`Statuses`], the service uses the same conversion for metrics and
//! audit events. The server's own work is in [`housekeeping`]; the requests of this work pass the same layers.

mod authorities;
mod call;
pub mod fairness;
pub mod housekeeping;
mod layers;
mod lookup;
mod metrics;
mod namespace_starts;
mod reply;
mod scene;
mod service;
mod shares;
mod statuses;
mod tokens;

pub use authorities::Authorities;
pub use call::{Call, CallSubject, RequestId, ResourcePath, ResourceRequest, Source};
pub use layers::{Outcome, RequestSlot};
pub use metrics::{Metrics, Record, Watching, ticks};
pub use reply::{Answer, Connecting, Draft, Granted, Listed, Reply, Shown, Watched};
pub use scene::Scene;
pub use service::{Limits, Meter, Options, Service, WATCH_MIN, caught, panicked};
pub use shares::{Share, Shares};
pub use statuses::{AnswerCode, Statuses};
pub use tokens::{Elsewhere, Reviewed, Tokens, UNKNOWN_TOKEN};

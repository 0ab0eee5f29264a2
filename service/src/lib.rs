//! The service between transports and the engine: the one way in for every request.
//!
//! A transport turns a request into a [`Call`] by a user that it has authenticated, hands it to [`Service::call`], and
//! renders the [`Reply`]. A caller in the same process makes the call itself, without parsing or rendering. Either way
//! the call passes the same layers, one file each; [`layers::all`](layers) lists them in order.
//!
//! This crate knows no HTTP: refusals are data, and making a `Status` document of one is the transport's work. What the
//! server does by itself is in [`housekeeping`], and passes the same layers.

mod admission_metrics;
mod authorities;
mod call;
mod decisions;
pub mod fairness;
pub mod housekeeping;
mod layers;
mod lookup;
mod metrics;
mod reply;
mod scene;
mod service;
mod shares;
mod tokens;

pub use admission_metrics::ticks;
pub use authorities::Authorities;
pub use call::{Asked, Call, Named, RequestId, ResourcePath, Source};
pub use layers::{Layer, Next, Outcome, Passage, Place};
pub use metrics::{Metrics, Record, Watching};
pub use reply::{Answer, Connecting, Draft, Granted, Listed, Reply, Shown, Watched};
pub use scene::Scene;
pub use service::{Limits, Meter, Options, Service, WATCH_MIN, caught, panicked};
pub use shares::{Share, Shares};
pub use tokens::{Elsewhere, Reviewed, Tokens, UNKNOWN_TOKEN};

//! The door between transports and the engine: one way in for every request, whoever brings it.
//!
//! A transport turns what it was sent into a [`Call`] by a user whom it has authenticated, hands it to
//! [`Service::call`], and renders the [`Reply`]. A caller in the same process makes the call itself, with nothing to
//! parse and nothing to render. Either way the call passes the same layers: their list stands in
//! [`layers::all`](layers), in their order, a file each.
//!
//! There is no HTTP in here: refusals are data, and a `Status` document is the transport's. What the server does by
//! itself is in [`housekeeping`], and comes through the door as well.

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

//! HTTP in front of the engine: TLS, authentication, parsing, streaming. No rules about objects here.
//!
//! Start at [`api::Api::handle`], the way of one request. [`serve`](mod@serve) puts it behind a socket and
//! [`memory`] behind a `tower` service without one; both run the same filter.

pub mod aggregate;
pub mod api;
pub mod authenticate;
mod body;
pub mod effects;
pub mod forks;
pub mod info;
pub mod log;
pub mod memory;
mod metrics;
mod past;
pub mod paths;
pub mod peer;
mod query;
mod respond;
mod reviews;
pub mod serve;
mod status;
#[cfg(test)]
mod strangers;
pub mod tokens;
mod watch;
mod websocket;

pub use metrics::Metrics;

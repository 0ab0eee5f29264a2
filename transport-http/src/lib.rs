//! HTTP in front of the service: TLS, authentication, parsing, rendering, streaming. It has no rules about objects.
//!
//! Start at [`Transport::handle`], which handles one request. A [`Builder`] wires the service and this transport.
//! [`serve`](mod@serve) puts the transport behind a socket, and [`memory`] behind a `tower` service without a socket;
//! both run the same filter.

pub mod aggregate;
mod answers;
mod audit;
pub mod authenticate;
mod body;
mod build;
pub mod connect;
mod connection;
mod documents;
mod effects;
mod expecting;
pub mod flow_control;
pub mod forks;
pub mod health;
mod held;
mod issuer;
mod listener;
mod lists;
pub mod log;
pub mod manners;
pub mod memory;
pub mod pages;
mod parse;
pub mod paths;
pub mod query;
mod received;
mod render;
mod requests;
mod respond;
mod route;
mod secrets;
pub mod serve;
pub mod spans;
mod sparing;
mod status;
#[cfg(test)]
mod strangers;
mod target;
pub mod tokens;
pub mod transport;
mod understood;
mod warnings;
mod watch;
mod websocket;
mod wire;

pub use build::Builder;
pub use effects::Images;
pub use requests::WireRequest;
pub use transport::{
    Features, ForkSettings, HealthCheck, LifecycleSettings, OtherServersSettings, ServerInfoSettings, ServerVersion,
    Transport,
};

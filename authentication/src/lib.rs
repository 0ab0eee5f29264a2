//! Tokens that others answer for: a webhook is asked about them, or an issuer's keys prove them.
//!
//! [`Others`] is asked when nobody in the server itself knows a token. [`oidc`] has the issuers, [`webhook`] the one that
//! is asked, [`configuration`] reads the file that names issuers, and follows it, [`metrics`] counts.

pub mod configuration;
pub mod metrics;
pub mod oidc;
mod others;
pub mod webhook;

pub use metrics::Metrics;
pub use others::{Agnostic, Others};

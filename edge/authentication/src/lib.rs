//! Tokens that are verified elsewhere: by a webhook, or by the keys of an issuer.
//!
//! [`Others`] is asked when the server itself does not know a token. [`oidc`] has the issuers and [`webhook`] the
//! webhook; [`configuration`] parses the file with the issuers and follows it, [`metrics`] counts.

pub mod configuration;
pub mod metrics;
pub mod oidc;
mod others;
pub mod webhook;

pub use metrics::Metrics;
pub use others::{Agnostic, Others};

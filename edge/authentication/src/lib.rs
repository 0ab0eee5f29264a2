//! Verifies tokens outside the server, by a webhook or by the keys of an issuer.
//!
//! [`VerifierChain`] is called when the server itself does not recognize a token. [`oidc`] contains the issuers and
//! [`webhook`] the webhook; [`configuration`] parses the file with the issuers and reads it again when it changes;
//! [`metrics`] counts.

pub mod configuration;
pub mod metrics;
pub mod oidc;
mod verifier_chain;
pub mod webhook;

pub use metrics::Metrics;
pub use verifier_chain::{Agnostic, VerifierChain};

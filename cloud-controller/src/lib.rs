//! Clouds that are asked in earnest: what the pure plans of `holdfast-cloud` need to run.
//!
//! [`external`] asks a provider over gRPC, [`simulated`] a simulated cloud in the process, and [`counted`] counts what
//! either is asked.

pub mod counted;
pub mod external;
pub mod simulated;

//! Clouds that run in real time: what the pure plans of `holdfast-cloud` need to run.
//!
//! [`external`] calls a provider over gRPC, [`simulated`] runs a simulated cloud within the process, and [`counted`]
//! measures the calls to either.

pub mod counted;
pub mod external;
pub mod simulated;

//! Events made by hand, and what a log holds of them: those of the suite that every log runs.

pub use holdfast_engine::log::suite::{current, delete, everything, put};

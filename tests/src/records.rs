//! Hand-made events and the content of a log with them, shared with the suite that every log passes.

pub use holdfast_engine::log::suite::{current, delete, everything, put};

//! The views, a file a kind or a few that belong together.

pub mod pod;

pub use pod::Pod;

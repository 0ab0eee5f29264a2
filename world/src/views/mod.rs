//! The views, a file a kind or a few that belong together.

pub mod node;
pub mod pod;

pub use node::Node;
pub use pod::Pod;

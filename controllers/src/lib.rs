//! The controllers of a cluster: each a pure plan for one key at a time, over what the world shows.
//!
//! A folder (or a file) a controller; [`all`] is their list.

use holdfast_world::Controller;

/// Every controller there is.
pub fn all() -> Vec<Box<dyn Controller>> {
    Vec::new()
}

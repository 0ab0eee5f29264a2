//! Determines which devices a claim can get on a node.

pub mod allocate;
pub(super) mod device_counter;
mod expression;
pub mod extended_resources;
mod limits;
pub mod searches;

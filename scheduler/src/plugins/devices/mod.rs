//! Which devices a claim can get on a node.

pub mod allocate;
mod effort;
pub mod expression;
pub mod special;

//! Which devices a claim can get on a node.

pub mod allocate;
pub mod expression;

//! Which devices a claim can get on a node.

pub mod allocate;
mod effort;
mod expression;
mod pools;
pub mod searches;
pub mod special;

//! Documents: decoding, metadata, encoding.

pub mod names;
pub mod validate;

//! Documents: decoding, metadata, encoding.

pub mod decode;
pub mod names;
pub mod validate;

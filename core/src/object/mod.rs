//! Documents: decoding, metadata, encoding.

pub mod decode;

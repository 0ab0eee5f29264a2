//! Documents: decoding, metadata, encoding.

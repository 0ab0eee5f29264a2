//! Documents: decoding, metadata, encoding.
//!
//! An object crosses the core as a JSON document; only the fields that a rule reads are typed.

pub(crate) mod address;
pub(crate) mod at;
pub mod base64;
pub mod body;
pub mod csv;
mod cursor;
pub mod decode;
pub mod duration;
pub mod encode;
pub mod export;
pub mod glance;
pub mod meta;
pub mod names;
pub mod reader;
mod scan;
pub mod stored;
pub mod validate;

pub use body::{Body, Packer};
pub use encode::Draft;

//! Documents: decoding, metadata and encoding.
//!
//! The core handles an object as a JSON document. Only the fields that a rule reads have types.

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
pub mod yaml;

pub use body::{Body, Packer};
pub use encode::Draft;

//! Documents: values of JSON, with the names and the behaviour of `serde_json`'s, but that the objects of a copy are
//! those of the original until one of them changes.
//!
//! A write takes a document as it is, makes the one that shall be, and compares the two in every stage. Between them they
//! differ in a few fields, so here a copy of a document costs no more than its top, a comparison passes over what is the
//! same object in both, and objects of few fields, which nearly all are, lie in one piece of memory each.

mod de;
mod index;
pub mod map;
mod ser;
mod value;
#[doc(hidden)]
pub mod written;

/// Up to 24 bytes of it lie in the value itself, as nearly all names of fields do.
pub use compact_str::CompactString;
pub use de::from_value;
pub use index::Index;
pub use map::Map;
pub use ser::to_value;
pub use serde_json::{Error, Number};
pub use value::Value;

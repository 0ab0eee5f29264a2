//! Documents: JSON values with the names and behaviour of `serde_json`, except that a clone shares its objects with the
//! original until one of the two changes.
//!
//! A write request clones a stored document, changes the clone, and compares the two several times. They differ in a
//! few fields. So a clone here costs only its root, and a comparison skips objects that both share. Objects of few
//! fields, which nearly all are, need one allocation each.

mod de;
mod index;
#[doc(hidden)]
pub mod json_macro;
pub mod map;
mod ser;
mod value;

/// Stores up to 24 bytes inline, enough for nearly all field names.
pub use compact_str::CompactString;
pub use de::from_value;
pub use index::Index;
pub use map::Map;
pub use ser::to_value;
pub use serde_json::{Error, Number};
pub use value::Value;

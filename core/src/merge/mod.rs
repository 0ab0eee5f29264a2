//! Patches: compute a changed document from an old one and a patch, and record who set which field.
//!
//! [`json`] and [`strategic`] are the three plain patch formats. [`apply`](mod@apply) is server-side apply; [`managed`]
//! maintains `metadata.managedFields` for every other write. Both use [`field_set`] (sets of paths) and [`typed`]
//! (comparing, merging and removing by schema). Nothing here panics on any input.

pub mod apply;
mod field_set;
pub mod json;
pub mod managed;
pub mod strategic;
#[cfg(test)]
mod testing;
pub(crate) mod typed;

pub use field_set::FieldSet;

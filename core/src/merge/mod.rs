//! Patches: computes a changed document from an old document and a patch, and records which manager set which field.
//!
//! [`json`] and [`strategic`] have the three plain patch formats. [`apply`](mod@apply) is server-side apply, and
//! [`managed`] maintains `metadata.managedFields` for every other write. Apply and `managed` use [`field_set`] (sets of
//! paths) and [`typed`] (comparing, merging and removing by schema). No input makes this module panic.

pub mod apply;
mod field_set;
pub mod json;
pub mod managed;
pub mod strategic;
#[cfg(test)]
mod testing;
pub(crate) mod typed;

pub use field_set::FieldSet;

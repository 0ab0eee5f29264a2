//! Patches: a changed document from an old one and a patch, and the record of who set which field.
//!
//! [`json`] and [`strategic`] hold the three plain patch formats. [`apply`](mod@apply) is server-side apply;
//! [`managed`] keeps `metadata.managedFields` true on every other write. Both stand on [`field_set`] (sets of
//! paths) and [`typed`] (what the schema says about comparing, merging and removing).
//! Nothing here panics, whatever a stranger sends.

pub mod apply;
mod field_set;
pub mod json;
pub mod managed;
pub mod strategic;
#[cfg(test)]
mod testing;
pub(crate) mod typed;

pub use field_set::FieldSet;

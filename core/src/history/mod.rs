//! The log as people look at it: how objects differ, who set which field, and which version a time means.
//!
//! [`difference()`] compares two documents by the kind's schema, [`Blame`] follows an object's versions, [`revert()`]
//! undoes one change, [`moment`] finds versions by time, [`find`] finds kinds by the names that kubectl accepts, and
//! [`render`] prints differences. Records and the current time are passed in.

mod blame;
mod difference;
pub mod find;
pub mod moment;
mod path;
pub mod render;
mod revert;

pub use blame::{Blame, Origin, Set, is_at};
pub use difference::{FieldChange, Shape, What, difference, leaves, without_bookkeeping};
pub use path::{Path, Step};
pub use revert::{Conflict, Reverted, revert, settable};

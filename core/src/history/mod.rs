//! Shows the log to people: differences between objects, the user who set each field, and the version at a time.
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

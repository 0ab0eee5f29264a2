//! The log told to people: how objects differ, who set which field, and which version a time means.
//!
//! [`difference()`] compares two documents by the kind's schema, [`Blame`] walks an object's versions, [`revert()`]
//! takes one change back, [`moment`] finds versions by time, [`find`] finds kinds by the names that kubectl takes, and
//! [`render`] writes differences as text. Everything that comes from outside (records, the present time) is handed in.

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

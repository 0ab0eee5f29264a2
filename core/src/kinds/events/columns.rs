//! Events are one kind in two groups, stored in the core group's form.

use crate::kinds::Column;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Event" => crate::kinds::core::columns::of(kind),
        _ => Vec::new(),
    }
}

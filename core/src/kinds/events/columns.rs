//! Events are one kind in two groups, stored in the core group's form.

use crate::kinds::Column;

/// The table columns of a kind of this group. If there are none, tables show Name and Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Event" => crate::kinds::core::columns::of(kind),
        _ => Vec::new(),
    }
}

use crate::kinds::Column;

/// Table columns of a kind of this group; empty means Name and Created At.
pub fn of(_kind: &str) -> Vec<Column> {
    Vec::new()
}

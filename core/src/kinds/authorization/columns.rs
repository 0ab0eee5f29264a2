use crate::kinds::Column;

/// The table columns of a kind of this group. If there are none, tables show Name and Created At.
pub fn of(_kind: &str) -> Vec<Column> {
    Vec::new()
}

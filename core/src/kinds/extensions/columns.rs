use crate::kinds::Column;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(_kind: &str) -> Vec<Column> {
    Vec::new()
}

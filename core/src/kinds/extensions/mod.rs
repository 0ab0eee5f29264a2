pub mod columns;
pub mod defaults;

use super::Kind;

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    Vec::new()
}

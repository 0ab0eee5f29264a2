//! `events.k8s.io`: how its versions of an Event differ from the core group's, where the kind itself stands.

pub mod columns;
pub mod convert;
pub mod defaults;
pub(in crate::kinds) mod validate;

use super::Kind;

/// None: Event is one kind with the core group's.
pub fn kinds() -> Vec<Kind> {
    Vec::new()
}

//! `extensions`: the first home of kinds that moved to `apps` and `networking.k8s.io`, where they stand.

pub mod columns;
pub mod defaults;

use super::Kind;

/// None: each of these kinds is one with that of its later group.
pub fn kinds() -> Vec<Kind> {
    Vec::new()
}

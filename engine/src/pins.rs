//! Snapshots that lists in progress go on from: kept for a while, at most a few.

use holdfast_core::event::Offset;
use holdfast_core::state::State;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a continue token is good for.
pub const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// How many snapshots are kept at most; the oldest goes first.
const SNAPSHOTS_MAX: usize = 256;

#[derive(Default)]
pub struct Pins {
    snapshots: Mutex<BTreeMap<Offset, (Arc<State>, Instant)>>,
}

impl Pins {
    /// Keeps a snapshot, or keeps it longer.
    pub fn pin(&self, state: &Arc<State>) {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = Instant::now();
        snapshots.retain(|_, (_, since)| now.duration_since(*since) < LIFETIME);
        snapshots.entry(state.offset).or_insert_with(|| (state.clone(), now));
        while snapshots.len() > SNAPSHOTS_MAX {
            snapshots.pop_first();
        }
    }

    pub fn get(&self, offset: Offset) -> Option<Arc<State>> {
        let snapshots = self.snapshots.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (state, since) = snapshots.get(&offset)?;
        (since.elapsed() < LIFETIME).then(|| state.clone())
    }
}

//! Sends all committed changes, in order, to a component in the same process.
//!
//! A tap begins with a snapshot and receives every change after it. There is one exception: if one commit marks an
//! object as being deleted and then removes it, the mark is omitted. The number of a tap's waiting changes is limited.
//! A component that is too slow gets an error, and begins again with a newer snapshot. A tap costs nothing while
//! nothing is committed.

use crate::engine::Engine;
use crate::hub::{TapOutput, TapQueue};
use holdfast_core::state::State;
use std::sync::Arc;

/// The changes after a snapshot. The hub drops the tap when this value is dropped.
pub struct Tap {
    queue: Arc<TapQueue>,
    begin: Arc<State>,
}

impl Tap {
    /// Makes a tap that receives all changes after the present state.
    pub fn new(engine: &Engine) -> Tap {
        // The tap joins before the snapshot is taken, so that no change between the two is lost. Changes that the
        // snapshot already contains are skipped when they are read.
        let queue = engine.hub().add_tap();
        Tap { queue, begin: engine.own_snapshot() }
    }

    /// The state of the snapshot with which the tap begins. The changes of the tap follow this state.
    pub fn begin(&self) -> &Arc<State> {
        &self.begin
    }

    /// Waits until there are changes since the last call, and returns them.
    pub async fn next(&mut self) -> TapOutput {
        loop {
            let filled = self.queue.filled();
            if let Some(output) = self.queue.take(self.begin.offset) {
                return output;
            }
            filled.await;
        }
    }
}

//! How far a log has come that other servers write to, too: asked once for all who wait to know.

use crate::log::{Fault, Log};
use crate::reads::Reads;
use holdfast_core::event::Offset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

#[derive(Default)]
pub(crate) struct Newest {
    /// How many questions were begun.
    begun: AtomicU64,
    /// The number of the last question that was answered, and its answer. Held by whoever asks.
    answered: Mutex<(u64, Offset)>,
}

impl Newest {
    /// An offset that is no older than the log was when this was called.
    pub async fn ask(&self, log: &Arc<dyn Log>, reads: &Reads) -> Result<Offset, Fault> {
        let before = self.begun.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        let (number, offset) = *answered;
        // Begun by another after this call, so it tells of a later moment.
        if number > before {
            return Ok(offset);
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let log = log.clone();
        let offset = reads.run(move || log.last()).await?;
        *answered = (number, offset);
        Ok(offset)
    }
}

//! The last offset of a log that other servers append to: one question serves all requests that wait for it.

use crate::log::{Fault, Log};
use crate::reads::Reads;
use holdfast_core::event::Offset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

#[derive(Default)]
pub(crate) struct Newest {
    /// The number of questions that were begun.
    begun: AtomicU64,
    /// The number of the last question that was answered, and its answer. Locked while a question is under way.
    answered: Mutex<(u64, Offset)>,
}

impl Newest {
    /// An offset at least as new as the log's last one at the time of this call.
    pub async fn ask(&self, log: &Arc<dyn Log>, reads: &Reads) -> Result<Offset, Fault> {
        let before = self.begun.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        let (number, offset) = *answered;
        // Another request began this question after this call, so its answer is new enough.
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

//! Backends: sinks that store events, and the ways in which events reach a sink.

mod file;
mod queue;
mod truncate;

pub use file::{File, Format, Rotation};
pub use queue::{Batches, Throttle};
pub use truncate::Truncation;

use crate::Event;
use futures_util::future::BoxFuture;
use queue::BatchQueue;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A destination of audit events, such as a file or a webhook.
pub trait Sink: Send + Sync + 'static {
    /// The name of the sink in metrics.
    fn name(&self) -> &'static str;

    /// Stores all of the events, or none of them.
    fn store<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), String>>;

    /// Buffers an event in memory until the buffer is stored, and returns the event's number; `None` if the event
    /// cannot be buffered.
    fn buffer(&self, _: &Event) -> Option<u64> {
        None
    }

    /// Stores the buffered events, unless another call has already stored all events up to this number.
    fn release(&self, _: u64) -> Result<(), String> {
        Ok(())
    }

    /// Whether several batches may be written at once.
    fn is_concurrent(&self) -> bool {
        false
    }
}

/// The maximum time for which an event is buffered if no response waits for the event.
const HELD: Duration = Duration::from_millis(5);

/// The moment at which a request continues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// A request continues at once, because events are collected into batches.
    Batch(Batches),
    /// A request continues after its event was stored, or could not be stored. The event of the request's arrival is
    /// stored before the response begins, or after [`HELD`], whichever comes first.
    Blocking,
    /// A request continues after its event was stored. If the event of the request's arrival cannot be stored, the
    /// request is refused.
    BlockingStrict,
}

/// A sink, and the way in which events reach it.
pub struct Backend {
    sink: Arc<CountedSink>,
    truncation: Option<Truncation>,
    queue: Option<BatchQueue>,
    strict: bool,
    /// Whether a task will soon store the buffered events.
    awaited: Arc<AtomicBool>,
}

/// A sink whose failures are counted, and whose lost events are written to the server's own log.
struct CountedSink {
    sink: Box<dyn Sink>,
    errors: AtomicU64,
}

impl Backend {
    /// Makes a backend. If events are batched or buffered, the caller must be within a tokio runtime.
    pub fn new(sink: Box<dyn Sink>, mode: Mode, truncation: Option<Truncation>) -> Backend {
        let sink = Arc::new(CountedSink { sink, errors: AtomicU64::new(0) });
        let queue = match mode {
            Mode::Batch(batches) => Some(BatchQueue::new(sink.clone(), batches, truncation)),
            Mode::Blocking | Mode::BlockingStrict => None,
        };
        Backend { sink, truncation, queue, strict: mode == Mode::BlockingStrict, awaited: Arc::default() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.sink.sink.name()
    }

    pub(crate) fn errors(&self) -> u64 {
        self.sink.errors.load(Ordering::Relaxed)
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Stores an event, or a copy of it later. If `may_wait` is true, another event of the request follows before its
    /// response begins.
    pub(crate) async fn accept(&self, event: &Event, may_wait: bool) -> Result<(), String> {
        let fit = self.truncation.map_or(Some(Cow::Borrowed(event)), |truncation| truncation.fit(event));
        let Some(event) = fit else {
            self.sink.lost(std::slice::from_ref(event), "event is too large even after truncating");
            return Err("the event is too large".into());
        };
        match &self.queue {
            Some(queue) => queue.push(event.into_owned()),
            None => match self.sink.sink.buffer(&event) {
                // Most requests end within a millisecond. The two lines of such a request share one write, which halves
                // the cost.
                Some(number) if may_wait && !self.strict => {
                    self.store_soon(number);
                    Ok(())
                }
                Some(number) => {
                    if event.is_of_write() {
                        // If the client disconnects, this future is dropped at the yield. The event is stored
                        // nevertheless.
                        self.store_soon(number);
                        tokio::task::yield_now().await;
                    }
                    self.sink.release(number, &event)
                }
                None => self.sink.keep(std::slice::from_ref(&*event)).await,
            },
        }
    }

    /// Stores the buffered events after a while, unless an earlier write includes them.
    fn store_soon(&self, number: u64) {
        if self.awaited.swap(true, Ordering::AcqRel) {
            return;
        }
        let (sink, awaited) = (self.sink.clone(), self.awaited.clone());
        tokio::spawn(async move {
            tokio::time::sleep(HELD).await;
            // After this swap, a call that buffers an event must store the event itself.
            awaited.swap(false, Ordering::AcqRel);
            sink.release_all(number);
        });
    }

    /// Waits until collected events are stored, at most for `patience`.
    pub(crate) async fn close(&self, patience: Duration) {
        match &self.queue {
            Some(queue) => queue.close(patience).await,
            None => self.sink.release_all(u64::MAX),
        }
    }
}

impl Event {
    /// Whether the request is a write. Writes become durable together, and their requests then continue together, so
    /// their audit lines are collected too.
    fn is_of_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
    }
}

impl CountedSink {
    async fn keep(&self, events: &[Event]) -> Result<(), String> {
        let kept = self.sink.store(events).await;
        if let Err(why) = &kept {
            self.lost(events, why);
        }
        kept
    }

    /// Stores the buffered events up to this number. If that fails, `event` counts as lost.
    fn release(&self, number: u64, event: &Event) -> Result<(), String> {
        let released = self.sink.release(number);
        if let Err(why) = &released {
            self.lost(std::slice::from_ref(event), why);
        }
        released
    }

    /// Stores the buffered events. No request waits for the result, so a failure is only logged.
    fn release_all(&self, number: u64) {
        if let Err(why) = self.sink.release(number) {
            tracing::error!(
                plugin = self.sink.name(),
                why,
                "audit events could not be written yet; they are kept for the next attempt"
            );
        }
    }

    fn lost(&self, events: &[Event], why: &str) {
        self.errors.fetch_add(events.len() as u64, Ordering::Relaxed);
        for event in events {
            tracing::error!(
                plugin = self.sink.name(),
                why,
                event = event.legacy_line().trim_end(),
                "an audit event is lost"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;
    use std::path::Path;

    fn backend(path: &Path, mode: Mode) -> Backend {
        let file = File::open(path.to_str().expect("a path"), Format::Json, Rotation::default()).expect("a file");
        Backend::new(Box::new(file), mode, None)
    }

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).expect("a file").lines().count()
    }

    #[tokio::test]
    async fn what_is_told_of_a_request_that_comes_is_kept_soon_though_nothing_follows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let backend = backend(&path, Mode::Blocking);
        for kept in 1..3 {
            backend.accept(&Event::nothing(), true).await.expect("held");
            let all_kept = async {
                while lines(&path) < kept {
                    tokio::time::sleep(HELD).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), all_kept).await.expect("it is kept");
        }
        backend.accept(&Event::nothing(), true).await.expect("held");
        backend.accept(&Event { stage: Stage::ResponseComplete, ..Event::nothing() }, false).await.expect("kept");
        assert_eq!(lines(&path), 4, "one goes with the other");
        backend.accept(&Event::nothing(), true).await.expect("held");
        backend.close(Duration::ZERO).await;
        assert_eq!(lines(&path), 5);
    }

    #[tokio::test]
    async fn what_nothing_follows_before_the_answer_does_not_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        backend(&path, Mode::Blocking).accept(&Event::nothing(), false).await.expect("kept");
        assert_eq!(lines(&path), 1);
    }

    #[tokio::test]
    async fn who_must_not_go_on_before_he_is_told_of_does_not_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        backend(&path, Mode::BlockingStrict).accept(&Event::nothing(), true).await.expect("kept");
        assert_eq!(lines(&path), 1);
    }
}

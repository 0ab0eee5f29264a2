//! Where events go: a sink, and how it is fed.

mod file;
mod queue;
mod truncate;

pub use file::{File, Format, Rotation};
pub use queue::{Batches, Throttle};
pub use truncate::Truncation;

use crate::Event;
use futures_util::future::BoxFuture;
use queue::Queue;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something that keeps events.
pub trait Sink: Send + Sync + 'static {
    /// As counters name it.
    fn name(&self) -> &'static str;

    /// Keeps events, all or none of them.
    fn keep<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), String>>;

    /// Whether several batches may be on their way at once.
    fn is_concurrent(&self) -> bool {
        false
    }
}

/// When a request goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// At once: events are gathered.
    Batch(Batches),
    /// When its event is kept, or could not be.
    Blocking,
    /// When its event is kept; a request that cannot be told of when it comes is refused.
    BlockingStrict,
}

/// A sink, and how it is fed.
pub struct Backend {
    sink: Arc<Counted>,
    truncation: Option<Truncation>,
    queue: Option<Queue>,
    strict: bool,
}

/// A sink whose failures are counted, and whose lost events stand in the server's own log.
struct Counted {
    sink: Box<dyn Sink>,
    errors: AtomicU64,
}

impl Backend {
    /// Needs a runtime, where events are gathered.
    pub fn new(sink: Box<dyn Sink>, mode: Mode, truncation: Option<Truncation>) -> Backend {
        let sink = Arc::new(Counted { sink, errors: AtomicU64::new(0) });
        let queue = match mode {
            Mode::Batch(batches) => Some(Queue::new(sink.clone(), batches, truncation)),
            Mode::Blocking | Mode::BlockingStrict => None,
        };
        Backend { sink, truncation, queue, strict: mode == Mode::BlockingStrict }
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

    /// Keeps an event, or has a copy of it kept later.
    pub(crate) async fn take(&self, event: &Event) -> Result<(), String> {
        let fit = self.truncation.map_or(Some(Cow::Borrowed(event)), |truncation| truncation.fit(event));
        let Some(event) = fit else {
            self.sink.lost(std::slice::from_ref(event), "event is too large even after truncating");
            return Err("the event is too large".into());
        };
        match &self.queue {
            Some(queue) => queue.push(event.into_owned()),
            None => self.sink.keep(std::slice::from_ref(&*event)).await,
        }
    }

    /// Waits until what was gathered is kept, no longer than so long.
    pub(crate) async fn close(&self, patience: Duration) {
        if let Some(queue) = &self.queue {
            queue.close(patience).await;
        }
    }
}

impl Counted {
    async fn keep(&self, events: &[Event]) -> Result<(), String> {
        let kept = self.sink.keep(events).await;
        if let Err(why) = &kept {
            self.lost(events, why);
        }
        kept
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

//! Queues events for a sink, and sends them in batches.

use super::{CountedSink, Truncation};
use crate::Event;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// The maximum number of batches that are sent at the same time to a sink that accepts several.
const ON_THEIR_WAY_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batches {
    /// The maximum number of waiting events. Further events are lost.
    pub buffer_size: usize,
    pub size_max: usize,
    pub wait_max: Duration,
    pub throttle: Option<Throttle>,
}

/// The maximum number of batches per second, and the number of batches that may exceed this rate at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    pub qps: f32,
    pub burst: u32,
}

pub(super) struct BatchQueue {
    sink: Arc<CountedSink>,
    sender: Mutex<Option<mpsc::Sender<Event>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// The number of events that are neither stored nor lost yet.
    waiting: Arc<AtomicU64>,
}

impl BatchQueue {
    pub fn new(sink: Arc<CountedSink>, batches: Batches, truncation: Option<Truncation>) -> BatchQueue {
        let (sender, receiver) = mpsc::channel(batches.buffer_size);
        let waiting = Arc::<AtomicU64>::default();
        let feed = Feed { sink: sink.clone(), truncation, waiting: waiting.clone() };
        let task = tokio::spawn(drain(feed, receiver, batches));
        BatchQueue { sink, sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)), waiting }
    }

    pub fn push(&self, event: Event) -> Result<(), String> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = match sender {
            None => Err(TrySendError::Closed(event)),
            Some(sender) => sender.try_send(event),
        };
        let Err(refused) = sent else { return Ok(()) };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let (event, why) = match refused {
            TrySendError::Full(event) => (event, "audit buffer queue blocked"),
            TrySendError::Closed(event) => (event, "audit backend shut down"),
        };
        self.sink.lost(&[event], why);
        Err(why.into())
    }

    /// Writes all waiting events. Events that are not written within `patience` are lost, so that a hanging sink does
    /// not block the shutdown.
    pub async fn close(&self, patience: Duration) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = task else { return };
        if tokio::time::timeout(patience, &mut task).await.is_ok() {
            return;
        }
        task.abort();
        _ = task.await;
        let lost = self.waiting.swap(0, Ordering::Relaxed);
        self.sink.errors.fetch_add(lost, Ordering::Relaxed);
        tracing::error!(plugin = self.sink.sink.name(), events = lost, "audit events are lost: the server stops");
    }
}

/// Writes batches to the sink, and subtracts their events from the number of waiting events.
#[derive(Clone)]
struct Feed {
    sink: Arc<CountedSink>,
    truncation: Option<Truncation>,
    waiting: Arc<AtomicU64>,
}

impl Feed {
    async fn write(&self, batch: &[Event]) {
        let parts = self.truncation.map_or_else(|| vec![batch], |truncation| truncation.split(batch));
        for part in parts {
            _ = self.sink.keep(part).await;
            self.waiting.fetch_sub(part.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Writes batch after batch until the queue is closed and empty.
async fn drain(feed: Feed, mut events: mpsc::Receiver<Event>, batches: Batches) {
    let (places, mut sent) = (Arc::new(Semaphore::new(ON_THEIR_WAY_MAX)), JoinSet::new());
    let mut bucket = batches.throttle.map(Bucket::new);
    while let Some(batch) = gather(&mut events, batches).await {
        if let Some(bucket) = &mut bucket {
            bucket.wait().await;
        }
        if !feed.sink.sink.is_concurrent() {
            feed.write(&batch).await;
            continue;
        }
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let feed = feed.clone();
        sent.spawn(async move {
            feed.write(&batch).await;
            drop(place);
        });
        while sent.try_join_next().is_some() {}
    }
    sent.join_all().await;
}

/// The next batch, which is a full batch or the events that arrived within `wait_max`.
async fn gather(events: &mut mpsc::Receiver<Event>, batches: Batches) -> Option<Vec<Event>> {
    let mut batch = vec![events.recv().await?];
    let end = Instant::now() + batches.wait_max;
    while batch.len() < batches.size_max {
        match tokio::time::timeout_at(end, events.recv()).await {
            Ok(Some(event)) => batch.push(event),
            Ok(None) | Err(_) => break,
        }
    }
    Some(batch)
}

/// A token bucket, which limits the number of batches per second.
struct Bucket {
    throttle: Throttle,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(throttle: Throttle) -> Bucket {
        Bucket { throttle, tokens: f64::from(throttle.burst), filled: Instant::now() }
    }

    async fn wait(&mut self) {
        let now = Instant::now();
        let earned = now.duration_since(self.filled).as_secs_f64() * f64::from(self.throttle.qps);
        self.tokens = (self.tokens + earned).min(f64::from(self.throttle.burst));
        self.filled = now;
        if self.tokens < 1.0 {
            let missing = (1.0 - self.tokens) / f64::from(self.throttle.qps);
            tokio::time::sleep(Duration::from_secs_f64(missing.min(3600.0))).await;
            self.tokens = 1.0;
            self.filled = Instant::now();
        }
        self.tokens -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, Mode, Sink};
    use super::*;
    use futures_util::future::BoxFuture;

    /// A sink that stores two events and then hangs.
    struct Hanging(AtomicU64);

    impl Sink for Hanging {
        fn name(&self) -> &'static str {
            "hanging"
        }

        fn store<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), String>> {
            Box::pin(async move {
                if self.0.fetch_add(events.len() as u64, Ordering::Relaxed) >= 2 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
        }

        fn is_concurrent(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn what_hangs_when_the_server_stops_is_lost_and_counted() {
        let batches = Batches { buffer_size: 100, size_max: 1, wait_max: Duration::ZERO, throttle: None };
        let backend = Backend::new(Box::new(Hanging(AtomicU64::new(0))), Mode::Batch(batches), None);
        for _ in 0..12 {
            backend.accept(&Event::nothing(), false).await.expect("there is room");
        }
        backend.close(Duration::from_millis(100)).await;
        assert_eq!(backend.errors(), 10);
        backend.accept(&Event::nothing(), false).await.expect_err("it is closed");
        assert_eq!(backend.errors(), 11);
    }
}

//! Events on their way to a sink in batches.

use super::{Counted, Truncation};
use crate::Event;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// How many batches may be on their way to a sink that takes several at once.
const ON_THEIR_WAY_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batches {
    /// Events that may wait; more are lost.
    pub buffer_size: usize,
    pub size_max: usize,
    pub wait_max: Duration,
    pub throttle: Option<Throttle>,
}

/// So many batches a second, and so many more at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    pub qps: f32,
    pub burst: u32,
}

pub(super) struct Queue {
    sink: Arc<Counted>,
    sender: Mutex<Option<mpsc::Sender<Arc<Event>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Queue {
    pub fn new(sink: Arc<Counted>, batches: Batches, truncation: Option<Truncation>) -> Queue {
        let (sender, receiver) = mpsc::channel(batches.buffer_size);
        let task = tokio::spawn(drain(sink.clone(), receiver, batches, truncation));
        Queue { sink, sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
    }

    pub fn push(&self, event: Arc<Event>) -> Result<(), String> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = match sender {
            None => Some((event, "audit backend shut down")),
            Some(sender) => match sender.try_send(event) {
                Ok(()) => None,
                Err(mpsc::error::TrySendError::Full(event)) => Some((event, "audit buffer queue blocked")),
                Err(mpsc::error::TrySendError::Closed(event)) => Some((event, "audit backend shut down")),
            },
        };
        match refused {
            None => Ok(()),
            Some((event, why)) => {
                self.sink.lost(&[event], why);
                Err(why.into())
            }
        }
    }

    /// Has everything written that waits.
    pub async fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            _ = task.await;
        }
    }
}

/// Writes batch after batch until nobody can add an event any more.
async fn drain(
    sink: Arc<Counted>,
    mut events: mpsc::Receiver<Arc<Event>>,
    batches: Batches,
    truncation: Option<Truncation>,
) {
    let (places, mut sent) = (Arc::new(Semaphore::new(ON_THEIR_WAY_MAX)), JoinSet::new());
    let mut bucket = batches.throttle.map(Bucket::new);
    while let Some(batch) = gather(&mut events, batches).await {
        if let Some(bucket) = &mut bucket {
            bucket.wait().await;
        }
        if !sink.sink.is_concurrent() {
            write(&sink, &batch, truncation).await;
            continue;
        }
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let sink = sink.clone();
        sent.spawn(async move {
            write(&sink, &batch, truncation).await;
            drop(place);
        });
        while sent.try_join_next().is_some() {}
    }
    sent.join_all().await;
}

async fn write(sink: &Counted, batch: &[Arc<Event>], truncation: Option<Truncation>) {
    let parts = truncation.map_or_else(|| vec![batch], |truncation| truncation.split(batch));
    for part in parts {
        _ = sink.keep(part).await;
    }
}

/// The next batch: as many as fit, or as have come after the longest wait.
async fn gather(events: &mut mpsc::Receiver<Arc<Event>>, batches: Batches) -> Option<Vec<Arc<Event>>> {
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

/// A token bucket.
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

//! Keeps the pace and the order: events on one object go to one worker, and events on which others depend run alone.

use super::Speed;
use super::plan::{EventReplay, Planned, ReplayPlan};
use super::report::Summary;
use super::source::Source;
use super::target::{ReplayOutcome, Sent, Target};
use crate::log::progress::Progress;
use anyhow::{Context, Result, bail};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// How many events may wait for one worker.
const QUEUE: usize = 64;
/// After this many consecutive requests without an answer, the server counts as gone.
const UNANSWERED_MAX: usize = 20;

struct ReplayState {
    target: Target,
    summary: Mutex<Summary>,
    /// The number of events that workers have received and not finished.
    open: AtomicUsize,
    done: Notify,
    /// The number of consecutive requests without an answer.
    unanswered: AtomicUsize,
}

struct Task {
    work: EventReplay,
    /// The time at which the work must be sent; `None` without a pace.
    due: Option<Instant>,
}

pub async fn drive(source: Source, target: Target, speed: Speed, concurrency: usize) -> Result<Summary> {
    let (first, last) = source.span();
    let summary = Mutex::new(Summary::new(target.server.clone(), first, last, speed != Speed::Max));
    let (open, unanswered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let shared = Arc::new(ReplayState { target, summary, open, done: Notify::new(), unanswered });
    let mut events = read(source);
    let mut queues = Vec::new();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        let (queue, tasks) = mpsc::channel(QUEUE);
        queues.push(queue);
        workers.spawn(work(shared.clone(), tasks));
    }
    let mut progress = Progress::new("replaying");
    let mut pace = Pace { speed, began: Instant::now(), first_ms: None, latest: Duration::ZERO };
    let began = pace.began;
    while let Some(event) = events.recv().await {
        let (offset, planned) = event?;
        shared.summary().events += 1;
        progress.at(shared.summary().events, offset + 1 - first, Some(last + 1 - first));
        let work = match planned {
            Planned::Work(work) => *work,
            Planned::ServersOwn => {
                shared.summary().servers_own += 1;
                continue;
            }
            Planned::Nothing => {
                shared.summary().unchanged += 1;
                continue;
            }
        };
        let due = pace.due(work.time_ms);
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        if shared.unanswered.load(Ordering::Acquire) >= UNANSWERED_MAX {
            let example = shared.summary().last_unanswered.clone();
            bail!("stopped at event {offset}, because the server does not answer: {example}");
        }
        let stands_alone = work.stands_alone();
        if stands_alone {
            shared.drained().await;
        }
        shared.target.begin(&work);
        shared.open.fetch_add(1, Ordering::AcqRel);
        // All events of an object go to one worker, which keeps their order.
        let queue = &queues[place(&work.object, queues.len())];
        queue.send(Task { work, due }).await.context("a worker has stopped")?;
        if stands_alone {
            shared.drained().await;
        }
    }
    drop(queues);
    while let Some(ended) = workers.join_next().await {
        ended.context("a worker failed")?;
    }
    drop(progress);
    let mut summary = shared.summary();
    summary.took = began.elapsed();
    Ok(std::mem::take(&mut *summary))
}

/// Reads and plans on another thread, a little ahead of the workers.
fn read(mut source: Source) -> mpsc::Receiver<Result<(u64, Planned)>> {
    let (sender, receiver) = mpsc::channel(256);
    std::thread::spawn(move || {
        let mut plan = ReplayPlan::default();
        loop {
            let event = match source.next() {
                Ok(None) => return,
                Ok(Some(record)) => {
                    let offset = record.offset;
                    let planned = plan.next(record).with_context(|| format!("the object of event {offset}"));
                    planned.map(|planned| (offset, planned))
                }
                Err(error) => Err(error),
            };
            let is_last = event.is_err();
            if sender.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

async fn work(shared: Arc<ReplayState>, mut tasks: mpsc::Receiver<Task>) {
    while let Some(Task { work, due }) = tasks.recv().await {
        let behind = due.map(|due| Instant::now().saturating_duration_since(due));
        let mut sent: Vec<Sent> = Vec::new();
        let outcome = shared.target.carry_out(&work, &mut sent).await;
        match &outcome {
            ReplayOutcome::Unanswered(_) => shared.unanswered.fetch_add(1, Ordering::AcqRel),
            _ => shared.unanswered.swap(0, Ordering::AcqRel),
        };
        shared.summary().add(&work, &sent, behind, outcome);
        shared.open.fetch_sub(1, Ordering::AcqRel);
        shared.done.notify_waiters();
    }
}

impl ReplayState {
    fn summary(&self) -> std::sync::MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until the workers have finished all events.
    async fn drained(&self) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // Register the waiter before reading the count: otherwise a worker that finishes between the two would go
            // unnoticed.
            done.as_mut().enable();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }
}

struct Pace {
    speed: Speed,
    began: Instant,
    first_ms: Option<i64>,
    latest: Duration,
}

impl Pace {
    /// The time at which to send an event. The times of events may go back a little; the returned instants never do.
    fn due(&mut self, time_ms: i64) -> Option<Instant> {
        let Speed::Times(times) = self.speed else { return None };
        let first = *self.first_ms.get_or_insert(time_ms);
        let since = Duration::from_millis(time_ms.saturating_sub(first).max(0) as u64);
        let after = Duration::try_from_secs_f64(since.as_secs_f64() / times).unwrap_or(Duration::MAX);
        self.latest = self.latest.max(after);
        self.began.checked_add(self.latest)
    }
}

fn place(object: &str, count: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    (hasher.finish() % count as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_log_times_the_speed() {
        let began = Instant::now();
        for (speed, expected) in
            [(1.0, [0, 1000, 1000, 60_000]), (60.0, [0, 16, 16, 1000]), (0.5, [0, 2000, 2000, 120_000])]
        {
            let mut pace = Pace { speed: Speed::Times(speed), began, first_ms: None, latest: Duration::ZERO };
            let due = [5_000, 6_000, 5_500, 65_000].map(|time| (pace.due(time).expect("a time") - began).as_millis());
            assert_eq!(due, expected, "{speed}");
        }
        let mut pace = Pace { speed: Speed::Max, began, first_ms: None, latest: Duration::ZERO };
        assert_eq!(pace.due(5_000), None);
    }
}

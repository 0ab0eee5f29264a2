//! The measuring loop: workers repeat an operation until the count or the time is reached.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::OperationFailure;

/// A kind of request, which each worker repeats.
pub trait Operation: Send + 'static {
    /// Runs the operation once; returns the number of bytes in the response body. Tickets are unique in the run and
    /// have no gaps.
    fn run(&mut self, ticket: u64) -> impl Future<Output = Result<u64, OperationFailure>> + Send;
}

#[derive(Debug, Clone, Copy)]
pub struct LoadLimits {
    pub count: Option<u64>,
    pub duration: Duration,
}

/// The results of all workers.
#[derive(Debug)]
pub struct Tally {
    /// The latencies of successful operations, in microseconds.
    pub latencies: Histogram<u64>,
    pub failures: BTreeMap<String, u64>,
    pub body_bytes: u64,
    pub elapsed: Duration,
    /// The number of operations that were started, including operations that failed.
    pub tickets: u64,
}

const LATENCY_MICROSECONDS_MAX: u64 = 120_000_000;
/// All workers stop when one of them has had this many failures in a row: without a server, requests fail as fast as
/// they can be sent.
const FAILURES_IN_A_ROW_MAX: u32 = 100;
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

impl Default for Tally {
    fn default() -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_MICROSECONDS_MAX, 3).expect("constant bounds are valid");
        Self { latencies, failures: BTreeMap::new(), body_bytes: 0, elapsed: Duration::ZERO, tickets: 0 }
    }
}

impl Tally {
    pub fn succeeded(&mut self, latency: Duration, body_bytes: u64) {
        self.latencies.saturating_record((latency.as_micros() as u64).max(1));
        self.body_bytes += body_bytes;
    }

    pub fn failed(&mut self, failure: &OperationFailure) {
        *self.failures.entry(failure.to_string()).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies).expect("all tallies have the same bounds");
        self.body_bytes += other.body_bytes;
        for (failure, count) in &other.failures {
            *self.failures.entry(failure.clone()).or_default() += count;
        }
    }

    pub fn count(&self) -> u64 {
        self.latencies.len()
    }

    pub fn errors(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The failures as text, such as `12 × HTTP 429 TooManyRequests; 1 × …`, with the most frequent failure first.
    pub fn errors_text(&self) -> String {
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        failures.iter().map(|(failure, count)| format!("{count} × {failure}")).collect::<Vec<_>>().join("; ")
    }
}

/// Runs `workers` workers, each with its own operation from `make`, and adds up their results.
pub async fn drive<O: Operation>(workers: u16, limits: LoadLimits, make: impl Fn(usize) -> O) -> Tally {
    let shared = Arc::new(LoadState { next: AtomicU64::new(0), stop: AtomicBool::new(false) });
    let started = Instant::now();
    let tasks: Vec<_> = (0..usize::from(workers))
        .map(|worker| tokio::spawn(work(make(worker), limits, started + limits.duration, shared.clone())))
        .collect();
    // Workers must stop when the caller drops this future, as on Ctrl-C.
    let _stop = StopOnDrop(shared.clone());
    let mut sum = Tally::default();
    for task in tasks {
        sum.merge(&task.await.expect("workers do not panic"));
    }
    sum.elapsed = started.elapsed();
    let tickets = shared.next.load(Ordering::Relaxed);
    sum.tickets = limits.count.map_or(tickets, |count| tickets.min(count));
    sum
}

struct LoadState {
    next: AtomicU64,
    stop: AtomicBool,
}

struct StopOnDrop(Arc<LoadState>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

async fn work<O: Operation>(mut operation: O, limits: LoadLimits, until: Instant, shared: Arc<LoadState>) -> Tally {
    let mut tally = Tally::default();
    let mut failures_in_a_row = 0;
    while Instant::now() < until && !shared.stop.load(Ordering::Relaxed) {
        let ticket = shared.next.fetch_add(1, Ordering::Relaxed);
        if limits.count.is_some_and(|count| ticket >= count) {
            break;
        }
        let started = Instant::now();
        match operation.run(ticket).await {
            Ok(body_bytes) => {
                tally.succeeded(started.elapsed(), body_bytes);
                failures_in_a_row = 0;
            }
            Err(failure) => {
                tally.failed(&failure);
                failures_in_a_row += 1;
                if failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FailEvery(u64);

    impl Operation for FailEvery {
        async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
            tokio::task::yield_now().await;
            if ticket.is_multiple_of(self.0) { Err(OperationFailure::TimedOut) } else { Ok(10) }
        }
    }

    #[tokio::test]
    async fn a_count_is_kept_exactly() {
        let limits = LoadLimits { count: Some(100), duration: Duration::from_secs(60) };
        let tally = drive(7, limits, |_| FailEvery(4)).await;
        assert_eq!((tally.count(), tally.errors(), tally.tickets, tally.body_bytes), (75, 25, 100, 750));
        assert_eq!(tally.errors_text(), "25 × no answer within 60 s");
    }

    #[tokio::test]
    async fn a_dead_server_ends_the_run() {
        let limits = LoadLimits { count: None, duration: Duration::from_secs(60) };
        let tally = drive(1, limits, |_| FailEvery(1)).await;
        assert_eq!((tally.count(), tally.errors()), (0, u64::from(FAILURES_IN_A_ROW_MAX)));
    }

    #[tokio::test]
    async fn time_ends_the_run() {
        let limits = LoadLimits { count: None, duration: Duration::from_millis(30) };
        let tally = drive(2, limits, |_| FailEvery(u64::MAX)).await;
        assert!(tally.count() > 0);
        assert!(tally.elapsed >= limits.duration);
    }

    #[test]
    fn percentiles() {
        let mut tally = Tally::default();
        for milliseconds in 1..=100 {
            tally.succeeded(Duration::from_millis(milliseconds), 0);
        }
        let at = |quantile| tally.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        assert!((at(0.5) - 50.0).abs() < 0.5, "{}", at(0.5));
        assert!((at(0.99) - 99.0).abs() < 0.5, "{}", at(0.99));
    }
}

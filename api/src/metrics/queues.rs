//! Metrics of the server's own work queues, with the names that dashboards use for work queues.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: &'static str,
}

pub struct Queues {
    adds: Family<Labels, Counter>,
    depth: Family<Labels, Gauge>,
    waited: Family<Labels, Histogram>,
    worked: Family<Labels, Histogram>,
}

/// An item in a queue. Work on the item starts with [`begin`](Self::begin), and ends when the returned value is
/// dropped.
pub struct Queued {
    since: Instant,
    depth: Gauge,
    waited: Histogram,
    worked: Histogram,
}

/// An item that is being worked on.
pub struct Working {
    since: Instant,
    worked: Histogram,
}

impl Default for Queues {
    fn default() -> Queues {
        let durations = || Family::new_with_constructor(seconds_by_tens as fn() -> Histogram);
        Queues { adds: Family::default(), depth: Family::default(), waited: durations(), worked: durations() }
    }
}

impl Queues {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("workqueue_adds", "Total number of adds handled by workqueue", self.adds.clone());
        registry.register("workqueue_depth", "Current depth of workqueue", self.depth.clone());
        let waited = "How long in seconds an item stays in workqueue before being requested";
        registry.register("workqueue_queue_duration_seconds", waited, self.waited.clone());
        let worked = "How long in seconds processing an item from workqueue takes";
        registry.register("workqueue_work_duration_seconds", worked, self.worked.clone());
    }

    /// Adds an item to a queue.
    pub fn add(&self, name: &'static str) -> Queued {
        let labels = Labels { name };
        self.adds.get_or_create(&labels).inc();
        let depth = self.depth.get_or_create_owned(&labels);
        depth.inc();
        let (waited, worked) = (self.waited.get_or_create_owned(&labels), self.worked.get_or_create_owned(&labels));
        Queued { since: Instant::now(), depth, waited, worked }
    }
}

impl Queued {
    pub fn begin(self) -> Working {
        self.depth.dec();
        self.waited.observe(seconds(self.since.elapsed()));
        Working { since: Instant::now(), worked: self.worked }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.worked.observe(seconds(self.since.elapsed()));
    }
}

/// A histogram with ten buckets, whose upper bounds are powers of ten from ten nanoseconds to ten seconds.
fn seconds_by_tens() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 10))
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

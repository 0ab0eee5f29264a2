//! Metrics of work queues, under the names that Kubernetes' components use.

use holdfast_world::WorkQueue;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    name: &'static str,
    manager: &'static str,
}

pub struct Metrics {
    running: Family<ControllerLabels, Gauge>,
    depth: Family<QueueLabel, Gauge>,
    adds: Family<QueueLabel, Counter>,
    retries: Family<QueueLabel, Counter>,
    wait: Family<QueueLabel, Histogram>,
    work: Family<QueueLabel, Histogram>,
    rated: Counter,
}

/// A registry in which metrics can be registered.
pub trait Register {
    fn register<M: Metric + EncodeMetric + Clone>(&mut self, name: &str, help: &str, metric: M);
}

impl Register for Registry {
    fn register<M: Metric + EncodeMetric + Clone>(&mut self, name: &str, help: &str, metric: M) {
        Registry::register(self, name, help.trim_end_matches('.'), metric);
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            running: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-8, 10.0, 10))),
            work: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-8, 10.0, 10))),
            rated: Counter::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics of work queues in the component's registry.
    pub fn register(&self, registry: &mut impl Register) {
        let running = "Indicates where instances of a controller are currently running";
        registry.register("running_managed_controllers", running, self.running.clone());
        registry.register("workqueue_depth", "Current depth of workqueue", self.depth.clone());
        registry.register("workqueue_adds", "Total number of adds handled by workqueue", self.adds.clone());
        registry.register("workqueue_retries", "Total number of retries handled by workqueue", self.retries.clone());
        let wait = "How long in seconds an item stays in workqueue before being requested.";
        registry.register("workqueue_queue_duration_seconds", wait, self.wait.clone());
        let work = "How long in seconds processing an item from workqueue takes.";
        registry.register("workqueue_work_duration_seconds", work, self.work.clone());
        let rated = "Writes of controllers that waited because much had been written for the same namespace.";
        registry.register("holdfast_controller_rated_writes", rated, self.rated.clone());
    }

    /// Counts a write that waits because its namespace has exceeded its rate.
    pub(crate) fn rated(&self) {
        self.rated.inc();
    }

    /// Records that a controller runs in this process.
    pub(crate) fn runs(&self, name: &'static str, manager: &'static str) {
        self.running.get_or_create(&ControllerLabels { name, manager }).set(1);
    }

    /// The metrics of a queue. Queues that have the same name share their metrics.
    pub(crate) fn queue_metrics(&self, name: &'static str) -> QueueMetrics {
        let name = QueueLabel { name };
        QueueMetrics {
            depth: self.depth.get_or_create(&name).clone(),
            adds: self.adds.get_or_create(&name).clone(),
            retries: self.retries.get_or_create(&name).clone(),
            noted: (0, 0, 0),
        }
    }

    /// Records how long a key of a queue waited before it was planned.
    pub(crate) fn waited(&self, name: &'static str, millis: i64) {
        self.wait.get_or_create(&QueueLabel { name }).observe(millis as f64 / 1e3);
    }

    pub(crate) fn worked(&self, name: &'static str, duration: Duration) {
        self.work.get_or_create(&QueueLabel { name }).observe(duration.as_secs_f64());
    }
}

/// The metrics of one queue, and the counts of the queue that were last reported.
pub(crate) struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    noted: (i64, u64, u64),
}

impl QueueMetrics {
    /// Adds the queue's new counts to the metrics. Most queues have not changed since the last call.
    pub(crate) fn report(&mut self, queue: &WorkQueue) {
        let depth = i64::try_from(queue.depth()).unwrap_or(i64::MAX);
        let now = (depth, queue.adds(), queue.retries());
        let before = std::mem::replace(&mut self.noted, now);
        if now != before {
            self.depth.inc_by(now.0 - before.0);
            self.adds.inc_by(now.1.saturating_sub(before.1));
            self.retries.inc_by(now.2.saturating_sub(before.2));
        }
    }
}

/// When the metrics of a queue are dropped, the keys of the queue stop counting as waiting.
impl Drop for QueueMetrics {
    fn drop(&mut self) {
        self.depth.dec_by(self.noted.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::{Key, Time};

    #[test]
    fn queues_of_one_name_are_counted_together_and_what_waits_in_one_that_ends_no_longer() {
        let metrics = Metrics::default();
        let told = |metrics: &Metrics| {
            let name = QueueLabel { name: "job" };
            (metrics.depth.get_or_create(&name).get(), metrics.adds.get_or_create(&name).get())
        };
        let (mut first, mut second) = (metrics.queue_metrics("job"), metrics.queue_metrics("job"));
        let mut queue = WorkQueue::default();
        queue.add(Key::cluster("a"));
        queue.add(Key::cluster("b"));
        first.report(&queue);
        first.report(&queue);
        assert_eq!(told(&metrics), (2, 2));
        second.report(&queue);
        assert_eq!(told(&metrics), (4, 4));
        queue.take("", Time::from_second(0)).expect("a key waits");
        first.report(&queue);
        assert_eq!(told(&metrics), (3, 4));
        drop(first);
        assert_eq!(told(&metrics), (2, 4));
    }
}

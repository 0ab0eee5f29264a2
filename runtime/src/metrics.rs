//! What is counted of queues, under the names that Kubernetes' components have.

use holdfast_world::Driver;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

pub struct Metrics {
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    work: Family<Name, Histogram>,
}

/// Where metrics are shown.
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
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            work: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-8, 10.0, 10))),
        }
    }
}

impl Metrics {
    /// Shows them where the component shows its own.
    pub fn register(&self, registry: &mut impl Register) {
        registry.register("workqueue_depth", "Current depth of workqueue", self.depth.clone());
        registry.register("workqueue_adds", "Total number of adds handled by workqueue", self.adds.clone());
        registry.register("workqueue_retries", "Total number of retries handled by workqueue", self.retries.clone());
        let work = "How long in seconds processing an item from workqueue takes.";
        registry.register("workqueue_work_duration_seconds", work, self.work.clone());
    }

    /// Takes over what the queues count by themselves.
    pub(crate) fn observe(&self, driver: &Driver, names: impl Iterator<Item = &'static str>) {
        for (member, name) in names.enumerate() {
            let (queue, name) = (driver.queue(member), Name { name });
            self.depth.get_or_create(&name).set(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
            advance(&self.adds.get_or_create(&name), queue.adds());
            advance(&self.retries.get_or_create(&name), queue.retries());
        }
    }

    pub(crate) fn worked(&self, name: &'static str, duration: Duration) {
        self.work.get_or_create(&Name { name }).observe(duration.as_secs_f64());
    }
}

fn advance(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

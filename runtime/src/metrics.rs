//! What is counted of queues, under the names that Kubernetes' components have.

use holdfast_world::Driver;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Running {
    name: &'static str,
    manager: &'static str,
}

pub struct Metrics {
    running: Family<Running, Gauge>,
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    wait: Family<Name, Histogram>,
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
            running: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-8, 10.0, 10))),
            work: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-8, 10.0, 10))),
        }
    }
}

impl Metrics {
    /// Shows them where the component shows its own.
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
    }

    /// A controller runs in this process.
    pub(crate) fn runs(&self, name: &'static str, manager: &'static str) {
        self.running.get_or_create(&Running { name, manager }).set(1);
    }

    /// Takes over what the queues count by themselves; queues of one name are one to whoever looks.
    pub(crate) fn observe(&self, driver: &Driver, names: impl Iterator<Item = &'static str>) {
        let mut sums: BTreeMap<&'static str, (i64, u64, u64)> = BTreeMap::new();
        for (member, name) in names.enumerate() {
            let (queue, sum) = (driver.queue(member), sums.entry(name).or_default());
            sum.0 = sum.0.saturating_add(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
            (sum.1, sum.2) = (sum.1 + queue.adds(), sum.2 + queue.retries());
        }
        for (name, (depth, adds, retries)) in sums {
            let name = Name { name };
            self.depth.get_or_create(&name).set(depth);
            advance(&self.adds.get_or_create(&name), adds);
            advance(&self.retries.get_or_create(&name), retries);
        }
    }

    /// A key of a queue has waited so long for its turn.
    pub(crate) fn waited(&self, name: &'static str, millis: i64) {
        self.wait.get_or_create(&Name { name }).observe(millis as f64 / 1e3);
    }

    pub(crate) fn worked(&self, name: &'static str, duration: Duration) {
        self.work.get_or_create(&Name { name }).observe(duration.as_secs_f64());
    }
}

fn advance(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

//! Histograms of a number over time: each nanosecond is one observation of the number.
//!
//! The number is not sampled: the elapsed time is added when the number changes, and at each adjustment of the seats.

use holdfast_core::flowcontrol::Moment;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number that changes, and for each bucket of the histogram the time during which the number was in the bucket.
#[derive(Debug, Clone)]
pub(super) struct OverTime(Arc<Mutex<Observed>>);

#[derive(Debug)]
struct Observed {
    /// The upper bounds of the buckets, in ascending order.
    bounds: &'static [f64],
    /// Nanoseconds in each bucket; the last bucket has no upper bound.
    nanos: Vec<u64>,
    sum: f64,
    /// The time up to which `nanos` is complete; `None` before the first value.
    since: Option<Moment>,
    number: f64,
}

impl OverTime {
    pub fn new(bounds: &'static [f64]) -> OverTime {
        let nanos = vec![0; bounds.len() + 1];
        OverTime(Arc::new(Mutex::new(Observed { bounds, nanos, sum: 0.0, since: None, number: 0.0 })))
    }

    /// Sets the number to `number` at the time `now`.
    pub fn set(&self, now: Moment, number: f64) {
        let mut observed = self.lock();
        observed.bring_to(now);
        observed.number = number;
    }

    /// Adds `by` to the number at the time `now`.
    pub fn add(&self, now: Moment, by: f64) {
        let mut observed = self.lock();
        observed.bring_to(now);
        observed.number += by;
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observed {
    fn bring_to(&mut self, now: Moment) {
        let since = *self.since.get_or_insert(now);
        // Two threads may read the clock in one order and arrive here in the opposite order.
        let nanos = now.saturating_sub(since);
        let bucket = self.bounds.partition_point(|bound| *bound < self.number);
        self.nanos[bucket] = self.nanos[bucket].saturating_add(nanos);
        self.sum += nanos as f64 * self.number;
        self.since = Some(now.max(since));
    }
}

impl EncodeMetric for OverTime {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let (sum, buckets) = {
            let observed = self.lock();
            let bounds = observed.bounds.iter().copied().chain([f64::INFINITY]);
            (observed.sum, bounds.zip(observed.nanos.iter().copied()).collect::<Vec<_>>())
        };
        let count = buckets.iter().map(|(_, nanos)| nanos).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl TypedMetric for OverTime {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn each_nanosecond_counts_as_what_the_number_is_at_its_end() {
        let number = OverTime::new(&[0.0, 0.5, 1.0]);
        number.set(100, 0.5);
        number.set(130, 2.0);
        number.add(150, -2.0);
        number.set(140, 1.0);
        number.set(157, 0.0);
        let mut registry = Registry::default();
        registry.register("number", "A number", number);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "number_sum 62.0",
            "number_count 57",
            "number_bucket{le=\"0.0\"} 0",
            "number_bucket{le=\"0.5\"} 30",
            "number_bucket{le=\"1.0\"} 37",
            "number_bucket{le=\"+Inf\"} 57",
        ];
        assert_eq!(rows, expected);
    }
}

//! Histograms that every request observes. They have one atomic counter for each bucket, so that no request waits for
//! another.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Integers or durations in buckets. Clones share the same counters.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Observed>);

#[derive(Debug)]
struct Observed {
    /// The upper bounds of the buckets in ascending order, in the unit that the metrics show.
    bounds: &'static [f64],
    /// The upper bounds of the buckets, in the unit in which values are observed.
    limits: Box<[u64]>,
    /// One counter for each bound, and one for larger values.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// How many observed units are one shown unit, such as 1e9 nanoseconds in a second.
    unit: f64,
}

impl Histogram {
    /// Makes a histogram of durations. `bounds` are the upper bounds of the buckets, in seconds.
    pub fn of_times(bounds: &'static [f64]) -> Histogram {
        Histogram::new(bounds, 1e9)
    }

    /// Makes a histogram of integers. `bounds` are the upper bounds of the buckets.
    pub fn of_numbers(bounds: &'static [f64]) -> Histogram {
        Histogram::new(bounds, 1.0)
    }

    fn new(bounds: &'static [f64], unit: f64) -> Histogram {
        let limits = bounds.iter().map(|bound| (bound * unit).round() as u64).collect();
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Observed { bounds, limits, counts, sum: AtomicU64::new(0), unit }))
    }

    pub fn took(&self, time: Duration) {
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a value in its bucket. `value` is a number, or a duration in nanoseconds.
    pub fn observe(&self, value: u64) {
        let observed = &*self.0;
        // Most observed values are small, so a linear search ends soon.
        let bucket = observed.limits.iter().position(|limit| value <= *limit).unwrap_or(observed.limits.len());
        observed.counts[bucket].fetch_add(1, Ordering::Relaxed);
        observed.sum.fetch_add(value, Ordering::Relaxed);
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let observed = &*self.0;
        let bounds = observed.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = observed.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = observed.sum.load(Ordering::Relaxed) as f64 / observed.unit;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn what_is_observed_is_shown_in_the_units_of_the_bounds() {
        let (times, numbers) = (Histogram::of_times(&[0.0, 0.005, 1.0]), Histogram::of_numbers(&[1.0, 10.0]));
        for millis in [0, 5, 6, 2000] {
            times.took(Duration::from_millis(millis));
        }
        for number in [1, 2, 10, 11] {
            numbers.observe(number);
        }
        let mut registry = Registry::default();
        registry.register("times", "Times", times);
        registry.register("numbers", "Numbers", numbers);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "times_sum 2.011",
            "times_count 4",
            "times_bucket{le=\"0.0\"} 1",
            "times_bucket{le=\"0.005\"} 2",
            "times_bucket{le=\"1.0\"} 3",
            "times_bucket{le=\"+Inf\"} 4",
            "numbers_sum 24.0",
            "numbers_count 4",
            "numbers_bucket{le=\"1.0\"} 1",
            "numbers_bucket{le=\"10.0\"} 3",
            "numbers_bucket{le=\"+Inf\"} 4",
        ];
        assert_eq!(rows, expected);
    }
}

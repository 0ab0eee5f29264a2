//! Annotations on the events of slow requests that show how long each step took.

use holdfast_core::object::duration;
use std::time::Duration;

/// Requests that take longer than this time are annotated.
pub(crate) const SLOW: Duration = Duration::from_millis(500);

/// A step of a request whose time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    Authentication,
    Authorization,
    /// Waiting for a seat in flow control.
    Queue,
    /// Mutating webhooks are called one after another, so their times are added.
    MutatingWebhooks,
    /// Validating webhooks are called concurrently, so the slowest one counts.
    ValidatingWebhooks,
    /// The write itself, until the log has made it durable.
    Storage,
}

impl Spent {
    const ALL: [Spent; 6] = [
        Spent::Authentication,
        Spent::Authorization,
        Spent::Queue,
        Spent::MutatingWebhooks,
        Spent::ValidatingWebhooks,
        Spent::Storage,
    ];

    /// The step's name in Kubernetes' annotations.
    fn as_str(self) -> &'static str {
        match self {
            Spent::Authentication => "authentication",
            Spent::Authorization => "authorization",
            Spent::Queue => "apf-queue-wait",
            Spent::MutatingWebhooks => "mutating-webhook",
            Spent::ValidatingWebhooks => "validating-webhook",
            Spent::Storage => "etcd",
        }
    }
}

/// The time that one request spent in each step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies([Duration; Spent::ALL.len()]);

impl Latencies {
    pub fn add(&mut self, on: Spent, time: Duration) {
        self.0[on as usize] += time;
    }

    /// An annotation for each time above zero, and for the total.
    pub fn annotations(&self, total: Duration) -> impl Iterator<Item = (String, String)> {
        let parts = Spent::ALL.into_iter().map(|on| (on.as_str(), self.0[on as usize]));
        let told = parts.filter(|(_, time)| !time.is_zero()).chain([("total", total)]);
        told.map(|(part, time)| (format!("apiserver.latency.k8s.io/{part}"), duration::text_of(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_took_time_is_told() {
        let mut latencies = Latencies::default();
        latencies.add(Spent::MutatingWebhooks, Duration::from_millis(300));
        latencies.add(Spent::MutatingWebhooks, Duration::from_millis(300));
        let told: Vec<_> = latencies.annotations(Duration::from_millis(700)).collect();
        let expected = [("mutating-webhook", "600ms"), ("total", "700ms")]
            .map(|(part, time)| (format!("apiserver.latency.k8s.io/{part}"), time.to_owned()));
        assert_eq!(told, expected);
    }
}

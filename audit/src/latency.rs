//! Where slow requests spent their time, as annotations of their events.

use std::time::Duration;

/// Requests slower than this are annotated.
pub(crate) const SLOW: Duration = Duration::from_millis(500);

/// Where a request spends time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    Authentication,
    Authorization,
    /// Waiting for a seat in flow control.
    Queue,
    /// The sum of calls one after another.
    MutatingWebhooks,
    /// The slowest of concurrent calls.
    ValidatingWebhooks,
    /// Until the write is durable.
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

    /// Kubernetes' name.
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

/// The time that one request spent on each.
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
        told.map(|(part, time)| (format!("apiserver.latency.k8s.io/{part}"), go_duration(time)))
    }
}

/// A duration as Go prints it.
fn go_duration(time: Duration) -> String {
    let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
    // A number with this many decimal places, without trailing zeros.
    let number = |whole: u64, part: u32, digits: usize| {
        format!("{whole}.{part:0digits$}").trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match (seconds, nanos) {
        (0, 0) => "0s".into(),
        (0, 1..1_000) => format!("{nanos}ns"),
        (0, 1_000..1_000_000) => format!("{}µs", number(u64::from(nanos / 1_000), nanos % 1_000, 3)),
        (0, _) => format!("{}ms", number(u64::from(nanos / 1_000_000), nanos % 1_000_000, 6)),
        _ => {
            let part = number(seconds % 60, nanos, 9);
            match (seconds / 3600, seconds / 60 % 60) {
                (0, 0) => format!("{part}s"),
                (0, minutes) => format!("{minutes}m{part}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{part}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_as_go_prints_them() {
        for (nanos, expected) in [
            (0, "0s"),
            (900, "900ns"),
            (1_500, "1.5µs"),
            (512_000_000, "512ms"),
            (512_340_000, "512.34ms"),
            (512_000_001, "512.000001ms"),
            (1_000_000_000, "1s"),
            (10_000_000_000, "10s"),
            (61_500_000_000, "1m1.5s"),
            (3_600_000_001_000, "1h0m0.000001s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), expected);
        }
    }

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

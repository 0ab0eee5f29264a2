//! Metrics of webhooks, and of the file that configures them.

use holdfast_edge::Reloads;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// The result of a call to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    Success,
    Failed,
    /// The webhook failed, so other authorizers decide.
    FailedOpen,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    name: String,
    result: &'static str,
}

pub struct Metrics {
    registry: Registry,
    evaluations: Family<CallLabels, Counter>,
    durations: Family<CallLabels, Histogram>,
    failed_open: Family<CallLabels, Counter>,
    /// Reloads of the file that configures the chain.
    pub reloads: Reloads,
}

impl Metrics {
    /// `server` is the hash of this server's id, as a label of its configuration's metrics.
    pub fn new(server: String) -> Metrics {
        let mut registry = Registry::default();
        let evaluations = Family::<CallLabels, Counter>::default();
        let failed_open = Family::<CallLabels, Counter>::default();
        let durations = Family::<CallLabels, Histogram>::new_with_constructor(|| {
            Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0])
        });
        let own = "apiserver_authorization_";
        let webhook = |name: &str| format!("{own}webhook_{name}");
        registry.register(webhook("evaluations"), "Questions to authorization webhooks", evaluations.clone());
        registry.register(webhook("duration_seconds"), "Time that their answers took", durations.clone());
        registry.register(
            webhook("evaluations_fail_open"),
            "Questions without an answer that others then decided",
            failed_open.clone(),
        );
        let reloads = Reloads::default();
        reloads.register(&mut registry, "authorization", server);
        Metrics { registry, evaluations, durations, failed_open, reloads }
    }

    pub fn count_call(&self, webhook: &str, outcome: CallResult, took: Duration) {
        let result = if outcome == CallResult::Success { "success" } else { "error" };
        let labels = CallLabels { name: webhook.to_owned(), result };
        self.evaluations.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        if outcome == CallResult::FailedOpen {
            self.failed_open.get_or_create(&labels).inc();
        }
    }

    /// The exposition text without the final line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text.truncate(text.rfind("# EOF").unwrap_or(text.len()));
        text
    }
}

//! Metrics of webhooks, and of the file that configures them.

use holdfast_tls::trouble::Trouble;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha256};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The label with the hash of the server's id.
const SERVER: &str = "apiserver_id_hash";

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failed,
    /// The webhook failed, and other authorizers decide.
    FailedOpen,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    name: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Read {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    hash: String,
}

pub struct Metrics {
    registry: Registry,
    evaluations: Family<CallLabels, Counter>,
    durations: Family<CallLabels, Histogram>,
    failed_open: Family<CallLabels, Counter>,
    reloads: Family<Read, Counter>,
    last_reload: Family<Read, Gauge<f64, AtomicU64>>,
    last_configuration: Family<Info, Gauge>,
    /// Why the file's present content is not used, if so.
    pub(crate) trouble: Trouble,
}

impl Metrics {
    /// `server` is the hash of this server's id, as a label of its configuration's metrics.
    pub fn new(server: String) -> Metrics {
        let mut registry = Registry::default();
        let evaluations = Family::<CallLabels, Counter>::default();
        let failed_open = Family::<CallLabels, Counter>::default();
        let reloads = Family::<Read, Counter>::default();
        let last_reload = Family::<Read, Gauge<f64, AtomicU64>>::default();
        let last_configuration = Family::<Info, Gauge>::default();
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
        let file = registry.sub_registry_with_label((SERVER.into(), server.into()));
        let name = |name: &str| format!("{own}config_controller_{name}");
        file.register(name("automatic_reloads"), "Times that the file was read again", reloads.clone());
        file.register(name("automatic_reload_last_timestamp_seconds"), "When it was", last_reload.clone());
        file.register(name("last_config_info"), "The file that counts", last_configuration.clone());
        Metrics {
            registry,
            evaluations,
            durations,
            failed_open,
            reloads,
            last_reload,
            last_configuration,
            trouble: Trouble::default(),
        }
    }

    pub fn asked(&self, webhook: &str, outcome: Outcome, took: Duration) {
        let result = if outcome == Outcome::Success { "success" } else { "error" };
        let labels = CallLabels { name: webhook.to_owned(), result };
        self.evaluations.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        if outcome == Outcome::FailedOpen {
            self.failed_open.get_or_create(&labels).inc();
        }
    }

    /// Counts a reload of the file, and whether it succeeded.
    pub fn reloaded(&self, outcome: &Result<(), String>) {
        self.trouble.note(outcome);
        let labels = Read { status: if outcome.is_ok() { "success" } else { "failure" } };
        self.reloads.get_or_create(&labels).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_reload.get_or_create(&labels).set(now.as_secs_f64());
    }

    /// Sets the hash of the current configuration's text.
    pub fn configured(&self, text: &str) {
        let hash = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.last_configuration.clear();
        self.last_configuration.get_or_create(&Info { hash: format!("sha256:{hash}") }).set(1);
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

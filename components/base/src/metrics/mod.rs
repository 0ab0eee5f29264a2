//! A component's metrics, in Prometheus' form and under the names of Kubernetes' components.

mod shown;

use crate::gates::Gates;
use crate::health::Health;
use crate::process::ProcessCollector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use prometheus_client;
pub use shown::ShownMetrics;

/// The content type of the text in which the metrics are served.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    name: String,
    stage: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    git_version: String,
    major: String,
    minor: String,
    platform: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    code: String,
    host: String,
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    host: String,
    verb: String,
}

/// The registry of a component's metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    shown: ShownMetrics,
    leading: Family<NameLabel, Gauge>,
    slow_renewals: Family<NameLabel, Counter>,
    answers: Family<AnswerLabels, Counter>,
    durations: Family<CallLabels, Histogram>,
}

impl Metrics {
    pub fn new(shown: ShownMetrics) -> Metrics {
        let mut registry = Registry::default();
        let (leading, slow_renewals) = (Family::default(), Family::default());
        register_elections(&mut registry, &leading, &slow_renewals);
        let answers = Family::default();
        registry.register("rest_client_requests", "Answers of the API server by code", answers.clone());
        let durations = Family::<CallLabels, Histogram>::new_with_constructor(|| {
            Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
        });
        registry.register(
            "rest_client_request_duration_seconds",
            "Time until the API server answered",
            durations.clone(),
        );
        Metrics { registry: Mutex::new(registry), shown, leading, slow_renewals, answers, durations }
    }

    /// Registers a metric; a counter's name gets `_total` automatically.
    pub fn register<M: Metric + EncodeMetric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help.trim_end_matches('.'), metric.clone());
        metric
    }

    /// Registers the metrics of elections in another registry, which belongs to a server with metrics of its own.
    pub fn register_elections(&self, registry: &mut Registry) {
        register_elections(registry, &self.leading, &self.slow_renewals);
    }

    /// Calls `put` with the registry, so that another part can register metrics.
    pub fn with_registry(&self, put: impl FnOnce(&mut Registry)) {
        put(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Registers the component's build information, its feature gates and the process's statistics.
    pub fn describe(&self, version: &str, gates: &Gates) {
        self.with_registry(|registry| describe(registry, version, gates));
    }

    pub fn leads(&self, lease: &str, leads: bool) {
        self.leading.get_or_create(&NameLabel { name: lease.to_owned() }).set(leads.into());
    }

    pub fn renewed_slowly(&self, lease: &str) {
        self.slow_renewals.get_or_create(&NameLabel { name: lease.to_owned() }).inc();
    }

    /// Counts a response of the API server. `code` is the HTTP status; `None` if there was no response.
    pub fn answered(&self, host: &str, method: &str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "<error>".into(), |code| code.to_string());
        let (host, method) = (host.to_owned(), method.to_owned());
        let call = CallLabels { host: host.clone(), verb: method.clone() };
        self.durations.get_or_create(&call).observe(took.as_secs_f64());
        self.answers.get_or_create(&AnswerLabels { code, host, method }).inc();
    }

    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        _ = encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner));
        self.shown.apply(text)
    }
}

fn register_elections(registry: &mut Registry, leading: &Family<NameLabel, Gauge>, slow: &Family<NameLabel, Counter>) {
    let help = "Whether this process leads under the lease of this name";
    registry.register("leader_election_master_status", help, leading.clone());
    registry.register("leader_election_slowpath", "Renewals that had to read the lease first", slow.clone());
}

/// Registers build information, feature gates and the process's statistics in a registry.
pub fn describe(registry: &mut Registry, version: &str, gates: &Gates) {
    let build = Family::<BuildLabels, Gauge>::default();
    let mut parts = version.trim_start_matches('v').split('.').map(str::to_owned);
    let labels = BuildLabels {
        git_version: version.to_owned(),
        major: parts.next().unwrap_or_default(),
        minor: parts.next().unwrap_or_default(),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    build.get_or_create(&labels).set(1);
    registry.register("kubernetes_build_info", "The version of this process", build);
    let enabled = Family::<GateLabels, Gauge>::default();
    for (name, stage, on) in gates.states() {
        let labels = GateLabels { name: name.to_owned(), stage: stage.to_owned() };
        enabled.get_or_create(&labels).set(on.into());
    }
    registry.register("kubernetes_feature_enabled", "Whether a feature is on", enabled);
    registry.register_collector(Box::new(ProcessCollector));
}

/// The text of `/metrics/slis`: whether each health check passes.
pub fn render_health(health: &Health) -> String {
    let mut text = String::from(
        "# HELP kubernetes_healthcheck Whether a check of health is well\n# TYPE kubernetes_healthcheck gauge\n",
    );
    for (name, kind, healthy) in health.states() {
        _ = writeln!(text, "kubernetes_healthcheck{{name=\"{name}\",type=\"{kind}\"}} {}", u8::from(healthy));
    }
    text.push_str("# EOF\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_that_people_know() {
        let metrics = Metrics::new(ShownMetrics::new(["rest_client_requests_total".to_owned()]));
        metrics.leads("kube-scheduler", true);
        metrics.answered("localhost:6443", "GET", Some(200), Duration::from_millis(3));
        metrics.describe("v1.35.0", &Gates::default());
        metrics.register("scheduler_schedule_attempts", "Attempts.", Counter::<u64>::default()).inc();
        let text = metrics.render();
        for line in [
            "leader_election_master_status{name=\"kube-scheduler\"} 1",
            "rest_client_request_duration_seconds_count{host=\"localhost:6443\",verb=\"GET\"} 1",
            "kubernetes_feature_enabled{name=\"WatchListClient\",stage=\"BETA\"} 1",
            "scheduler_schedule_attempts_total 1",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
        }
        assert!(text.contains("kubernetes_build_info{git_version=\"v1.35.0\",major=\"1\",minor=\"35\""), "{text}");
        assert!(
            text.contains("process_resident_memory_bytes") && text.contains("process_start_time_seconds"),
            "{text}"
        );
        assert!(!text.contains("rest_client_requests_total"), "it is disabled");
        assert!(text.ends_with("# EOF\n"));
    }
}

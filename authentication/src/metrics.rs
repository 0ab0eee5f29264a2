//! Metrics of tokens that are verified elsewhere, under Kubernetes' names.

use holdfast_tls::trouble::Trouble;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The label with the hash of the server's id.
const SERVER: &str = "apiserver_id_hash";

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    result: &'static str,
    jwt_issuer_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Hash {
    hash: String,
}

/// Clones share the same counters.
#[derive(Clone)]
pub struct Metrics {
    requests: Family<Status, Counter>,
    request_durations: Family<Status, Histogram>,
    fetches: Family<Status, Counter>,
    in_flight: Family<Status, Gauge>,
    jwt_latencies: Family<TokenLabels, Histogram>,
    reloads: Family<Status, Counter>,
    reloaded_at: Family<Status, Seconds>,
    configurations: Family<Hash, Gauge>,
    /// Why the file's present content is not used, if so.
    pub trouble: Trouble,
}

impl Default for Metrics {
    fn default() -> Metrics {
        fn durations() -> Histogram {
            Histogram::new(std::iter::successors(Some(0.001), |bound| Some(bound * 2.0)).take(15))
        }
        let request_durations = Family::<Status, Histogram>::new_with_constructor(durations);
        let jwt_latencies = Family::<TokenLabels, Histogram>::new_with_constructor(durations);
        Metrics {
            requests: Family::default(),
            request_durations,
            fetches: Family::default(),
            in_flight: Family::default(),
            jwt_latencies,
            reloads: Family::default(),
            reloaded_at: Family::default(),
            configurations: Family::default(),
            trouble: Trouble::default(),
        }
    }
}

impl Metrics {
    /// `server` is the hash of this server's id, as a label of its configuration's metrics.
    pub fn register(&self, registry: &mut Registry, server: String) {
        let cache = registry.sub_registry_with_prefix("authentication_token_cache");
        cache.register("request", "Tokens looked up", self.requests.clone());
        cache.register("request_duration_seconds", "Time of looking them up", self.request_durations.clone());
        cache.register("fetch", "Tokens that others were asked about", self.fetches.clone());
        cache.register("active_fetch_count", "Those in progress", self.in_flight.clone());
        let own = registry.sub_registry_with_prefix("apiserver_authentication");
        let what = "Time of judging tokens of issuers";
        own.register("jwt_authenticator_latency_seconds", what, self.jwt_latencies.clone());
        let file = own.sub_registry_with_prefix("config_controller");
        let file = file.sub_registry_with_label((SERVER.into(), server.into()));
        file.register("automatic_reloads", "The configuration was read again", self.reloads.clone());
        let what = "When it was read again, in seconds since 1970";
        file.register("automatic_reload_last_timestamp_seconds", what, self.reloaded_at.clone());
        file.register("last_config_info", "The digest of what counts", self.configurations.clone());
    }

    /// Counts a look-up of a token: from the cache, or by asking a verifier.
    pub(crate) fn looked_up(&self, remembered: bool, time: Duration) {
        let status = Status { status: if remembered { "hit" } else { "miss" } };
        self.requests.get_or_create(&status).inc();
        self.request_durations.get_or_create(&status).observe(time.as_secs_f64());
    }

    /// Counts a token being verified, for as long as the result lives.
    pub(crate) fn asking(&self) -> Asking {
        let in_flight = self.in_flight.get_or_create(&Status { status: "in_flight" }).clone();
        in_flight.inc();
        Asking(in_flight)
    }

    pub(crate) fn asked(&self, answered: bool) {
        self.fetches.get_or_create(&Status { status: if answered { "ok" } else { "error" } }).inc();
    }

    /// Counts the verification of an issuer's token.
    pub(crate) fn judged(&self, issuer: &str, good: bool, time: Duration) {
        let result = if good { "success" } else { "failure" };
        let labels = TokenLabels { result, jwt_issuer_hash: digest(issuer) };
        self.jwt_latencies.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// Counts a reload of the file.
    pub(crate) fn reloaded(&self, outcome: &Result<(), String>) {
        self.trouble.note(outcome);
        let status = Status { status: if outcome.is_ok() { "success" } else { "failure" } };
        self.reloads.get_or_create(&status).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.reloaded_at.get_or_create(&status).set(now.as_secs_f64());
    }

    /// Sets the hash of the current configuration's text.
    pub fn configured(&self, text: &str) {
        self.configurations.clear();
        self.configurations.get_or_create(&Hash { hash: digest(text) }).set(1);
    }
}

/// A token being verified.
pub(crate) struct Asking(Gauge);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn digest(text: &str) -> String {
    let mut shown = "sha256:".to_owned();
    for byte in Sha256::digest(text) {
        // Writing to a String cannot fail.
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}

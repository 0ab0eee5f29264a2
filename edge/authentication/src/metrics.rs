//! Metrics of tokens that are verified outside the server, under Kubernetes' names.

use holdfast_edge::{Reloads, digest};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    result: &'static str,
    jwt_issuer_hash: String,
}

/// The metrics about tokens that are verified outside the server. Clones share the same counters.
#[derive(Clone)]
pub struct Metrics {
    requests: Family<Status, Counter>,
    request_durations: Family<Status, Histogram>,
    fetches: Family<Status, Counter>,
    in_flight: Family<Status, Gauge>,
    jwt_latencies: Family<TokenLabels, Histogram>,
    /// Reloads of the file that names issuers.
    pub reloads: Reloads,
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
            reloads: Reloads::default(),
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
        self.reloads.register(registry, "authentication", server);
    }

    /// Counts the look-up of a token, which the cache or a verifier answered.
    pub(crate) fn looked_up(&self, remembered: bool, time: Duration) {
        let status = Status { status: if remembered { "hit" } else { "miss" } };
        self.requests.get_or_create(&status).inc();
        self.request_durations.get_or_create(&status).observe(time.as_secs_f64());
    }

    /// Counts a token as in flight until the returned value is dropped.
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
}

/// A token that a verifier is verifying. It counts as in flight until this value is dropped.
pub(crate) struct Asking(Gauge);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.dec();
    }
}

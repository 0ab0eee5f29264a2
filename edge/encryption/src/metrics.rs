//! Metrics of encryption, under Kubernetes' names.

use holdfast_edge::{Reloads, digest};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whether a value is encrypted for storage, or decrypted from storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToStorage,
    FromStorage,
}

impl Direction {
    fn as_str(self) -> &'static str {
        match self {
            Self::ToStorage => "to_storage",
            Self::FromStorage => "from_storage",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    resource: String,
    transformation_type: &'static str,
    transformer_prefix: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transformed {
    transformation_type: &'static str,
    transformer_prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    provider_name: String,
    method_name: &'static str,
    grpc_status_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeyIdLabels {
    transformation_type: &'static str,
    provider_name: String,
    key_id_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeyLabels {
    provider_name: String,
    key_id_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Invalid {
    provider_name: String,
    error: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

pub struct Metrics {
    registry: Registry,
    operations: Family<OperationLabels, Counter>,
    durations: Family<Transformed, Histogram>,
    misses: Counter,
    made: Histogram,
    unmade: Counter,
    fill: Seconds,
    sources: Family<Provider, Gauge>,
    calls: Family<CallLabels, Histogram>,
    keys: Family<KeyIdLabels, Counter>,
    keys_at: Family<KeyIdLabels, Seconds>,
    told_at: Family<KeyLabels, Seconds>,
    invalid: Family<Invalid, Counter>,
    /// Counts the reloads of the configuration file.
    pub reloads: Reloads,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let quick = || Histogram::new(exponential_buckets(5e-6, 2.0, 25));
        let metrics = Metrics {
            registry: Registry::default(),
            operations: Family::default(),
            durations: Family::new_with_constructor(quick),
            misses: Counter::default(),
            made: quick(),
            unmade: Counter::default(),
            fill: Gauge::default(),
            sources: Family::default(),
            calls: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1e-4, 2.0, 19))),
            keys: Family::default(),
            keys_at: Family::default(),
            told_at: Family::default(),
            invalid: Family::default(),
            reloads: Reloads::default(),
        };
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Metrics {
        let mut all = std::mem::take(&mut self.registry);
        let storage = all.sub_registry_with_prefix("apiserver_storage");
        storage.register("transformation_operations", "Values encrypted and decrypted", self.operations.clone());
        let text = "Time to encrypt and decrypt a value";
        storage.register_with_unit("transformation_duration", text, Unit::Seconds, self.durations.clone());
        let text = "Keys that were not known, and had to be decrypted";
        storage.register("envelope_transformation_cache_misses", text, self.misses.clone());
        let text = "Time to make a data key";
        storage.register_with_unit("data_key_generation_duration", text, Unit::Seconds, self.made.clone());
        storage.register("data_key_generation_failures", "Data keys that could not be made", self.unmade.clone());
        let envelope = all.sub_registry_with_prefix("apiserver_envelope_encryption");
        envelope.register("dek_cache_fill_percent", "How full the cache of data keys is", self.fill.clone());
        envelope.register("dek_source_cache_size", "Sources of data keys that are known", self.sources.clone());
        let text = "Time of calls of KMS plug-ins";
        envelope.register_with_unit("kms_operations_latency", text, Unit::Seconds, self.calls.clone());
        envelope.register("key_id_hash", "Values by the key of the KMS", self.keys.clone());
        let text = "When a key of the KMS was last used";
        envelope.register("key_id_hash_last_timestamp_seconds", text, self.keys_at.clone());
        let text = "When a KMS plug-in last told of its key";
        envelope.register("key_id_hash_status_last_timestamp_seconds", text, self.told_at.clone());
        let text = "Key ids that no plug-in may tell";
        envelope.register("invalid_key_id_from_status", text, self.invalid.clone());
        self.registry = all;
        self
    }

    pub fn transformed(&self, way: Direction, resource: &str, prefix: &str, ok: bool, took: Duration) {
        let (way, prefix) = (way.as_str(), prefix.to_owned());
        let status = if ok { "OK" } else { "failed" };
        let resource = resource.to_owned();
        let operation =
            OperationLabels { resource, transformation_type: way, transformer_prefix: prefix.clone(), status };
        self.operations.get_or_create(&operation).inc();
        let transformed = Transformed { transformation_type: way, transformer_prefix: prefix };
        self.durations.get_or_create(&transformed).observe(took.as_secs_f64());
    }

    pub fn missed(&self) {
        self.misses.inc();
    }

    /// Counts a new data key, or a failure to make a data key.
    pub fn made(&self, ok: bool, took: Duration) {
        self.made.observe(took.as_secs_f64());
        if !ok {
            self.unmade.inc();
        }
    }

    /// Sets the number of cached keys of a provider, and the fill level of the cache.
    pub fn cached(&self, provider: &str, known: usize, most: usize) {
        self.sources.get_or_create(&Provider { provider_name: provider.to_owned() }).set(known as i64);
        self.fill.set(known as f64 / most.max(1) as f64);
    }

    pub fn called(&self, provider: &str, method: &'static str, code: &'static str, took: Duration) {
        let call = CallLabels { provider_name: provider.to_owned(), method_name: method, grpc_status_code: code };
        self.calls.get_or_create(&call).observe(took.as_secs_f64());
    }

    pub fn used(&self, way: Direction, provider: &str, key_id: &str) {
        let transformation_type = way.as_str();
        let key = KeyIdLabels { transformation_type, provider_name: provider.to_owned(), key_id_hash: hash(key_id) };
        self.keys.get_or_create(&key).inc();
        self.keys_at.get_or_create(&key).set(now());
    }

    pub fn told(&self, provider: &str, key_id: &str) {
        let told = KeyLabels { provider_name: provider.to_owned(), key_id_hash: hash(key_id) };
        self.told_at.get_or_create(&told).set(now());
    }

    pub fn invalid(&self, provider: &str, error: &'static str) {
        self.invalid.get_or_create(&Invalid { provider_name: provider.to_owned(), error }).inc();
    }

    /// The metrics as text without the final line. `server` is the hash of this server's id, as a label.
    pub fn render(&self, server: &str) -> String {
        let mut file = Registry::default();
        self.reloads.register(&mut file, "encryption", server.to_owned());
        let mut text = String::new();
        for registry in [&self.registry, &file] {
            // Writing to a String cannot fail.
            let _ = prometheus_client::encoding::text::encode_registry(&mut text, registry);
        }
        text
    }
}

/// The hash of a key id, which is shown because the id itself may be confidential.
pub fn hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    digest(key_id)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

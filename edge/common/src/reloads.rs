//! Metrics of a configuration file that is read again while the server runs, under Kubernetes' names.

use holdfast_files::trouble::Trouble;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha256};
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

/// The label with the hash of the server's id.
const SERVER: &str = "apiserver_id_hash";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    hash: String,
}

/// Counts the reloads of one file. Clones share the same counters.
#[derive(Debug, Clone, Default)]
pub struct Reloads {
    reloads: Family<Reload, Counter>,
    /// The time of the last reload, in seconds since 1970.
    last_reload: Family<Reload, Gauge<f64, AtomicU64>>,
    last_configuration: Family<Info, Gauge>,
    trouble: Trouble,
}

impl Reloads {
    /// `configures` is the part of the API server that the file configures, such as `authentication`; `server` is the
    /// hash of the server's id, as a label.
    pub fn register(&self, registry: &mut Registry, configures: &str, server: String) {
        let file = registry.sub_registry_with_prefix(format!("apiserver_{configures}_config_controller"));
        let file = file.sub_registry_with_label((SERVER.into(), server.into()));
        file.register("automatic_reloads", "Reloads of the configuration file", self.reloads.clone());
        let help = "When the configuration file was last reloaded, in seconds since 1970";
        file.register("automatic_reload_last_timestamp_seconds", help, self.last_reload.clone());
        let help = "The hash of the configuration in effect";
        file.register("last_config_info", help, self.last_configuration.clone());
    }

    /// Counts a reload of the file, with its outcome.
    pub fn reloaded(&self, outcome: &Result<(), String>) {
        self.trouble.note(outcome);
        let labels = Reload { status: if outcome.is_ok() { "success" } else { "failure" } };
        self.reloads.get_or_create(&labels).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_reload.get_or_create(&labels).set(now.as_secs_f64());
    }

    /// Sets the hash of the text in effect.
    pub fn configured(&self, text: &str) {
        self.last_configuration.clear();
        self.last_configuration.get_or_create(&Info { hash: digest(text) }).set(1);
    }

    /// The error if the current content of the file is not in effect.
    pub fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    #[cfg(test)]
    pub fn failures(&self) -> u64 {
        self.reloads.get_or_create(&Reload { status: "failure" }).get()
    }
}

/// The hash of a text as Kubernetes' metrics show it.
pub fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().fold("sha256:".to_owned(), |shown, byte| shown + &format!("{byte:02x}"))
}

//! The encryption configuration of a process. The configuration is read at the start. If an option demands it, the
//! configuration is read again while the process runs.

use crate::configuration::Configuration;
use crate::keyring::Keyring;
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use holdfast_edge::Followed;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the file is read again.
const PERIOD: Duration = Duration::from_secs(1);

/// The keyring that is in effect, which changes when the configuration file is read again.
pub struct Live {
    keyring: ArcSwap<Keyring>,
    metrics: Arc<Metrics>,
    follows: bool,
}

/// A file that is read again while the process runs.
pub struct Follow {
    file: PathBuf,
    text: String,
    may_use_kms_v1: bool,
}

impl Live {
    /// The state of a process without an EncryptionConfiguration.
    pub fn none() -> Arc<Live> {
        Arc::new(Live::of(Keyring::none(), Arc::default(), false))
    }

    fn of(keyring: Keyring, metrics: Arc<Metrics>, follows: bool) -> Live {
        Live { keyring: ArcSwap::from_pointee(keyring), metrics, follows }
    }

    /// Reads the configuration in a file. `follows` says whether the file will be read again.
    pub fn read(file: &Path, may_use_kms_v1: bool, follows: bool) -> Result<(Arc<Live>, Follow), Vec<String>> {
        let text = std::fs::read_to_string(file).map_err(|error| vec![error.to_string()])?;
        let live = Live::of_text(&text, may_use_kms_v1, follows)?;
        Ok((live, Follow { file: file.to_owned(), text, may_use_kms_v1 }))
    }

    /// Like [`Live::read`], but the configuration is given as text.
    pub fn of_text(text: &str, may_use_kms_v1: bool, follows: bool) -> Result<Arc<Live>, Vec<String>> {
        let metrics = Arc::<Metrics>::default();
        let keyring = keyring(text, may_use_kms_v1, &metrics)?;
        metrics.reloads.configured(text);
        Ok(Arc::new(Live::of(keyring, metrics, follows)))
    }

    /// The current keyring. A caller may continue to use it after a change.
    pub fn keyring(&self) -> Arc<Keyring> {
        self.keyring.load_full()
    }

    /// Starts to read the plug-ins' status periodically.
    pub fn start(&self) {
        self.keyring().kms().for_each(|kms| kms.follow());
    }

    /// The names of health checks. There is one check for each plug-in, or a single check if the configuration can
    /// change.
    pub fn checks(&self) -> Vec<String> {
        match self.follows {
            true => vec!["kms-providers".into()],
            false => (0..self.keyring().kms().count()).map(|at| format!("kms-provider-{at}")).collect(),
        }
    }

    /// The health of the plug-in that a check names. A check that names none covers all plug-ins and the last reload.
    pub async fn check(&self, name: &str) -> Result<(), String> {
        let keyring = self.keyring();
        let only = name.strip_prefix("kms-provider-").and_then(|at| at.parse::<usize>().ok());
        for (at, kms) in keyring.kms().enumerate() {
            if only.is_none_or(|only| only == at) {
                kms.health().await.map_err(|why| format!("{}: {why}", kms.name()))?;
            }
        }
        match only {
            Some(_) => Ok(()),
            None => {
                let reloaded = self.metrics.reloads.trouble().check();
                reloaded.map_err(|why| format!("the encryption configuration cannot be reloaded: {why}"))
            }
        }
    }

    /// Metrics as text without the final line. `server` is the hash of the server's id.
    pub fn metrics(&self, server: &str) -> String {
        self.metrics.render(server)
    }

    /// Reads the file periodically, without end.
    pub async fn follow(self: Arc<Self>, Follow { file, text, may_use_kms_v1 }: Follow) {
        let mut file = Followed::new("encryption config", file, text, PERIOD, self.metrics.reloads.clone());
        loop {
            let text = file.changed().await;
            file.applied(&self.apply(&text, may_use_kms_v1).await);
        }
    }

    /// Applies a configuration, if all of its plug-ins are healthy.
    async fn apply(&self, text: &str, may_use_kms_v1: bool) -> Result<(), String> {
        let keyring = keyring(text, may_use_kms_v1, &self.metrics).map_err(|faults| faults.join(", "))?;
        for kms in keyring.kms() {
            kms.check().await.map_err(|why| format!("{}: {why}", kms.name()))?;
        }
        keyring.kms().for_each(|kms| kms.follow());
        self.keyring.store(Arc::new(keyring));
        Ok(())
    }
}

fn keyring(text: &str, may_use_kms_v1: bool, metrics: &Arc<Metrics>) -> Result<Keyring, Vec<String>> {
    let configuration = Configuration::read(text, may_use_kms_v1)?;
    Keyring::new(configuration, metrics).map_err(|why| vec![why])
}

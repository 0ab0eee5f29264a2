//! The options of encryption at rest.

use anyhow::{Result, anyhow, ensure};
use clap::ArgAction;
use futures_util::future::BoxFuture;
use holdfast_chronicle::encryption::EncryptionArgs as Reading;
use holdfast_component::gates::ApiGates;
use holdfast_component::options::joined;
use holdfast_component::values::parse_bool;
use holdfast_encryption::{Follow, Live, Locked};
use holdfast_engine::Fault;
use holdfast_service::Meter;
use holdfast_transport_http::HealthCheck;
use std::sync::Arc;
use std::time::Duration;

/// The pause between attempts to open a log whose keys are unreachable.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Encryption at rest")]
#[group(skip)]
pub struct EncryptionArgs {
    #[command(flatten)]
    config: Reading,
    /// Reload the encryption configuration when its file changes.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    encryption_provider_config_automatic_reload: bool,
}

impl EncryptionArgs {
    /// The encryption of values, and the configuration file, if the server must read it again when it changes.
    pub fn live(&self, gates: &ApiGates) -> Result<(Arc<Live>, Option<Follow>)> {
        let follows = self.encryption_provider_config_automatic_reload;
        let Some(file) = &self.config.encryption_provider_config else {
            ensure!(
                !follows,
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            );
            return Ok((Live::none(), None));
        };
        let read = Live::read(file, gates.kms_v1, follows);
        let (live, follow) =
            read.map_err(|faults| anyhow!("--encryption-provider-config={}: {}", file.display(), joined(&faults)))?;
        Ok((live, follows.then_some(follow)))
    }
}

/// Opens a log or its engine; retries while the keys of the log are unreachable, because a KMS plug-in may start later
/// than the server.
pub fn open_patiently<T>(open: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    loop {
        match open() {
            Err(fault) if matches!(Locked::of(&fault), Some(Locked::Unreachable(_))) => {
                tracing::warn!(%fault, "the log cannot be decrypted yet: the server starts when it can");
                std::thread::sleep(PATIENCE);
            }
            opened => return opened,
        }
    }
}

/// The health check of one KMS plug-in, or of all KMS plug-ins together.
struct Check {
    live: Arc<Live>,
    name: String,
}

impl HealthCheck for Check {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.live.check(&self.name))
    }
}

pub fn checks(live: &Arc<Live>) -> Vec<Arc<dyn HealthCheck>> {
    let check = |name| Arc::new(Check { live: live.clone(), name }) as Arc<dyn HealthCheck>;
    live.checks().into_iter().map(check).collect()
}

/// Reads the metrics of encryption; `server` is the hash of this server's id, which is one of their labels.
pub fn meter(live: &Arc<Live>, server: String) -> Meter {
    let live = live.clone();
    Arc::new(move || live.metrics(&server))
}

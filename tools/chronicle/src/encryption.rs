//! The configuration with which a data folder was encrypted, for commands that read the folder.

use anyhow::{Result, anyhow};
use holdfast_encryption::{Keyring, Live, OfflineKeyring};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct EncryptionArgs {
    /// EncryptionConfiguration of the stored objects: which resources are encrypted, and with which keys.
    #[arg(long, alias = "experimental-encryption-provider-config", value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
}

impl EncryptionArgs {
    /// The keyring that opens the folder's values. Without a configuration it opens only unencrypted values.
    pub fn live(&self) -> Result<Arc<Live>> {
        let Some(file) = &self.encryption_provider_config else { return Ok(Live::none()) };
        let (live, _) = Live::read(file, true, false).map_err(|faults| {
            let faults = holdfast_component::options::joined(&faults);
            anyhow!("--encryption-provider-config={}: {faults}", file.display())
        })?;
        Ok(live)
    }

    pub fn keyring(&self) -> Result<Arc<Keyring>> {
        Ok(self.live()?.keyring())
    }

    /// The keyring for commands that write events.
    pub fn values(&self) -> Result<OfflineKeyring> {
        Ok(OfflineKeyring(self.keyring()?))
    }

    pub fn is_given(&self) -> bool {
        self.encryption_provider_config.is_some()
    }

    /// This option as arguments of another command.
    pub fn arguments(&self) -> impl Iterator<Item = OsString> {
        let file = self.encryption_provider_config.clone();
        file.into_iter().flat_map(|file| ["--encryption-provider-config".into(), file.into_os_string()])
    }
}

//! Opens the log that a command reads: the log of a running server, by a kubeconfig, or the log of a data folder.
//!
//! [`client`] sends requests to servers and waits for the answers; [`log`] is a server's event log behind the trait of
//! a folder's log; [`local`] serves a data folder's API in this process, for commands that write.

pub mod client;
pub mod local;
pub mod log;

use crate::encryption::EncryptionArgs;
use anyhow::{Context, Result, bail};
use client::Client;
use holdfast_core::event::Offset;
use holdfast_core::history::moment::{self, Moment};
use holdfast_encryption::SealedLog;
use holdfast_engine::moment::at_time;
use holdfast_engine::{LogRead, Sealing as _};
use holdfast_storage_rocks::LogReader;
use jiff::Timestamp;
use local::Local;
use log::RemoteLog;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a folder is checked for new events.
const FOLLOW_PERIOD: Duration = Duration::from_millis(100);

#[derive(clap::Args, Clone)]
pub struct Source {
    /// Read the log in this data folder instead of asking a server. The folder's server may be running.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub encryption: EncryptionArgs,
    #[command(flatten)]
    pub server: RemoteServer,
}

/// The options that name a running server.
#[derive(clap::Args, Clone, Default)]
pub struct RemoteServer {
    /// Kubeconfig of a running server [default: $KUBECONFIG, or ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// A log that commands can read, in a data folder or on a server.
pub trait Readable: LogRead {
    /// The version for a text (a version, a time or a duration back), whether the log has it or not.
    fn named(&self, text: &str, now: Timestamp) -> Result<Offset>;

    /// The namespace to use if the user names none.
    fn namespace(&self) -> &str {
        "default"
    }

    /// Whether the log returns encrypted values decrypted.
    fn returns_decrypted(&self) -> bool {
        false
    }

    /// Announces the records that will be read next, so that a remote log can fetch many at once.
    fn will_read(&self, _: &[Offset]) {}
}

impl Source {
    pub fn open(&self) -> Result<Box<dyn Followed>> {
        self.open_of(&[])
    }

    /// Opens the log that has the objects of these kinds, named as in kubectl. A data folder has one log.
    pub fn open_of(&self, kinds: &[&str]) -> Result<Box<dyn Followed>> {
        match &self.data_dir {
            Some(folder) => Ok(Box::new(open_folder(folder, &self.encryption)?)),
            None => self.open_server(kinds),
        }
    }

    /// Opens the log with its values as stored, for callers that do not read values.
    pub fn open_kept(&self) -> Result<Box<dyn Followed>> {
        match &self.data_dir {
            Some(folder) if !self.encryption.is_given() => Ok(Box::new(LogReader::open(folder)?)),
            _ => self.open(),
        }
    }

    fn open_server(&self, kinds: &[&str]) -> Result<Box<dyn Followed>> {
        if self.encryption.is_given() {
            bail!("--encryption-provider-config is for data folders (--data-dir): a server decrypts by itself");
        }
        Ok(Box::new(RemoteLog::open(self.server.connect()?)?.of(kinds)?))
    }

    /// The API for writes to this source: the API of the server, or an API in this process over the data folder.
    pub fn api(&self) -> Result<Api> {
        Ok(match &self.data_dir {
            Some(folder) => Api::Local(Local::open(folder, &self.encryption)?),
            None => Api::Server(self.server.connect()?),
        })
    }
}

/// An API through which a command writes.
pub enum Api {
    Server(Client),
    Local(Local),
}

impl Api {
    pub fn client(&self) -> &Client {
        match self {
            Api::Server(client) => client,
            Api::Local(local) => &local.client,
        }
    }
}

/// A log that grows while it is read.
pub trait Followed: Readable {
    /// Waits a while for an event after the event `after`, and reads the new events.
    fn follow(&self, after: Offset) -> Result<()>;
}

pub fn open_folder(folder: &Path, encryption: &EncryptionArgs) -> Result<SealedLog<LogReader>> {
    let live = encryption.live()?;
    Ok(SealedLog::new(Arc::new(LogReader::open(folder)?), live))
}

impl RemoteServer {
    pub fn connect(&self) -> Result<Client> {
        self.is_named()?;
        Client::connect(self)
    }

    /// Fails unless the user names a kubeconfig or one exists, because a default server would be a guess. The error
    /// explains how to name a data folder.
    fn is_named(&self) -> Result<()> {
        if self.kubeconfig.is_some() || std::env::var_os("KUBECONFIG").is_some_and(|files| !files.is_empty()) {
            return Ok(());
        }
        let home = std::env::home_dir().map(|home| home.join(".kube/config"));
        if home.is_some_and(|file| file.exists()) {
            return Ok(());
        }
        bail!(
            "no cluster is named: give --kubeconfig FILE (or set KUBECONFIG) for a running server, or --data-dir DIR \
             for a data folder"
        )
    }

    /// The kubeconfig files, as kubectl finds them. If several files define an entry, the first takes precedence.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        self.is_named()?;
        if let Some(file) = &self.kubeconfig {
            return Ok(vec![file.clone()]);
        }
        if let Some(files) = std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
            return Ok(std::env::split_paths(&files).filter(|file| !file.as_os_str().is_empty()).collect());
        }
        let home = std::env::home_dir().context("the home folder is unknown: give --kubeconfig FILE")?;
        Ok(vec![home.join(".kube/config")])
    }
}

impl Followed for LogReader {
    fn follow(&self, _: Offset) -> Result<()> {
        std::thread::sleep(FOLLOW_PERIOD);
        Ok(self.catch_up()?)
    }
}

impl Followed for SealedLog<LogReader> {
    fn follow(&self, after: Offset) -> Result<()> {
        self.inner().follow(after)
    }
}

impl Readable for SealedLog<LogReader> {
    fn named(&self, text: &str, now: Timestamp) -> Result<Offset> {
        self.inner().named(text, now)
    }

    fn returns_decrypted(&self) -> bool {
        self.encrypts()
    }
}

impl Readable for LogReader {
    fn named(&self, text: &str, now: Timestamp) -> Result<Offset> {
        named(self, text, now)
    }
}

#[cfg(test)]
impl Readable for holdfast_engine::memory::MemoryLog {
    fn named(&self, text: &str, now: Timestamp) -> Result<Offset> {
        named(self, text, now)
    }
}

fn named(log: &dyn LogRead, text: &str, now: Timestamp) -> Result<Offset> {
    Ok(match moment::parse(text, now)? {
        Moment::Version(version) => version,
        Moment::Time(time) => at_time(log, time.as_millisecond(), log.last()?)?,
    })
}

//! `holdfast log compact`: removes history from a data folder without a server, like a server with the same options.

use super::Folder;
use crate::out;
use crate::values::{parse_age, parse_bytes};
use anyhow::{Result, ensure};
use holdfast_engine::forked::Holds;
use holdfast_engine::retention::{Retention, pass};
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::{LogReader, RocksLog};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    history: HistoryArgs,
}

/// How much history is kept: a server takes these options, too.
#[derive(clap::Args, Debug, Clone)]
pub struct HistoryArgs {
    /// How long old versions are kept for reading and watching, such as 168h or 7d; 0 keeps them for ever.
    #[arg(long, default_value = "0", value_parser = parse_age, value_name = "DURATION")]
    pub history_retention: Duration,
    /// Size of the log, such as 10Gi, above which the oldest versions are removed; 0 for no limit.
    #[arg(long, default_value = "0", value_parser = parse_bytes, value_name = "SIZE")]
    pub history_max_bytes: u64,
}

impl HistoryArgs {
    pub fn retention(&self) -> Retention {
        Retention {
            age: Some(self.history_retention).filter(|age| !age.is_zero()),
            bytes: Some(self.history_max_bytes).filter(|bytes| *bytes > 0),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let folder = &args.folder.data_dir;
    let retention = args.history.retention();
    ensure!(
        retention != Retention::default(),
        "give --history-retention (such as 168h), --history-max-bytes (such as 10Gi), or both"
    );
    // The folder is first opened as a reader, which fails without a log. `RocksLog::open` would create a log.
    drop(LogReader::open(folder)?);
    let log = RocksLog::open(folder)?;
    let before = log.size()?.bytes;
    let pass = pass(&log, retention, jiff::Timestamp::now().as_millisecond(), &Holds::default())?;
    log.compact(true)?;
    let after = log.size()?.bytes;
    out::line(&format!(
        "{} events were removed; the history begins at version {}; the log shrank from {before} bytes to {after}",
        pass.let_go.let_go_events, pass.oldest
    ))?;
    if pass.too_large {
        out::line("the current objects alone take more than --history-max-bytes: no history is left")?;
    }
    Ok(())
}

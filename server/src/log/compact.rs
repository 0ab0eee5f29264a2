//! `holdfast log compact`: lets history of a closed data folder go, as a server does with the same options.

use super::Folder;
use crate::flags::HistoryArgs;
use anyhow::{Result, ensure};
use holdfast_engine::retention::{Retention, pass};
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::{LogReader, RocksLog};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    history: HistoryArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let folder = &args.folder.data_dir;
    let retention = args.history.retention();
    ensure!(
        retention != Retention::default(),
        "say how much history is to be kept: --history-retention 168h, --history-max-bytes 10Gi, or both"
    );
    // A reader makes no log where there is none.
    drop(LogReader::open(folder)?);
    let log = RocksLog::open(folder)?;
    let before = log.size()?.bytes;
    let pass = pass(&log, retention, jiff::Timestamp::now().as_millisecond())?;
    log.compact(true)?;
    let after = log.size()?.bytes;
    println!(
        "{} events were let go; history is kept from version {} on; {before} bytes became {after}",
        pass.let_go.let_go_events, pass.oldest
    );
    if pass.too_large {
        println!("what is current alone takes more than --history-max-bytes: no history is left");
    }
    Ok(())
}

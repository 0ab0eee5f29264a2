//! `holdfast log`: the event log of a server or of a data folder. Each subcommand has a file of its own; the module
//! `format` defines the format of an export's lines.

mod compact;
mod export;
pub mod format;
pub mod import;
pub mod progress;
mod stats;
mod tail;
mod verify;

pub use compact::HistoryArgs;

use crate::encryption::EncryptionArgs;
use crate::files::keep_others_out;
use crate::out;
use crate::remote::Source;
use anyhow::Result;
use holdfast_core::event::{Offset, Record};
use holdfast_engine::LogRead;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// How many records are written or read at a time.
const PIECE: usize = 4096;
/// The maximum length of a line. Lines of exports are much shorter, so an input with a longer line is not an export.
const LINE_MAX: u64 = 64 << 20;

#[derive(clap::Subcommand)]
pub enum LogCommand {
    /// Print events, one on each line: version, time, verb, object and user.
    Tail {
        #[command(flatten)]
        source: Source,
        /// Also print new events as they happen.
        #[arg(short, long)]
        follow: bool,
        /// Print only this many of the newest existing events, the oldest of them first; 0 prints all.
        #[arg(short = 'n', long, default_value_t = 0)]
        lines: u64,
    },
    /// Read the whole log, and verify that its events give exactly the state that the server serves. The server may be
    /// running.
    Verify(verify::Args),
    /// Write the log as lines of JSON. The server may be running.
    Export(export::Args),
    /// Make a new data folder from an export.
    Import(import::Args),
    /// Count events and bytes by kind, by user and by hour. The server may be running.
    Stats(stats::Args),
    /// Remove old history and free its disk space. The server must be stopped; with the same options, a running server
    /// does this itself.
    Compact(compact::Args),
    /// Restore objects whose newest event is damaged to their last intact version. The server must be stopped.
    Repair {
        #[command(flatten)]
        folder: Folder,
        #[command(flatten)]
        encryption: EncryptionArgs,
    },
}

#[derive(clap::Args)]
pub struct Folder {
    /// Data folder with the event log.
    #[arg(long, default_value = "./holdfast-data", value_name = "DIR")]
    data_dir: PathBuf,
}

pub fn run(command: LogCommand) -> Result<()> {
    keep_others_out();
    match command {
        LogCommand::Tail { source, follow, lines } => tail::run(&source, follow, lines),
        LogCommand::Verify(args) => verify::run(args),
        LogCommand::Export(args) => export::run(args),
        LogCommand::Import(args) => import::run(args),
        LogCommand::Stats(args) => stats::run(args),
        LogCommand::Compact(args) => compact::run(&args),
        LogCommand::Repair { folder, encryption } => repair(folder, &encryption),
    }
}

/// Visits every record after `after` until `visit` breaks or fails.
fn each(log: &dyn LogRead, after: Offset, mut visit: impl FnMut(&Record) -> Result<ControlFlow<()>>) -> Result<()> {
    let mut failure = None;
    log.each(after, &mut |record| {
        visit(record).unwrap_or_else(|error| {
            failure = Some(error);
            ControlFlow::Break(())
        })
    })?;
    failure.map_or(Ok(()), Err)
}

fn repair(folder: Folder, encryption: &EncryptionArgs) -> Result<()> {
    let (now, values) = (jiff::Timestamp::now().as_millisecond(), encryption.values()?);
    let repairs = holdfast_storage_rocks::repair(&folder.data_dir, now, &values)?;
    for repair in &repairs {
        out::line(&repair.to_string())?;
    }
    match repairs.len() {
        0 => out::line("the log is intact"),
        _ => out::line("the log is repaired"),
    }
}

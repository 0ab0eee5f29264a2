//! `holdfast log`: the event log of a server or of a data folder. One file per subcommand; `format` has the lines of
//! exports.

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
/// No line of an export is nearly as long: an input without a newline for so long is no export.
const LINE_MAX: u64 = 64 << 20;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print events, one a line: offset, time, what was done to which object, and by whom.
    Tail {
        #[command(flatten)]
        source: Source,
        /// Go on with new events as they come.
        #[arg(short, long)]
        follow: bool,
        /// How many of the last events to begin with; 0 for all.
        #[arg(short = 'n', long, default_value_t = 0)]
        lines: u64,
    },
    /// Read the whole log, and prove that it gives the state that is served. Works beside a running server.
    Verify(verify::Args),
    /// Write the log as lines of JSON. Works beside a running server.
    Export(export::Args),
    /// Make a data folder from an export.
    Import(import::Args),
    /// Count events and bytes by kind, by actor and by hour. Works beside a running server.
    Stats(stats::Args),
    /// Let old history go, and give the disk its room back. The server must be stopped; one that runs does it by itself
    /// with the same options.
    Compact(compact::Args),
    /// Put objects whose newest event is damaged back to their last intact version. The server must be stopped.
    Repair {
        #[command(flatten)]
        folder: Folder,
        #[command(flatten)]
        encryption: EncryptionArgs,
    },
}

#[derive(clap::Args)]
pub struct Folder {
    /// Folder of the event log.
    #[arg(long, default_value = "./holdfast-data", value_name = "DIR")]
    data_dir: PathBuf,
}

pub fn run(command: Command) -> Result<()> {
    keep_others_out();
    match command {
        Command::Tail { source, follow, lines } => tail::run(&source, follow, lines),
        Command::Verify(args) => verify::run(args),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Compact(args) => compact::run(&args),
        Command::Repair { folder, encryption } => repair(folder, &encryption),
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

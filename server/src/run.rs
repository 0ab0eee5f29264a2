//! `holdfast run -- CMD`: a cluster of its own for one command, gone when the command is.
//!
//! The server runs in this process, on a free port of this machine, with a data folder that nobody keeps: nothing waits
//! for the disk. CMD finds the cluster through `KUBECONFIG`, as any client would, and what it ends with is what this
//! ends with. What goes wrong before CMD runs ends with 125, as `env` and `timeout` have it, or 126 and 127 where CMD
//! cannot be run or found.

use crate::apiserver::{Lasting, Signals};
use crate::up::Admin;
use crate::{fork, logging, up};
use anyhow::{Context, Result, anyhow, ensure};
use holdfast_storage_rocks::check_new;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use tokio::process::{Child, Command};
use tokio::signal::unix::SignalKind;

/// Something before CMD went wrong.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// How often the folder's removal is tried: files may come while the server ends.
const REMOVALS_MAX: usize = 100;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Begin as the cluster in this data folder is, or was: its server may be running [default: an empty cluster].
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// The moment to begin from: a version (42), a time (2026-11-21T10:00:00Z), or how long ago (-15m) [default: now].
    #[arg(long, value_name = "MOMENT", requires = "from", allow_hyphen_values = true)]
    at: Option<String>,
    /// Keep the data folder, and tell where it is.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    up: up::Args,
    /// The command and its arguments, behind `--`. It gets KUBECONFIG, USE_EXISTING_CLUSTER, HOLDFAST_URL and
    /// HOLDFAST_DATA_DIR.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> ExitCode {
    match try_run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("holdfast run: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn try_run(args: Args) -> Result<u8> {
    let Args { from, at, keep, mut up, command } = args;
    let _log = log_to_files(&mut up.server.logging)?;
    let folder = DataFolder::make(up.server.data_dir.take(), keep)?;
    if let Some(from) = &from {
        fork::of_folder(from, at.as_deref(), &folder.path).context("fork")?;
    }
    up.server.data_dir = Some(folder.path.clone());
    // Many run side by side.
    up.server.secure_port.get_or_insert(0);
    let (server, admin) = up::prepare(up, if keep { Lasting::Kept } else { Lasting::Fleeting })?;
    let code = server.serve(async |address, signals: &mut Signals| {
        let mut child = match start(&command, &admin, address, &folder.path)? {
            Ok(child) => child,
            Err(code) => return Ok(code),
        };
        Ok(code(wait(&mut child, signals).await?))
    })?;
    folder.end();
    Ok(code)
}

/// Lines go to files or to where the options say; without any, nowhere: what is to be seen is what CMD writes.
fn log_to_files(options: &mut logging::LoggingArgs) -> Result<Option<logging::LogGuard>> {
    let to_files = options.log_file.is_some() || options.log_dir.is_some();
    let wanted = options.v > 0 || options.vmodule != logging::Modules::default() || options.alsologtostderr;
    if !to_files && !wanted {
        return Ok(None);
    }
    if to_files {
        options.logtostderr = false;
        if !options.alsologtostderr {
            options.stderrthreshold = logging::Severity::Fatal;
        }
    }
    logging::init(options).map(Some).map_err(|why| anyhow!(why))
}

/// Where the cluster lives, and no longer than this does.
struct DataFolder {
    path: PathBuf,
    keep: bool,
}

impl DataFolder {
    fn make(named: Option<PathBuf>, keep: bool) -> Result<DataFolder> {
        let path = match named {
            None => {
                tempfile::Builder::new().prefix("holdfast-run-").tempdir().context("make a temporary folder")?.keep()
            }
            Some(named) => {
                check_new(&named, "`holdfast run`")?;
                std::fs::create_dir_all(&named).with_context(|| format!("make {}", named.display()))?;
                std::path::absolute(&named).unwrap_or(named)
            }
        };
        Ok(DataFolder { path, keep })
    }

    fn end(self) {
        if self.keep {
            let shown = self.path.display();
            eprintln!("holdfast run: the cluster is kept in {shown}; start it with: holdfast up --data-dir {shown}");
        }
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for _ in 0..REMOVALS_MAX {
            match std::fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return eprintln!("holdfast run: {} could not be removed: {error}", self.path.display());
                }
                _ => return,
            }
        }
    }
}

/// Starts CMD; the code to end with when it cannot be.
fn start(command: &[OsString], admin: &Admin, address: SocketAddr, folder: &Path) -> Result<Result<Child, u8>> {
    let url = admin.welcome(address)?;
    let (name, arguments) = command.split_first().context("name a command")?;
    ensure!(!name.is_empty(), "name a command");
    let spawned = Command::new(name)
        .args(arguments)
        .env("KUBECONFIG", &admin.kubeconfig)
        .env("USE_EXISTING_CLUSTER", "true")
        .env("HOLDFAST_URL", url)
        .env("HOLDFAST_DATA_DIR", folder)
        .spawn();
    Ok(spawned.map_err(|error| {
        let shown = name.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                eprintln!("holdfast run: {shown}: there is no such command");
                NOT_FOUND
            }
            _ => {
                eprintln!("holdfast run: {shown} cannot be run: {error}");
                NOT_EXECUTABLE
            }
        }
    }))
}

/// Waits for CMD's end, and passes on what asks this process to end.
async fn wait(child: &mut Child, signals: &mut Signals) -> Result<ExitStatus> {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    loop {
        tokio::select! {
            status = child.wait() => return status.context("wait for the command"),
            signal = signals.next() => {
                let interrupt = signal == SignalKind::interrupt();
                // A terminal interrupts everybody in the foreground: CMD has had that one.
                if let Some(pid) = pid && !(interrupt && is_in_foreground()) {
                    // It may have just ended, which is noticed next.
                    let _ = rustix::process::kill_process(pid, if interrupt { Signal::INT } else { Signal::TERM });
                }
            }
        }
    }
}

fn is_in_foreground() -> bool {
    let own = rustix::process::getpgrp();
    [rustix::termios::tcgetpgrp(std::io::stdin()), rustix::termios::tcgetpgrp(std::io::stderr())].contains(&Ok(own))
}

/// As shells tell it: 128 and the signal, for a command that was killed.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(FAILED)
}

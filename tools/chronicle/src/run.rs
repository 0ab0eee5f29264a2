//! `holdfast run -- CMD`: a cluster for one command, removed when the command ends.
//!
//! The server runs in this process ([`Cluster`] is the binary's interface to it), on a free port of this machine. The
//! server uses a temporary data folder, so writes do not wait for the disk. CMD finds the cluster through `KUBECONFIG`,
//! like any client, and the exit code of CMD becomes the exit code of this process. With `--for-parent` there is no
//! CMD. Instead the program that started this process reads the address and the credentials of the cluster on standard
//! output, and the cluster runs as long as the program keeps standard input open. A failure before CMD runs gives
//! the exit code 125, as in `env` and `timeout`. If CMD cannot be run or is not found, the exit code is 126 or 127.

use crate::fork;
use crate::out;
use anyhow::{Context, Result, ensure};
use futures_util::FutureExt;
use holdfast_storage_rocks::check_new;
use holdfast_storage_rocks::folder::make_private;
use holdfast_value::json;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::task::Poll;
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind};

/// The exit code for a failure before CMD ran.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The maximum number of attempts to remove the folder. An attempt fails if the ending server still writes files.
const REMOVALS_MAX: usize = 100;
/// A folder on Linux whose files are in memory.
const MEMORY_FOLDER: &str = "/dev/shm";
/// The magic number of a file system whose files are in memory.
const TMPFS: i64 = 0x0102_1994;
/// The minimum number of free bytes in the folder in memory.
const MEMORY_BYTES_MIN: u64 = 1 << 30;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Begin with the state of the cluster in this data folder; its server may be running [default: an empty cluster].
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// The moment of the state in --from: a version (42), a time (2026-11-21T10:00:00Z), or how long ago (-15m)
    /// [default: now].
    #[arg(long, value_name = "MOMENT", requires = "from", allow_hyphen_values = true)]
    at: Option<String>,
    /// Keep the data folder, and print its path.
    #[arg(long)]
    keep: bool,
    /// For programs that start this program: run no command, print one line of JSON with the cluster's URL, kubeconfig
    /// and certificates, and stop when standard input is closed.
    #[arg(long, conflicts_with = "command")]
    for_parent: bool,
    /// The command and its arguments, after `--`. Its environment has KUBECONFIG, USE_EXISTING_CLUSTER, HOLDFAST_URL
    /// and HOLDFAST_DATA_DIR.
    #[arg(last = true, required_unless_present = "for_parent", value_name = "CMD")]
    command: Vec<OsString>,
}

/// A cluster that is not started yet.
pub trait Cluster {
    /// Serves this data folder, runs `work` once the cluster is ready, and stops the cluster when `work` is done. If
    /// `keep` is false, writes need not wait for the disk.
    fn serve(self, data: &Path, keep: bool, work: impl AsyncFnOnce(Access) -> Result<u8>) -> Result<u8>;
}

/// How clients reach a cluster: its URL and its kubeconfig.
pub struct Access {
    pub url: String,
    pub kubeconfig: PathBuf,
}

/// Runs the command against the cluster, in a temporary data folder or in `named`. Returns the exit code.
pub fn run(args: Args, named: Option<PathBuf>, cluster: impl Cluster) -> Result<u8> {
    let Args { from, at, keep, for_parent, command } = args;
    let mut caught = Caught::new()?;
    let parent = if from.is_some() || keep { std::env::temp_dir() } else { fleeting_folder() };
    let folder = DataFolder::make(named, &parent, keep)?;
    if let Some(from) = &from {
        fork::of_folder(from, at.as_deref(), &folder.path).context("fork")?;
    }
    let code = cluster.serve(&folder.path, keep, async |access| {
        if let Some(signal) = caught.received() {
            return Ok(128 + signal.as_raw() as u8);
        }
        if for_parent {
            return wait_for_parent(&access, &folder.path, &mut caught).await;
        }
        let mut child = match start(&command, &access, &folder.path)? {
            Ok(child) => child,
            Err(code) => return Ok(code),
        };
        Ok(code(wait(&mut child, &mut caught).await?))
    })?;
    folder.end();
    Ok(code)
}

/// The exit code of the process. Failures before CMD ran are reported first.
pub fn exit_code(outcome: Result<u8>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            out::print_error(&format!("holdfast run: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// The folder for an empty cluster that is not kept. The folder is in memory if there is room in memory and `TMPDIR` is
/// not set: even without syncs, creating and removing files on a disk waits for the disk.
fn fleeting_folder() -> PathBuf {
    let memory = Path::new(MEMORY_FOLDER);
    let has_room = || {
        let system = rustix::fs::statfs(memory).ok()?;
        let free = u64::try_from(system.f_bsize).ok()?.checked_mul(system.f_bavail)?;
        Some(system.f_type == TMPFS && free >= MEMORY_BYTES_MIN)
    };
    match std::env::var_os("TMPDIR").is_none() && has_room() == Some(true) {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// The data folder of the cluster. The folder is removed on drop, unless `keep` is set.
struct DataFolder {
    path: PathBuf,
    keep: bool,
}

impl DataFolder {
    fn make(named: Option<PathBuf>, parent: &Path, keep: bool) -> Result<DataFolder> {
        let path = match named {
            None => {
                let owner = Permissions::from_mode(0o700);
                let made = tempfile::Builder::new().prefix("holdfast-run-").permissions(owner).tempdir_in(parent);
                made.with_context(|| format!("make a temporary folder in {}", parent.display()))?.keep()
            }
            Some(named) => {
                check_new(&named)?;
                make_private(&named)?;
                std::path::absolute(&named).unwrap_or(named)
            }
        };
        Ok(DataFolder { path, keep })
    }

    fn end(self) {
        if self.keep {
            let shown = self.path.display();
            out::print_error(&format!(
                "holdfast run: the cluster is kept in {shown}; start it with: holdfast up --data-dir {shown}"
            ));
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
                    return out::print_error(&format!(
                        "holdfast run: {} could not be removed: {error}",
                        self.path.display()
                    ));
                }
                _ => return,
            }
        }
    }
}

/// Reports to the parent process how to reach the cluster, and waits until the parent closes standard input or ends.
async fn wait_for_parent(access: &Access, folder: &Path, caught: &mut Caught) -> Result<u8> {
    let certificates = fork::certificates(folder);
    let told = json!({
        "url": access.url,
        "kubeconfig": access.kubeconfig,
        "certificateAuthority": certificates.join("ca.crt"),
        "clientCertificate": certificates.join("admin.crt"),
        "clientKey": certificates.join("admin.key"),
        "dataDir": folder,
    });
    let mut output = std::io::stdout();
    // A parent that does not read this line has ended, which the end of standard input then shows.
    let _ = writeln!(output, "{told}").and_then(|()| output.flush());
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    // A thread that waits for input cannot be stopped. The thread need not be stopped, because it ends with the
    // process.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(ended);
    });
    tokio::select! {
        _ = end => Ok(0),
        signal = caught.next() => Ok(128 + signal.as_raw() as u8),
    }
}

/// Starts CMD, or returns the exit code if CMD cannot be started.
fn start(command: &[OsString], access: &Access, folder: &Path) -> Result<Result<Child, u8>> {
    let (name, arguments) = command.split_first().context("name a command")?;
    ensure!(!name.is_empty(), "name a command");
    let spawned = Command::new(name)
        .args(arguments)
        .env("KUBECONFIG", &access.kubeconfig)
        .env("USE_EXISTING_CLUSTER", "true")
        .env("HOLDFAST_URL", &access.url)
        .env("HOLDFAST_DATA_DIR", folder)
        .spawn();
    Ok(spawned.map_err(|error| {
        let shown = name.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                out::print_error(&format!("holdfast run: {shown}: there is no such command"));
                NOT_FOUND
            }
            _ => {
                out::print_error(&format!("holdfast run: {shown} cannot be run: {error}"));
                NOT_EXECUTABLE
            }
        }
    }))
}

/// Signals that ask this process to end. The process catches these signals before it makes files that it must remove.
struct Caught {
    listeners: [(Signal, tokio::signal::unix::Signal); 4],
    /// The runtime in which the listeners are created. No thread needs to run it.
    _runtime: Runtime,
}

impl Caught {
    fn new() -> Result<Caught> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let listen = |signal: Signal| {
            let listener = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok::<_, std::io::Error>((signal, listener))
        };
        let listeners = [listen(Signal::TERM)?, listen(Signal::INT)?, listen(Signal::HUP)?, listen(Signal::QUIT)?];
        drop(inside);
        Ok(Caught { listeners, _runtime: runtime })
    }

    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let mut come = self.listeners.iter_mut().filter_map(|(signal, listener)| {
                matches!(listener.poll_recv(context), Poll::Ready(Some(()))).then_some(*signal)
            });
            come.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// A signal that has already been received.
    fn received(&mut self) -> Option<Signal> {
        self.next().now_or_never()
    }
}

/// Waits for CMD's end, and forwards signals to CMD.
async fn wait(child: &mut Child, caught: &mut Caught) -> Result<ExitStatus> {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    loop {
        tokio::select! {
            status = child.wait() => return status.context("wait for the command"),
            signal = caught.next() => {
                // On Ctrl-C the terminal signals the whole foreground process group, so CMD has already received the
                // signal.
                let is_typed = matches!(signal, Signal::INT | Signal::QUIT) && is_in_foreground();
                if let Some(pid) = pid && !is_typed {
                    // CMD may have just ended, which the next iteration notices.
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
    }
}

fn is_in_foreground() -> bool {
    let own = rustix::process::getpgrp();
    [rustix::termios::tcgetpgrp(std::io::stdin()), rustix::termios::tcgetpgrp(std::io::stderr())].contains(&Ok(own))
}

/// The exit code as in shells: 128 plus the signal for a command that was killed.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(FAILED)
}

//! `holdfast fork`: a new, writable cluster that begins with the state of another cluster at some moment.
//!
//! The new data folder contains the log up to that moment, and the certificates and keys of the other cluster, so the
//! same credentials are valid in both clusters. The new log has another id, and does not accept continue tokens of the
//! other log.

use crate::files::{Readers, WriteMode, keep_others_out};
use crate::out;
use anyhow::{Context, Result, bail};
use holdfast_core::history::moment::{self, Moment};
use holdfast_engine::moment::{Unknown, resolve};
use holdfast_engine::{Fault, LogRead};
use holdfast_storage_rocks::folder::{check_entries, make_private};
use holdfast_storage_rocks::{FolderFault, Fork, RocksLog};
use holdfast_transport_http::forks::{self, Forked, Forker, Unmade};
use holdfast_value::{Value, json};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Args)]
#[group(id = "source", multiple = false, required = true)]
pub struct Source {
    /// Data folder of the cluster, on this machine. Its server may be running.
    #[arg(long, value_name = "DIR", group = "source")]
    from: Option<PathBuf>,
    /// Let the running server that KUBECONFIG names make the fork, in a folder on that server's machine.
    #[arg(long, group = "source")]
    server: bool,
}

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// The moment of the fork: a version (42), a time (2026-11-21T10:00:00Z), or how long ago (-15m) [default: now].
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    at: Option<String>,
    /// The new data folder; it must be empty or not exist.
    #[arg(long, value_name = "NEW")]
    data_dir: PathBuf,
    /// With --server: the kubeconfig to use instead of KUBECONFIG.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    kubeconfig: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    keep_others_out();
    let at = args.at.as_deref();
    let Forked { id, version } = match &args.source.from {
        Some(from) => of_folder(from, at, &args.data_dir)?,
        None => by_server(args, at)?,
    };
    let shown = args.data_dir.display();
    // The fork is complete, even if writing this message fails.
    let told =
        format!("{shown} is log {id} from version {version} on\nstart it with: holdfast up --data-dir {shown}\n");
    _ = out::text(&told);
    Ok(())
}

/// Forks a data folder on this machine, whether a server uses it or not.
pub fn of_folder(from: &Path, at: Option<&str>, to: &Path) -> Result<Forked> {
    let at = at.map(|at| moment::parse(at, jiff::Timestamp::now())).transpose()?;
    let fork = Fork::of_folder(from, to)?;
    let version = version(fork.log(), at)?;
    complete(fork, version, from, to)
}

fn version(log: &dyn LogRead, at: Option<Moment>) -> Result<holdfast_core::event::Offset, Unknown> {
    match at {
        None => Ok(log.last()?),
        Some(moment) => resolve(log, moment),
    }
}

fn complete(fork: Fork, version: holdfast_core::event::Offset, from: &Path, to: &Path) -> Result<Forked> {
    copy_certificates(from, to)?;
    let holdfast_storage_rocks::Forked { id, version } = fork.finish(version)?;
    Ok(Forked { id, version })
}

/// The folder of a cluster's keys and certificates.
pub fn certificates(data: &Path) -> PathBuf {
    data.join("pki")
}

/// Copies the keys and certificates, if `holdfast up` made some.
fn copy_certificates(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (certificates(from), certificates(to));
    if !from.exists() {
        return Ok(());
    }
    let copied = (|| {
        check_entries(&from)?;
        make_private(&to)?;
        for entry in std::fs::read_dir(&from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_file() {
                let is_certificate = target.extension().is_some_and(|extension| extension == "crt");
                let readers = if is_certificate { Readers::Everybody } else { Readers::Owner };
                WriteMode::Synced.file(&target, &std::fs::read_to_string(entry.path())?, readers)?;
            }
        }
        Ok::<_, anyhow::Error>(std::fs::File::open(&to)?.sync_all()?)
    })();
    copied.with_context(|| format!("copy the certificates and keys in {}", from.display()))
}

/// Forks the log of a server that runs in this process, for requests to this server.
pub struct ForkHere {
    pub log: Arc<RocksLog>,
    pub data_dir: PathBuf,
}

impl Forker for ForkHere {
    fn fork(&self, at: Option<Moment>, folder: &Path) -> Result<Forked, Unmade> {
        let unmade = |fault| match fault {
            FolderFault::Log(Fault::Unreadable { what }) => Unmade::Folder(what),
            occupied @ FolderFault::Occupied { .. } => Unmade::Folder(occupied.to_string()),
            fault => Unmade::Failed(fault.to_string()),
        };
        // The moment is checked before files are linked, because a wrong moment is the most common error.
        let version = version(self.log.as_ref(), at).map_err(Unmade::Moment)?;
        let fork = Fork::of_log(&self.log, folder).map_err(unmade)?;
        complete(fork, version, &self.data_dir, folder).map_err(|error| Unmade::Failed(format!("{error:#}")))
    }
}

/// Asks a running server to make the fork.
fn by_server(args: &Args, at: Option<&str>) -> Result<Forked> {
    let folder = std::path::absolute(&args.data_dir).context("find the new folder")?;
    let mut wanted = json!({"folder": folder});
    if let Some(at) = at {
        wanted["at"] = at.into();
    }
    crate::runtime()?.block_on(async {
        let config = match &args.kubeconfig {
            None => kube::Config::infer().await.context("find a server: set KUBECONFIG, or give --kubeconfig")?,
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("read {}", file.display()))?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
        };
        let server = config.cluster_url.clone();
        let client = kube::Client::try_from(config)?;
        let request = http::Request::post(forks::PATH)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(wanted.to_string().into_bytes())?;
        let made: Value = match client.request(request).await {
            Ok(made) => made,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                bail!("{server} makes no forks: it is not a Holdfast server, or an older one")
            }
            Err(kube::Error::Api(status)) => bail!("{server} refuses: {}", status.message),
            Err(error) => return Err(error).with_context(|| format!("ask {server} for a fork")),
        };
        let id = made["id"].as_str().unwrap_or_default().to_owned();
        let version = made["version"].as_u64().context("the answer is not that of a Holdfast server")?;
        Ok(Forked { id, version: holdfast_core::event::Offset(version) })
    })
}

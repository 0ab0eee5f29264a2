//! `holdfast migrate`: moves all objects between data folders and etcd.

use crate::etcd_options::EtcdArgs;
use crate::on_etcd::judged;
use anyhow::{Context, Result, anyhow, bail};
use holdfast_chronicle::encryption::EncryptionArgs;
use holdfast_component::values::parse_duration;
use holdfast_core::kinds::offered::NEWEST;
use holdfast_core::visible;
use holdfast_encryption::Keyring;
use holdfast_engine::log::sealing::Values;
use holdfast_storage_etcd::client::{Etcd, Transactions};
use holdfast_storage_etcd::grpc::{Address, Cluster};
use holdfast_storage_etcd::migrate::{
    self, FromEtcd, FromFolder, MigrationOptions, MigrationProgress, Source, Stopped, Storage, Summary, ToEtcd,
    ToFolder,
};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// The source: a data folder, or the URLs of an etcd's members, http://HOST:PORT. No server may run on it.
    #[arg(long, value_name = "DIR|URLS")]
    from: Store,
    /// The target: a new data folder, or the URLs of an etcd's members. It must be empty, or contain an interrupted
    /// migration from the same source, which is continued.
    #[arg(long, value_name = "DIR|URLS")]
    to: Store,
    /// Read and convert all objects, print which would be moved and which cannot be read, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Leave out objects that cannot be read, and list them in the output.
    #[arg(long)]
    skip_unreadable: bool,
    /// Prefix of all keys in etcd [default: /registry].
    #[arg(long, value_name = "PREFIX")]
    etcd_prefix: Option<String>,
    /// CA certificates for etcd's members [default: the CA certificates of the machine].
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, requires = "etcd_keyfile", value_name = "FILE")]
    etcd_certfile: Option<PathBuf>,
    /// Private key of the certificate in --etcd-certfile.
    #[arg(long, requires = "etcd_certfile", value_name = "FILE")]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in the etcd of --to, if it differs from --etcd-prefix.
    #[arg(long, value_name = "PREFIX")]
    to_etcd_prefix: Option<String>,
    /// CA certificates for the members of the etcd of --to, if they differ from --etcd-cafile.
    #[arg(long, value_name = "FILE")]
    to_etcd_cafile: Option<PathBuf>,
    /// Client certificate for the etcd of --to, if it differs from --etcd-certfile.
    #[arg(long, requires = "to_etcd_keyfile", value_name = "FILE")]
    to_etcd_certfile: Option<PathBuf>,
    /// Private key of the certificate in --to-etcd-certfile.
    #[arg(long, requires = "to_etcd_certfile", value_name = "FILE")]
    to_etcd_keyfile: Option<PathBuf>,
    /// Encoding of built-in objects in etcd: application/json, application/yaml or application/vnd.kubernetes.protobuf
    /// [default: application/vnd.kubernetes.protobuf].
    #[arg(long, value_name = "TYPE")]
    storage_media_type: Option<String>,
    /// How long Events are kept in the etcd of --to from now on; 0 keeps them for ever.
    #[arg(long, default_value = "1h0m0s", value_parser = parse_duration, value_name = "DURATION")]
    event_ttl: Duration,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

/// A store of objects, which is the source or the target of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Store {
    Folder(PathBuf),
    Etcd(Vec<Address>),
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Store, String> {
        if text.is_empty() {
            return Err("it names neither a folder nor an etcd".into());
        }
        if !text.contains("://") {
            return Ok(Store::Folder(text.into()));
        }
        let members = text.split(',').map(|member| Address::parse(member).map_err(|why| why.to_string()));
        members.collect::<Result<_, _>>().map(Store::Etcd)
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Store::Folder(folder) => write!(f, "{}", folder.display()),
            Store::Etcd(members) => {
                let members: Vec<String> = members.iter().map(Address::to_string).collect();
                f.write_str(&members.join(","))
            }
        }
    }
}

impl Args {
    fn source_options(&self) -> EtcdArgs {
        EtcdArgs {
            etcd_prefix: self.etcd_prefix.clone(),
            etcd_cafile: self.etcd_cafile.clone(),
            etcd_certfile: self.etcd_certfile.clone(),
            etcd_keyfile: self.etcd_keyfile.clone(),
            storage_media_type: self.storage_media_type.clone(),
            ..EtcdArgs::default()
        }
    }

    fn target_options(&self) -> EtcdArgs {
        let given = self.source_options();
        EtcdArgs {
            etcd_prefix: self.to_etcd_prefix.clone().or(given.etcd_prefix),
            etcd_cafile: self.to_etcd_cafile.clone().or(given.etcd_cafile),
            etcd_certfile: self.to_etcd_certfile.clone().or(given.etcd_certfile),
            etcd_keyfile: self.to_etcd_keyfile.clone().or(given.etcd_keyfile),
            ..given
        }
    }

    /// The encryption keys of values in etcd; `None` without an encryption configuration: then values are moved without
    /// decryption.
    fn keyring(&self) -> Result<Option<Arc<Keyring>>> {
        if self.encryption.is_given() { Ok(Some(self.encryption.keyring()?)) } else { Ok(None) }
    }

    fn values(&self) -> Result<Box<dyn Values + Sync>> {
        Ok(Box::new(self.encryption.values()?))
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut source = source(args).with_context(|| format!("--from={}", args.from))?;
    let how = MigrationOptions { is_dry: args.dry_run, skips: args.skip_unreadable };
    let mut shown = Shown::new();
    let mut tell = |told: MigrationProgress<'_>| shown.tell(&told);
    let moved = match &args.to {
        Store::Folder(folder) => {
            let values = if args.encryption.is_given() { Some(args.values()?) } else { None };
            migrate::run(source.as_mut(), &mut ToFolder::new(folder, values), how, &mut tell)
        }
        Store::Etcd(members) => {
            let mut target = target(args, members).with_context(|| format!("--to={}", args.to))?;
            migrate::run(source.as_mut(), &mut target, how, &mut tell)
        }
    };
    drop(shown);
    let summary = moved.map_err(told)?;
    let done = conclusion(args, &summary);
    println!("{}", visible::lines(&done));
    if how.is_dry && summary.unreadable > 0 {
        bail!("{} objects cannot be moved", summary.unreadable);
    }
    Ok(())
}

fn source(args: &Args) -> Result<Box<dyn Source>> {
    match &args.from {
        Store::Folder(folder) => Ok(Box::new(FromFolder::open(folder, args.values()?).map_err(told)?)),
        Store::Etcd(members) => {
            let options = args.source_options();
            let (etcd, prefix) = connected(members, &options)?;
            Ok(Box::new(FromEtcd::open(etcd, &prefix, args.keyring()?).map_err(told)?))
        }
    }
}

fn target(args: &Args, members: &[Address]) -> Result<ToEtcd> {
    let options = args.target_options();
    let storage = Storage {
        media: options.media().map_err(|why| anyhow!(why))?,
        release: NEWEST,
        news_ttl: Some(args.event_ttl).filter(|ttl| !ttl.is_zero()),
    };
    let (etcd, prefix) = connected(members, &options)?;
    // Each batch also compares the migration's note in etcd, in the same transaction as its writes.
    if Transactions::of(etcd.as_ref(), &prefix)? == Transactions::Plain {
        bail!("the store takes only Kubernetes' own transactions, and a migration needs comparisons of several keys");
    }
    Ok(ToEtcd::new(etcd, &args.to.to_string(), &prefix, storage, args.keyring()?))
}

fn connected(members: &[Address], options: &EtcdArgs) -> Result<(Arc<dyn Etcd>, String)> {
    let prefix = options.prefix().map_err(|why| anyhow!(why))?;
    let cluster = Cluster::new(members.to_vec(), Some(options.tls()?)).context("start the client of etcd")?;
    judged(&cluster)?;
    Ok((Arc::new(cluster), prefix))
}

/// The fault of the log or of the folder that stopped the migration, so that [`crate::advice`] finds advice for it. Any
/// other error stays as it is.
fn told(stopped: Stopped) -> anyhow::Error {
    match stopped {
        Stopped::Log(fault) => fault.into(),
        Stopped::Folder(fault) => fault.into(),
        other => other.into(),
    }
}

/// The result of the migration, or of its dry run, for the operator.
fn conclusion(args: &Args, summary: &Summary) -> String {
    let Summary { moved, unreadable, source_version, target_version } = summary;
    let mut lines: Vec<String> = moved.iter().map(|(resource, count)| format!("{count:>9} {resource}")).collect();
    let (objects, from, to) = (summary.objects(), &args.from, &args.to);
    if args.dry_run {
        lines.push(format!("{objects} objects would be moved from {from} to {to}, as of version {source_version}"));
        return lines.join("\n");
    }
    lines.push(format!("{objects} objects were moved from {from} to {to}, as of version {source_version}"));
    if *unreadable > 0 {
        lines.push(format!("{unreadable} objects were left out"));
    }
    lines.push(match args.to {
        Store::Folder(_) => {
            "They have their versions; the log begins with them, and watches from before are refused".into()
        }
        Store::Etcd(_) if target_version > source_version => format!(
            "etcd gave them new versions, up to {target_version}: none is lower than it was, and clients list again"
        ),
        Store::Etcd(_) => format!(
            "etcd gave them new versions, up to {target_version}, which are lower than they were: restart all clients \
             that watch, or move into an etcd that `etcdutl snapshot restore --bump-revision` has raised"
        ),
    });
    lines.join("\n")
}

const ON_A_TERMINAL: Duration = Duration::from_millis(200);
const IN_A_FILE: Duration = Duration::from_secs(10);

/// Shows the progress on standard error: on a terminal as a line that is overwritten, elsewhere as a new line from time
/// to time.
struct Shown {
    is_terminal: bool,
    began: Instant,
    last: Option<Instant>,
}

impl Shown {
    fn new() -> Shown {
        Shown { is_terminal: std::io::stderr().is_terminal(), began: Instant::now(), last: None }
    }

    fn tell(&mut self, told: &MigrationProgress<'_>) {
        match told {
            MigrationProgress::GoesOn => self.line("the migration goes on where it was interrupted"),
            MigrationProgress::Unreadable(cause) => self.line(&format!("left out: {cause}")),
            MigrationProgress::At { objects, part } => {
                let period = if self.is_terminal { ON_A_TERMINAL } else { IN_A_FILE };
                if self.last.is_some_and(|last| last.elapsed() < period) {
                    return;
                }
                self.last = Some(Instant::now());
                let seconds = self.began.elapsed().as_secs();
                let line = format!("{:3.0} %, {objects} objects, {seconds} s", part * 100.0);
                match self.is_terminal {
                    true => write(&format!("\r\x1b[K{line}")),
                    false => write(&format!("{line}\n")),
                }
            }
        }
    }

    fn line(&self, line: &str) {
        let begin = if self.is_terminal { "\r\x1b[K" } else { "" };
        write(&format!("{begin}{}\n", visible::line(line)));
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.is_terminal {
            write("\r\x1b[K");
        }
    }
}

/// A failure is ignored: there is nowhere left to report it.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_folder_or_addresses() {
        for folder in ["./data", "/var/lib/holdfast", "data"] {
            assert_eq!(folder.parse(), Ok(Store::Folder(folder.into())));
        }
        let etcd: Store = "http://a:1,https://b:2".parse().expect("an etcd");
        assert_eq!(etcd.to_string(), "http://a:1,https://b:2");
        for wrong in ["", "ftp://a:1", "http://a:1,./data"] {
            assert!(wrong.parse::<Store>().is_err(), "{wrong}");
        }
    }
}

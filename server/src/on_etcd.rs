//! Opens the log on etcd.

use crate::etcd_options::addresses;
use crate::etcd_upkeep::Upkeep;
use crate::flags::Args;
use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_component::options::joined;
use holdfast_core::etcd::Keys;
use holdfast_storage_etcd::client::Etcd;
use holdfast_storage_etcd::grpc::Cluster;
use holdfast_storage_etcd::releases::{self, Judged};
use holdfast_storage_etcd::{EtcdLog, Parts, Storing};
use holdfast_storage_rocks::RocksLog;
use std::sync::Arc;

/// An etcd whose members answered. Connecting comes before anything is opened on this machine.
pub struct Connected {
    upkeep: Upkeep,
    tells_progress: bool,
}

/// Connects to the members of `--etcd-servers`, and checks their releases.
pub fn connect(args: &Args) -> Result<Connected> {
    ensure!(!args.encryption.is_asked_for(), "--encryption-provider-config is not built for a log on etcd");
    let members = addresses(&args.etcd_servers).map_err(|faults| anyhow!(joined(&faults)))?;
    let prefix = args.etcd.prefix().map_err(|why| anyhow!(why))?;
    let cluster = Cluster::new(members, Some(args.etcd.tls()?)).context("start the client of etcd")?;
    let upkeep = Upkeep::new(Arc::new(cluster), Keys::new(&prefix), args.etcd.clone());
    let tells_progress = judged(upkeep.etcd().as_ref()).with_context(|| named(args))?;
    Ok(Connected { upkeep, tells_progress })
}

/// Opens the log on etcd, with `local` as its copy of the events, and returns it with the server's other work on etcd.
pub fn open(args: &Args, connected: Connected, local: Arc<RocksLog>) -> Result<(Arc<EtcdLog>, Upkeep)> {
    let Connected { upkeep, tells_progress } = connected;
    let (_, releases) = args.offered.offer().map_err(|faults| anyhow!(joined(&faults)))?;
    let storing = Storing {
        media: args.etcd.media().map_err(|why| anyhow!(why))?,
        // Every server of this cluster can read what the release after the oldest compatible one stores.
        release: releases.min_compatible + 1,
        news_ttl: Some(args.event_ttl).filter(|ttl| !ttl.is_zero()),
        lease_reuse: args.etcd.lease_reuse(),
    };
    let prefix = args.etcd.prefix().map_err(|why| anyhow!(why))?;
    let accepts_restored = args.etcd.etcd_accept_restored;
    let parts = Parts { etcd: upkeep.etcd(), local, prefix, storing, tells_progress, accepts_restored };
    let log = EtcdLog::open(parts).with_context(|| named(args))?;
    Ok((Arc::new(log), upkeep))
}

fn named(args: &Args) -> String {
    format!("--etcd-servers={}", args.etcd_servers.join(","))
}

/// Whether the progress notifications of all members can be trusted. Members with a bug that no precaution helps
/// against are refused. A member that does not answer may have such a bug, so progress is not trusted then.
pub fn judged(etcd: &dyn Etcd) -> Result<bool> {
    let (mut versions, mut silent) = (Vec::new(), Vec::new());
    for (address, status) in etcd.status() {
        match status {
            Ok(status) => versions.push((address, status.version)),
            Err(why) => silent.push(format!("{address}: {why}")),
        }
    }
    if versions.is_empty() {
        bail!("no member answers: {}", silent.join("; "));
    }
    silent.iter().for_each(|why| tracing::warn!("a member of etcd does not answer: {why}"));
    let members = versions.iter().map(|(address, version)| (address.as_str(), version.as_str()));
    let Judged { refused, warned, tells_progress } = releases::judge(members);
    warned.iter().for_each(|why| tracing::warn!("{why}"));
    if !refused.is_empty() {
        bail!("{}", refused.join("; "));
    }
    Ok(tells_progress && silent.is_empty())
}

//! Opens the log on etcd.

use crate::flags::Args;
use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_component::options::joined;
use holdfast_core::etcd::Media;
use holdfast_storage_etcd::grpc::{Address, Cluster};
use holdfast_storage_etcd::{EtcdLog, Parts, Storing};
use holdfast_storage_rocks::RocksLog;
use std::sync::Arc;

/// Kubernetes' own.
const PREFIX: &str = "/registry";

/// The log at `--etcd-servers`, which keeps its events in the local one.
pub fn open(args: &Args, local: Arc<RocksLog>) -> Result<Arc<EtcdLog>> {
    ensure!(!args.encryption.is_asked_for(), "--encryption-provider-config is not built for a log on etcd");
    let addresses = addresses(&args.etcd_servers)?;
    let shown = args.etcd_servers.join(",");
    let (_, releases) = args.offered.offer().map_err(|faults| anyhow!(joined(&faults)))?;
    let parts = Parts {
        etcd: Arc::new(Cluster::new(addresses, None).context("start the client of etcd")?),
        local,
        prefix: PREFIX.to_owned(),
        // Of what the release before stores every server beside this one can read all.
        storing: Storing { media: Media::default(), release: releases.min_compatible + 1 },
    };
    let log = EtcdLog::open(parts).with_context(|| format!("--etcd-servers={shown}"))?;
    Ok(Arc::new(log))
}

fn addresses(servers: &[String]) -> Result<Vec<Address>> {
    let mut addresses = Vec::new();
    for server in servers {
        let address = Address::parse(server).map_err(|why| anyhow!("--etcd-servers: {why}"))?;
        if address.is_https() {
            bail!("--etcd-servers={server}: https is not built for a log on etcd");
        }
        addresses.push(address);
    }
    Ok(addresses)
}

//! Opens the log on etcd.

use crate::encryption::open_patiently;
use crate::etcd_options::addresses;
use crate::etcd_options::overrides::{self, Override};
use crate::etcd_upkeep::Upkeep;
use crate::flags::Args;
use crate::host::host_name;
use anyhow::{Context, Result, anyhow, bail};
use holdfast_component::options::joined;
use holdfast_core::etcd::Keys;
use holdfast_encryption::Live;
use holdfast_engine::{Apart, LogRead};
use holdfast_storage_etcd::claims::Allocations;
use holdfast_storage_etcd::client::Etcd;
use holdfast_storage_etcd::first;
use holdfast_storage_etcd::grpc::{Address, Cluster};
use holdfast_storage_etcd::option_comparison::OptionComparison;
use holdfast_storage_etcd::releases::{self, Judged};
use holdfast_storage_etcd::{EtcdLog, Kinds, Parts, Storing, Transactions};
use holdfast_storage_rocks::{Durability, Reserve, RocksLog};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The folder below the data folder that has the copies of the events of each override.
const OVERRIDES: &str = "overrides";

/// The transactions that a store supports, and whether the progress notifications of all members can be trusted.
type Abilities = (Transactions, bool);

/// The etcds whose members answered. A server connects before it opens anything on its own disk.
pub struct Connected {
    upkeep: Upkeep,
    tells_progress: bool,
    transactions: Transactions,
    overrides: Vec<(Override, Abilities)>,
}

/// The logs on etcd, and the server's other work on etcd.
pub struct OnEtcd {
    pub log: Arc<EtcdLog>,
    /// Logs of kinds whose objects are in an etcd of their own.
    pub parts: Vec<Apart>,
    pub upkeep: Upkeep,
}

impl Connected {
    /// The value that the first server of the cluster wrote for all servers.
    pub fn cluster(&self) -> first::Cluster<'_> {
        self.upkeep.first()
    }
}

/// Connects to the members of `--etcd-servers` and of the overrides, and checks their releases; `None` without
/// `--etcd-servers`.
pub fn connect(args: &Args) -> Result<Option<Connected>> {
    if args.storage.etcd_servers.is_empty() {
        return Ok(None);
    }
    let members = addresses(&args.storage.etcd_servers).map_err(|faults| anyhow!(joined(&faults)))?;
    let prefix = args.storage.etcd.prefix().map_err(|why| anyhow!(why))?;
    let mut upkeep = Upkeep::new(client(args, members)?, Keys::new(&prefix), args.storage.etcd.clone());
    let (transactions, tells_progress) = asked(args, upkeep.etcd().as_ref(), &prefix).with_context(|| named(args))?;
    let read = overrides::read(&args.storage.etcd.etcd_servers_overrides, &args.storage.etcd_servers);
    let mut overrides = Vec::new();
    for one in read.map_err(|faults| anyhow!(joined(&faults)))? {
        let (etcd, members) = client(args, one.members.clone())?;
        let found = asked(args, etcd.as_ref(), &prefix).with_context(|| one.option.clone())?;
        upkeep.add((etcd, members));
        overrides.push((one, found));
    }
    Ok(Some(Connected { upkeep, tells_progress, transactions, overrides }))
}

/// Asks a store for its transactions, and whether the progress notifications of all members can be trusted.
fn asked(args: &Args, etcd: &dyn Etcd, prefix: &str) -> Result<Abilities> {
    let answered = versions(etcd)?;
    let transactions = match args.storage.etcd.transactions().map_err(|why| anyhow!(why))? {
        Some(transactions) => transactions,
        None => Transactions::of(etcd, prefix)?,
    };
    if transactions == Transactions::Plain {
        tracing::info!(
            "the store is used with transactions of one key: users are recorded for this server's own writes only; for \
             writes of other servers, managed fields tell who made them"
        );
    }
    Ok((transactions, verdict(&answered, transactions)?))
}

/// A client, and the number of members.
fn client(args: &Args, members: Vec<Address>) -> Result<(Arc<dyn Etcd>, usize)> {
    let count = members.len();
    let cluster = Cluster::new(members, Some(args.storage.etcd.tls()?)).context("start the client of etcd")?;
    Ok((Arc::new(cluster), count))
}

/// Opens the logs on etcd, with `local` as the copy of the main log's events.
pub fn open(args: &Args, connected: Connected, local: Arc<RocksLog>, keys: &Arc<Live>) -> Result<OnEtcd> {
    let Connected { upkeep, tells_progress, transactions, overrides } = connected;
    let (_, releases) = args.offered.offer().map_err(|faults| anyhow!(joined(&faults)))?;
    let storing = Storing {
        media: args.storage.etcd.media().map_err(|why| anyhow!(why))?,
        // Every server of this cluster can read objects in the versions of the release after the oldest compatible
        // release.
        release: releases.min_compatible + 1,
        news_ttl: Some(args.objects.event_ttl).filter(|ttl| !ttl.is_zero()),
        lease_reuse: args.storage.etcd.lease_reuse(),
    };
    let prefix = args.storage.etcd.prefix().map_err(|why| anyhow!(why))?;
    let server = local.identity()?.id.unwrap_or_default();
    let (address, options) = (shown_as(args), shared_options(args));
    let alike = OptionComparison::new(upkeep.etcd(), (&prefix, transactions), &server, &address, options, keys.clone());
    let upkeep = upkeep.beside(alike).with_context(|| named(args))?;
    let claims = Arc::new(Allocations::new(
        upkeep.etcd(),
        &prefix,
        (storing.media, storing.release),
        args.services.service_node_port_range,
        keys.clone(),
    ));
    let upkeep = upkeep.with_claims(claims.clone());
    let elsewhere: Vec<String> = overrides.iter().flat_map(|(one, _)| one.places()).collect();
    let kinds = if elsewhere.is_empty() { Kinds::All } else { Kinds::Except(elsewhere) };
    let (etcd, claims, keys) = (upkeep.etcd(), Some(claims), keys.clone());
    let accepts_restored = args.storage.etcd.etcd_accept_restored;
    let main =
        Parts { etcd, local, prefix, kinds, storing, transactions, claims, keys, tells_progress, accepts_restored };
    let open = |parts: &Parts| open_patiently(|| EtcdLog::open(parts.clone())).map(Arc::new);
    let log = open(&main).with_context(|| named(args))?;
    let mut parts: Vec<Apart> = Vec::with_capacity(overrides.len());
    for ((one, (transactions, tells_progress)), etcd) in overrides.into_iter().zip(upkeep.others()) {
        let folder = args.storage.data_dir().join(OVERRIDES).join(one.folder());
        // Only the main log has a reserve on the disk.
        let local = Arc::new(RocksLog::open_with(&folder, Durability::Unsynced, Reserve::Bytes(0))?);
        let kinds = Kinds::Only(one.places());
        let of_override = Parts { etcd, local, kinds, transactions, claims: None, tells_progress, ..main.clone() };
        let in_folder = || format!("{}, with its events in {}", one.option, folder.display());
        let log = open(&of_override).with_context(in_folder)?;
        parts.push(Apart { kinds: one.kinds.clone(), sealing: Some(log.clone()), log });
    }
    let upkeep = upkeep.with_strays(log.strays());
    Ok(OnEtcd { log, parts, upkeep })
}

/// The options that must be the same on all servers.
fn shared_options(args: &Args) -> BTreeMap<&'static str, String> {
    let (first, last) = args.services.service_node_port_range;
    BTreeMap::from([
        ("--service-cluster-ip-range", args.services.service_cluster_ip_range.to_string()),
        ("--service-node-port-range", format!("{first}-{last}")),
    ])
}

/// This server's name in errors of other servers.
fn shown_as(args: &Args) -> String {
    args.network.advertise_address.map_or_else(host_name, |address| address.to_string())
}

/// The option that names the members, for errors.
pub fn named(args: &Args) -> String {
    format!("--etcd-servers={}", args.storage.etcd_servers.join(","))
}

/// The members' versions by their addresses, and whether all of them answered.
struct Answered {
    versions: Vec<(String, String)>,
    all: bool,
}

/// Asks all members for their versions; at least one must answer.
fn versions(etcd: &dyn Etcd) -> Result<Answered> {
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
    Ok(Answered { versions, all: silent.is_empty() })
}

/// Whether the progress notifications of all members can be trusted. Fails if a member has a bug that no precaution
/// helps against. While a member does not answer, progress notifications are not trusted, because this member may have
/// a bug in them.
pub fn judged(etcd: &dyn Etcd) -> Result<bool> {
    verdict(&versions(etcd)?, Transactions::Full)
}

/// Judges the members. A store other than etcd has none of etcd's bugs, even if it reports an affected version.
fn verdict(Answered { versions, all }: &Answered, transactions: Transactions) -> Result<bool> {
    let members = versions.iter().map(|(address, version)| (address.as_str(), version.as_str()));
    let Judged { refused, warned, tells_progress } = releases::judge(members);
    if transactions == Transactions::Full {
        warned.iter().for_each(|why| tracing::warn!("{why}"));
        if !refused.is_empty() {
            bail!("{}", refused.join("; "));
        }
    }
    Ok(tells_progress && *all)
}

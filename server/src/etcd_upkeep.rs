//! The work of a server on etcd besides reads and writes: it compacts old revisions, announces itself to other servers,
//! and reports etcd's health in checks and metrics.

use crate::etcd_options::EtcdArgs;
use crate::etcd_repair;
use anyhow::{Result, anyhow, ensure};
use futures_util::future::{BoxFuture, FutureExt};
use holdfast_core::etcd::Keys;
use holdfast_core::kinds::{records, registry};
use holdfast_core::pipeline::PortsElsewhere;
use holdfast_service::housekeeping::presence;
use holdfast_service::{Meter, Service};
use holdfast_storage_etcd::claims::Allocations;
use holdfast_storage_etcd::client::Etcd;
use holdfast_storage_etcd::compaction::{Compactor, Round};
use holdfast_storage_etcd::first;
use holdfast_storage_etcd::health::{self, Probe, ProbeTurn};
use holdfast_storage_etcd::measured::Measured;
use holdfast_storage_etcd::option_comparison::{self, OptionComparison};
use holdfast_storage_etcd::servers::Servers;
use holdfast_storage_etcd::strays::Strays;
use holdfast_transport_http::HealthCheck;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// This server's etcd client and its options.
pub struct Upkeep {
    etcd: Arc<Measured>,
    /// The etcds of `--etcd-servers-overrides`.
    others: Vec<Arc<Measured>>,
    /// The total number of members of `etcd` and `others`.
    members: usize,
    keys: Keys,
    options: EtcdArgs,
    alike: Option<Arc<OptionComparison>>,
    began: Instant,
    claims: Option<Arc<Allocations>>,
    strays: Option<Arc<Strays>>,
    /// Whether this server repairs the records of addresses and node ports. Only the first of the running servers, in
    /// the order of their addresses, repairs them.
    is_first: Arc<AtomicBool>,
}

impl Upkeep {
    /// All requests of the server to etcd must go through [`Self::etcd`], which measures them.
    pub fn new((etcd, members): (Arc<dyn Etcd>, usize), keys: Keys, options: EtcdArgs) -> Upkeep {
        let named = keys.clone();
        let etcd = Arc::new(Measured::new(etcd, Box::new(move |key| label(&named, key))));
        let is_first = Arc::new(AtomicBool::new(true));
        let (others, began) = (Vec::new(), Instant::now());
        Upkeep { etcd, others, members, keys, options, alike: None, began, claims: None, strays: None, is_first }
    }

    pub fn with_claims(self, claims: Arc<Allocations>) -> Upkeep {
        Upkeep { claims: Some(claims), ..self }
    }

    pub fn with_strays(self, strays: Arc<Strays>) -> Upkeep {
        Upkeep { strays: Some(strays), ..self }
    }

    /// The node ports that servers on this etcd have reserved.
    pub fn ports(&self) -> PortsElsewhere {
        let claims = self.claims.clone();
        PortsElsewhere::new(Arc::new(move |port| claims.as_ref().is_some_and(|claims| claims.has_port(port))))
    }

    /// Publishes this server's options for the other servers. Fails if a running server has different options.
    pub fn beside(self, alike: OptionComparison) -> Result<Upkeep> {
        let differences =
            alike.differences().map_err(|why| anyhow!("cannot read the options of other servers: {why}"))?;
        ensure!(
            differences.is_empty(),
            "{}. This server does not start beside the other one, which counts for 15 s after it was killed",
            differences.join("; ")
        );
        alike
            .announce(self.began.elapsed())
            .map_err(|why| anyhow!("cannot publish the options for other servers: {why}"))?;
        Ok(Upkeep { alike: Some(Arc::new(alike)), ..self })
    }

    /// Removes this server's options from etcd, because the server ends.
    pub async fn withdraw(&self) {
        let Some(alike) = self.alike.clone() else { return };
        let withdrawn = tokio::task::spawn_blocking(move || alike.withdraw()).await;
        if let Ok(Err(why)) = withdrawn {
            tracing::warn!(%why, "other servers compare their options with this one's for some seconds more");
        }
    }

    /// Adds the etcd of an override.
    pub fn add(&mut self, (etcd, members): (Arc<dyn Etcd>, usize)) {
        let named = self.keys.clone();
        let other = self.etcd.beside(etcd, Box::new(move |key| label(&named, key)), self.members);
        self.others.push(Arc::new(other));
        self.members += members;
    }

    /// The etcds of overrides, in the order in which they were added.
    pub fn others(&self) -> Vec<Arc<dyn Etcd>> {
        self.others.iter().map(|other| other.clone() as Arc<dyn Etcd>).collect()
    }

    pub fn etcd(&self) -> Arc<dyn Etcd> {
        self.etcd.clone()
    }

    /// The value that the first server of the cluster wrote for all servers.
    pub fn first(&self) -> first::Cluster<'_> {
        first::Cluster::new(self.etcd.as_ref(), self.keys.root())
    }

    pub fn checks(&self) -> Vec<Arc<dyn HealthCheck>> {
        let [health, readiness] = self.options.check_timeouts();
        let check = |name: String, timeout, etcd: Arc<dyn Etcd>| {
            let (probe, keys) = (Arc::new(Probe::new(timeout)), self.keys.clone());
            Arc::new(Check { name, probe, etcd, keys, began: self.began }) as Arc<dyn HealthCheck>
        };
        let mut checks =
            vec![check("etcd".into(), health, self.etcd()), check("etcd-readiness".into(), readiness, self.etcd())];
        for (nth, etcd) in self.others().into_iter().enumerate() {
            checks.push(check(format!("etcd-override-{nth}"), health, etcd.clone()));
            checks.push(check(format!("etcd-override-readiness-{nth}"), readiness, etcd));
        }
        checks
    }

    pub fn meter(&self) -> Meter {
        let (etcd, strays) = (self.etcd.clone(), self.strays.clone());
        Arc::new(move || etcd.text() + &strays.as_ref().map(|strays| strays.text()).unwrap_or_default())
    }

    /// The registry in which servers announce themselves to each other.
    pub fn servers(&self) -> Arc<dyn presence::Servers> {
        let servers = Servers::new(self.etcd(), self.keys.clone(), self.options.lease_reuse());
        Arc::new(Announced { servers, began: self.began, is_first: self.is_first.clone() })
    }

    /// Starts the periodic tasks on etcd.
    pub fn start(&self, service: &Arc<Service>, tasks: &mut JoinSet<()>) {
        if let Some(claims) = &self.claims {
            let interval = self.options.repair_interval();
            tasks.spawn(etcd_repair::run(service.clone(), claims.clone(), self.is_first.clone(), interval));
        }
        if let Some(alike) = self.alike.clone() {
            let began = self.began;
            tasks.spawn(each(option_comparison::RENEWED_EACH, move || match alike.renew(began.elapsed()) {
                Ok(news) => news.iter().for_each(|difference| {
                    tracing::error!("{difference}. Restart one of the servers with options that fit");
                }),
                Err(why) => tracing::warn!(%why, "other servers are not told the options"),
            }));
        }
        for etcd in std::iter::once(&self.etcd).chain(&self.others) {
            self.start_for(etcd, tasks);
        }
    }

    fn start_for(&self, etcd: &Arc<Measured>, tasks: &mut JoinSet<()>) {
        if let Some(interval) = self.options.compaction_interval() {
            let (etcd, compactor) = (etcd.clone(), Mutex::new(Compactor::default()));
            tasks.spawn(each(interval, move || {
                let mut compactor = compactor.lock().unwrap_or_else(PoisonError::into_inner);
                match compactor.round(etcd.as_ref()) {
                    Ok(Round::Compacted(revision)) => tracing::info!(revision, "etcd has compacted old revisions"),
                    Ok(Round::Overtaken | Round::Began) => {}
                    Err(why) => tracing::warn!(%why, "etcd could not be compacted; the next round tries again"),
                }
            }));
        }
        if let Some(interval) = self.options.size_interval() {
            let etcd = etcd.clone();
            tasks.spawn(each(interval, move || etcd.measure_sizes()));
        }
    }
}

/// Runs blocking work once per interval, for the first time after one interval.
async fn each(interval: Duration, work: impl Fn() + Send + Sync + 'static) {
    let work = Arc::new(work);
    loop {
        tokio::time::sleep(interval).await;
        let work = work.clone();
        // A panic is logged; the work runs again in the next round.
        let _ = tokio::task::spawn_blocking(move || work()).await;
    }
}

/// The group and resource of the objects at or below a key, as metric labels.
fn label(keys: &Keys, key: &[u8]) -> (String, String) {
    let path = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(keys.root())).unwrap_or_default();
    let slashes = path.match_indices('/').map(|(at, _)| at);
    // The storage path of a kind has one or two segments.
    let place = slashes.take(2).filter_map(|end| registry().by_storage(&path[..end])).last();
    if let Some(kind) = place {
        let kind = registry().get(kind);
        let group = kind.versions.first().map_or_else(String::new, |hub| hub.group.clone());
        return (group, kind.resource.clone());
    }
    let record = records::ALL.into_iter().find(|record| path.starts_with(record.storage));
    (String::new(), record.map_or_else(String::new, |record| record.resource.to_owned()))
}

struct Check {
    name: String,
    probe: Arc<Probe>,
    etcd: Arc<dyn Etcd>,
    keys: Keys,
    began: Instant,
}

impl HealthCheck for Check {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let asked = match self.probe.turn(self.began.elapsed()) {
            ProbeTurn::Known(outcome) => return std::future::ready(outcome).boxed(),
            ProbeTurn::Ask(asked) => asked,
        };
        let (probe, etcd, keys) = (self.probe.clone(), self.etcd.clone(), self.keys.clone());
        // The check continues even if its caller disconnects. Later callers receive its outcome.
        let answered = tokio::spawn(async move {
            let timeout = probe.timeout();
            let asking = tokio::task::spawn_blocking(move || health::ask(etcd.as_ref(), &keys));
            let outcome = match tokio::time::timeout(timeout, asking).await {
                Ok(Ok(outcome)) => outcome.map_err(|why| format!("error getting data from etcd: {why}")),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("error getting data from etcd: there was no answer in {timeout:?}")),
            };
            probe.answer(asked, outcome.clone());
            outcome
        });
        async move { answered.await.unwrap_or_else(|error| Err(error.to_string())) }.boxed()
    }
}

struct Announced {
    servers: Servers,
    began: Instant,
    is_first: Arc<AtomicBool>,
}

impl presence::Servers for Announced {
    fn announce(&self, address: &str) -> Result<Vec<String>, String> {
        let told = self.servers.announce(address, self.began.elapsed()).and_then(|()| self.servers.list());
        match told {
            Ok(all) if all.is_empty() => Err("etcd has no addresses of API servers, not even this one's".into()),
            Ok(all) => {
                self.is_first.store(all.first().is_some_and(|first| first == address), Ordering::Relaxed);
                Ok(all)
            }
            Err(why) => Err(why.to_string()),
        }
    }

    fn withdraw(&self, address: &str) -> Result<(), String> {
        self.servers.withdraw(address).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_the_kind_that_is_kept_there() {
        let keys = Keys::new("/registry");
        for (key, group, resource) in [
            ("/registry/pods/a/p", "", "pods"),
            ("/registry/pods/", "", "pods"),
            ("/registry/services/specs/a/s", "", "services"),
            ("/registry/deployments/a/d", "apps", "deployments"),
            ("/registry/apiregistration.k8s.io/apiservices/v1.a", "apiregistration.k8s.io", "apiservices"),
            ("/registry/masterleases/10.0.0.1", "", "apiServerIPInfo"),
            ("/registry/made.up/things/a/t", "", ""),
            ("/registry/", "", ""),
            ("compact_rev_key", "", ""),
        ] {
            assert_eq!(label(&keys, key.as_bytes()), (group.to_owned(), resource.to_owned()), "{key}");
        }
    }
}

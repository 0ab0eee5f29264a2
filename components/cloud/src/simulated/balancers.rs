//! The balancers of a simulated cloud, and their addresses.

use super::Description;
use holdfast_world::cloud::{Balancer, BalancerSpec, ClusterRef, Fault, FaultReason, Host, Ingress};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// How many addresses of a range are tried before the range counts as used up.
const LOOKS_MAX: u128 = 1 << 16;

#[derive(Default)]
pub struct Balancers {
    kept: BTreeMap<String, StoredBalancer>,
    taken: BTreeSet<String>,
    /// How many balancers were ever created, which is the number of the newest balancer.
    made: u64,
}

/// A balancer, and the request with which it was made or changed.
pub struct StoredBalancer {
    pub balancer: Balancer,
    pub wanted: Arc<BalancerSpec>,
    pub hosts: Arc<[Host]>,
    /// The number of the balancer among all balancers that were ever created, beginning with 1.
    pub number: u64,
}

impl Balancers {
    pub fn all(&self) -> impl Iterator<Item = &StoredBalancer> {
        self.kept.values()
    }

    pub fn ensure(
        &mut self,
        description: &Description,
        cluster: &ClusterRef,
        wanted: &Arc<BalancerSpec>,
        hosts: &Arc<[Host]>,
    ) -> Result<Balancer, Fault> {
        check(description, wanted)?;
        let known = self.kept.get(&wanted.name);
        if let Some(known) = known
            && known.balancer.cluster != *cluster
        {
            return Err(foreign(&known.balancer));
        }
        let had: Vec<String> =
            known.iter().flat_map(|known| known.balancer.ingress.iter().map(|ingress| ingress.ip.clone())).collect();
        if known.is_none() {
            let count = i64::try_from(self.kept.len()).unwrap_or(i64::MAX);
            if count >= description.quotas.balancers {
                return Err(Fault::new(
                    FaultReason::Exhausted,
                    format!("the quota of {count} load balancers is used up"),
                ));
            }
        }
        let mut ingress = Vec::new();
        for family in families(wanted) {
            let is_v6 = family == "IPv6";
            let fits = |ip: &&String| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6() == is_v6);
            let asked = Some(&wanted.address).filter(|asked| !asked.is_empty()).filter(fits);
            let ip = match (asked, had.iter().find(fits)) {
                (Some(asked), Some(had)) if asked == had => had.clone(),
                (None, Some(had)) => had.clone(),
                (Some(asked), _) => self.take(description, asked)?,
                (None, None) => self.free(description, is_v6, &wanted.service.uid)?,
            };
            ingress.push(Ingress { ip, ip_mode: description.ip_mode.clone(), ..Ingress::default() });
        }
        for ip in had {
            self.taken.remove(&ip);
        }
        self.taken.extend(ingress.iter().map(|ingress| ingress.ip.clone()));
        let number = known_number(self.kept.get(&wanted.name)).unwrap_or_else(|| {
            self.made += 1;
            self.made
        });
        let balancer = Balancer { name: wanted.name.clone(), cluster: cluster.clone(), ingress };
        let kept = StoredBalancer { balancer: balancer.clone(), wanted: wanted.clone(), hosts: hosts.clone(), number };
        self.kept.insert(wanted.name.clone(), kept);
        Ok(balancer)
    }

    pub fn update(&mut self, cluster: &ClusterRef, wanted: &BalancerSpec, hosts: &Arc<[Host]>) -> Result<(), Fault> {
        match self.kept.get_mut(&wanted.name) {
            Some(kept) if kept.balancer.cluster != *cluster => Err(foreign(&kept.balancer)),
            Some(kept) => {
                kept.hosts = hosts.clone();
                Ok(())
            }
            None => Err(Fault::new(FaultReason::NotFound, format!("there is no load balancer {}", wanted.name))),
        }
    }

    pub fn delete(&mut self, cluster: &ClusterRef, name: &str) -> Result<(), Fault> {
        match self.kept.get(name) {
            Some(kept) if kept.balancer.cluster != *cluster => return Err(foreign(&kept.balancer)),
            Some(kept) => {
                for ingress in &kept.balancer.ingress {
                    self.taken.remove(&ingress.ip);
                }
            }
            None => {}
        }
        self.kept.remove(name);
        Ok(())
    }

    /// The address that a Service requests. Fails if the address is not in the pool, or if another balancer has it.
    fn take(&self, description: &Description, asked: &str) -> Result<String, Fault> {
        let address = asked.parse::<IpAddr>().ok();
        let is_ours = address.is_some_and(|address| description.pool.iter().any(|range| range.holds(address)));
        match is_ours {
            false => {
                Err(Fault::new(FaultReason::Invalid, format!("the address {asked} is not in the pool of addresses")))
            }
            true if self.taken.contains(asked) => {
                Err(Fault::new(FaultReason::Conflict, format!("the address {asked} is another load balancer's")))
            }
            true => Ok(asked.to_owned()),
        }
    }

    /// A free address from the pool. The search starts at a hash of the Service's UID. So if a cloud has lost its
    /// state, most Services get the same address again.
    fn free(&self, description: &Description, is_v6: bool, uid: &str) -> Result<String, Fault> {
        for range in description.pool.iter().filter(|range| range.is_v6 == is_v6) {
            let width = if is_v6 { 128 } else { 32 };
            let size = 1u128.checked_shl(range.doublings(width).unwrap_or(0)).unwrap_or(u128::MAX);
            let start = u128::from(hash(uid));
            // The first and the last address of an IPv4 network belong to no host.
            let is_network = !is_v6 && size > 2;
            for look in 0..size.min(LOOKS_MAX) {
                let index = (start + look) % size;
                if is_network && (index == 0 || index == size - 1) {
                    continue;
                }
                let address = range.nth(width, index).to_string();
                let address = address.split('/').next().unwrap_or_default();
                if !self.taken.contains(address) {
                    return Ok(address.to_owned());
                }
            }
        }
        let family = if is_v6 { "IPv6" } else { "IPv4" };
        Err(Fault::new(FaultReason::Exhausted, format!("no {family} address is left in the pool of addresses")))
    }
}

fn known_number(kept: Option<&StoredBalancer>) -> Option<u64> {
    kept.map(|kept| kept.number)
}

fn families(wanted: &BalancerSpec) -> Vec<&str> {
    match wanted.families.is_empty() {
        true => vec!["IPv4"],
        false => wanted.families.iter().map(String::as_str).collect(),
    }
}

fn check(description: &Description, wanted: &BalancerSpec) -> Result<(), Fault> {
    let mut protocols: Vec<&str> = wanted.ports.iter().map(|port| port.protocol.as_str()).collect();
    protocols.sort_unstable();
    protocols.dedup();
    if protocols.len() > 1 && !description.mixed_protocols {
        let message =
            format!("ports of several protocols on one load balancer ({}) are not offered", protocols.join(", "));
        return Err(Fault::new(FaultReason::Invalid, message));
    }
    Ok(())
}

fn foreign(balancer: &Balancer) -> Fault {
    let Balancer { name, cluster, .. } = balancer;
    let message = format!("load balancer {name} belongs to another cluster, {} ({})", cluster.name, cluster.uid);
    Fault::new(FaultReason::Conflict, message)
}

/// The FNV-1a hash of a text.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

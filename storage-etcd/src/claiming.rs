//! The handling of Services' addresses and node ports in a commit. A Service's addresses and node ports are reserved
//! before the Service is written. They are released if the Service could not be written, or no longer has them.

use crate::claims::{Address, Share, Taking};
use crate::client::{self, Range};
use crate::log::{EtcdLog, PendingDecision};
use crate::shared::{Unsure, fault};
use holdfast_core::event::Record;
use holdfast_core::kinds::core::held;
use holdfast_core::kinds::networking::AddressOwner;
use holdfast_core::object::meta::split_key;
use holdfast_engine::log::Receipt;
use std::collections::BTreeSet;

impl EtcdLog {
    /// Reserves the addresses and node ports that decisions claim. A decision fails if another server has reserved one
    /// of them. Returns a revision: the events up to this revision include the reservations of the addresses.
    pub(crate) fn reserve_shares(&self, going: &mut [PendingDecision], records: &[Record]) -> u64 {
        let Some(claims) = &self.shared.claims else { return 0 };
        for decision in going.iter_mut() {
            decision.taking = taking(decision, records);
        }
        // Addresses are reserved first, because kube-apiserver reads the address as soon as it receives the Service.
        let mut wanted = Vec::new();
        for (nth, decision) in going.iter().enumerate().filter(|(_, decision)| decision.receipt.is_none()) {
            let Some(taking) = &decision.taking else { continue };
            wanted.extend(taking.wants.addresses.iter().map(|address| (nth, address.clone(), taking.holder.clone())));
        }
        let asked: Vec<(&str, &AddressOwner)> =
            wanted.iter().map(|(_, address, holder)| (address.as_str(), holder)).collect();
        let mut through = 0;
        for ((nth, address, _), answer) in wanted.iter().zip(claims.take_addresses(&asked)) {
            let decision = &mut going[*nth];
            match (answer, &mut decision.taking) {
                (Ok(Address::Made(revision)), Some(taking)) => {
                    taking.got.addresses.insert(address.clone());
                    through = through.max(revision);
                }
                (Ok(Address::Taken(revision)), Some(taking)) => {
                    decision.receipt = Some(Receipt::Taken(taking.claim.clone()));
                    through = through.max(revision);
                }
                (Ok(_), _) => {}
                (Err(why), _) => decision.receipt = Some(Receipt::Refused(fault(why))),
            }
        }
        let wants_ports = |going: &PendingDecision| {
            going.receipt.is_none() && going.taking.as_ref().is_some_and(|taking| !taking.wants.ports.is_empty())
        };
        let mut wanting: Vec<&mut PendingDecision> = going.iter_mut().filter(|going| wants_ports(going)).collect();
        if !wanting.is_empty() {
            let wanted: Vec<&BTreeSet<u16>> =
                wanting.iter().filter_map(|going| going.taking.as_ref().map(|taking| &taking.wants.ports)).collect();
            match claims.take_ports(&wanted) {
                Ok(granted) => {
                    for (decision, is_granted) in wanting.iter_mut().zip(granted) {
                        let Some(taking) = &mut decision.taking else { continue };
                        match is_granted {
                            true => taking.got.ports = taking.wants.ports.clone(),
                            false => decision.receipt = Some(Receipt::Taken(taking.claim.clone())),
                        }
                    }
                }
                Err(why) => {
                    for decision in wanting {
                        decision.receipt = Some(Receipt::Refused(fault(why.clone())));
                    }
                }
            }
        }
        through
    }

    /// Releases addresses and node ports that Services no longer have, and addresses and node ports that were reserved
    /// for Services that were not written. If a release fails, the repair of addresses and node ports releases them
    /// later.
    pub(crate) fn release_shares(&self, going: &[PendingDecision], records: &[Record]) -> u64 {
        let (mut addresses, mut ports) = (Vec::new(), BTreeSet::new());
        for decision in going {
            let Some(taking) = &decision.taking else { continue };
            let back = match &decision.receipt {
                Some(Receipt::At(_)) => &taking.frees,
                Some(Receipt::Unknown) => {
                    self.remember(decision, taking, records);
                    continue;
                }
                _ => &taking.got,
            };
            addresses.extend(back.addresses.iter().map(|address| (address.as_str(), &taking.holder)));
            ports.extend(&back.ports);
        }
        self.give_back(&addresses, &ports)
    }

    fn give_back(&self, addresses: &[(&str, &AddressOwner)], ports: &BTreeSet<u16>) -> u64 {
        let Some(claims) = &self.shared.claims else { return 0 };
        if !ports.is_empty()
            && let Err(why) = claims.mend_ports(&BTreeSet::new(), ports)
        {
            tracing::warn!(%why, "node ports {ports:?} are free, but etcd still records them as used");
        }
        claims.free_addresses(addresses).unwrap_or_else(|why| {
            tracing::warn!(%why, "addresses of Services are free, but etcd still records them as used");
            0
        })
    }

    /// Records the addresses and node ports reserved for a Service whose write has an unknown outcome.
    fn remember(&self, decision: &PendingDecision, taking: &Taking, records: &[Record]) {
        let record = &records[decision.decision.records.start];
        if taking.got.is_empty() || record.is_delete() {
            return;
        }
        let Ok(value) = self.shared.value(record) else { return };
        let key = self.shared.places.keys.at(&record.resource, &record.key).into();
        let (holder, got) = (taking.holder.clone(), taking.got.clone());
        self.shared.unsure().push(Unsure { key, value, holder, got });
    }

    /// Releases the addresses and node ports of Services that were not written. Called once the outcome of all writes
    /// is certain.
    pub(crate) fn free_unwritten(&self) {
        let unsure = std::mem::take(&mut *self.shared.unsure());
        for unsure in unsure {
            let Unsure { key, value, holder, got } = &unsure;
            match self.shared.etcd.range(&Range::of(client::KeyRange::one(key.clone())).limit(1)) {
                Ok(answer) if answer.found.first().is_some_and(|found| found.value == *value) => {}
                Ok(_) => {
                    let addresses: Vec<_> = got.addresses.iter().map(|address| (address.as_str(), holder)).collect();
                    self.give_back(&addresses, &got.ports);
                }
                Err(_) => self.shared.unsure().push(unsure),
            }
        }
    }
}

/// The addresses and node ports that a decision reserves and releases. Removes these addresses and node ports from the
/// claims of the decision.
fn taking(going: &mut PendingDecision, records: &[Record]) -> Option<Taking> {
    let decision = &mut going.decision;
    let (held_now, others) =
        std::mem::take(&mut decision.claims).into_iter().partition(|(_, claim)| held(claim).is_some());
    let held_now: Vec<(usize, _)> = held_now;
    decision.claims = others;
    let (place, claim) = held_now.first().or(decision.had.first()).cloned()?;
    let now = Share::of(held_now.iter().map(|(_, claim)| &**claim));
    let had = Share::of(decision.had.iter().map(|(_, claim)| &**claim));
    let (namespace, name) = split_key(&records[place].key);
    let holder = AddressOwner { namespace: namespace.unwrap_or_default().to_owned(), name: name.to_owned() };
    let taking = Taking { claim, holder, wants: now.without(&had), frees: had.without(&now), got: Share::default() };
    (!taking.wants.is_empty() || !taking.frees.is_empty()).then_some(taking)
}

//! Repairs a store that several API servers share: compares the addresses and ports of Services with the recorded
//! allocations, and plans the corrections, as kube-apiserver's repair controllers do.

use crate::etcd::Ports;
use crate::kinds::core::{ServiceClaim, held, port_claims};
use crate::kinds::known;
use crate::kinds::networking::{AddressOwner, holder, is_given};
use crate::namespace::Step;
use crate::object::meta;
use crate::presence::made;
use crate::stamp::Stamp;
use crate::state::State;
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A port that no Service has is freed after this many rounds. Until then, the Service for which the port was allocated
/// may not have been written yet.
const ROUNDS: u32 = 4;
/// The age in seconds from which the record of an address is deleted if its Service does not have the address. A
/// younger record stays, because its Service may not have been written yet.
const GRACE_SECONDS: i64 = 60;
/// The maximum number of Events that one round writes.
const NEWS_MAX: usize = 100;

/// The differences between Services and the recorded allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Addresses that Services have and that are not recorded, or are recorded for another Service.
    pub unrecorded: BTreeSet<(String, AddressOwner)>,
    /// Addresses that are recorded for a Service that does not have them.
    pub leaked: BTreeSet<(String, AddressOwner)>,
    /// Ports that Services have and that are recorded as free, each with one Service that has it.
    pub unrecorded_ports: BTreeMap<u16, AddressOwner>,
    /// Ports that are recorded as allocated, but that no Service has.
    pub leaked_ports: BTreeSet<u16>,
}

impl Wrong {
    /// Compares the addresses and ports of the state's Services with the recorded allocations.
    pub fn find(state: &State, ports: &Ports, now: Timestamp) -> Wrong {
        let mut wrong = Wrong::default();
        let known = |known| state.registry.known(known).map(|(kind, _)| kind);
        let (Some(services), Some(addresses)) = (known(known::SERVICE), known(known::IP_ADDRESS)) else { return wrong };
        for (key, entry) in state.scan(services, "", None) {
            let holder_of = || {
                let (namespace, name) = meta::split_key(key);
                AddressOwner { namespace: namespace.unwrap_or_default().to_owned(), name: name.to_owned() }
            };
            for claim in entry.index.claims.iter() {
                match held(claim) {
                    Some(ServiceClaim::Address(address)) => {
                        let recorded = state.get(addresses, address).map(|given| holder(&given.document()));
                        // An address that is recorded for something other than a Service is not corrected.
                        let is_wrong = recorded.is_none_or(|recorded| recorded.is_some_and(|of| of != holder_of()));
                        if is_wrong && state.claimant(claim).is_some_and(|owner| *owner == state.owner(services, key)) {
                            wrong.unrecorded.insert((address.to_owned(), holder_of()));
                        }
                    }
                    Some(ServiceClaim::Port(port)) if ports.covers(port) && !ports.has(port) => {
                        wrong.unrecorded_ports.entry(port).or_insert_with(holder_of);
                    }
                    _ => {}
                }
            }
        }
        for (address, given) in state.scan(addresses, "", None) {
            let document = given.document();
            let Some(holder) = holder(&document).filter(|_| is_given(&document)) else { continue };
            let key = meta::key(Some(holder.namespace.as_str()), &holder.name);
            let has = |service: &crate::state::Entry| {
                service.index.claims.iter().any(|claim| held(claim) == Some(ServiceClaim::Address(address)))
            };
            let is_had = state.get(services, &key).is_some_and(|service| has(service));
            if !is_had && age_seconds(&document, now) > GRACE_SECONDS {
                wrong.leaked.insert((address.to_string(), holder));
            }
        }
        let is_free = |port: &u16| !port_claims(*port).iter().any(|claim| state.claimant(claim).is_some());
        wrong.leaked_ports = ports.taken().filter(is_free).collect();
        wrong
    }

    /// The differences that a later comparison has as well. The other differences came from unfinished writes.
    pub fn still(self, later: &Wrong) -> Wrong {
        Wrong {
            unrecorded: self.unrecorded.intersection(&later.unrecorded).cloned().collect(),
            leaked: self.leaked.intersection(&later.leaked).cloned().collect(),
            unrecorded_ports: self
                .unrecorded_ports
                .into_iter()
                .filter(|(port, _)| later.unrecorded_ports.contains_key(port))
                .collect(),
            leaked_ports: self.leaked_ports.intersection(&later.leaked_ports).copied().collect(),
        }
    }

    /// The requests that create the Events which report the corrections.
    pub fn news(&self, state: &State, stamp: Stamp) -> Vec<Step> {
        let mut news = Vec::new();
        for (address, holder) in &self.unrecorded {
            let family = if address.contains(':') { "IPv6" } else { "IPv4" };
            let message = format!("Cluster IP [{family}]: {address} is not allocated; repairing");
            news.push(of_service(state, holder, "ClusterIPNotAllocated", message, ADDRESSES));
        }
        for (port, holder) in &self.unrecorded_ports {
            let message = format!("Port {port} is not allocated; repairing");
            news.push(of_service(state, holder, "PortNotAllocated", message, PORTS));
        }
        for (address, AddressOwner { namespace, name }) in &self.leaked {
            let message =
                format!("IPAddress: {address} for Service {namespace}/{name} appears to have leaked: cleaning up");
            let subject = json!({
                "apiVersion": known::IP_ADDRESS.api_version(),
                "kind": known::IP_ADDRESS.kind,
                "name": address.as_str(),
            });
            news.push(event("default", address, subject, "IPAddressNotAllocated", message, ADDRESSES));
        }
        let named = news.into_iter().take(NEWS_MAX).zip(0..).map(|(mut event, nth)| {
            let name = format!("{}.{}", event["metadata"]["name"].as_str().unwrap_or_default(), stamp.uid(nth));
            event["metadata"]["name"] = name.into();
            for field in ["firstTimestamp", "lastTimestamp"] {
                event[field] = stamp.rfc3339().into();
            }
            event
        });
        named.filter_map(|event| made(state, known::EVENT, &event, |_| None)).collect()
    }
}

/// The number of consecutive rounds in which each port was leaked.
#[derive(Debug, Default)]
pub struct Leaks(BTreeMap<u16, u32>);

impl Leaks {
    /// Counts one round for each of these leaked ports. Returns the ports that have now been leaked for `ROUNDS`
    /// consecutive rounds, so that the caller frees them.
    pub fn due(&mut self, leaked: &BTreeSet<u16>) -> BTreeSet<u16> {
        self.0.retain(|port, _| leaked.contains(port));
        leaked.iter().for_each(|port| *self.0.entry(*port).or_default() += 1);
        let due: BTreeSet<u16> =
            self.0.iter().filter(|(_, rounds)| **rounds >= ROUNDS).map(|(port, _)| *port).collect();
        due.iter().for_each(|port| _ = self.0.remove(port));
        due
    }
}

const ADDRESSES: &str = "ipallocator-repair-controller";
const PORTS: &str = "portallocator-repair-controller";

fn age_seconds(document: &Value, now: Timestamp) -> i64 {
    let made = document["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    made.map_or(i64::MAX, |made| now.as_second().saturating_sub(made.as_second()))
}

fn of_service(state: &State, holder: &AddressOwner, reason: &str, message: String, by: &str) -> Value {
    let AddressOwner { namespace, name } = holder;
    let service = crate::presence::read(state, known::SERVICE, namespace, name).unwrap_or_default();
    let subject = json!({
        "apiVersion": known::SERVICE.api_version(),
        "kind": known::SERVICE.kind,
        "namespace": namespace.as_str(),
        "name": name.as_str(),
        "uid": service["metadata"]["uid"].clone(),
    });
    event(namespace, name, subject, reason, message, by)
}

fn event(namespace: &str, name: &str, subject: Value, reason: &str, message: String, by: &str) -> Value {
    json!({
        "apiVersion": known::EVENT.api_version(),
        "kind": known::EVENT.kind,
        // An Event's name cannot contain the colons of an address.
        "metadata": {"namespace": namespace, "name": name.replace(':', "-")},
        "involvedObject": subject,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": by},
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Offset, Operation, Record};
    use crate::kinds::registry;
    use crate::state::Change;
    use std::sync::Arc;

    const NOW: &str = "2026-11-28T20:00:00Z";
    const RANGE: (u16, u16) = (30000, 32767);

    /// A state with these objects.
    fn state(documents: &[(&str, &str, Value)]) -> State {
        let mut state = State::new(Arc::new(registry().clone()));
        for (at, (resource, key, document)) in documents.iter().enumerate() {
            let object = document.to_string().into_bytes().into();
            let record = Record {
                offset: at as u64 + 1,
                resource: (*resource).to_owned(),
                key: (*key).to_owned(),
                operation: Operation::Put as i32,
                object,
                ..Record::default()
            };
            let change = Change::from_record(&state.registry, &record).expect("a known kind");
            crate::apply::apply(&mut state, &change);
        }
        assert_eq!(state.offset, Offset(documents.len() as u64));
        state
    }

    fn service(name: &str, address: &str, port: u16) -> (&'static str, String, Value) {
        let document = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": name, "uid": "u"},
            "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [{"nodePort": port, "protocol": "TCP"}]},
        });
        ("services/specs", format!("a/{name}"), document)
    }

    fn address(address: &str, of: &str, made: &str) -> (&'static str, String, Value) {
        let holder = AddressOwner { namespace: "a".into(), name: of.into() };
        let mut document = crate::kinds::networking::given_address(address, &holder);
        document["metadata"]["creationTimestamp"] = made.into();
        ("ipaddresses", address.to_owned(), document)
    }

    fn found(objects: &[(&'static str, String, Value)], taken: &[u16]) -> (State, Wrong) {
        let objects: Vec<(&str, &str, Value)> =
            objects.iter().map(|(resource, key, document)| (*resource, key.as_str(), document.clone())).collect();
        let state = state(&objects);
        let mut ports = Ports::free(RANGE);
        taken.iter().for_each(|port| assert!(ports.set(*port, true)));
        let wrong = Wrong::find(&state, &ports, NOW.parse().expect("a time"));
        (state, wrong)
    }

    #[test]
    fn where_all_is_recorded_nothing_is_wrong() {
        let objects = [service("s", "10.0.0.1", 30001), address("10.0.0.1", "s", "2020-01-01T00:00:00Z")];
        let (state, wrong) = found(&objects, &[30001]);
        assert_eq!(wrong, Wrong::default());
        assert!(wrong.news(&state, Stamp { time: NOW.parse().expect("a time"), seed: 1 }).is_empty());
    }

    #[test]
    fn what_services_have_and_nobody_has_recorded_is_told_of() {
        let objects = [
            service("s", "10.0.0.1", 30001),
            service("t", "fd00::2", 30002),
            address("fd00::2", "other", "2026-11-28T19:59:30Z"),
        ];
        let (state, wrong) = found(&objects, &[30002]);
        let holder = |name: &str| AddressOwner { namespace: "a".into(), name: name.into() };
        let unrecorded: Vec<_> = wrong.unrecorded.iter().cloned().collect();
        assert_eq!(unrecorded, [("10.0.0.1".to_owned(), holder("s")), ("fd00::2".to_owned(), holder("t"))]);
        assert_eq!(wrong.unrecorded_ports, BTreeMap::from([(30001, holder("s"))]));
        assert!(wrong.leaked.is_empty(), "its Service may still come");
        let news = wrong.news(&state, Stamp { time: NOW.parse().expect("a time"), seed: 1 });
        let told: Vec<String> = news.iter().map(|step| format!("{:?}", step.request.body.content)).collect();
        assert_eq!(told.len(), 3);
        assert!(told[0].contains("Cluster IP [IPv4]: 10.0.0.1 is not allocated; repairing"), "{}", told[0]);
        assert!(told[2].contains("PortNotAllocated") && told[2].contains("Port 30001"), "{}", told[2]);
        // A difference that a later comparison does not find again came from an unfinished write, so it is dropped.
        let later = Wrong { unrecorded_ports: BTreeMap::new(), ..wrong.clone() };
        assert_eq!(wrong.clone().still(&later), later);
    }

    #[test]
    fn a_round_tells_of_so_much_and_puts_all_right() {
        let count = u16::try_from(NEWS_MAX + 20).expect("a small number");
        let objects: Vec<_> =
            (0..count).map(|nth| service(&format!("s{nth}"), &format!("10.0.0.{nth}"), 30000 + nth)).collect();
        let (state, wrong) = found(&objects, &[]);
        assert_eq!((wrong.unrecorded.len(), wrong.unrecorded_ports.len()), (count.into(), count.into()));
        assert_eq!(wrong.news(&state, Stamp { time: NOW.parse().expect("a time"), seed: 1 }).len(), NEWS_MAX);
    }

    #[test]
    fn what_is_recorded_and_nobody_has_is_freed_after_a_while() {
        let mut others = address("10.0.0.9", "gone", "2020-01-01T00:00:00Z");
        others.2["metadata"]["labels"] = json!({});
        let objects = [
            service("s", "10.0.0.1", 30001),
            address("10.0.0.1", "s", NOW),
            address("10.0.0.2", "s", "2026-11-28T19:58:59Z"),
            address("10.0.0.3", "gone", "2026-11-28T19:59:01Z"),
            others,
        ];
        let (state, wrong) = found(&objects, &[30001, 30005]);
        let leaked: Vec<&str> = wrong.leaked.iter().map(|(address, _)| address.as_str()).collect();
        assert_eq!(leaked, ["10.0.0.2"]);
        assert_eq!(wrong.leaked_ports, BTreeSet::from([30005]));
        assert_eq!(wrong.news(&state, Stamp { time: NOW.parse().expect("a time"), seed: 1 }).len(), 1);
        let mut leaks = Leaks::default();
        let none = BTreeSet::new();
        for _ in 1..ROUNDS {
            assert_eq!(leaks.due(&wrong.leaked_ports), none);
        }
        assert_eq!(leaks.due(&none), none, "a Service has got it");
        for _ in 1..ROUNDS {
            assert_eq!(leaks.due(&wrong.leaked_ports), none);
        }
        assert_eq!(leaks.due(&wrong.leaked_ports), wrong.leaked_ports);
    }
}

//! Reserves addresses and node ports of Services in the same way as every API server on the store: one IPAddress object
//! per address, created before the Service and deleted after it, and one bitmap of all node ports. A request for an
//! address or port that another server has reserved is refused, whether that server is Holdfast or kube-apiserver.

use crate::client::{self, Etcd, Fault, KeyValue, Operation, Range, Txn};
use crate::transaction::plain;
use bytes::Bytes;
use holdfast_core::etcd::{Keys, Media, Ports, address_key, read_holder, write_address};
use holdfast_core::kinds::core::{ServiceClaim, held};
use holdfast_core::kinds::known::IP_ADDRESS;
use holdfast_core::kinds::networking::AddressOwner;
use holdfast_core::kinds::records::NODE_PORTS;
use holdfast_core::stamp::Stamp;
use holdfast_encryption::Live;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of attempts to change the bitmap. An attempt fails only if another server has changed the bitmap
/// since this server read it.
const TRIES_MAX: usize = 64;

/// Reserves and releases addresses and node ports of Services in an etcd.
pub struct Allocations {
    etcd: Arc<dyn Etcd>,
    keys: Keys,
    /// The encoding of stored objects, and the minor release of Kubernetes that determines their API versions.
    storing: (Media, u32),
    /// The first and the last number of the range of node ports.
    range: (u16, u16),
    /// The keys that encrypt values in etcd.
    secrets: Arc<Live>,
    bitmap: Mutex<Bitmap>,
}

/// The bitmap of all node ports, as this server last read it.
#[derive(Default)]
struct Bitmap {
    /// The revision of the bitmap's key in etcd; zero if there was no bitmap.
    revision: u64,
    ports: Option<Ports>,
}

/// The addresses and node ports that one Service reserves or releases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    pub addresses: BTreeSet<String>,
    pub ports: BTreeSet<u16>,
}

impl Share {
    pub fn of<'c>(claims: impl IntoIterator<Item = &'c str>) -> Share {
        let mut share = Share::default();
        for claim in claims {
            match held(claim) {
                Some(ServiceClaim::Address(address)) => _ = share.addresses.insert(address.to_owned()),
                Some(ServiceClaim::Port(port)) => _ = share.ports.insert(port),
                None => {}
            }
        }
        share
    }

    /// The addresses and ports that are in this share and not in `other`.
    pub fn without(&self, other: &Share) -> Share {
        Share {
            addresses: self.addresses.difference(&other.addresses).cloned().collect(),
            ports: self.ports.difference(&other.ports).copied().collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty()
    }
}

/// The addresses and node ports that a decision reserves and releases.
#[derive(Debug)]
pub struct Taking {
    /// One of the decision's claims. If the addresses and node ports cannot be reserved, the refusal names this claim.
    pub claim: Arc<str>,
    /// The Service that reserves or releases the addresses and node ports.
    pub holder: AddressOwner,
    pub wants: Share,
    /// The addresses and node ports that are released once the Service is written.
    pub frees: Share,
    /// The share that was reserved for the Service in this commit.
    pub got: Share,
}

/// The outcome of an attempt to reserve an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The address was reserved for the Service at this revision.
    Made(u64),
    /// The Service already had the address, so nothing was written.
    Had,
    /// The address belongs to another object. The number is etcd's revision when the server found this out.
    Taken(u64),
}

impl Allocations {
    pub fn new(
        etcd: Arc<dyn Etcd>,
        prefix: &str,
        storing: (Media, u32),
        range: (u16, u16),
        secrets: Arc<Live>,
    ) -> Allocations {
        Allocations { etcd, keys: Keys::new(prefix), storing, range, secrets, bitmap: Mutex::default() }
    }

    /// The key in etcd of the bitmap of all node ports.
    pub fn ports_key(&self) -> String {
        self.keys.of_record(&NODE_PORTS, "")
    }

    /// Whether a port is reserved in the bitmap, as this server last read it.
    pub fn has_port(&self, port: u16) -> bool {
        self.bitmap().ports.as_ref().is_some_and(|ports| ports.has(port))
    }

    /// Records a value of the bitmap and its revision. `value` is `None` if the bitmap was deleted.
    pub fn note_ports(&self, revision: u64, value: Option<&[u8]>) {
        let mut bitmap = self.bitmap();
        if bitmap.revision > revision {
            return;
        }
        // A bitmap that cannot be read is reported when a port is requested.
        let ports = value.and_then(|value| self.ports_of(value).ok());
        *bitmap = Bitmap { revision: if value.is_some() { revision } else { 0 }, ports };
    }

    /// Reads the bitmap. If there is none, all ports are free.
    pub fn read_ports(&self) -> Result<Ports, Fault> {
        let key = self.ports_key();
        let found = self.etcd.range(&Range::of(client::KeyRange::one(key.clone())).limit(1))?;
        self.read(found.found.first()).map(|(_, ports)| ports)
    }

    fn read(&self, found: Option<&KeyValue>) -> Result<(u64, Ports), Fault> {
        let Some(found) = found else { return Ok((0, Ports::free(self.range))) };
        let ports = self.ports_of(&found.value)?;
        self.note_ports(found.mod_revision, Some(&found.value));
        Ok((found.mod_revision, ports))
    }

    fn ports_of(&self, value: &[u8]) -> Result<Ports, Fault> {
        let key = self.ports_key();
        let plain = self.opened(NODE_PORTS.storage, &key, value)?;
        Ports::read(&key, &plain, self.range).map_err(|fault| Fault::Refused(fault.to_string()))
    }

    fn sealed(&self, storage: &str, key: &str, plain: Vec<u8>) -> Result<Bytes, Fault> {
        let sealed = self.secrets.keyring().seal_value(storage, key, plain);
        sealed.map(Bytes::from).map_err(|why| Fault::Refused(format!("{key} cannot be encrypted: {why}")))
    }

    fn opened(&self, storage: &str, key: &str, value: &[u8]) -> Result<Vec<u8>, Fault> {
        let opened = self.secrets.keyring().open_value(storage, key, value).map(Cow::into_owned);
        opened.map_err(|why| Fault::Refused(format!("{key} cannot be decrypted: {why}")))
    }

    /// The Service that has the address of an IPAddress object, according to the object's value.
    fn holder(&self, key: &str, value: &[u8]) -> Result<Option<AddressOwner>, Fault> {
        let plain = self.opened(IP_ADDRESS.resource, key, value)?;
        read_holder(key, &plain).map_err(|fault| Fault::Refused(fault.to_string()))
    }

    /// Reserves the node ports of several Services. A Service gets all of its ports, or none if one of them is
    /// reserved. Returns for each Service whether it got its ports.
    pub fn take_ports(&self, wanted: &[&BTreeSet<u16>]) -> Result<Vec<bool>, Fault> {
        let mut granted = self.change_ports(true, |ports| grant(ports, wanted))?;
        let missed: Vec<usize> = (0..wanted.len()).filter(|nth| !granted[*nth]).collect();
        if !missed.is_empty() {
            // Another server may have released the ports since this server read the bitmap, so the bitmap is read
            // again.
            let again: Vec<&BTreeSet<u16>> = missed.iter().map(|nth| wanted[*nth]).collect();
            let answers = self.change_ports(false, |ports| grant(ports, &again))?;
            missed.into_iter().zip(answers).for_each(|(nth, is_granted)| granted[nth] = is_granted);
        }
        Ok(granted)
    }

    /// Marks the ports in `taken` as reserved and the ports in `free` as free, whatever the current bitmap says.
    pub fn mend_ports(&self, taken: &BTreeSet<u16>, free: &BTreeSet<u16>) -> Result<(), Fault> {
        let mend = |ports: &mut Ports| {
            taken.iter().for_each(|port| _ = ports.set(*port, true));
            free.iter().for_each(|port| _ = ports.set(*port, false));
        };
        self.change_ports(false, mend)
    }

    /// Changes the bitmap, and creates it if there is none. If another server changed the bitmap first, the change is
    /// repeated on the new bitmap. If `is_known` is true, the first attempt starts from this server's copy of the
    /// bitmap.
    fn change_ports<T>(&self, is_known: bool, change: impl Fn(&mut Ports) -> T) -> Result<T, Fault> {
        let key = self.ports_key();
        let mut asked = {
            let known = self.bitmap();
            known.ports.clone().filter(|_| is_known).map(|ports| (known.revision, ports))
        };
        for _ in 0..TRIES_MAX {
            let (revision, ports) = match asked.take() {
                Some(known) => known,
                None => {
                    let found = self.etcd.range(&Range::of(client::KeyRange::one(key.clone())).limit(1))?;
                    self.read(found.found.first())?
                }
            };
            let mut changed = ports.clone();
            let outcome = change(&mut changed);
            if revision > 0 && changed == ports {
                return Ok(outcome);
            }
            let value = changed.write(&key, self.storing.0).map_err(|fault| Fault::Refused(fault.to_string()))?;
            let value = self.sealed(NODE_PORTS.storage, &key, value)?;
            let put = Operation::Put { key: key.clone().into(), value: value.clone(), lease: 0 };
            let answer = self.etcd.transact(vec![plain(revision, put)]).pop();
            match answer.unwrap_or_else(|| Err(Fault::Unreachable("there is no answer".into()))) {
                Ok(decided) if decided.held => {
                    self.note_ports(decided.header.revision, Some(&value));
                    return Ok(outcome);
                }
                Ok(decided) if !decided.found.is_empty() => asked = Some(self.read(decided.found.first())?),
                Ok(_) => {}
                // The outcome is unknown, so the next attempt reads the bitmap. If the write did happen, its ports look
                // as if another server had reserved them; the repair frees them later.
                Err(Fault::Unknown(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Unreachable(format!("other servers were faster in changing {key} each time")))
    }

    /// Reserves addresses, each for the Service beside it. Returns the outcome for each address.
    pub fn take_addresses(&self, wanted: &[(&str, &AddressOwner)]) -> Vec<Result<Address, Fault>> {
        let (mut places, mut txns, mut taken) = (Vec::new(), Vec::new(), Vec::with_capacity(wanted.len()));
        for (nth, (address, holder)) in wanted.iter().enumerate() {
            match self.gift(address, holder) {
                Ok(txn) => {
                    places.push(nth);
                    txns.push(txn);
                    taken.push(Ok(Address::Had));
                }
                Err(fault) => taken.push(Err(fault)),
            }
        }
        let answers = if txns.is_empty() { Vec::new() } else { self.etcd.transact(txns.clone()) };
        for ((nth, txn), answer) in places.into_iter().zip(txns).zip(answers) {
            let holder = wanted[nth].1;
            taken[nth] = match answer {
                Ok(decided) if decided.held => Ok(Address::Made(decided.header.revision)),
                Ok(_) | Err(Fault::Unknown(_)) => self.look(&txn, holder),
                Err(fault) => Err(fault),
            };
        }
        taken
    }

    fn gift(&self, address: &str, holder: &AddressOwner) -> Result<Txn, Fault> {
        let key = address_key(&self.keys, address);
        // `RandomState` has random keys, so the hash of an empty input is a random number.
        let stamp = Stamp { time: Timestamp::now(), seed: RandomState::new().hash_one(0) };
        let (media, release) = self.storing;
        let value = write_address(&key, address, holder, stamp, media, release);
        let value = value.map_err(|fault| Fault::Refused(fault.to_string()))?;
        let value = self.sealed(IP_ADDRESS.resource, &key, value)?;
        Ok(plain(0, Operation::Put { key: key.into(), value, lease: 0 }))
    }

    /// Reads which Service has the address that this transaction failed to reserve.
    fn look(&self, txn: &Txn, wants: &AddressOwner) -> Result<Address, Fault> {
        let key = txn.operations[0].key().clone();
        let answer = self.etcd.range(&Range::of(client::KeyRange::one(key.clone())).limit(1))?;
        let Some(found) = answer.found.first() else {
            // The address was released after the transaction, or the transaction never reached etcd.
            return Ok(Address::Taken(answer.header.revision));
        };
        let is_own = matches!(&txn.operations[0], Operation::Put { value, .. } if *value == found.value);
        if is_own {
            return Ok(Address::Made(found.mod_revision));
        }
        // If the value cannot be read, a retry cannot read it either, so this is an error.
        Ok(match self.holder(&String::from_utf8_lossy(&key), &found.value)? {
            Some(holder) if holder == *wants => Address::Had,
            _ => Address::Taken(answer.header.revision),
        })
    }

    /// Releases addresses, except addresses that another Service has received in the meantime. Returns etcd's revision
    /// after the deletions.
    pub fn free_addresses(&self, given_back: &[(&str, &AddressOwner)]) -> Result<u64, Fault> {
        let (mut through, mut txns) = (0, Vec::new());
        for (address, holder) in given_back {
            let key = address_key(&self.keys, address);
            let answer = self.etcd.range(&Range::of(client::KeyRange::one(key.clone())).limit(1))?;
            let Some(found) = answer.found.first() else { continue };
            if self.holder(&key, &found.value).ok().flatten().as_ref() == Some(*holder) {
                txns.push(plain(found.mod_revision, Operation::Delete { key: key.into() }));
            }
        }
        for answer in if txns.is_empty() { Vec::new() } else { self.etcd.transact(txns) } {
            through = through.max(answer?.header.revision);
        }
        Ok(through)
    }

    fn bitmap(&self) -> MutexGuard<'_, Bitmap> {
        self.bitmap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves ports for each Service in turn, if all of its ports are free.
fn grant(ports: &mut Ports, wanted: &[&BTreeSet<u16>]) -> Vec<bool> {
    let mut granted = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        let is_free = wanted.iter().all(|port| !ports.has(*port));
        wanted.iter().filter(|_| is_free).for_each(|port| _ = ports.set(*port, true));
        granted.push(is_free);
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallKind, Fate, Model};

    const RANGE: (u16, u16) = (30000, 30009);

    fn claims(etcd: impl Etcd) -> Allocations {
        Allocations::new(Arc::new(etcd), "/registry", (Media::Protobuf, 36), RANGE, Live::none())
    }

    fn holder(name: &str) -> AddressOwner {
        AddressOwner { namespace: "a".into(), name: name.into() }
    }

    fn set(ports: &[u16]) -> BTreeSet<u16> {
        ports.iter().copied().collect()
    }

    #[test]
    fn two_servers_never_get_the_same_port() {
        let model = Model::default();
        model.be_plain();
        let (one, other) = (claims(model.plain_client(1)), claims(model.plain_client(2)));
        let ports = [set(&[30001, 30002]), set(&[30002]), set(&[30003])];
        assert_eq!(one.take_ports(&[&ports[0], &ports[1], &ports[2]]), Ok(vec![true, false, true]));
        assert_eq!(other.take_ports(&[&ports[1], &set(&[30004])]), Ok(vec![false, true]));
        assert!(other.has_port(30001) && other.has_port(30004) && !one.has_port(30004));
        // If ports seem to be reserved, the bitmap is read again, so this server need not follow the changes of other
        // servers.
        other.mend_ports(&set(&[]), &set(&[30001, 30002])).expect("freed");
        assert_eq!(one.take_ports(&[&ports[1]]), Ok(vec![true]));
        assert_eq!(one.take_ports(&[&set(&[30004])]), Ok(vec![false]));
        assert_eq!(one.read_ports().expect("a bitmap").taken().collect::<Vec<_>>(), [30002, 30003, 30004]);
    }

    #[test]
    fn an_address_is_one_service_s() {
        let model = Model::default();
        model.be_plain();
        let (one, other) = (claims(model.plain_client(1)), claims(model.plain_client(2)));
        let (own, theirs) = (holder("own"), holder("theirs"));
        let made = one.take_addresses(&[("10.0.0.1", &own), ("fd00::1", &own)]);
        assert!(made.iter().all(|made| matches!(made, Ok(Address::Made(_)))), "{made:?}");
        assert!(matches!(other.take_addresses(&[("10.0.0.1", &theirs)])[..], [Ok(Address::Taken(_))]));
        assert_eq!(other.take_addresses(&[("10.0.0.1", &own)]), [Ok(Address::Had)], "an earlier attempt has taken it");
        // A Service that does not have an address must not be able to release the address.
        assert_eq!(other.free_addresses(&[("10.0.0.1", &theirs), ("10.0.0.9", &theirs)]), Ok(0));
        assert!(one.free_addresses(&[("10.0.0.1", &own)]).expect("freed") > 0);
        assert!(matches!(other.take_addresses(&[("10.0.0.1", &theirs)])[..], [Ok(Address::Made(_))]));
    }

    #[test]
    fn lost_answers_give_nothing_out_twice() {
        for fate in [Fate::DoneUnanswered, Fate::LostUnanswered, Fate::DoneLater(1)] {
            let model = Model::default();
            let mut calls = 0;
            let chance = move |call| {
                calls += u32::from(call == CallKind::Transact);
                if call == CallKind::Transact && calls == 1 { fate } else { Fate::Answered }
            };
            let (one, other) = (claims(model.client(1, Box::new(chance))), claims(model.plain_client(2)));
            let wanted = set(&[30001]);
            let mine = one.take_ports(&[&wanted]).expect("an answer")[0];
            model.settle();
            assert!(!(mine && other.take_ports(&[&wanted]).expect("an answer")[0]), "{fate:?}");
            assert!(other.read_ports().expect("a bitmap").has(30001) || mine || fate == Fate::LostUnanswered);
        }
        let model = Model::default();
        let unlucky = claims(model.client(
            1,
            Box::new(|call| match call {
                CallKind::Transact => Fate::DoneUnanswered,
                _ => Fate::Answered,
            }),
        ));
        let own = holder("own");
        assert!(matches!(unlucky.take_addresses(&[("10.0.0.1", &own)])[..], [Ok(Address::Made(_))]));
    }

    #[test]
    fn a_bitmap_of_another_range_is_left_alone() {
        let model = Model::default();
        let one = claims(model.plain_client(1));
        let value = Ports::free((5, 9)).write("k", Media::Protobuf).expect("a value");
        let put = Operation::Put { key: one.ports_key().into(), value: value.into(), lease: 0 };
        model.plain_client(1).transact(vec![plain(0, put)]).remove(0).expect("a write");
        let before = model.revision();
        let why = one.take_ports(&[&set(&[30001])]).expect_err("another range").to_string();
        assert!(why.contains("--service-node-port-range"), "{why}");
        assert_eq!(model.revision(), before);
    }
}

//! The running API servers. Each server announces itself in the store under `/registry/masterleases/IP`, with a lease
//! that the server renews.

use crate::client::{self, Etcd, Fault, Operation, Range};
use crate::leases::Leases;
use crate::transaction::plain;
use bytes::Bytes;
use holdfast_core::etcd::{Keys, Media, read_record, write_record};
use holdfast_core::kinds::records::SERVERS;
use holdfast_value::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time for which an announcement is valid.
const LEASE: Duration = Duration::from_secs(15);
/// How often each server renews its announcement.
pub const RENEWED_EACH: Duration = Duration::from_secs(10);
/// The maximum number of attempts to announce a server. Only servers with the same address compete, which should not
/// happen.
const TRIES_MAX: usize = 5;

/// Reads and writes the announcements of servers in an etcd.
pub struct Servers {
    etcd: Arc<dyn Etcd>,
    keys: Keys,
    leases: Mutex<Leases>,
}

impl Servers {
    pub fn new(etcd: Arc<dyn Etcd>, keys: Keys, reuse: Duration) -> Servers {
        Servers { etcd, keys, leases: Mutex::new(Leases::new(reuse)) }
    }

    /// Announces the server at this address. `now` is from any monotonic clock.
    pub fn announce(&self, address: &str, now: Duration) -> Result<(), Fault> {
        let key = self.keys.of_record(&SERVERS, address);
        for _ in 0..TRIES_MAX {
            let found = self.etcd.range(&Range::of(client::KeyRange::one(key.clone())))?.found.pop();
            let before = found.as_ref().and_then(|found| read_record(&SERVERS, &key, &found.value).ok());
            let value = write_record(&SERVERS, &key, &document(address, before.as_ref()), Media::Protobuf)
                .map_err(|fault| Fault::Refused(fault.to_string()))?;
            let lease = self.leases().lease(self.etcd.as_ref(), LEASE, now)?;
            let replaces = found.map_or(0, |found| found.mod_revision);
            match self.write(replaces, Operation::Put { key: key.clone().into(), value: value.into(), lease }) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Fault::NoLease(_)) => self.leases().forget(lease),
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Refused(format!("another server writes {key}: --advertise-address must differ between servers")))
    }

    /// The addresses of all announced servers, sorted. Announcements without an address are skipped.
    pub fn list(&self) -> Result<Vec<String>, Fault> {
        let from = self.keys.of_record(&SERVERS, "");
        // In byte order `0` follows the slash, so the range has all announcements.
        let to = format!("{}0", from.trim_end_matches('/'));
        let found = self.etcd.range(&Range::of(client::KeyRange::between(from, to)))?.found;
        let mut addresses = Vec::with_capacity(found.len());
        for found in found {
            let key = String::from_utf8_lossy(&found.key);
            match read_record(&SERVERS, &key, &found.value) {
                Ok(document) => addresses.extend(address_of(&document)),
                Err(fault) => tracing::warn!("{fault}"),
            }
        }
        addresses.sort();
        addresses.dedup();
        Ok(addresses)
    }

    /// Withdraws the announcement of the server at this address.
    pub fn withdraw(&self, address: &str) -> Result<(), Fault> {
        let key = Bytes::from(self.keys.of_record(&SERVERS, address));
        let found = self.etcd.range(&Range::of(client::KeyRange::one(key.clone())))?.found.pop();
        let Some(found) = found else { return Ok(()) };
        // If the announcement was renewed after this read, another server now has this address, and the deletion fails.
        self.write(found.mod_revision, Operation::Delete { key }).map(drop)
    }

    fn write(&self, replaces: u64, operation: Operation) -> Result<bool, Fault> {
        let decided = self.etcd.transact(vec![plain(replaces, operation)]).pop().unwrap_or_else(|| Err(nothing()))?;
        Ok(decided.held)
    }

    fn leases(&self) -> std::sync::MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nothing() -> Fault {
    Fault::Unknown("there is no answer".into())
}

/// The announcement. Its generation is incremented, so that each renewal changes the value. Otherwise other servers
/// might ignore the event, because it changes nothing.
fn document(address: &str, before: Option<&Value>) -> Value {
    let generation = before.and_then(|before| before["metadata"]["generation"].as_i64()).unwrap_or(0);
    json!({
        "apiVersion": SERVERS.api_version,
        "kind": SERVERS.kind,
        "metadata": {"generation": generation.saturating_add(1)},
        "subsets": [{"addresses": [{"ip": address}]}],
    })
}

fn address_of(document: &Value) -> Option<String> {
    document["subsets"][0]["addresses"][0]["ip"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{KeyValue, Txn};
    use crate::model::Model;

    const NOW: Duration = Duration::ZERO;

    fn servers(model: &Model) -> Servers {
        Servers::new(Arc::new(model.plain_client(1)), Keys::new("/registry"), Duration::from_secs(60))
    }

    fn stored(model: &Model, key: &str) -> KeyValue {
        model.plain_client(1).range(&Range::of(client::KeyRange::one(key.to_owned()))).expect("a read").found.remove(0)
    }

    fn put(model: &Model, key: &str, value: &[u8]) {
        let put = Operation::Put { key: key.to_owned().into(), value: value.to_vec().into(), lease: 0 };
        let asked = Txn { operations: vec![put], ..Txn::default() };
        model.plain_client(1).transact(vec![asked]).remove(0).expect("a write");
    }

    #[test]
    fn servers_are_there_until_they_go_or_fall_silent() {
        let model = Model::default();
        let (one, other) = (servers(&model), servers(&model));
        one.announce("10.0.0.7", NOW).expect("announced");
        other.announce("10.0.0.10", NOW).expect("announced");
        assert_eq!(one.list().expect("servers"), ["10.0.0.10", "10.0.0.7"]);
        model.advance(10);
        one.announce("10.0.0.7", Duration::from_secs(10)).expect("announced");
        model.advance(6);
        assert_eq!(one.list().expect("servers"), ["10.0.0.7"], "the other has said nothing for longer than its lease");
        one.withdraw("10.0.0.7").expect("withdrawn");
        assert_eq!(other.list().expect("servers"), Vec::<String>::new());
    }

    #[test]
    fn a_store_for_kubernetes_alone_takes_announcements() {
        let model = Model::default();
        model.be_plain();
        let one = servers(&model);
        one.announce("10.0.0.7", NOW).expect("announced");
        one.announce("10.0.0.7", NOW).expect("renewed");
        assert_eq!(one.list().expect("servers"), ["10.0.0.7"]);
        one.withdraw("10.0.0.7").expect("withdrawn");
        assert_eq!(one.list().expect("servers"), Vec::<String>::new());
        one.withdraw("10.0.0.7").expect("nothing to withdraw");
    }

    #[test]
    fn each_renewal_is_a_change() {
        let model = Model::default();
        let one = servers(&model);
        for generation in 1..4 {
            one.announce("10.0.0.7", NOW).expect("announced");
            let found = stored(&model, "/registry/masterleases/10.0.0.7");
            assert!(found.value.starts_with(b"k8s\0") && found.lease != 0);
            let document = read_record(&SERVERS, "k", &found.value).expect("a record");
            assert_eq!(document["metadata"]["generation"], generation);
        }
    }

    #[test]
    fn what_says_no_address_is_passed_over() {
        let model = Model::default();
        let one = servers(&model);
        put(&model, "/registry/masterleases/10.0.0.8", b"garbage");
        put(&model, "/registry/masterleases/10.0.0.9", br#"{"apiVersion":"v1","kind":"Endpoints"}"#);
        put(&model, "/registry/masterleasesx/10.0.0.9", b"another's");
        one.announce("10.0.0.7", NOW).expect("announced");
        assert_eq!(one.list().expect("servers"), ["10.0.0.7"]);
        one.announce("10.0.0.8", NOW).expect("what cannot be read is its own");
        assert_eq!(one.list().expect("servers"), ["10.0.0.7", "10.0.0.8"]);
    }

    #[test]
    fn a_lease_that_was_revoked_is_replaced() {
        let model = Model::default();
        let one = servers(&model);
        one.announce("10.0.0.7", NOW).expect("announced");
        // The lease expires in etcd. The server's own clock has not advanced, so the server still considers its lease
        // valid.
        model.advance(15);
        assert!(one.list().expect("servers").is_empty());
        one.announce("10.0.0.7", NOW).expect("announced");
        assert_eq!(one.list().expect("servers"), ["10.0.0.7"]);
    }
}

//! Compares servers on one etcd: their options must be the same, and each server must have the encryption keys of the
//! values that other servers write. Each server publishes its options in etcd under a lease, together with salted MACs
//! by which other servers recognize its keys. A server does not start while a running server has different options or
//! keys.

use crate::client::{self, Etcd, Fault, Operation, Range, Transactions};
use crate::key_space::{KeySpace, Kinds};
use crate::leases::Leases;
use crate::transaction::plain;
use bytes::Bytes;
use holdfast_encryption::Live;
use holdfast_value::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a server counts as running after it last renewed its options.
const LEASE: Duration = Duration::from_secs(15);
/// How often each server renews its options.
pub const RENEWED_EACH: Duration = Duration::from_secs(5);
/// The maximum number of characters of another server's values that an error shows.
const SHOWN_MAX: usize = 200;

/// Compares this server's options with the options of other servers.
pub struct OptionComparison {
    etcd: Arc<dyn Etcd>,
    key: Bytes,
    all: client::KeyRange,
    address: String,
    options: BTreeMap<&'static str, String>,
    keys: Arc<Live>,
    leases: Mutex<Leases>,
    /// The differences that this server has already reported.
    reported: Mutex<BTreeSet<String>>,
}

impl OptionComparison {
    /// `server` is the id of the server's log. `address` names this server in errors of other servers.
    pub fn new(
        etcd: Arc<dyn Etcd>,
        (prefix, transactions): (&str, Transactions),
        server: &str,
        address: &str,
        options: BTreeMap<&'static str, String>,
        keys: Arc<Live>,
    ) -> OptionComparison {
        let places = KeySpace::new(prefix, Kinds::All, transactions);
        OptionComparison {
            etcd,
            key: places.options(server),
            all: places.all_options(),
            address: address.to_owned(),
            options,
            keys,
            leases: Mutex::new(Leases::new(Duration::ZERO)),
            reported: Mutex::default(),
        }
    }

    /// This server's published options and encryption keys, which other servers read.
    fn value(&self) -> Result<Bytes, Fault> {
        let mut options = Map::new();
        self.options.iter().for_each(|(name, value)| drop(options.insert((*name).to_owned(), value.clone().into())));
        let keys = self.keys.keyring().published().map_err(Fault::Refused)?;
        let value = json!({"address": self.address, "options": Value::Object(options), "encryption": keys});
        Ok(value.to_string().into())
    }

    /// The options that differ from the options of a running server, each with that server and its value, and the
    /// resources that one of the two servers encrypts with a key that the other server does not have.
    pub fn differences(&self) -> Result<Vec<String>, Fault> {
        let found = self.etcd.range(&Range::of(self.all.clone()))?.found;
        let mut differences = Vec::new();
        for other in found.iter().filter(|other| other.key != self.key) {
            // A value that is not JSON was written by another release and is not compared.
            let Ok(told) = serde_json::from_slice::<Value>(&other.value) else { continue };
            let address = shown(&told["address"]);
            for (name, own) in &self.options {
                match &told["options"][*name] {
                    Value::Null => {}
                    other if other.as_str() == Some(own) => {}
                    other => {
                        differences.push(format!("{name}={own}, and the server at {address} has {}", shown(other)))
                    }
                }
            }
            let server = format!("the server at {address}");
            differences.extend(self.keys.keyring().conflict(&told["encryption"], &server));
        }
        Ok(differences)
    }

    /// Writes this server's options again, and returns the differences that were not reported before. New differences
    /// arise when another server starts at the same time, or reads its encryption configuration again.
    pub fn renew(&self, now: Duration) -> Result<Vec<String>, Fault> {
        self.announce(now)?;
        let differences: BTreeSet<String> = self.differences()?.into_iter().collect();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let news = differences.difference(&reported).cloned().collect();
        *reported = differences;
        Ok(news)
    }

    /// Writes this server's options, or writes them again under a current lease. `now` is the time of any monotonic
    /// clock.
    pub fn announce(&self, now: Duration) -> Result<(), Fault> {
        let lease = self.leases().lease(self.etcd.as_ref(), LEASE, now)?;
        let put = Operation::Put { key: self.key.clone(), value: self.value()?, lease };
        match self.write(self.revision()?, put) {
            Err(Fault::NoLease(why)) => {
                self.leases().forget(lease);
                Err(Fault::NoLease(why))
            }
            other => other,
        }
    }

    /// Deletes this server's options. Called when the server ends.
    pub fn withdraw(&self) -> Result<(), Fault> {
        match self.revision()? {
            0 => Ok(()),
            revision => self.write(revision, Operation::Delete { key: self.key.clone() }),
        }
    }

    /// The revision of this server's options; zero if etcd does not have the options.
    fn revision(&self) -> Result<u64, Fault> {
        let found = self.etcd.range(&Range::of(client::KeyRange::one(self.key.clone())))?.found.pop();
        Ok(found.map_or(0, |found| found.mod_revision))
    }

    fn write(&self, replaces: u64, operation: Operation) -> Result<(), Fault> {
        let nothing = || Err(Fault::Unknown("there is no answer".into()));
        self.etcd.transact(vec![plain(replaces, operation)]).pop().unwrap_or_else(nothing).map(drop)
    }

    fn leases(&self) -> std::sync::MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shown(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let cut: String = text.chars().take(SHOWN_MAX).collect();
    holdfast_core::visible::line(&cut).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    const NOW: Duration = Duration::ZERO;

    fn alike(model: &Model, server: &str, ranges: &str) -> OptionComparison {
        with(model, server, ranges, &Live::none())
    }

    fn with(model: &Model, server: &str, ranges: &str, keys: &Arc<Live>) -> OptionComparison {
        let options = BTreeMap::from([("--service-cluster-ip-range", ranges.to_owned())]);
        OptionComparison::new(
            Arc::new(model.plain_client(1)),
            ("/registry", Transactions::Full),
            server,
            &format!("10.0.0.{server}"),
            options,
            keys.clone(),
        )
    }

    fn with_key(name: &str) -> Arc<Live> {
        let key = format!("{{name: {name}, secret: AAAAAAAAAAAAAAAAAAAAAA==}}");
        let entry = format!("{{resources: [secrets], providers: [{{aescbc: {{keys: [{key}]}}}}]}}");
        let text = format!("{{apiVersion: v1, kind: EncryptionConfig, resources: [{entry}]}}");
        Live::of_text(&text, false, false).expect("a configuration")
    }

    #[test]
    fn options_are_compared_with_those_of_running_servers() {
        let model = Model::default();
        let (one, same, other) = (alike(&model, "1", "a"), alike(&model, "2", "a"), alike(&model, "3", "b"));
        one.announce(NOW).expect("told");
        one.announce(NOW).expect("told again");
        assert_eq!(one.differences(), Ok(Vec::new()), "its own options do not count");
        assert_eq!(same.differences(), Ok(Vec::new()));
        let expected = "--service-cluster-ip-range=b, and the server at 10.0.0.1 has a";
        assert_eq!(other.differences(), Ok(vec![expected.to_owned()]));
        // After 16 seconds the lease of the server's options has expired, so they are no longer compared.
        model.advance(16);
        assert_eq!(other.differences(), Ok(Vec::new()));
        one.announce(Duration::from_secs(16)).expect("told");
        assert_eq!(other.differences().map(|all| all.len()), Ok(1));
        one.withdraw().expect("withdrawn");
        assert_eq!(other.differences(), Ok(Vec::new()));
    }

    #[test]
    fn keys_are_compared_with_those_of_running_servers() {
        let model = Model::default();
        let (one, same, other) =
            (with(&model, "1", "a", &with_key("x")), with(&model, "2", "a", &with_key("x")), with_key("y"));
        let other = with(&model, "3", "a", &other);
        one.announce(NOW).expect("told");
        assert_eq!(same.differences(), Ok(Vec::new()));
        let found = other.differences().expect("differences");
        assert_eq!(found.len(), 1, "{found:?}");
        for part in ["--encryption-provider-config", "secrets", "aescbc:v1:x:", "the server at 10.0.0.1"] {
            assert!(found[0].contains(part), "{part}: {found:?}");
        }
        // The other server starts nevertheless. Each server reports the difference once.
        assert_eq!(one.renew(NOW), Ok(Vec::new()));
        assert_eq!(other.renew(NOW), Ok(found.clone()));
        assert_eq!(other.renew(NOW), Ok(Vec::new()));
        assert_eq!(one.renew(NOW).map(|news| news.len()), Ok(1));
        one.withdraw().expect("withdrawn");
        assert_eq!(other.renew(NOW), Ok(Vec::new()));
        one.announce(NOW).expect("told");
        assert_eq!(other.renew(NOW), Ok(found), "it came again");
    }

    #[test]
    fn what_is_no_description_is_passed_over() {
        let model = Model::default();
        let one = alike(&model, "1", "a");
        for (server, value) in [("2", "garbage"), ("3", "{}"), ("4", r#"{"options":{"--other":"x"}}"#)] {
            let put = Operation::Put {
                key: KeySpace::new("/registry", Kinds::All, Transactions::Full).options(server),
                value: value.into(),
                lease: 0,
            };
            one.write(0, put).expect("written");
        }
        assert_eq!(one.differences(), Ok(Vec::new()));
    }
}

//! Writes objects into an etcd.

use super::{Destination, Meaning, Movable, Note, Prepared, Stopped, StoredPair, Unmovable};
use crate::client::{
    self, Compare, Etcd, Expected, Fault, KeyRange, KeyValue, Operation, Range, RangeContent, Transactions, Txn,
};
use crate::key_space::{KeySpace, Kinds};
use crate::leases::Leases;
use crate::raise::raise;
use crate::shared::{FULL, fault};
use bytes::Bytes;
use holdfast_core::etcd::{Media, write_event};
use holdfast_core::event::Record;
use holdfast_core::kinds::registry;
use holdfast_encryption::Keyring;
use prost::Message;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The maximum time without an answer of etcd, after which the migration stops. The migration can be resumed.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(500);
/// The bytes with which every encrypted value begins.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// The name of the key whose writes raise etcd's revision.
const TICKS: &str = "migration";

/// How objects are written into etcd.
#[derive(Debug, Clone, Copy)]
pub struct Storage {
    pub media: Media,
    /// The minor release that determines the API versions of stored objects.
    pub release: u32,
    /// The lifetime of objects that expire; `None` means that no object expires.
    pub news_ttl: Option<Duration>,
}

/// An etcd without keys below the prefix, or an etcd that the same migration has partly filled.
pub struct ToEtcd {
    etcd: Arc<dyn Etcd>,
    name: String,
    places: KeySpace,
    storage: Storage,
    /// The keys that encrypt values; `None` if values are not encrypted.
    keyring: Option<Arc<Keyring>>,
    leases: Mutex<Leases>,
    began: Instant,
    /// The revision of the note in etcd; zero if there is none. Every write compares this revision. So if two processes
    /// continue one migration, the first one stops.
    noted: AtomicU64,
}

/// A key that is written, with its value.
pub struct Put {
    key: Bytes,
    value: Bytes,
    /// The storage path of the key's resource, which selects the encryption key; empty for a value that is not
    /// encrypted again.
    resource: String,
    expires: bool,
}

impl ToEtcd {
    pub fn new(
        etcd: Arc<dyn Etcd>,
        name: &str,
        prefix: &str,
        storage: Storage,
        keyring: Option<Arc<Keyring>>,
    ) -> ToEtcd {
        ToEtcd {
            etcd,
            name: format!("{name}, below {prefix},"),
            places: KeySpace::new(prefix, Kinds::All, Transactions::Full),
            storage,
            keyring,
            leases: Mutex::new(Leases::new(Duration::from_secs(60))),
            began: Instant::now(),
            noted: AtomicU64::new(0),
        }
    }

    fn of_event(&self, record: Record) -> Result<Put, Unmovable> {
        let kind = registry().by_storage(&record.resource).map(|id| registry().get(id));
        let key = self.places.keys.at(&record.resource, &record.key);
        let value = write_event(kind, &key, &record.object, self.storage.media, self.storage.release)?;
        let expires = kind.is_some_and(|kind| kind.deletion.expires);
        self.sealed(Put { key: key.into(), value: value.into(), resource: record.resource, expires })
    }

    /// Encrypts the value that is written, if there are encryption keys.
    fn sealed(&self, put: Put) -> Result<Put, Unmovable> {
        let Some(keyring) = self.keyring.as_ref().filter(|_| !put.resource.is_empty()) else { return Ok(put) };
        keyring.await_key(&put.resource)?;
        let key = String::from_utf8_lossy(&put.key);
        let sealed = keyring.seal_value(&put.resource, &key, put.value.to_vec());
        let value = sealed.map_err(|why| format!("{key} cannot be encrypted: {why}"))?.into();
        Ok(Put { value, ..put })
    }

    /// Whether the value `found` in etcd equals the value of `put`. The decrypted values are compared, because
    /// encrypting a value twice gives different bytes.
    fn is_there(&self, put: &Put, found: &[u8]) -> bool {
        let key = String::from_utf8_lossy(&put.key);
        let same = |keyring: &Arc<Keyring>| {
            let opened = |value| keyring.open_value(&put.resource, &key, value).ok();
            opened(found).is_some_and(|found| Some(found) == opened(&put.value))
        };
        *found == *put.value || self.keyring.as_ref().is_some_and(same)
    }

    /// Converts a key of another etcd. Its value keeps its encoding (JSON, Protobuf, CBOR), and is encrypted again if
    /// there are encryption keys.
    fn of_pair(&self, pair: StoredPair) -> Result<Put, Unmovable> {
        let key = Bytes::from(format!("{}{}", self.places.keys.root(), pair.below));
        let KeyValue { key: before, value, lease, .. } = pair.found;
        if value.starts_with(ENCRYPTED) && before != key {
            let before = String::from_utf8_lossy(&before);
            return Err(
                format!("{before} is encrypted and bound to its key: it can be moved to no other prefix").into()
            );
        }
        let resource = match pair.meaning {
            Meaning::Object { resource, .. } => resource,
            Meaning::Derived(storage) => storage.to_owned(),
            Meaning::Unknown(_) => String::new(),
        };
        self.sealed(Put { key, value, resource, expires: lease != 0 })
    }

    /// The lease of an object that expires; zero for other objects.
    fn lease(&self, put: &Put) -> Result<u64, Fault> {
        let Some(ttl) = self.storage.news_ttl.filter(|_| put.expires) else { return Ok(0) };
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.lease(self.etcd.as_ref(), ttl, self.began.elapsed())
    }

    fn forget(&self, lease: u64) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).forget(lease);
    }

    fn expected(&self) -> Compare {
        let revision = self.noted.load(Ordering::Relaxed);
        Compare { key: self.places.migration(), is: Expected::ModRevision(revision) }
    }

    /// Writes the note of the migration's progress into etcd.
    fn keep(&self, note: &Note) -> Result<(), Stopped> {
        let (key, value) = (self.places.migration(), Bytes::from(note.encode_to_vec()));
        let txn = Txn {
            compares: vec![self.expected()],
            operations: vec![Operation::Put { key: key.clone(), value: value.clone(), lease: 0 }],
            otherwise: Some(KeyRange::one(key)),
        };
        let mut unknown = false;
        let mut patience = Patience::default();
        loop {
            let revision = match self.one(&txn) {
                Ok(decided) if decided.held => decided.header.revision,
                Ok(decided) => match decided.found.first() {
                    // An earlier attempt, whose answer was lost, has written the note.
                    Some(found) if unknown && found.value == value => found.mod_revision,
                    _ => return Err(self.overtaken()),
                },
                Err(why @ (Fault::Unknown(_) | Fault::Unreachable(_))) => {
                    unknown = true;
                    patience.wait(why)?;
                    continue;
                }
                Err(why) => return Err(fault(why).into()),
            };
            self.noted.store(revision, Ordering::Relaxed);
            return Ok(());
        }
    }

    fn one(&self, txn: &Txn) -> Result<client::Decided, Fault> {
        let answer = self.etcd.transact(vec![txn.clone()]).pop();
        answer.unwrap_or_else(|| Err(Fault::Unknown("there is no answer".into())))
    }

    fn overtaken(&self) -> Stopped {
        Stopped::Refused(format!("another process has gone on with the migration into {} since", self.name))
    }
}

/// The time since which etcd has not answered; `None` if it has answered the last request.
#[derive(Default)]
struct Patience(Option<Instant>);

impl Patience {
    fn wait(&mut self, why: Fault) -> Result<(), Stopped> {
        if self.0.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(fault(why).into());
        }
        std::thread::sleep(RETRY);
        Ok(())
    }
}

impl Destination for ToEtcd {
    type Ready = Put;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_note(&mut self) -> Result<Option<Note>, Stopped> {
        let key = self.places.migration();
        if let Some(found) = self.etcd.range(&Range::of(KeyRange::one(key.clone()))).map_err(fault)?.found.first() {
            let unreadable = |_| {
                let key = String::from_utf8_lossy(&key);
                Stopped::Refused(format!("the value of {key} in {} is not the record of a migration", self.name))
            };
            let note = Note::decode(&*found.value).map_err(unreadable)?;
            self.noted.store(found.mod_revision, Ordering::Relaxed);
            return Ok(Some(note));
        }
        let asked = Range::of(self.places.watched()).limit(1).only(RangeContent::WithoutValues);
        let there = self.etcd.range(&asked).map_err(fault)?;
        match there.found.first() {
            None => Ok(None),
            Some(found) => Err(Stopped::Refused(format!(
                "{} is not empty: there are {} keys, the first of which is {}. Empty the target first",
                self.name,
                there.count,
                String::from_utf8_lossy(&found.key)
            ))),
        }
    }

    /// etcd numbers its writes itself. So its revision is first raised above the version of the source, if that is
    /// possible. Then no client receives an older version than the versions that it received from the source.
    fn begin(&mut self, note: &Note) -> Result<(), Stopped> {
        self.keep(note)?;
        let noted = self.noted.load(Ordering::Relaxed);
        // A failure does not stop the migration, because the summary shows both versions.
        let _ = raise(self.etcd.as_ref(), &self.places.tick(TICKS), noted, note.version);
        Ok(())
    }

    fn prepare(&self, object: Movable) -> Result<Option<Prepared<Put>>, Unmovable> {
        let put = match object {
            Movable::Event(record) => self.of_event(record)?,
            Movable::Pair(pair) => self.of_pair(pair)?,
        };
        Ok(Some(Prepared { bytes: put.key.len() + put.value.len(), ready: put }))
    }

    fn write(&self, batch: Vec<Put>, note: &Note) -> Result<(), Stopped> {
        let (mut left, mut patience) = (batch, Patience::default());
        while !left.is_empty() {
            let mut txns = Vec::with_capacity(left.len());
            for put in &left {
                let Put { key, value, .. } = put;
                let (key, value) = (key.clone(), value.clone());
                let absent = Compare { key: key.clone(), is: Expected::ModRevision(0) };
                txns.push(Txn {
                    compares: vec![self.expected(), absent],
                    otherwise: Some(KeyRange::one(key.clone())),
                    operations: vec![Operation::Put { key, value, lease: self.lease(put).map_err(fault)? }],
                });
            }
            let (mut again, mut trouble) = (Vec::new(), None);
            for ((put, txn), answer) in left.into_iter().zip(&txns).zip(self.etcd.transact(txns.clone())) {
                let key = String::from_utf8_lossy(&put.key).into_owned();
                match answer {
                    Ok(decided) if decided.held => {}
                    Ok(decided) => match decided.found.first() {
                        // The value was written before the migration was interrupted, or before an answer was lost.
                        Some(found) if self.is_there(&put, &found.value) => {}
                        Some(_) => {
                            let name = &self.name;
                            let why = format!("{name} has another value under {key}: something else has written there");
                            return Err(Stopped::Refused(why));
                        }
                        None => return Err(self.overtaken()),
                    },
                    Err(Fault::NoLease(_)) => {
                        for operation in &txn.operations {
                            if let Operation::Put { lease, .. } = operation {
                                self.forget(*lease);
                            }
                        }
                        again.push(put);
                    }
                    Err(why @ (Fault::Unknown(_) | Fault::Unreachable(_))) => {
                        again.push(put);
                        trouble = Some(why);
                    }
                    Err(Fault::NoSpace(_)) => return Err(holdfast_engine::Fault::Full { operation: FULL }.into()),
                    Err(why) => return Err(Stopped::Refused(format!("{key}: {why}"))),
                }
            }
            if let Some(why) = trouble {
                patience.wait(why)?;
            }
            left = again;
        }
        self.keep(note)
    }

    fn finish(&mut self) -> Result<u64, Stopped> {
        let gone = |key| Operation::Delete { key };
        let txn = Txn {
            compares: vec![self.expected()],
            operations: vec![gone(self.places.migration()), gone(self.places.tick(TICKS))],
            otherwise: Some(KeyRange::one(self.places.migration())),
        };
        let (mut unknown, mut patience) = (false, Patience::default());
        loop {
            match self.one(&txn) {
                Ok(decided) if decided.held || unknown && decided.found.is_empty() => {
                    return Ok(decided.header.revision);
                }
                Ok(_) => return Err(self.overtaken()),
                Err(why @ (Fault::Unknown(_) | Fault::Unreachable(_))) => {
                    unknown = true;
                    patience.wait(why)?;
                }
                Err(why) => return Err(fault(why).into()),
            }
        }
    }
}

//! Reads the objects of an etcd at one revision.

use super::{Meaning, Movable, Source, SourceObject, Stopped, StoredPair, Unmovable};
use crate::client::{self, Etcd, Fault, KeyRange, KeyValue, Range, RangeContent, Transactions};
use crate::key_space::{KeySpace, Kinds};
use crate::shared::fault;
use holdfast_core::etcd::Place;
use holdfast_core::kinds::records::{PEERS, SERVERS};
use holdfast_core::kinds::registry;
use holdfast_encryption::Keyring;
use std::borrow::Cow;
use std::sync::Arc;

/// The number of keys that are read in the first page.
const PAGE: u64 = 100;
/// The maximum number of keys that are read in a page.
const PAGE_MAX: u64 = 2000;
/// Each later page has as many keys as fit into about this many bytes, estimated from the previous page.
const PAGE_BYTES: u64 = 4 << 20;
/// The number of keys that are read at a time without their values.
const KEYS_PAGE: u64 = 5000;

/// The objects below a prefix of an etcd, as a source.
pub struct FromEtcd {
    etcd: Arc<dyn Etcd>,
    places: KeySpace,
    id: String,
    revision: u64,
    /// The keys that decrypt values. `None` means that values are moved without decryption.
    keyring: Option<Arc<Keyring>>,
}

impl FromEtcd {
    pub fn open(etcd: Arc<dyn Etcd>, prefix: &str, keyring: Option<Arc<Keyring>>) -> Result<FromEtcd, Stopped> {
        let places = KeySpace::new(prefix, Kinds::All, Transactions::Full);
        let header =
            etcd.range(&Range::of(KeyRange::one(places.secret())).only(RangeContent::Count)).map_err(fault)?.header;
        let id = format!("the keys below {} in the etcd cluster {:x}", places.keys.root(), header.cluster);
        Ok(FromEtcd { etcd, places, id, revision: header.revision, keyring })
    }

    fn compacted(&self, why: Fault) -> Stopped {
        match why {
            Fault::Compacted(_) => Stopped::Refused(format!(
                "revision {}, at which the source is read, was compacted. Stop all servers and compaction on the \
                 source, empty the target, and start the migration again",
                self.revision
            )),
            other => fault(other).into(),
        }
    }

    /// Visits all keys of a range without their values.
    fn each_key(&self, keys: KeyRange, visit: &mut dyn FnMut(&KeyValue)) -> Result<(), Stopped> {
        let (mut keys, mut revision) = (keys, 0);
        loop {
            let asked = Range::of(keys.clone()).at(revision).limit(KEYS_PAGE).only(RangeContent::WithoutValues);
            let page = self.etcd.range(&asked).map_err(fault)?;
            revision = page.header.revision.max(revision);
            page.found.iter().for_each(&mut *visit);
            let Some(last) = page.found.last().filter(|_| page.more) else { return Ok(()) };
            keys.from = behind(&last.key);
        }
    }

    /// The meaning of a key, and its resource; `None` for records about running servers.
    fn meaning(&self, key: &[u8], below: &str) -> Option<(Meaning, String)> {
        let known = registry();
        Some(match self.places.keys.place(known, key) {
            Ok(Place::Object { kind, key }) => {
                let kind = known.get(kind);
                let resource = kind.storage.path.clone();
                (Meaning::Object { kind: Some(kind), resource: resource.clone(), key: key.to_owned() }, resource)
            }
            Ok(Place::Record { record, .. }) if [&SERVERS, &PEERS].contains(&record) => return None,
            Ok(Place::Record { record, .. }) => (Meaning::Derived(record.storage), record.storage.to_owned()),
            Ok(Place::Strange) => match self.places.keys.custom(key) {
                Some((resource, key)) => {
                    let (resource, key) = (resource.to_owned(), key.to_owned());
                    (Meaning::Object { kind: None, resource: resource.clone(), key }, resource)
                }
                None => (Meaning::Unknown("its kind is not known".into()), first_part(below)),
            },
            Err(why) => (Meaning::Unknown(why.problem), first_part(below)),
        })
    }

    /// Decrypts the value of a key, if there are encryption keys.
    fn opened(&self, found: KeyValue, key: &str, resource: &str) -> Result<KeyValue, Unmovable> {
        let Some(keyring) = &self.keyring else { return Ok(found) };
        let plain = match keyring.open_value(resource, key, &found.value) {
            Ok(Cow::Borrowed(_)) => None,
            Ok(Cow::Owned(plain)) => Some(plain),
            Err(why) => return Err(format!("the value stored under {key} cannot be decrypted: {why}").into()),
        };
        Ok(match plain {
            Some(plain) => KeyValue { value: plain.into(), ..found },
            None => found,
        })
    }

    /// The number of keys at a revision (zero for the newest revision), without the keys that may expire.
    fn lasting(&self, revision: u64) -> Result<u64, Stopped> {
        let count = |keys: KeyRange| {
            let asked = Range::of(keys).at(revision).only(RangeContent::Count);
            self.etcd.range(&asked).map(|answer| answer.count).map_err(|why| self.compacted(why))
        };
        let mut lasting = count(self.places.objects())?;
        for expiring in self.expiring() {
            lasting = lasting.saturating_sub(count(expiring)?);
        }
        Ok(lasting)
    }

    /// The ranges of keys that have leases, and may therefore expire during the migration.
    fn expiring(&self) -> Vec<KeyRange> {
        let kinds = registry().iter().filter(|(_, kind)| kind.deletion.expires);
        let mut storages: Vec<&str> = kinds.map(|(_, kind)| kind.storage.path.as_str()).collect();
        // Kinds of several groups may share a storage path, which must be counted once.
        storages.extend([SERVERS.storage, PEERS.storage]);
        storages.sort_unstable();
        storages.dedup();
        storages.into_iter().map(|storage| self.below(storage)).collect()
    }

    fn below(&self, storage: &str) -> KeyRange {
        let root = self.places.keys.root();
        // In byte order `0` follows the slash, so the range has all keys below the storage path.
        KeyRange::between(format!("{root}{storage}/"), format!("{root}{storage}0"))
    }
}

fn first_part(below: &str) -> String {
    below.split('/').next().unwrap_or_default().to_owned()
}

/// The first key after another key in byte order.
fn behind(key: &[u8]) -> bytes::Bytes {
    [key, &[0]].concat().into()
}

impl Source for FromEtcd {
    fn id(&self) -> String {
        self.id.clone()
    }

    fn version(&self) -> u64 {
        self.revision
    }

    fn check_unused(&self) -> Result<(), Stopped> {
        let asked = Range::of(self.below(SERVERS.storage)).limit(1).only(RangeContent::WithoutValues);
        let Some(server) = self.etcd.range(&asked).map_err(fault)?.found.pop() else { return Ok(()) };
        Err(Stopped::Refused(format!(
            "a server is running on the source, and has announced itself at {}: stop all servers; an announcement lasts \
             for 15 s",
            String::from_utf8_lossy(&server.key)
        )))
    }

    fn read_at(&mut self, version: u64) -> Result<(), Stopped> {
        self.revision = version;
        Ok(())
    }

    fn each(&self, after: &str, visit: &mut dyn FnMut(SourceObject) -> Result<(), Stopped>) -> Result<(), Stopped> {
        let mut keys = self.places.objects();
        if !after.is_empty() {
            keys.from = behind(after.as_bytes());
        }
        let root = self.places.keys.root();
        let (mut limit, mut done, mut whole) = (PAGE, 0u64, 0);
        loop {
            let asked = Range::of(keys.clone()).at(self.revision).limit(limit);
            let client::Ranged { found, more, count, .. } =
                self.etcd.range(&asked).map_err(|why| self.compacted(why))?;
            whole = if whole == 0 { count } else { whole };
            let bytes: usize = found.iter().map(|found| found.key.len() + found.value.len()).sum();
            let read = found.len() as u64;
            let last = found.last().map(|last| last.key.clone());
            for found in found {
                done += 1;
                let part = done as f64 / whole.max(1) as f64;
                let told = String::from_utf8_lossy(&found.key).into_owned();
                if told.as_bytes() != &*found.key {
                    let why = format!("the key {told} is not text").into();
                    visit(SourceObject { place: String::new(), part, resource: String::new(), object: Err(why) })?;
                    continue;
                }
                let below = told.strip_prefix(root).unwrap_or(&told).to_owned();
                let Some((meaning, resource)) = self.meaning(&found.key, &below) else { continue };
                let opened = self.opened(found, &told, &resource);
                let object = opened.map(|found| Movable::Pair(StoredPair { below, meaning, found }));
                visit(SourceObject { place: told, part, resource, object })?;
            }
            let Some(last) = last.filter(|_| more) else { return Ok(()) };
            keys.from = behind(&last);
            // The next page has as many keys as fit into its size, estimated from the size of this page.
            limit = (limit.min(read).max(1) * PAGE_BYTES / (bytes as u64).max(1)).clamp(1, PAGE_MAX);
        }
    }

    fn check_unchanged(&self) -> Result<(), Stopped> {
        let mut changed = None;
        let own = [&SERVERS, &PEERS].map(|record| self.below(record.storage));
        self.each_key(self.places.objects(), &mut |found| {
            if found.mod_revision > self.revision && !own.iter().any(|keys| keys.contains(&found.key)) {
                changed = Some(String::from_utf8_lossy(&found.key).into_owned());
            }
        })?;
        let refused = |what: &str| {
            Err(Stopped::Refused(format!(
                "the source changed while it was read: {what} since its revision {}. Stop all servers on it, empty the \
                 target, and start the migration again",
                self.revision
            )))
        };
        match changed {
            Some(key) => refused(&format!("{key} was changed")),
            None if self.lasting(0)? != self.lasting(self.revision)? => refused("keys were deleted"),
            None => Ok(()),
        }
    }
}

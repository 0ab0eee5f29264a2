//! The content of a model cluster: every version of every key since the last compaction, and leases.

use crate::client::{Compare, Event, Expected, Fault, KeyRange, KeyValue, Operation, Range, RangeContent, Txn};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of operations, and the maximum number of comparisons, in a transaction: the default of
/// `--max-txn-ops`.
const OPERATIONS_MAX: usize = 128;
/// The maximum number of bytes of a request: the default of `--max-request-bytes`.
const REQUEST_BYTES_MAX: usize = 3 << 19;

/// The keys of a cluster, each with its versions in the order of their revisions.
#[derive(Clone)]
pub struct Store {
    pub revision: u64,
    pub compacted: u64,
    keys: BTreeMap<Bytes, Vec<StoredVersion>>,
    /// The keys that each revision wrote, in the order of the transaction's operations.
    written: BTreeMap<u64, Vec<Bytes>>,
    leases: BTreeMap<u64, LeaseState>,
    next_lease: u64,
    /// Whether puts are refused because the store is full.
    pub is_full: bool,
}

/// A key at a revision: its value, or `None` if it was deleted.
#[derive(Clone)]
struct StoredVersion {
    revision: u64,
    is: Option<KeyValue>,
}

#[derive(Clone)]
struct LeaseState {
    ends: u64,
    keys: BTreeSet<Bytes>,
}

/// The keys in a range, and their number regardless of the limit.
pub struct FoundKeys {
    pub keys: Vec<KeyValue>,
    pub count: u64,
}

impl Store {
    /// An empty store. As in etcd, the first write has revision 2.
    pub fn new() -> Store {
        Store {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            written: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            is_full: false,
        }
    }

    /// Reads the keys in a range, as they were at a revision.
    pub fn range(&self, asked: &Range, revision: u64) -> FoundKeys {
        let limit = if asked.limit == 0 { usize::MAX } else { usize::try_from(asked.limit).unwrap_or(usize::MAX) };
        let mut found = FoundKeys { keys: Vec::new(), count: 0 };
        for (_, versions) in self.of(&asked.keys) {
            let Some(key) = at(versions, revision) else { continue };
            found.count += 1;
            if asked.content == RangeContent::Count || found.keys.len() >= limit {
                continue;
            }
            let value = if asked.content == RangeContent::WithoutValues { Bytes::new() } else { key.value.clone() };
            found.keys.push(KeyValue { value, ..key.clone() });
        }
        found
    }

    fn of<'s>(&'s self, keys: &'s KeyRange) -> impl Iterator<Item = (&'s Bytes, &'s Vec<StoredVersion>)> {
        // A key with a zero byte appended is the next key in byte order.
        let end = if keys.to.is_empty() { [&keys.from, &[0][..]].concat().into() } else { keys.to.clone() };
        let empty = keys.from >= end;
        let range = if empty { keys.from.clone()..keys.from.clone() } else { keys.from.clone()..end };
        self.keys.range(range)
    }

    /// Carries out all operations if all comparisons hold, and returns whether they hold. If the operations changed
    /// anything, they share a new revision.
    pub fn transact(&mut self, asked: &Txn) -> Result<bool, Fault> {
        let refused = |why: &str| Err(Fault::Refused(format!("etcdserver: {why}")));
        if asked.compares.len().max(asked.operations.len()) > OPERATIONS_MAX {
            return refused("too many operations in txn request");
        }
        let mut keys = BTreeSet::new();
        let is_put = |operation: &&Operation| matches!(operation, Operation::Put { .. });
        for operation in asked.operations.iter().filter(is_put) {
            if !keys.insert(operation.key()) {
                return refused("duplicate key given in txn request");
            }
        }
        if asked.operations.iter().filter(|operation| !is_put(operation)).any(|delete| keys.contains(delete.key())) {
            return refused("duplicate key given in txn request");
        }
        let bytes = asked.operations.iter().map(|operation| match operation {
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Delete { key } => key.len(),
        });
        if bytes.sum::<usize>() > REQUEST_BYTES_MAX {
            return refused("request is too large");
        }
        if self.is_full && asked.operations.iter().any(|operation| is_put(&operation)) {
            return Err(Fault::NoSpace("etcdserver: mvcc: database space exceeded".into()));
        }
        if !asked.compares.iter().all(|compare| self.holds(compare)) {
            return Ok(false);
        }
        for operation in &asked.operations {
            if let Operation::Put { lease, .. } = operation
                && *lease != 0
                && !self.leases.contains_key(lease)
            {
                return Err(Fault::NoLease("etcdserver: requested lease not found".into()));
            }
        }
        self.write(asked.operations.iter().map(|operation| match operation {
            Operation::Put { key, value, lease } => (key.clone(), Some((value.clone(), *lease))),
            Operation::Delete { key } => (key.clone(), None),
        }));
        Ok(true)
    }

    fn holds(&self, compare: &Compare) -> bool {
        let newest = self.keys.get(&compare.key).and_then(|versions| at(versions, self.revision));
        match compare.is {
            Expected::ModRevision(revision) => newest.map_or(0, |key| key.mod_revision) == revision,
            Expected::Version(version) => newest.map_or(0, |key| key.version) == version,
        }
    }

    /// Writes at the next revision, unless nothing changes. Deleting a missing key is no change.
    fn write(&mut self, changes: impl Iterator<Item = (Bytes, Option<(Bytes, u64)>)>) {
        let revision = self.revision + 1;
        let mut written = Vec::new();
        for (key, change) in changes {
            let versions = self.keys.entry(key.clone()).or_default();
            let before = versions.last().and_then(|version| version.is.clone());
            if change.is_none() && before.is_none() {
                continue;
            }
            if let Some(lease) = before.as_ref().and_then(|before| self.leases.get_mut(&before.lease)) {
                lease.keys.remove(&key);
            }
            let is = change.map(|(value, lease)| {
                if let Some(lease) = self.leases.get_mut(&lease) {
                    lease.keys.insert(key.clone());
                }
                let (create_revision, version) =
                    before.map_or((revision, 1), |before| (before.create_revision, before.version + 1));
                KeyValue { key: key.clone(), value, mod_revision: revision, create_revision, version, lease }
            });
            versions.push(StoredVersion { revision, is });
            written.push(key);
        }
        if !written.is_empty() {
            self.revision = revision;
            self.written.insert(revision, written);
        }
    }

    /// The events on a range of keys between two revisions.
    pub fn events(&self, keys: &KeyRange, from: u64, to: u64) -> Vec<Event> {
        if from > to {
            return Vec::new();
        }
        let written =
            self.written.range(from..=to).flat_map(|(revision, keys)| keys.iter().map(move |key| (revision, key)));
        let concerned = written.filter(|(_, key)| keys.contains(key));
        concerned.filter_map(|(revision, key)| self.event(key, *revision)).collect()
    }

    fn event(&self, key: &Bytes, revision: u64) -> Option<Event> {
        let versions = self.keys.get(key)?;
        let nth = versions.iter().position(|version| version.revision == revision)?;
        let before = nth.checked_sub(1).and_then(|before| versions[before].is.clone());
        Some(match &versions[nth].is {
            Some(now) => Event { is_delete: false, now: now.clone(), before },
            None => {
                let now = KeyValue { key: key.clone(), mod_revision: revision, ..KeyValue::default() };
                Event { is_delete: true, now, before }
            }
        })
    }

    pub fn compact(&mut self, revision: u64) -> Result<(), Fault> {
        if revision <= self.compacted {
            return Err(Fault::Compacted(self.compacted));
        }
        if revision > self.revision {
            return Err(Fault::Refused("etcdserver: mvcc: required revision is a future revision".into()));
        }
        self.compacted = revision;
        self.keys.retain(|_, versions| {
            // Keeps the version that is current at the compacted revision, unless the key is deleted at that revision.
            let stood = versions.iter().rposition(|version| version.revision <= revision);
            if let Some(stood) = stood {
                let from = if versions[stood].is.is_some() { stood } else { stood + 1 };
                versions.drain(..from);
            }
            !versions.is_empty()
        });
        self.written = self.written.split_off(&(revision + 1));
        Ok(())
    }

    pub fn grant(&mut self, ends: u64) -> Result<u64, Fault> {
        if self.is_full {
            return Err(Fault::NoSpace("etcdserver: mvcc: database space exceeded".into()));
        }
        let id = self.next_lease;
        self.next_lease += 1;
        self.leases.insert(id, LeaseState { ends, keys: BTreeSet::new() });
        Ok(id)
    }

    /// Ends the leases that have expired. The keys of each lease are deleted at one revision.
    pub fn expire(&mut self, now: u64) {
        let over: Vec<u64> = self.leases.iter().filter(|(_, lease)| lease.ends <= now).map(|(id, _)| *id).collect();
        for id in over {
            if let Some(lease) = self.leases.remove(&id) {
                self.write(lease.keys.into_iter().map(|key| (key, None)));
            }
        }
    }
}

/// The value that a key has at a revision; `None` if the key does not exist at that revision.
fn at(versions: &[StoredVersion], revision: u64) -> Option<&KeyValue> {
    let behind = versions.partition_point(|version| version.revision <= revision);
    behind.checked_sub(1).and_then(|nth| versions[nth].is.as_ref())
}

//! The requests to etcd and its answers.
//!
//! Calls block the calling thread. [`crate::grpc::Cluster`] is an etcd reached over gRPC; the simulated etcd implements
//! [`Etcd`] as well.

use bytes::Bytes;
use std::time::Duration;

/// An etcd cluster. Any of its members may answer a request.
pub trait Etcd: Send + Sync + 'static {
    /// Reads keys, in byte order. The read is linearizable unless it names a revision.
    fn range(&self, asked: &Range) -> Result<Ranged, Fault>;

    /// Like [`Self::range`], without blocking: `done` is called once, from any thread, and must not block. If the
    /// client is closed, it drops `done`.
    fn range_later(&self, asked: &Range, done: Callback<Ranged>) {
        done(self.range(asked));
    }

    /// Sends independent transactions, all at once. The answers have the order of the transactions.
    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, Fault>>;

    /// The events on a range of keys, starting at `from_revision`, each with the key's previous value.
    fn watch(&self, keys: &KeyRange, from_revision: u64) -> Result<Box<dyn Watch>, Fault>;

    /// Makes etcd discard the versions of keys that were replaced before a revision.
    fn compact(&self, revision: u64) -> Result<Header, Fault>;

    /// Grants a lease that expires after `seconds` seconds, together with all keys that are attached to the lease.
    fn grant(&self, seconds: u64) -> Result<Lease, Fault>;

    /// The status of each member of the cluster, with the member's address.
    fn status(&self) -> Vec<(String, Result<Status, Fault>)>;
}

/// A function that receives the answer of a call that does not block.
pub type Callback<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

/// A stream of the events on a range of keys.
pub trait Watch: Send {
    /// The next events, with all events of a revision together; `None` if no event arrived within `patience`. After a
    /// fault the watch has ended.
    fn next(&mut self, patience: Duration) -> Result<Option<Watched>, Fault>;

    /// Asks etcd to send the watch's progress soon, in an answer without events.
    fn ask_progress(&mut self) -> Result<(), Fault>;
}

/// The member that answered, and the cluster's revision when the member answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    pub cluster: u64,
    pub member: u64,
    pub revision: u64,
    pub term: u64,
}

/// One key if `to` is empty; otherwise the range of keys from `from` up to but not including `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub from: Bytes,
    pub to: Bytes,
}

impl KeyRange {
    pub fn one(key: impl Into<Bytes>) -> KeyRange {
        KeyRange { from: key.into(), to: Bytes::new() }
    }

    pub fn between(from: impl Into<Bytes>, to: impl Into<Bytes>) -> KeyRange {
        KeyRange { from: from.into(), to: to.into() }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        if self.to.is_empty() { self.from == key } else { *self.from <= *key && *key < *self.to }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub keys: KeyRange,
    /// The revision to read at; zero for the newest revision.
    pub revision: u64,
    /// The maximum number of keys to return; zero for no limit.
    pub limit: u64,
    pub content: RangeContent,
}

/// The parts of the keys that a read returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RangeContent {
    #[default]
    Everything,
    WithoutValues,
    /// The read returns only the number of keys.
    Count,
}

impl Range {
    /// Makes a read of all keys of a range, at the newest revision.
    pub fn of(keys: KeyRange) -> Range {
        Range { keys, revision: 0, limit: 0, content: RangeContent::Everything }
    }

    pub fn at(self, revision: u64) -> Range {
        Range { revision, ..self }
    }

    pub fn limit(self, limit: u64) -> Range {
        Range { limit, ..self }
    }

    pub fn only(self, what: RangeContent) -> Range {
        Range { content: what, ..self }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranged {
    pub header: Header,
    pub found: Vec<KeyValue>,
    /// Whether the range has more keys than were returned, because of the limit.
    pub more: bool,
    /// The number of keys in the range, regardless of the limit.
    pub count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision of the key's last write.
    pub mod_revision: u64,
    /// The revision of the write that created the key.
    pub create_revision: u64,
    /// The number of writes since the key was created.
    pub version: u64,
    /// The id of the key's lease; zero for none.
    pub lease: u64,
}

/// The transactions that a store supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transactions {
    /// All transactions of etcd, with several comparisons and several keys.
    #[default]
    Full,
    /// Only Kubernetes' transactions: one key is written if it has the expected revision. kine and some managed stores
    /// support no other transactions.
    Plain,
}

/// Carries out all operations if all comparisons hold. Otherwise carries out at most one read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
    /// The keys that are read if a comparison fails; `None` if nothing is read.
    pub otherwise: Option<KeyRange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    pub key: Bytes,
    pub is: Expected,
}

/// The revision or the version that a key must have. Zero means that the key must not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    ModRevision(u64),
    Version(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Sets the value of a key. A lease of zero means that the key has no lease.
    Put {
        key: Bytes,
        value: Bytes,
        lease: u64,
    },
    Delete {
        key: Bytes,
    },
}

impl Operation {
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// The answer to a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// The header contains the revision of the transaction if the transaction wrote anything.
    pub header: Header,
    /// Whether all comparisons of the transaction held, so that its operations were carried out.
    pub held: bool,
    /// The keys that the transaction read because a comparison failed.
    pub found: Vec<KeyValue>,
}

/// Events in order, with all events of a revision together. If there are none, the header reports the watch's progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    pub header: Header,
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    pub is_delete: bool,
    /// The key and its new value. After a deletion only the key and the revision are set.
    pub now: KeyValue,
    /// The key and its value before the event; `None` if the key did not exist, or its previous version was compacted.
    pub before: Option<KeyValue>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lease {
    pub header: Header,
    pub id: u64,
    pub seconds: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub header: Header,
    /// The version of etcd, such as `3.6.14`.
    pub version: String,
    pub db_bytes: u64,
    pub db_bytes_in_use: u64,
    /// The id of the leader; zero if there is none.
    pub leader: u64,
    pub is_learner: bool,
    /// The alarms that the member reports, in the member's wording.
    pub errors: Vec<String>,
}

/// The reason why a request to etcd failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The request was not carried out: it was not sent, or etcd has certainly not processed it.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// The request may have been carried out, or may be carried out later, or never.
    #[error("etcd did not report whether the request took effect: {0}")]
    Unknown(String),
    /// etcd's quota is used up. etcd sometimes reports this although it has written.
    #[error("etcd is full: {0}")]
    NoSpace(String),
    /// Older revisions are compacted; zero if etcd did not report up to which revision.
    #[error("the requested revision was compacted: etcd has compacted up to revision {0}")]
    Compacted(u64),
    #[error("etcd has no such lease: {0}")]
    NoLease(String),
    /// etcd has refused the request without any effect, and would refuse a repeated request in the same way.
    #[error("etcd refused the request: {0}")]
    Refused(String),
}

//! What Holdfast asks of etcd, and what etcd answers.
//!
//! Calls block the thread that makes them. [`crate::grpc::Cluster`] is the etcd that listens at addresses; whoever
//! stands in for it implements [`Etcd`], too.

use bytes::Bytes;
use std::time::Duration;

/// An etcd cluster, whichever of its members answers.
pub trait Etcd: Send + Sync + 'static {
    /// Keys in the order of their bytes; linearizable unless it is at a revision.
    fn range(&self, asked: &Range) -> Result<Ranged, Fault>;

    /// Transactions that have nothing to do with each other, all under way at once. The answers are in their order.
    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, Fault>>;

    /// The events on the keys of a range, from a revision on, each with what was there before.
    fn watch(&self, keys: &Keys, from_revision: u64) -> Result<Box<dyn Watch>, Fault>;

    /// Lets go of what was replaced before a revision.
    fn compact(&self, revision: u64) -> Result<Header, Fault>;

    /// A lease that is over in so many seconds. All keys that hang on it go then.
    fn grant(&self, seconds: u64) -> Result<Lease, Fault>;

    /// What each member says of itself, by the address that it was asked at.
    fn status(&self) -> Vec<(String, Result<Status, Fault>)>;
}

/// Events as they come.
pub trait Watch: Send {
    /// The next events, of whole revisions; nothing where none came in so long. After a fault there are no more of them.
    fn next(&mut self, patience: Duration) -> Result<Option<Watched>, Fault>;

    /// Has etcd say soon how far it is, in an answer without events.
    fn ask_progress(&mut self) -> Result<(), Fault>;
}

/// Who answered, and where the cluster was then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    pub cluster: u64,
    pub member: u64,
    pub revision: u64,
    pub term: u64,
}

/// One key, or those from one up to, and without, another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    pub from: Bytes,
    /// Empty for one key.
    pub to: Bytes,
}

impl Keys {
    pub fn one(key: impl Into<Bytes>) -> Keys {
        Keys { from: key.into(), to: Bytes::new() }
    }

    pub fn between(from: impl Into<Bytes>, to: impl Into<Bytes>) -> Keys {
        Keys { from: from.into(), to: to.into() }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        if self.to.is_empty() { self.from == key } else { *self.from <= *key && *key < *self.to }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub keys: Keys,
    /// Zero for the newest.
    pub revision: u64,
    /// Zero for all.
    pub limit: u64,
    pub what: What,
}

/// What is asked of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum What {
    #[default]
    Everything,
    WithoutValues,
    /// How many there are, and nothing of them.
    Count,
}

impl Range {
    /// All of these, as they are now.
    pub fn of(keys: Keys) -> Range {
        Range { keys, revision: 0, limit: 0, what: What::Everything }
    }

    pub fn at(self, revision: u64) -> Range {
        Range { revision, ..self }
    }

    pub fn limit(self, limit: u64) -> Range {
        Range { limit, ..self }
    }

    pub fn only(self, what: What) -> Range {
        Range { what, ..self }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranged {
    pub header: Header,
    pub found: Vec<KeyValue>,
    /// Whether the limit cut some off.
    pub more: bool,
    /// How many keys are in the range, whatever the limit.
    pub count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// Of the key's newest write.
    pub mod_revision: u64,
    /// Of the write that made the key.
    pub create_revision: u64,
    /// How often it was written since.
    pub version: u64,
    /// Zero for none.
    pub lease: u64,
}

/// All of the operations where all comparisons hold, else one read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
    /// What is read where a comparison fails.
    pub otherwise: Option<Keys>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    pub key: Bytes,
    pub is: Expected,
}

/// Zero where there is to be no such key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    ModRevision(u64),
    Version(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The lease is zero for none.
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

/// What came of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// Its revision is the transaction's where that wrote.
    pub header: Header,
    /// Whether all comparisons held.
    pub held: bool,
    /// What was read where one did not.
    pub found: Vec<KeyValue>,
}

/// Events of whole revisions, in order; without any, how far the watch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    pub header: Header,
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    pub is_delete: bool,
    /// Of a deletion only the key and the revision.
    pub now: KeyValue,
    /// Nothing where there was no such key, or where it was compacted.
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
    /// Of etcd: `3.6.14`.
    pub version: String,
    pub db_bytes: u64,
    pub db_bytes_in_use: u64,
    /// The id of the member that leads; zero where none does.
    pub leader: u64,
    pub is_learner: bool,
    /// Alarms, as this member words them.
    pub errors: Vec<String>,
}

/// Why etcd did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing was sent, or nothing that was sent was done.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// It was done, or will be, or never.
    #[error("etcd did not say what came of it: {0}")]
    Unknown(String),
    /// etcd says it with these words where it did not write, and where it did.
    #[error("etcd is full: {0}")]
    NoSpace(String),
    /// What is older than this revision is gone; zero where etcd did not say which.
    #[error("etcd has compacted what it was asked for, up to revision {0}")]
    Compacted(u64),
    #[error("etcd has no such lease: {0}")]
    NoLease(String),
    /// Nothing was done, and asking again brings the same.
    #[error("etcd refused it: {0}")]
    Refused(String),
}

//! A server's log of etcd's events, on its own disk. A restart reads this log. It also has history that etcd has
//! compacted.

use holdfast_core::event::Offset;
use holdfast_engine::{Fault, Log};
use holdfast_storage_rocks::RocksLog;
use prost::Message;

/// A log that only this server appends to; the offsets of its records are etcd's revisions.
pub trait Local: Log {
    /// Returns the source that was last saved.
    fn source(&self) -> Result<Source, Fault>;

    /// Saves the source durably, with the progress that it contains.
    fn keep_source(&self, source: &Source) -> Result<(), Fault>;

    /// Records that events before this version may be missing.
    fn begin_at(&self, version: Offset) -> Result<(), Fault>;
}

/// The etcd from which a local log receives its events, and the revision up to which the log has copied the events.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Source {
    /// The id of etcd's cluster; zero before the log has followed any etcd.
    #[prost(uint64, tag = "1")]
    pub cluster: u64,
    #[prost(string, tag = "2")]
    pub prefix: String,
    /// The log has all events up to this revision of etcd.
    #[prost(uint64, tag = "3")]
    pub through: u64,
    /// Whether the log is being filled from a read of all objects, and may have only some of the objects.
    #[prost(bool, tag = "4")]
    pub is_partial: bool,
    /// Whether etcd has values that could not be read. The log has no events for these values, so the next start looks
    /// for these values.
    #[prost(bool, tag = "5")]
    pub has_unread: bool,
    /// The kinds whose events the log has, as text; empty for all kinds.
    #[prost(string, tag = "8")]
    pub kinds: String,
    /// The revision at which the log was last filled after a change of its kinds. Older events are not compared with
    /// etcd, because their kinds may have been in another etcd.
    #[prost(uint64, tag = "10")]
    pub same_kinds_after: u64,
    /// The epoch of the etcd whose events the log has: the value of the key `KeySpace::epoch`.
    #[prost(string, tag = "9")]
    pub epoch: String,
}

impl Local for RocksLog {
    fn source(&self) -> Result<Source, Fault> {
        let Some(bytes) = self.source_kept()? else { return Ok(Source::default()) };
        Source::decode(bytes.as_slice()).map_err(|error| Fault::io("read where its events come from", error))
    }

    fn keep_source(&self, source: &Source) -> Result<(), Fault> {
        self.keep_source_as(&source.encode_to_vec())
    }

    fn begin_at(&self, version: Offset) -> Result<(), Fault> {
        self.note(version, version)
    }
}

//! The log that a server keeps of etcd's events, on its own disk: what a restart reads, and what remembers beyond
//! etcd's compaction.

use holdfast_core::event::Offset;
use holdfast_engine::{Fault, Log};
use holdfast_storage_rocks::RocksLog;
use prost::Message;

/// A log that nobody else appends to, whose records have the revisions of etcd for offsets.
pub trait Local: Log {
    /// What was kept last of where its events come from.
    fn source(&self) -> Result<Source, Fault>;

    /// Keeps it, durable.
    fn keep_source(&self, source: &Source) -> Result<(), Fault>;

    /// Notes that events before this version may be missing.
    fn begin_at(&self, version: Offset) -> Result<(), Fault>;
}

/// Where the events of a local log come from, and how far it has them.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Source {
    /// The id of etcd's cluster; zero before there was any.
    #[prost(uint64, tag = "1")]
    pub cluster: u64,
    #[prost(string, tag = "2")]
    pub prefix: String,
    /// All events up to this revision are there.
    #[prost(uint64, tag = "3")]
    pub through: u64,
    /// It was being filled from a range, and may have a part of it.
    #[prost(bool, tag = "4")]
    pub is_partial: bool,
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

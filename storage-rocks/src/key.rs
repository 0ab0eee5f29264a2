//! Every kind of key, with its layout, value and lifetime. Layouts are never changed, only added to.
//!
//! | column family | key | value | lifetime |
//! | --- | --- | --- | --- |
//! | `events` | offset, 8 bytes big endian | encoded record | until compacted |
//! | `current` | `/registry/RESOURCE/KEY` | offset of its newest event | while the object exists |
//! | `history` | `/registry/RESOURCE/KEY`, 0, offset | a mark, see [`Mark`] | as its event |
//! | `by_resource` | resource, 0, offset | `KEY` | as its event |
//! | `meta` | a word | see [`META_FORMAT`] and the following | for ever |
//!
//! Byte order is logical order: offsets sort by value, and the events of one key or resource are neighbours.

use holdfast_core::event::{Offset, Record};

pub const EVENTS: &str = "events";
pub const CURRENT: &str = "current";
pub const HISTORY: &str = "history";
pub const BY_RESOURCE: &str = "by_resource";
pub const META: &str = "meta";
pub const FAMILIES: [&str; 5] = [EVENTS, CURRENT, HISTORY, BY_RESOURCE, META];

/// A key in `meta`. Its value is the folder's format version, one byte.
pub const META_FORMAT: &[u8] = b"format";
/// A key in `meta`. Its value is random bytes, made with the log, from which keys of this cluster are derived.
pub const META_SECRET: &[u8] = b"secret";
/// A key in `meta`. Its value is the oldest offset at which the log is complete, as a key of `events`.
pub const META_OLDEST: &[u8] = b"oldest";
/// A key in `meta`. Its value is the offset up to which old events were forgotten, and the number of bytes that wait
/// for compaction, each as eight bytes.
pub const META_FORGOTTEN: &[u8] = b"forgotten";
/// A key in `meta`. Its value is the log's unique name, a random UUID in its usual form.
pub const META_ID: &[u8] = b"id";
/// A key in `meta` of a fork. Its value is the version at which the fork begins, as a key of `events`, followed by the
/// name of the log from which this log was forked.
pub const META_ORIGIN: &[u8] = b"origin";
/// A key in `meta`. Its value is the last offset of the newest repair, as a key of `events`. Gaps before this offset
/// were reported.
pub const META_REPAIRED: &[u8] = b"repaired";
/// A key in `meta`. Its value is the source of the log's events, written by the log on etcd that uses this log as its
/// local copy.
pub const META_SOURCE: &[u8] = b"source";
/// A key in `meta`. Its value is the progress of a migration into this log. The migration writes the value, and removes
/// it at the end of the migration.
pub const META_MIGRATION: &[u8] = b"migration";

/// The kind of an event, which a row of `history` records in its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The row has no mark, because an early release wrote it. The event must be read.
    Untold,
    Put,
    Delete,
}

impl Mark {
    pub fn of(record: &Record) -> Mark {
        if record.is_delete() { Mark::Delete } else { Mark::Put }
    }

    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            Mark::Untold => b"",
            Mark::Put => b"+",
            Mark::Delete => b"-",
        }
    }

    pub fn parse(bytes: &[u8]) -> Mark {
        match bytes {
            b"+" => Mark::Put,
            b"-" => Mark::Delete,
            _ => Mark::Untold,
        }
    }
}

/// The root of all storage paths, as in Kubernetes.
pub const PREFIX: &str = "/registry";

pub fn offset(offset: Offset) -> [u8; 8] {
    offset.0.to_be_bytes()
}

pub fn parse_offset(bytes: &[u8]) -> Option<Offset> {
    Some(Offset(u64::from_be_bytes(bytes.try_into().ok()?)))
}

/// The name of an object, for example `/registry/deployments/default/web`.
pub fn object(resource: &str, key: &str) -> Vec<u8> {
    [PREFIX, "/", resource, "/", key].concat().into_bytes()
}

/// A key of `history` or `by_resource`: a name, a zero byte and an offset. Names contain no zero byte.
pub fn versioned(name: &[u8], at: Offset) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 9);
    key.extend_from_slice(name);
    key.push(0);
    key.extend_from_slice(&offset(at));
    key
}

/// A key after all keys that [`versioned`] makes from a name.
pub fn behind(name: &[u8]) -> Vec<u8> {
    let mut key = name.to_vec();
    key.push(1);
    key
}

pub fn parse_versioned(key: &[u8]) -> Option<(&[u8], Offset)> {
    let split = key.len().checked_sub(9)?;
    if key[split] != 0 {
        return None;
    }
    Some((&key[..split], parse_offset(&key[split + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offsets_sort_by_value(a: u64, b: u64) {
            prop_assert_eq!(offset(Offset(a)).cmp(&offset(Offset(b))), a.cmp(&b));
            prop_assert_eq!(parse_offset(&offset(Offset(a))), Some(Offset(a)));
        }

        #[test]
        fn versioned_keys_read_back_and_sort(name in "[a-z/.-]{1,20}", a: u64, b: u64) {
            let key = versioned(name.as_bytes(), Offset(a));
            prop_assert_eq!(parse_versioned(&key), Some((name.as_bytes(), Offset(a))));
            prop_assert_eq!(key.cmp(&versioned(name.as_bytes(), Offset(b))), a.cmp(&b));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_versioned(&bytes);
        }
    }
}

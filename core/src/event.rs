//! The log's record: one whole event with a checksum, readable on its own.
//!
//! Layout of an encoded record: one byte of format version, four bytes of CRC-32C (little endian) over the body, then
//! the body as Protobuf. Field numbers are never reused.

use bytes::Bytes;
use prost::Message;
use std::fmt;

/// A position in the log. Clients see it as the `resourceVersion`. The first event has offset 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    pub const ZERO: Offset = Offset(0);

    pub fn next(self) -> Offset {
        Offset(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The format that this release writes. The release reads this format and all earlier formats.
pub const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 5;

/// An event as the log stores it.
#[derive(Clone, PartialEq, Message)]
pub struct Record {
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// The time of the event, in milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub time_ms: i64,
    /// Storage path of the kind, below the prefix: `deployments`.
    #[prost(string, tag = "3")]
    pub resource: String,
    /// `namespace/name`, or the name alone for cluster-scoped kinds.
    #[prost(string, tag = "4")]
    pub key: String,
    /// The offset of the event that this event replaces; 0 if the object is new.
    #[prost(uint64, tag = "5")]
    pub replaces: u64,
    #[prost(enumeration = "Operation", tag = "6")]
    pub operation: i32,
    #[prost(message, required, tag = "7")]
    pub actor: Actor,
    /// The whole object after the event, as canonical JSON in the hub version; for a deletion, its last state.
    #[prost(bytes = "bytes", tag = "8")]
    pub object: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Operation {
    Put = 0,
    Delete = 1,
}

/// The user and the request that caused the event.
#[derive(Clone, PartialEq, Message)]
pub struct Actor {
    #[prost(string, tag = "1")]
    pub user: String,
    #[prost(string, tag = "2")]
    pub manager: String,
    #[prost(string, tag = "3")]
    pub verb: String,
    #[prost(string, tag = "4")]
    pub request_id: String,
    /// Changes by admission (webhooks, policies). The changes are recorded so that a replay calls no webhook and no
    /// policy.
    #[prost(message, repeated, tag = "5")]
    pub changes: Vec<ChangedBy>,
}

/// The fields that one webhook or policy changed in the object that the client sent.
#[derive(Clone, PartialEq, Message)]
pub struct ChangedBy {
    /// The webhook or policy that changed the fields: `webhook inject.example.com of sidecars`.
    #[prost(string, tag = "1")]
    pub by: String,
    /// The fields that were set, as JSON pointers into the object in the form that the webhook or policy got.
    #[prost(string, repeated, tag = "2")]
    pub fields: Vec<String>,
}

/// The reason why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    TooShort { bytes: usize },
    NewerFormat { found: u8 },
    Checksum { stored: u32, computed: u32 },
    Body(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { bytes } => write!(f, "the record has only {bytes} bytes"),
            Self::NewerFormat { found } => write!(
                f,
                "the record has format {found}, which a newer release wrote; this release reads up to format {FORMAT}"
            ),
            Self::Checksum { stored, computed } => {
                write!(f, "its checksum is {computed:08x} where {stored:08x} was written")
            }
            Self::Body(why) => write!(f, "its body cannot be read: {why}"),
        }
    }
}

impl std::error::Error for Damage {}

impl Record {
    pub fn is_delete(&self) -> bool {
        self.operation == Operation::Delete as i32
    }

    pub fn offset(&self) -> Offset {
        Offset(self.offset)
    }

    /// The number of bytes that [`encode_record`](Record::encode_record) returns for this record.
    pub fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + self.encoded_len()
    }

    pub fn encode_record(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_bytes());
        out.extend_from_slice(&[FORMAT, 0, 0, 0, 0]);
        // A Vec grows as needed, so encoding into it cannot fail.
        self.encode(&mut out).unwrap_or_else(|never| unreachable!("encoding into a Vec: {never}"));
        let sum = crc32c::crc32c(&out[HEADER_BYTES..]);
        out[1..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode_record(bytes: &[u8]) -> Result<Record, Damage> {
        let mut record = Record::default();
        record.decode_again(bytes)?;
        Ok(record)
    }

    /// Decodes into an existing record, whose allocations are reused. After an error the record has no meaningful
    /// content.
    pub fn decode_again(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        if bytes.len() < HEADER_BYTES {
            return Err(Damage::TooShort { bytes: bytes.len() });
        }
        let (header, body) = bytes.split_at(HEADER_BYTES);
        let stored = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        let computed = crc32c::crc32c(body);
        if header[0] > FORMAT {
            return Err(Damage::NewerFormat { found: header[0] });
        }
        if stored != computed || header[0] == 0 {
            return Err(Damage::Checksum { stored, computed });
        }
        self.clear();
        self.merge(body).map_err(|error| Damage::Body(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            offset: 42,
            time_ms: 1_795_000_000_000,
            resource: "configmaps".into(),
            key: "default/a".into(),
            replaces: 41,
            operation: Operation::Put as i32,
            actor: Actor {
                user: "jane".into(),
                manager: "kubectl".into(),
                verb: "update".into(),
                request_id: "r".into(),
                changes: vec![ChangedBy { by: "webhook a of b".into(), fields: vec!["/data/a".into()] }],
            },
            object: Bytes::from_static(b"{\"apiVersion\":\"v1\"}"),
        }
    }

    #[test]
    fn a_record_reads_back() {
        assert_eq!(Record::decode_record(&record().encode_record()), Ok(record()));
    }

    #[test]
    fn a_record_is_used_again_without_a_trace_of_the_one_before() {
        let mut read = Record::default();
        let empty = Record { offset: 43, ..Record::default() };
        for record in [record(), empty, record(), record()] {
            assert_eq!(read.decode_again(&record.encode_record()), Ok(()));
            assert_eq!(read, record);
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut bytes = record().encode_record();
        bytes[0] = FORMAT + 1;
        assert_eq!(Record::decode_record(&bytes), Err(Damage::NewerFormat { found: FORMAT + 1 }));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(at in 0usize..1000, bit in 0u8..8) {
            let mut bytes = record().encode_record();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::decode_record(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode_record(&bytes);
        }
    }
}

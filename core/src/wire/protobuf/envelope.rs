//! The envelope of a Protobuf body: four fixed bytes, and then a message with the kind and with the bytes of the
//! object.

use super::{
    DecodeError,
    bytes::{Backward, Reader, Wire},
};

/// The first bytes of every body in an envelope.
pub const MAGIC: [u8; 4] = *b"k8s\0";

const TYPE_META: u32 = 1;
const RAW: u32 = 2;
const CONTENT_ENCODING: u32 = 3;
const CONTENT_TYPE: u32 = 4;
const API_VERSION: u32 = 1;
const KIND: u32 = 2;

/// The content of an envelope: Kubernetes' type Unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unknown<'a> {
    pub api_version: String,
    pub kind: String,
    /// The bytes of the object's message.
    pub raw: &'a [u8],
    pub content_encoding: String,
    /// The media type of `raw`; empty for Protobuf.
    pub content_type: String,
}

/// Reads the envelope of a body.
pub fn unwrap(body: &[u8]) -> Result<Unknown<'_>, DecodeError> {
    let mut reader = Reader::new(body.strip_prefix(&MAGIC).ok_or(DecodeError::NoEnvelope)?);
    let mut unknown = Unknown::default();
    while let Some((number, wire)) = reader.key()? {
        match (number, wire) {
            (TYPE_META, Wire::Delimited) => {
                let mut names = Reader::new(reader.delimited()?);
                while let Some((number, wire)) = names.key()? {
                    match (number, wire) {
                        (API_VERSION, Wire::Delimited) => unknown.api_version = text(names.delimited()?),
                        (KIND, Wire::Delimited) => unknown.kind = text(names.delimited()?),
                        (_, wire) => names.skip(wire)?,
                    }
                }
            }
            (RAW, Wire::Delimited) => unknown.raw = reader.delimited()?,
            (CONTENT_ENCODING, Wire::Delimited) => unknown.content_encoding = text(reader.delimited()?),
            (CONTENT_TYPE, Wire::Delimited) => unknown.content_type = text(reader.delimited()?),
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(unknown)
}

/// Puts a message into an envelope.
pub fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = start(api_version, kind, raw.len());
    out.reserve_exact(raw.len() + END.len());
    out.extend_from_slice(raw);
    out.extend_from_slice(&END);
    out
}

/// The bytes of an envelope that come before the object's message.
pub(super) fn start(api_version: &str, kind: &str, raw_length: usize) -> Vec<u8> {
    let mut out = Backward::with_capacity(api_version.len() + kind.len() + 24);
    out.varint(raw_length as u64);
    out.key(RAW, Wire::Delimited);
    let end = out.len();
    out.bytes(KIND, kind.as_bytes());
    out.bytes(API_VERSION, api_version.as_bytes());
    out.close(TYPE_META, end);
    out.put(&MAGIC);
    out.finish()
}

/// The bytes of an envelope that come after the object's message: an empty content encoding and an empty content type.
pub(super) const END: [u8; 4] = [(CONTENT_ENCODING << 3 | 2) as u8, 0, (CONTENT_TYPE << 3 | 2) as u8, 0];

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_what_kubernetes_sends() {
        let body = wrap("v1", "Pod", &[1, 2, 3]);
        assert_eq!(body, b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x03\x01\x02\x03\x1a\0\x22\0");
        let opened = unwrap(&body).expect("an envelope");
        assert_eq!((opened.api_version.as_str(), opened.kind.as_str(), opened.raw), ("v1", "Pod", &[1, 2, 3][..]));
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        assert_eq!(unwrap(b"{}"), Err(DecodeError::NoEnvelope));
        assert_eq!(unwrap(b""), Err(DecodeError::NoEnvelope));
        assert_eq!(
            DecodeError::NoEnvelope.to_string(),
            "provided data does not appear to be a protobuf message, expected prefix [107, 56, 115, 0]"
        );
        let body = wrap("v1", "Pod", &[1, 2, 3]);
        // If the body is cut between two fields, the rest is a valid message with fewer fields.
        let whole = [4, 15, 20, 22];
        for length in 0..body.len() {
            assert_eq!(unwrap(&body[..length]).is_ok(), whole.contains(&length), "{length}");
        }
    }
}

//! HPACK, the compression of headers (RFC 7541).
//!
//! A field is checked when it is first read, and the table keeps it in its parsed form: a field that a client repeats
//! costs one look-up.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod table;

pub use decoder::{Decoder, Sink};
pub use encoder::Encoder;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};

/// The size that a field has in a table or a list, in addition to its name and value.
pub const FIELD_BYTES: usize = 32;

/// The block cannot be decoded, and neither can later blocks of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// A field of a header block: a name with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: Name,
    pub value: Value,
    /// The bytes of the name as it was sent.
    pub name_bytes: u32,
    /// The number of bytes of the name and of the value, plus [`FIELD_BYTES`].
    pub bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Pseudo(Pseudo),
    Header(HeaderName),
    /// The name is no valid field name in a request.
    Malformed,
}

/// The pseudo-headers of HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    /// `:status`, which is valid only in responses.
    Status,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value of a pseudo-header, as bytes.
    Plain(Bytes),
    Header(HeaderValue),
    /// The field's value is no valid header value.
    Malformed,
}

impl Name {
    fn read(bytes: &[u8]) -> Name {
        match bytes {
            b":method" => Name::Pseudo(Pseudo::Method),
            b":scheme" => Name::Pseudo(Pseudo::Scheme),
            b":authority" => Name::Pseudo(Pseudo::Authority),
            b":path" => Name::Pseudo(Pseudo::Path),
            b":status" => Name::Pseudo(Pseudo::Status),
            // An upper-case name is malformed, as RFC 9113 demands.
            _ => HeaderName::from_lowercase(bytes).map_or(Name::Malformed, Name::Header),
        }
    }
}

impl Value {
    /// Checks the value of a field with this name.
    fn read(name: &Name, bytes: Bytes) -> Value {
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        match name {
            Name::Header(_) if is_blank(bytes.first()) || is_blank(bytes.last()) => Value::Malformed,
            Name::Header(_) => HeaderValue::from_maybe_shared(bytes).map_or(Value::Malformed, Value::Header),
            Name::Pseudo(_) => Value::Plain(bytes),
            Name::Malformed => Value::Malformed,
        }
    }
}

#[cfg(test)]
mod tests;

//! HPACK, the compression of headers: RFC 7541.
//!
//! Fields are checked where they are read for the first time, and kept in the table as what they mean: one that a
//! client repeats costs a look into the table.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod table;

pub use decoder::{Decoder, Sink};
pub use encoder::Encoder;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};

/// What a field of a table or of a list takes besides its name and value.
pub const FIELD_BYTES: usize = 32;

/// The block cannot be decoded, and so no later one of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// One name with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: Name,
    pub value: Value,
    /// Of the name as it was sent.
    pub name_bytes: u32,
    /// Of name and value, and [`FIELD_BYTES`].
    pub bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Pseudo(Pseudo),
    Header(HeaderName),
    /// No field of a request may be called so.
    Malformed,
}

/// Fields that are no headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    /// Of answers alone.
    Status,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of a pseudo header.
    Plain(Bytes),
    Header(HeaderValue),
    /// No header may have such a value.
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
            // Upper case is refused here, as RFC 9113 wants it.
            _ => HeaderName::from_lowercase(bytes).map_or(Name::Malformed, Name::Header),
        }
    }
}

impl Value {
    /// The value of a field of this name.
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

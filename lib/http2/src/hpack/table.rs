//! The tables of fields on both sides (RFC 7541, section 2.3 and appendix A).

use super::{FIELD_BYTES, Field, Name, Pseudo, Value};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use std::collections::VecDeque;

/// The size of the static table. Index 0 is invalid; the dynamic table's indexes follow.
pub const STATIC_FIELDS: usize = 61;

/// The indexes of fields that every response has.
pub const STATUS: usize = 8;
pub const CONTENT_LENGTH: usize = 28;
pub const DATE: usize = 33;

/// The static table. Its indexes start at 1.
static STATIC: [Field; STATIC_FIELDS] = [
    pseudo(Pseudo::Authority, ":authority", ""),
    pseudo(Pseudo::Method, ":method", "GET"),
    pseudo(Pseudo::Method, ":method", "POST"),
    pseudo(Pseudo::Path, ":path", "/"),
    pseudo(Pseudo::Path, ":path", "/index.html"),
    pseudo(Pseudo::Scheme, ":scheme", "http"),
    pseudo(Pseudo::Scheme, ":scheme", "https"),
    pseudo(Pseudo::Status, ":status", "200"),
    pseudo(Pseudo::Status, ":status", "204"),
    pseudo(Pseudo::Status, ":status", "206"),
    pseudo(Pseudo::Status, ":status", "304"),
    pseudo(Pseudo::Status, ":status", "400"),
    pseudo(Pseudo::Status, ":status", "404"),
    pseudo(Pseudo::Status, ":status", "500"),
    header(header::ACCEPT_CHARSET, "accept-charset", ""),
    header(header::ACCEPT_ENCODING, "accept-encoding", "gzip, deflate"),
    header(header::ACCEPT_LANGUAGE, "accept-language", ""),
    header(header::ACCEPT_RANGES, "accept-ranges", ""),
    header(header::ACCEPT, "accept", ""),
    header(header::ACCESS_CONTROL_ALLOW_ORIGIN, "access-control-allow-origin", ""),
    header(header::AGE, "age", ""),
    header(header::ALLOW, "allow", ""),
    header(header::AUTHORIZATION, "authorization", ""),
    header(header::CACHE_CONTROL, "cache-control", ""),
    header(header::CONTENT_DISPOSITION, "content-disposition", ""),
    header(header::CONTENT_ENCODING, "content-encoding", ""),
    header(header::CONTENT_LANGUAGE, "content-language", ""),
    header(header::CONTENT_LENGTH, "content-length", ""),
    header(header::CONTENT_LOCATION, "content-location", ""),
    header(header::CONTENT_RANGE, "content-range", ""),
    header(header::CONTENT_TYPE, "content-type", ""),
    header(header::COOKIE, "cookie", ""),
    header(header::DATE, "date", ""),
    header(header::ETAG, "etag", ""),
    header(header::EXPECT, "expect", ""),
    header(header::EXPIRES, "expires", ""),
    header(header::FROM, "from", ""),
    header(header::HOST, "host", ""),
    header(header::IF_MATCH, "if-match", ""),
    header(header::IF_MODIFIED_SINCE, "if-modified-since", ""),
    header(header::IF_NONE_MATCH, "if-none-match", ""),
    header(header::IF_RANGE, "if-range", ""),
    header(header::IF_UNMODIFIED_SINCE, "if-unmodified-since", ""),
    header(header::LAST_MODIFIED, "last-modified", ""),
    header(header::LINK, "link", ""),
    header(header::LOCATION, "location", ""),
    header(header::MAX_FORWARDS, "max-forwards", ""),
    header(header::PROXY_AUTHENTICATE, "proxy-authenticate", ""),
    header(header::PROXY_AUTHORIZATION, "proxy-authorization", ""),
    header(header::RANGE, "range", ""),
    header(header::REFERER, "referer", ""),
    header(header::REFRESH, "refresh", ""),
    header(header::RETRY_AFTER, "retry-after", ""),
    header(header::SERVER, "server", ""),
    header(header::SET_COOKIE, "set-cookie", ""),
    header(header::STRICT_TRANSPORT_SECURITY, "strict-transport-security", ""),
    header(header::TRANSFER_ENCODING, "transfer-encoding", ""),
    header(header::USER_AGENT, "user-agent", ""),
    header(header::VARY, "vary", ""),
    header(header::VIA, "via", ""),
    header(header::WWW_AUTHENTICATE, "www-authenticate", ""),
];

const fn pseudo(pseudo: Pseudo, name: &str, value: &'static str) -> Field {
    let (name_bytes, bytes) = sizes(name, value);
    Field { name: Name::Pseudo(pseudo), value: Value::Plain(Bytes::from_static(value.as_bytes())), name_bytes, bytes }
}

const fn header(header: HeaderName, name: &str, value: &'static str) -> Field {
    let (name_bytes, bytes) = sizes(name, value);
    Field { name: Name::Header(header), value: Value::Header(HeaderValue::from_static(value)), name_bytes, bytes }
}

const fn sizes(name: &str, value: &str) -> (u32, u32) {
    (name.len() as u32, (name.len() + value.len() + FIELD_BYTES) as u32)
}

/// The field at an index of the static table.
pub fn static_field(index: usize) -> Option<&'static Field> {
    STATIC.get(index.wrapping_sub(1))
}

/// The index of the first static field with this name, if there is one.
pub fn static_name(name: &HeaderName) -> Option<usize> {
    let matches = |field: &Field| matches!(&field.name, Name::Header(other) if other == name);
    STATIC.iter().position(matches).map(|place| place + 1)
}

/// The fields that one side sent last, the newest first, up to a maximum number of bytes.
#[derive(Debug)]
pub struct Dynamic {
    fields: VecDeque<Field>,
    bytes: usize,
    bytes_max: usize,
}

impl Dynamic {
    pub fn new(bytes_max: usize) -> Dynamic {
        Dynamic { fields: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub fn get(&self, place: usize) -> Option<&Field> {
        self.fields.get(place)
    }

    /// Adds a field. A field larger than the table empties the table, and is returned as the error.
    pub fn add(&mut self, field: Field) -> Result<&Field, Field> {
        let bytes = field.bytes as usize;
        self.shrink(self.bytes_max.saturating_sub(bytes));
        if bytes > self.bytes_max {
            return Err(field);
        }
        self.bytes += bytes;
        self.fields.push_front(field);
        Ok(&self.fields[0])
    }

    pub fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.shrink(bytes_max);
    }

    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(oldest) = self.fields.pop_back()
        {
            self.bytes -= oldest.bytes as usize;
        }
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

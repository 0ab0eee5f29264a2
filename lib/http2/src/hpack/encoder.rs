//! Encoding: from fields to blocks (RFC 7541, section 6).
//!
//! Responses repeat most fields. A field enters the peer's table at its second occurrence; from then on it costs one
//! byte. A field that occurs in one response only never enters the table, because it would displace repeated fields.
//! Text is written without Huffman codes, which would save few bytes and cost both sides much time.

use super::table::{CONTENT_LENGTH, DATE, STATIC_FIELDS, STATUS, static_field, static_name};
use super::{FIELD_BYTES, Value, integer};
use crate::settings::TABLE_BYTES;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use std::collections::VecDeque;

/// How a field is written: the fixed bits of its first byte, and how many bits are left for the index.
type Representation = (u8, u32);
const INDEXED: Representation = (0x80, 7);
const KEPT: Representation = (0x40, 6);
const RESIZED: Representation = (0x20, 5);
const NEVER_KEPT: Representation = (0x10, 4);
const NOT_KEPT: Representation = (0x00, 4);

/// The number of slots for the hashes of recent fields.
const SEEN: usize = 64;

/// Encodes the header blocks that one connection sends.
#[derive(Debug)]
pub struct Encoder {
    /// The fields in the peer's table, the newest first.
    entries: VecDeque<TableEntry>,
    bytes: usize,
    bytes_max: usize,
    /// The smallest table size since the last block, which the next block must report to the peer; `None` if the size
    /// has not changed.
    resized: Option<usize>,
    seen: [u32; SEEN],
}

/// A field in the peer's table.
#[derive(Debug)]
struct TableEntry {
    hash: u32,
    name_bytes: usize,
    /// The field's name, followed by its value.
    text: Box<[u8]>,
}

impl TableEntry {
    fn bytes(&self) -> usize {
        self.text.len() + FIELD_BYTES
    }

    fn is(&self, name: &str, value: &[u8]) -> bool {
        let (own_name, own_value) = self.text.split_at(self.name_bytes);
        own_name == name.as_bytes() && own_value == value
    }
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder { entries: VecDeque::new(), bytes: 0, bytes_max: TABLE_BYTES, resized: None, seen: [0; SEEN] }
    }
}

impl Encoder {
    /// Sets the table size that the peer allows. We use at most the default size, which needs no announcement.
    pub fn resize(&mut self, bytes_max: usize) {
        let bytes_max = bytes_max.min(TABLE_BYTES);
        if bytes_max != self.bytes_max || self.resized.is_some() {
            self.resized = Some(self.resized.map_or(bytes_max, |smallest| smallest.min(bytes_max)));
        }
        self.bytes_max = bytes_max;
        self.shrink(bytes_max);
    }

    /// Begins a block: reports a changed table size to the peer.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.resized.take() {
            if smallest != self.bytes_max {
                integer::write(out, RESIZED.0, RESIZED.1, smallest);
            }
            integer::write(out, RESIZED.0, RESIZED.1, self.bytes_max);
        }
    }

    /// The status, the first field of every response.
    pub fn status(&mut self, status: StatusCode, out: &mut Vec<u8>) {
        let value = status.as_str();
        let is_this = |index: &usize| {
            static_field(*index).is_some_and(|field| matches!(&field.value, Value::Plain(text) if text == value))
        };
        match (STATUS..STATUS + 7).find(is_this) {
            Some(index) => integer::write(out, INDEXED.0, INDEXED.1, index),
            None => self.text(":status", Some(STATUS), value.as_bytes(), out),
        }
    }

    /// Writes all headers of a map except headers that describe an HTTP/1.1 connection. Returns whether a date and a
    /// length were among them.
    pub fn headers(&mut self, headers: &HeaderMap, out: &mut Vec<u8>) -> PresentHeaders {
        let mut found = PresentHeaders::default();
        for (name, value) in headers {
            match *name {
                header::DATE => {
                    found.date = true;
                    self.date(value, out);
                }
                header::CONTENT_LENGTH => {
                    found.length = true;
                    literal(NOT_KEPT, Ok(CONTENT_LENGTH), value.as_bytes(), out);
                }
                _ if is_of_connection(name) => {}
                _ => self.header(name, value, out),
            }
        }
        found
    }

    pub fn date(&mut self, date: &HeaderValue, out: &mut Vec<u8>) {
        literal(NOT_KEPT, Ok(DATE), date.as_bytes(), out);
    }

    pub fn length(&mut self, length: u64, out: &mut Vec<u8>) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = length;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        literal(NOT_KEPT, Ok(CONTENT_LENGTH), &digits[at..], out);
    }

    fn header(&mut self, name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
        if value.is_sensitive() {
            let name = self.name(name.as_str(), || static_name(name));
            return literal(NEVER_KEPT, name, value.as_bytes(), out);
        }
        if [header::ETAG, header::LAST_MODIFIED, header::LOCATION, header::SET_COOKIE].contains(name) {
            let name = self.name(name.as_str(), || static_name(name));
            return literal(NOT_KEPT, name, value.as_bytes(), out);
        }
        self.repeated(name.as_str(), || static_name(name), value.as_bytes(), out);
    }

    fn text(&mut self, name: &str, index: Option<usize>, value: &[u8], out: &mut Vec<u8>) {
        self.repeated(name, || index, value, out);
    }

    /// A field that may be repeated in later responses.
    fn repeated(&mut self, name: &str, index: impl Fn() -> Option<usize>, value: &[u8], out: &mut Vec<u8>) {
        let hash = hash(name.as_bytes(), value);
        let found = self.entries.iter().position(|entry| entry.hash == hash && entry.is(name, value));
        if let Some(place) = found {
            return integer::write(out, INDEXED.0, INDEXED.1, STATIC_FIELDS + 1 + place);
        }
        let bytes = name.len() + value.len() + FIELD_BYTES;
        let seen = &mut self.seen[hash as usize % SEEN];
        let comes_again = std::mem::replace(seen, hash) == hash && bytes <= self.bytes_max;
        let form = if comes_again { KEPT } else { NOT_KEPT };
        literal(form, self.name(name, index), value, out);
        if comes_again {
            self.shrink(self.bytes_max - bytes);
            self.bytes += bytes;
            let text = [name.as_bytes(), value].concat().into();
            self.entries.push_front(TableEntry { hash, name_bytes: name.len(), text });
        }
    }

    /// The index of a name, or the name as text if it has no index.
    fn name<'a>(&self, name: &'a str, index: impl Fn() -> Option<usize>) -> Result<usize, &'a str> {
        let dynamic = || {
            let place = self.entries.iter().position(|entry| &entry.text[..entry.name_bytes] == name.as_bytes());
            place.map(|place| STATIC_FIELDS + 1 + place)
        };
        index().or_else(dynamic).ok_or(name)
    }

    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

/// The headers that a response already has.
#[derive(Debug, Default, Clone, Copy)]
pub struct PresentHeaders {
    pub date: bool,
    pub length: bool,
}

/// Writes a literal field with its name as an index or as text.
fn literal(form: Representation, name: Result<usize, &str>, value: &[u8], out: &mut Vec<u8>) {
    match name {
        Ok(index) => integer::write(out, form.0, form.1, index),
        Err(name) => {
            integer::write(out, form.0, form.1, 0);
            string(name.as_bytes(), out);
        }
    }
    string(value, out);
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    integer::write(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// Whether a header describes an HTTP/1.1 connection. RFC 9113 forbids such headers.
fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str().as_bytes(),
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" | b"te"
    )
}

/// A fast hash of a field. Fields with equal hashes are compared as well.
fn hash(name: &[u8], value: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = (name.len() as u64) << 32 | value.len() as u64;
    for text in [name, value] {
        let (words, rest) = text.as_chunks::<8>();
        for word in words {
            state = (state.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        }
        let rest = rest.iter().fold(0u64, |rest, byte| rest << 8 | u64::from(*byte));
        state = (state.rotate_left(5) ^ rest).wrapping_mul(FACTOR);
    }
    (state >> 32) as u32 | 1
}

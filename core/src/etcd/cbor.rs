//! Decodes CBOR. Custom resources have this encoding if an API server was configured to store them in it.
//!
//! Kubernetes writes text as byte strings, because it has not checked that the text is valid. Values without a JSON
//! form are refused.

use crate::object::meta::DEPTH_MAX;
use crate::wire::protobuf;
use ciborium_ll::{Decoder, Header, simple};
use holdfast_value::{Map, Value};

/// The tag at the beginning of every CBOR value in the store.
pub const MAGIC: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// The maximum number of values in one document. One byte can encode a value, which takes many times as much memory.
const VALUES_MAX: usize = 1_000_000;

/// Decodes the document that follows the tag [`MAGIC`]; `bytes` begin after the tag.
pub fn value(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader { decoder: Decoder::from(bytes), depth: 0, values: 0 };
    let header = reader.pull()?;
    let value = reader.value(header)?;
    match bytes.len() - reader.decoder.offset().min(bytes.len()) {
        0 => Ok(value),
        more => Err(format!("cbor: {more} bytes follow the document")),
    }
}

struct Reader<'b> {
    decoder: Decoder<&'b [u8]>,
    depth: usize,
    values: usize,
}

impl Reader<'_> {
    fn pull(&mut self) -> Result<Header, String> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err("cbor: the object has too many values".into());
        }
        self.decoder.pull().map_err(|error| fault(&error))
    }

    fn value(&mut self, header: Header) -> Result<Value, String> {
        match header {
            Header::Positive(number) => i64::try_from(number).map(Value::from).map_err(|_| out_of_range()),
            // A negative number is encoded as `-1 - number`.
            Header::Negative(number) => {
                i64::try_from(number).map(|number| (!number).into()).map_err(|_| out_of_range())
            }
            Header::Float(number) => protobuf::double(number).map_err(|_| "cbor: a number is not finite".into()),
            Header::Simple(simple::FALSE) => Ok(false.into()),
            Header::Simple(simple::TRUE) => Ok(true.into()),
            Header::Simple(simple::NULL) => Ok(Value::Null),
            Header::Simple(other) => Err(format!("cbor: JSON has no simple value {other}")),
            Header::Bytes(_) | Header::Text(_) => Ok(self.text(header)?.into()),
            Header::Array(length) => self.nested(|reader| reader.list(length)),
            Header::Map(length) => self.nested(|reader| reader.object(length)),
            // These tags mark big integers, which are out of JSON's range here.
            Header::Tag(2 | 3) => Err(out_of_range()),
            Header::Tag(_) => self.nested(|reader| {
                let header = reader.pull()?;
                reader.value(header)
            }),
            Header::Break => Err("cbor: a break outside of a list, map or string".into()),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, String>) -> Result<Value, String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("cbor: it is deeper than {DEPTH_MAX} levels"));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// The next item of a list or map that has `left` further items; without a count, the next item before the break.
    fn next(&mut self, left: &mut Option<usize>) -> Result<Option<Header>, String> {
        match left {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None => {}
        }
        match self.pull()? {
            Header::Break if left.is_none() => Ok(None),
            header => Ok(Some(header)),
        }
    }

    fn list(&mut self, mut left: Option<usize>) -> Result<Value, String> {
        let mut items = Vec::new();
        while let Some(header) = self.next(&mut left)? {
            items.push(self.value(header)?);
        }
        Ok(Value::Array(items))
    }

    fn object(&mut self, mut left: Option<usize>) -> Result<Value, String> {
        let mut fields = Map::new();
        while let Some(header) = self.next(&mut left)? {
            let name = match header {
                Header::Bytes(_) | Header::Text(_) => self.text(header)?,
                _ => return Err("cbor: a key is not a text".into()),
            };
            if fields.contains_key(&name) {
                return Err(format!("cbor: the key {name:?} stands twice"));
            }
            let header = self.pull()?;
            let value = self.value(header)?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    fn text(&mut self, header: Header) -> Result<String, String> {
        let mut buffer = [0; 1024];
        match header {
            Header::Text(length) => {
                let mut text = String::new();
                let mut segments = self.decoder.text(length);
                while let Some(mut segment) = segments.pull().map_err(|error| fault(&error))? {
                    while let Some(part) = segment.pull(&mut buffer).map_err(|error| fault(&error))? {
                        text.push_str(part);
                    }
                }
                Ok(text)
            }
            Header::Bytes(length) => {
                let mut bytes = Vec::new();
                let mut segments = self.decoder.bytes(length);
                while let Some(mut segment) = segments.pull().map_err(|error| fault(&error))? {
                    while let Some(part) = segment.pull(&mut buffer).map_err(|error| fault(&error))? {
                        bytes.extend_from_slice(part);
                    }
                }
                Ok(String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
            }
            _ => Err("cbor: a text is none".into()),
        }
    }
}

fn out_of_range() -> String {
    "cbor: a number is out of the range of 64-bit integers".into()
}

fn fault<E>(error: &ciborium_ll::Error<E>) -> String {
    match error {
        ciborium_ll::Error::Io(_) => "cbor: unexpected end".into(),
        ciborium_ll::Error::Syntax(offset) => format!("cbor: no CBOR at byte {offset} behind its tag"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn documents_are_read() {
        for (bytes, document) in [
            (&b"\xa1Aa\x01"[..], json!({"a": 1})),
            (b"\xa1aa\x01", json!({"a": 1})),
            (b"\xbfAa\x9f\x01\x20\xf9\x3e\x00\xff\xff", json!({"a": [1, -1, 1.5]})),
            (b"\x7faa\x63b\xc3\xbc\xff", json!("abü")),
            (b"\x83\xf4\xf5\xf6", json!([false, true, null])),
            (b"\xfb\x40\x00\x00\x00\x00\x00\x00\x00", json!(2)),
            (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", json!(i64::MIN)),
            (b"\xd9\xd9\xf7\xc0AT", json!("T")),
        ] {
            assert_eq!(value(bytes), Ok(document), "{bytes:x?}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        for (bytes, problem) in [
            (&b""[..], "unexpected end"),
            (b"\x82\x01", "unexpected end"),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "unexpected end"),
            (b"\x5a\xff\xff\xff\xffx", "unexpected end"),
            (b"\x01\x01", "1 bytes follow"),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "out of the range"),
            (b"\xc2A\x01", "out of the range"),
            (b"\xf9\x7e\x00", "not finite"),
            (b"\xf7", "simple value 23"),
            (b"\xff", "a break outside of"),
            (b"\xa1\x01\x01", "a key is not a text"),
            (b"\xa2Aa\x01Aa\x01", "\"a\" stands twice"),
            (b"\x1c", "no CBOR at byte"),
        ] {
            let found = value(bytes).expect_err(problem);
            assert!(found.contains(problem), "{found}");
        }
        for deep in [b"\x81", b"\xc0", b"\x9f"] {
            assert!(value(&deep.repeat(1 << 20)).expect_err("too deep").contains("deeper than"));
        }
        let many = [b"\x9a\xff\xff\xff\xff".as_slice(), &b"\x01".repeat(VALUES_MAX + 1)].concat();
        assert!(value(&many).expect_err("too many").contains("too many values"));
    }
}

//! JSON as Go's decoder reads it: invalid UTF-8 and lone surrogates become U+FFFD, and the last of two equal keys
//! counts.

use std::{borrow::Cow, fmt};

use holdfast_value::{CompactString, Map, Number, Value, map::Entry};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use crate::refusal::Texts;

use super::{DecodeError, Decoded, Path, Room, Segment, TOO_LARGE, syntax};

/// Decodes one JSON value. Only white space may follow the value.
pub fn json(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    // Nearly every body is valid UTF-8, and checking a body is faster than replacing its invalid bytes.
    let text = str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    let error = match parse(&text) {
        Ok(decoded) => return Ok(decoded),
        Err(error) => error,
    };
    if error.to_string().starts_with(TOO_LARGE) {
        return Err(DecodeError(TOO_LARGE.to_string()));
    }
    if let Some(complaint) = syntax::complaint(bytes) {
        return Err(DecodeError(complaint));
    }
    // The scanner finds no error, so the parser refused something other than the syntax: an escape that Go replaces, a
    // number that is too large, or the depth.
    if let Cow::Owned(replaced) = syntax::without_lone_surrogates(&text)
        && let Ok(decoded) = parse(&replaced)
    {
        return Ok(decoded);
    }
    let text = error.to_string();
    Err(DecodeError(if text.starts_with("recursion limit") { "exceeded max depth".to_string() } else { text }))
}

fn parse(text: &str) -> Result<Decoded, serde_json::Error> {
    let mut state = State { duplicates: Texts::default(), room: Room::whole() };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Node { state: &mut state, path: None }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Decoded { value, duplicates: state.duplicates, yaml_complaint: None })
}

struct State {
    duplicates: Texts,
    room: Room,
}

/// Decodes the value at a path of the document.
struct Node<'a> {
    state: &'a mut State,
    path: Option<&'a Path<'a>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.state.room.text(value)?;
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.state.room.text(&value)?;
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path { parent: self.path, segment: Segment::Index(list.len()) };
            match items.next_element_seed(Node { state: self.state, path: Some(&path) })? {
                Some(item) => {
                    self.state.room.item()?;
                    list.push(item);
                }
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = pairs.next_key::<CompactString>()? {
            self.state.room.entry(object.len(), &key)?;
            let path = Path { parent: self.path, segment: Segment::Key(&key) };
            let value = pairs.next_value_seed(Node { state: self.state, path: Some(&path) })?;
            match object.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    Path { parent: self.path, segment: Segment::Key(entry.key()) }.note(&mut self.state.duplicates);
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_value::json as value;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values() {
        let cases: [(&[u8], Value); 7] = [
            (b" {\"a\": [1, -2, 1.5, true, null, \"x\"]} \n", value!({"a": [1, -2, 1.5, true, null, "x"]})),
            (b"18446744073709551615", value!(18446744073709551615_u64)),
            (b"\"a\\ud800b\"", value!("a\u{fffd}b")),
            (b"\"\\ud83d\\ude00\"", value!("\u{1f600}")),
            (b"\"\\ude00\\ud83d\\ud83d\\ude00\"", value!("\u{fffd}\u{fffd}\u{1f600}")),
            (b"\"\\\\ud800\"", value!("\\ud800")),
            (b"\"\xff\"", value!("\u{fffd}")),
        ];
        for (bytes, expected) in cases {
            assert_eq!(json(bytes).map(|d| d.value), Ok(expected), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn duplicates_are_named_and_the_last_counts() {
        let decoded = json(br#"{"a": 1, "b": [{"c": 1, "c": 2, "c": 3}], "a": {"x": {"y": 1, "y": 2}}}"#).unwrap();
        assert_eq!(&*decoded.duplicates, ["b[0].c", "a.x.y", "a"]);
        assert_eq!(decoded.value, value!({"a": {"x": {"y": 2}}, "b": [{"c": 3}]}));
        assert_eq!(decoded.strict_errors()[0], "duplicate field \"b[0].c\"");
    }

    #[test]
    fn values_that_would_take_too_much_memory_are_refused() {
        let too_large = Err(DecodeError(TOO_LARGE.to_string()));
        let list = |piece: &str, times: usize| format!("[{}{piece}]", format!("{piece},").repeat(times - 1));
        assert_eq!(json(list("{\"\":0}", 200_000).as_bytes()), too_large);
        assert_eq!(json(list("{\"\":0}", 200_000).trim_end_matches(']').as_bytes()), too_large);
        assert!(json(list("{\"\":0}", 50_000).as_bytes()).is_ok());
        assert!(json(list("0", 1_500_000).as_bytes()).is_ok());
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(json(nested(100).as_bytes()).is_ok());
        assert_eq!(json(nested(100_000).as_bytes()), Err(DecodeError("exceeded max depth".to_string())));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = json(&bytes);
        }

        #[test]
        fn nothing_like_json_panics(text in "[\\[\\]{}:,\"\\\\udtrue0-9.eE+\\- n\u{e9}]{0,40}") {
            let decoded = json(text.as_bytes());
            // If the parser accepts a text, the scanner must find no error in it. The parser may refuse texts that the
            // scanner accepts.
            if decoded.is_ok() {
                prop_assert_eq!(syntax::complaint(text.as_bytes()), None);
            }
        }
    }
}

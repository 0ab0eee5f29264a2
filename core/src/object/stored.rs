//! A serde deserializer for stored text. Fields that the type does not have are skipped many bytes at a time. So
//! reading a tenth of an object costs a fraction of parsing the whole object.

use super::cursor::{Cursor, Quoted};
use holdfast_value::{Map, Number, Value};
use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;
use std::fmt;

/// The maximum number of levels of objects and lists inside each other, the same as in serde_json.
const DEPTH_MAX: usize = 128;

/// The text is not canonical, or does not fit the type. Callers parse it again with serde_json to learn the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlike;

/// Deserializes a value from stored text.
pub fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Unlike> {
    let mut cursor = Cursor::of(json).ok_or(Unlike)?;
    T::deserialize(&mut Values { cursor: &mut cursor, depth: 0 })
}

/// Parses a whole document. Each write does this, so the tree is built directly and not by a serde visitor.
pub fn document(json: &[u8]) -> Result<Value, Unlike> {
    value(&mut Cursor::of(json).ok_or(Unlike)?, 0).ok_or(Unlike)
}

fn value(cursor: &mut Cursor, depth: usize) -> Option<Value> {
    Some(match cursor.peek()? {
        b'"' => Value::String(cursor.quoted()?.unescaped()?),
        b'{' | b'[' if depth + 1 == DEPTH_MAX => return None,
        b'{' => Value::Object(fields(cursor, depth + 1)?),
        b'[' => Value::Array(items(cursor, depth + 1)?),
        _ => match cursor.scalar()? {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            text => Value::Number(number(text)?),
        },
    })
}

fn fields(cursor: &mut Cursor, depth: usize) -> Option<Map> {
    cursor.take(b'{')?;
    let mut fields = Vec::new();
    if cursor.passes(b'}') {
        return Some(Map::new());
    }
    loop {
        let key = cursor.key()?.unescaped()?;
        fields.push((key, value(cursor, depth)?));
        match cursor.next()? {
            b',' => {}
            b'}' => return Some(fields.into()),
            _ => return None,
        }
    }
}

fn items(cursor: &mut Cursor, depth: usize) -> Option<Vec<Value>> {
    cursor.take(b'[')?;
    let mut list = Vec::new();
    if cursor.passes(b']') {
        return Some(list);
    }
    loop {
        list.push(value(cursor, depth)?);
        match cursor.next()? {
            b',' => {}
            b']' => return Some(list),
            _ => return None,
        }
    }
}

/// Deserializes an object into two values: its metadata, and all other fields.
pub fn read_apart<'a, M, T>(json: &'a [u8]) -> Result<(M, T), Unlike>
where
    M: Deserialize<'a>,
    T: Deserialize<'a>,
{
    let (mut cursor, mut metadata) = (Cursor::of(json).ok_or(Unlike)?, None);
    let rest = T::deserialize(Whole { cursor: &mut cursor, metadata: &mut metadata })?;
    Ok((metadata.ok_or(Unlike)?, rest))
}

/// The JSON text of a value that is not parsed.
pub struct Raw<'a>(pub &'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = Raw<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of JSON")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Raw<'de>, E> {
                Ok(Raw(text))
            }

            // Called if serde_json is the deserializer, because it does not know the name [`RAW`].
            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw<'de>, D::Error> {
                <&RawValue>::deserialize(deserializer).map(|value| Raw(value.get()))
            }
        }
        deserializer.deserialize_newtype_struct(RAW, Written)
    }
}

/// The name by which [`Raw`] asks this module's deserializer for the text of a value.
const RAW: &str = "$holdfast::Raw";

struct Values<'c, 'de> {
    cursor: &'c mut Cursor<'de>,
    depth: usize,
}

impl<'de> Values<'_, 'de> {
    fn deeper(&mut self) -> Result<Values<'_, 'de>, Unlike> {
        let depth = self.depth + 1;
        if depth < DEPTH_MAX { Ok(Values { cursor: &mut *self.cursor, depth }) } else { Err(Unlike) }
    }
}

impl<'de> Deserializer<'de> for &mut Values<'_, 'de> {
    type Error = Unlike;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unlike> {
        match self.cursor.peek().ok_or(Unlike)? {
            b'{' => {
                _ = self.cursor.next();
                visitor.visit_map(Entries::<IgnoredAny> { values: self.deeper()?, begun: false, metadata: None })
            }
            b'[' => {
                _ = self.cursor.next();
                visitor.visit_seq(Items { values: self.deeper()?, begun: false })
            }
            b'"' => {
                let text = self.cursor.quoted().ok_or(Unlike)?;
                match text.plain() {
                    Some(text) => visitor.visit_borrowed_str(text),
                    None => visitor.visit_str(&text.unescaped().ok_or(Unlike)?),
                }
            }
            _ => match self.cursor.scalar().ok_or(Unlike)? {
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                "null" => visitor.visit_unit(),
                number => visit_number(number, visitor),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unlike> {
        match self.cursor.peek() {
            Some(b'n') => self.deserialize_any(visitor),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Unlike> {
        match name {
            RAW => visitor.visit_borrowed_str(self.cursor.skip().ok_or(Unlike)?),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    /// Supports only unit variants, because no type that is read from stored text has other variants.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unlike> {
        let word = self.cursor.quoted().and_then(Quoted::unescaped).ok_or(Unlike)?;
        visitor.visit_enum(IntoDeserializer::<Unlike>::into_deserializer(word.as_str()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unlike> {
        self.cursor.skip().ok_or(Unlike)?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

fn number(text: &str) -> Option<Number> {
    if text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(number) = text.parse::<u64>()
    {
        return Some(number.into());
    }
    serde_json::from_str(text).ok()
}

fn visit_number<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Unlike> {
    let number = number(text).ok_or(Unlike)?;
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), _, _) => visitor.visit_u64(number),
        (None, Some(number), _) => visitor.visit_i64(number),
        (None, None, Some(number)) => visitor.visit_f64(number),
        (None, None, None) => Err(Unlike),
    }
}

/// Deserializes a document, and deserializes its metadata into a separate value.
struct Whole<'c, 'de, M> {
    cursor: &'c mut Cursor<'de>,
    metadata: &'c mut Option<M>,
}

impl<'de, M: Deserialize<'de>> Deserializer<'de> for Whole<'_, 'de, M> {
    type Error = Unlike;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unlike> {
        let Whole { cursor, metadata } = self;
        cursor.take(b'{').ok_or(Unlike)?;
        visitor.visit_map(Entries { values: Values { cursor, depth: 1 }, begun: false, metadata: Some(metadata) })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unlike> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Deserializes the entries of an object.
struct Entries<'c, 'de, M> {
    values: Values<'c, 'de>,
    begun: bool,
    /// Receives the value of the entry `metadata`, which is then not among the other entries.
    metadata: Option<&'c mut Option<M>>,
}

impl<'de, M: Deserialize<'de>> Entries<'_, 'de, M> {
    fn next(&mut self) -> Result<Option<Quoted<'de>>, Unlike> {
        let cursor = &mut *self.values.cursor;
        if self.begun {
            match cursor.next() {
                Some(b',') => {}
                Some(b'}') => return Ok(None),
                _ => return Err(Unlike),
            }
        } else if cursor.passes(b'}') {
            return Ok(None);
        }
        self.begun = true;
        cursor.key().map(Some).ok_or(Unlike)
    }
}

impl<'de, M: Deserialize<'de>> MapAccess<'de> for Entries<'_, 'de, M> {
    type Error = Unlike;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Unlike> {
        let mut key = self.next()?;
        if let Some(metadata) = &mut self.metadata
            && key.and_then(Quoted::plain) == Some("metadata")
        {
            **metadata = Some(M::deserialize(&mut self.values)?);
            key = self.next()?;
        }
        let Some(key) = key else { return Ok(None) };
        match key.plain() {
            Some(key) => seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some),
            None => {
                let key = key.unescaped().ok_or(Unlike)?;
                seed.deserialize(StrDeserializer::new(&key)).map(Some)
            }
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Unlike> {
        seed.deserialize(&mut self.values)
    }
}

/// Deserializes the items of a list.
struct Items<'c, 'de> {
    values: Values<'c, 'de>,
    begun: bool,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Unlike;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Unlike> {
        let cursor = &mut *self.values.cursor;
        if self.begun {
            match cursor.next() {
                Some(b',') => {}
                Some(b']') => return Ok(None),
                _ => return Err(Unlike),
            }
        } else if cursor.passes(b']') {
            return Ok(None);
        }
        self.begun = true;
        seed.deserialize(&mut self.values).map(Some)
    }
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text is not as stored text is, or not of this type")
    }
}

impl std::error::Error for Unlike {}

impl Error for Unlike {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unlike
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::scan::tests::any_value;
    use holdfast_value::json;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        replicas: Option<i64>,
        node_name: String,
        ratio: f64,
        is_paused: bool,
        labels: BTreeMap<String, String>,
        containers: Vec<Named>,
        phase: Phase,
        whole: Value,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    struct Named {
        name: String,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    enum Phase {
        #[default]
        Pending,
        Running,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Pod {
        spec: Spec,
        #[serde(default)]
        metadata: Option<Named>,
    }

    fn pod() -> Value {
        json!({
            "apiVersion": "v1",
            "metadata": {"name": "a", "managedFields": [{"f:a": "]}\""}]},
            "spec": {
                "replicas": -3, "nodeName": "a \"node\" \n", "ratio": 1.5, "isPaused": true, "phase": "Running",
                "labels": {"a\"": "b", "c": "\u{e9}"}, "containers": [{"name": "c", "env": [{}, []]}, {"name": "d"}],
                "whole": {"list": [1, -1, 18446744073709551615u64, 0.5, null, "x", {}, []]},
            },
            "status": {"conditions": [{"type": "]"}]},
        })
    }

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        let json = pod().to_string();
        let expected: Pod = serde_json::from_str(&json).unwrap();
        assert_eq!(read::<Pod>(json.as_bytes()), Ok(expected));
        let (metadata, rest) = read_apart::<Named, Pod>(format!("{json}\n").as_bytes()).unwrap();
        assert_eq!(metadata, Named { name: "a".into() });
        assert_eq!(rest, Pod { metadata: None, ..serde_json::from_str(&json).unwrap() });
        let mut without: Value = read_apart::<Named, Value>(json.as_bytes()).unwrap().1;
        without["metadata"] = pod()["metadata"].clone();
        assert_eq!(without, pod());
    }

    #[test]
    fn metadata_is_found_wherever_it_stands() {
        for json in [
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a"},"z":1}"#,
            r#"{"a":{"metadata":1},"metadata":{"name":"a"}}"#,
        ] {
            let (metadata, _) = read_apart::<Named, IgnoredEntries>(json.as_bytes()).unwrap();
            assert_eq!(metadata, Named { name: "a".into() }, "{json}");
        }
        assert!(read_apart::<Named, IgnoredEntries>(b"{}").is_err(), "there is none");
    }

    #[derive(serde::Deserialize)]
    struct IgnoredEntries {}

    #[test]
    fn other_text_is_left_to_others() {
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        for json in [
            "",
            "{",
            "{\"spec\": {}}",
            "{\"spec\":{}",
            "{\"spec\":[}",
            "{\"spec\":{\"replicas\":1x}}",
            "[1 2]",
            "[\"a\" ]",
            &deep,
        ] {
            assert!(read::<Pod>(json.as_bytes()).is_err(), "{json}");
            assert!(read::<Value>(json.as_bytes()).is_err(), "{json}");
            assert!(document(json.as_bytes()).is_err(), "{json}");
        }
        assert!(read::<Value>(b"\"\xff\"").is_err());
        assert!(read::<Pod>(b"{\"spec\":{\"phase\":\"Gone\"}}").is_err(), "of another type");
    }

    #[test]
    fn raw_values_are_told_as_they_are_written() {
        #[derive(serde::Deserialize)]
        struct Told<'a> {
            #[serde(borrow)]
            a: Raw<'a>,
        }
        for value in [r#"{"b":[1,"]"]}"#, r#""\"x""#, "-1.50", "null", "[]"] {
            let json = format!("{{\"z\":0,\"a\":{value},\"b\":1}}");
            assert_eq!(read::<Told>(json.as_bytes()).unwrap().a.0, value);
            assert_eq!(serde_json::from_str::<Told>(&json).unwrap().a.0, value);
        }
    }

    proptest! {
        #[test]
        fn any_value_is_read_as_serde_json_reads_it(value in any_value()) {
            let json = value.to_string();
            prop_assert_eq!(read::<Value>(json.as_bytes()), Ok(value.clone()));
            prop_assert_eq!(document(json.as_bytes()), Ok(value));
        }

        #[test]
        fn no_text_stops_it(text in "[\\[\\]{}\",:a1\\\\\n]{0,40}") {
            _ = read::<Value>(text.as_bytes());
            _ = read_apart::<Value, Value>(text.as_bytes());
            prop_assert_eq!(document(text.as_bytes()), read::<Value>(text.as_bytes()));
        }
    }
}

//! Finds the order in which Go's decoder reports unknown and duplicate fields, which is the order in the document.
//! Parsed values do not keep this order, so the text is walked again.

use super::{Path, Segment};
use crate::refusal::{Cut, PATH_BYTES_MAX};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The complaints about the unknown and duplicate fields of a JSON text, in document order. Fields that are not found
/// come last.
pub fn complaints(json: &[u8], unknown: &[String], repeated: &[String]) -> Vec<String> {
    let of = |kind: &str, path: &String| (path.clone(), format!("{kind} field \"{path}\""));
    let mut walk = Walk {
        unknown: unknown.iter().map(|path| of("unknown", path)).collect(),
        repeated: repeated.iter().map(|path| of("duplicate", path)).collect(),
        found: Vec::new(),
    };
    let text = String::from_utf8_lossy(json);
    // Fields after a syntax error are not found.
    let _ = Node { walk: &mut walk, path: None }.deserialize(&mut serde_json::Deserializer::from_str(&text));
    let Walk { unknown: mut unknown_left, repeated: mut repeated_left, mut found } = walk;
    found.extend(unknown.iter().filter_map(|path| unknown_left.remove(path)));
    found.extend(repeated.iter().filter_map(|path| repeated_left.remove(path)));
    found
}

struct Walk {
    /// The paths of unknown fields that the walk has not reached yet, each with its complaint.
    unknown: BTreeMap<String, String>,
    /// The paths of duplicate fields that the walk has not reached yet, each with its complaint.
    repeated: BTreeMap<String, String>,
    found: Vec<String>,
}

struct Node<'a> {
    walk: &'a mut Walk,
    path: Option<&'a Path<'a>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = Path { parent: self.path, segment: Segment::Key(&key) };
            let mut shown = Cut::at(PATH_BYTES_MAX);
            path.write(&mut shown);
            if seen.contains(&key) {
                self.walk.found.extend(self.walk.repeated.remove(&shown.text));
            }
            match self.walk.unknown.remove(&shown.text) {
                Some(complaint) => {
                    self.walk.found.push(complaint);
                    map.next_value::<IgnoredAny>()?;
                }
                None => map.next_value_seed(Node { walk: self.walk, path: Some(&path) })?,
            }
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let path = Path { parent: self.path, segment: Segment::Index(index) };
            if items.next_element_seed(Node { walk: self.walk, path: Some(&path) })?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_come_as_the_document_has_them() {
        let json = br#"{"z": 1, "metadata": {"b": 1, "name": "x", "name": "y", "a": 1}, "spec": [{"k": 1}, {"u": 2, "k": 1}], "c": {}}"#;
        let texts = |paths: &[&str]| -> Vec<String> { paths.iter().map(|path| (*path).to_owned()).collect() };
        let unknown = texts(&["c", "metadata.a", "metadata.b", "spec[1].u", "nowhere", "z"]);
        let found = complaints(json, &unknown, &texts(&["metadata.name"]));
        let expected = [
            "unknown field \"z\"",
            "unknown field \"metadata.b\"",
            "duplicate field \"metadata.name\"",
            "unknown field \"metadata.a\"",
            "unknown field \"spec[1].u\"",
            "unknown field \"c\"",
            "unknown field \"nowhere\"",
        ];
        assert_eq!(found, expected);
    }
}

//! Parses only the fields of a stored document that a reader needs, in one pass and with little memory.
//!
//! A table shows a dozen values of an object, which are a small part of the object's bytes. Stored text is canonical
//! JSON, so it has no white space between tokens. Its syntax is not checked again: the checksum of the log record that
//! contains the text shows that the text is what Holdfast wrote.

use super::cursor::{Cursor, Quoted};
use holdfast_value::{Map, Value};
use std::ops::Range;

/// The set of fields that are parsed in the documents of a kind.
#[derive(Debug, Clone)]
pub struct Glance(Part);

#[derive(Debug, Clone)]
enum Part {
    All,
    /// The keys of a map are parsed. Its values are skipped and read as null.
    Keys,
    Only(Vec<(&'static str, Part)>),
    But(&'static str),
}

/// The parsed part of a document.
pub struct Seen<'a> {
    pub document: Value,
    /// The object's metadata as JSON text.
    pub metadata: &'a [u8],
}

/// The parts that every kind needs. Managed fields are often most of an object, and no reader needs them.
const ALWAYS: [(&str, Part); 3] =
    [("apiVersion", Part::All), ("kind", Part::All), ("metadata", Part::But("managedFields"))];

impl Default for Glance {
    fn default() -> Self {
        Self(Part::All)
    }
}

impl Glance {
    /// Selects `apiVersion`, `kind`, the metadata without managed fields, and the values at these dotted paths. A path
    /// that leads to a list continues in each item of the list; `a.*` means the keys of the map `a`.
    pub fn at(paths: &[&'static str]) -> Self {
        Self(Part::Only(ALWAYS.to_vec())).and_at(paths)
    }

    /// Selects only the values at these paths, and not the metadata.
    pub fn only_at(paths: &[&'static str]) -> Self {
        Self(Part::Only(Vec::new())).and_at(paths)
    }

    fn and_at(mut self, paths: &[&'static str]) -> Self {
        paths.iter().for_each(|path| self.add(path));
        self
    }

    /// Adds a path to the fields that are parsed.
    pub fn add(&mut self, path: &'static str) {
        if let Part::Only(parts) = &mut self.0 {
            add(parts, path);
        }
    }

    pub fn look<'a>(&self, json: &'a [u8]) -> Seen<'a> {
        let read = || {
            let mut reader = Reader { cursor: Cursor::of(json)?, metadata: 0..0 };
            let document = reader.top(&self.0)?;
            Some(Seen { document, metadata: &json[reader.metadata] })
        };
        read().unwrap_or_else(|| Seen { document: serde_json::from_slice(json).unwrap_or_default(), metadata: b"{}" })
    }
}

fn add(parts: &mut Vec<(&'static str, Part)>, path: &'static str) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let known = parts.iter().position(|(name, _)| *name == first);
    let index = known.unwrap_or_else(|| {
        parts.push((first, Part::Only(Vec::new())));
        parts.len() - 1
    });
    let part = &mut parts[index].1;
    match (rest, part) {
        (None, part) => *part = Part::All,
        // The part that contains the path is parsed as a whole already.
        (Some(_), Part::All | Part::But(_)) | (Some("*"), Part::Keys) => {}
        // A map of which both all keys and some values are needed is parsed as a whole.
        (Some("*"), part) => {
            let needs_values = matches!(part, Part::Only(below) if !below.is_empty());
            *part = if needs_values { Part::All } else { Part::Keys };
        }
        (Some(_), part @ Part::Keys) => *part = Part::All,
        (Some(rest), Part::Only(below)) => add(below, rest),
    }
}

impl Part {
    /// What to parse of the value with this key; `None` if the value is skipped.
    fn below(&self, key: &str) -> Option<&Part> {
        match self {
            Part::All => Some(&Part::All),
            Part::Keys => None,
            Part::Only(parts) => parts.iter().find(|(name, _)| *name == key).map(|(_, part)| part),
            Part::But(left) => (*left != key).then_some(&Part::All),
        }
    }
}

/// Parses a text. Every method returns `None` if the text is not canonical.
struct Reader<'a> {
    cursor: Cursor<'a>,
    metadata: Range<usize>,
}

impl Reader<'_> {
    /// Parses the whole document, and records the range of its metadata.
    fn top(&mut self, part: &Part) -> Option<Value> {
        let mut map = Map::new();
        self.cursor.take(b'{')?;
        loop {
            let key = self.cursor.key()?;
            let begin = self.cursor.at();
            match (key.as_written(), part) {
                // The metadata is also returned as text, so its managed fields need not be parsed here.
                (name @ "metadata", Part::All) => {
                    let value = self.value(&Part::But("managedFields"))?;
                    map.insert(name, value);
                }
                _ => self.entry(key, part, &mut map)?,
            }
            if key.as_written() == "metadata" {
                self.metadata = begin..self.cursor.at();
            }
            if self.cursor.next()? == b'}' {
                return Some(Value::Object(map));
            }
        }
    }

    fn value(&mut self, part: &Part) -> Option<Value> {
        match self.cursor.peek()? {
            b'{' => self.object(part).map(Value::Object),
            b'[' => self.list(part).map(Value::Array),
            b'"' => self.cursor.quoted().and_then(Quoted::unescaped).map(Value::String),
            _ => match self.cursor.scalar()? {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                "null" => Some(Value::Null),
                number => serde_json::from_str(number).ok(),
            },
        }
    }

    fn object(&mut self, part: &Part) -> Option<Map> {
        let mut map = Map::new();
        self.cursor.take(b'{')?;
        if self.cursor.passes(b'}') {
            return Some(map);
        }
        loop {
            let key = self.cursor.key()?;
            self.entry(key, part, &mut map)?;
            if self.cursor.next()? == b'}' {
                return Some(map);
            }
        }
    }

    fn entry(&mut self, key: Quoted, part: &Part, map: &mut Map) -> Option<()> {
        // The keys in a `Part` need no escapes, so they can be compared with the key as it is written.
        match part.below(key.as_written()) {
            Some(below) => {
                let value = self.value(below)?;
                map.insert(key.unescaped()?, value);
            }
            None => {
                self.cursor.skip()?;
                if matches!(part, Part::Keys) {
                    map.insert(key.unescaped()?, Value::Null);
                }
            }
        }
        Some(())
    }

    fn list(&mut self, part: &Part) -> Option<Vec<Value>> {
        let mut list = Vec::new();
        self.cursor.take(b'[')?;
        if self.cursor.passes(b']') {
            return Some(list);
        }
        loop {
            list.push(self.value(part)?);
            if self.cursor.next()? == b']' {
                return Some(list);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::scan::tests::any_value;
    use holdfast_value::json;
    use proptest::prelude::*;

    fn written(value: &Value) -> Vec<u8> {
        let mut json = serde_json::to_vec(value).unwrap();
        json.push(b'\n');
        json
    }

    #[test]
    fn only_what_is_looked_at_is_read() {
        let document = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a\"b\\", "managedFields": [{"x": "}]\""}], "labels": {"ä\n": "ü\u{1}"}},
            "spec": {"containers": [{"name": "one", "env": [{"a": [[], {}, "]"]}]}, {"name": "two"}], "nodeName": "n"},
            "data": {"k\"ey": "long", "other": {"a": 1}},
            "status": {"count": -1.5e3, "yes": true, "no": false, "none": null, "empty": {}, "list": []},
        });
        let json = written(&document);
        let seen = Glance::at(&["spec.containers.name", "data.*", "status"]).look(&json);
        let mut expected = document.clone();
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        expected["spec"] = json!({"containers": [{"name": "one"}, {"name": "two"}]});
        expected["data"] = json!({"k\"ey": null, "other": null});
        assert_eq!(seen.document, expected);
        assert_eq!(serde_json::from_slice::<Value>(seen.metadata).unwrap(), document["metadata"]);

        let seen = Glance::default().look(&json);
        let mut expected = document.clone();
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(seen.document, expected);
    }

    /// The columns of a kind name their paths one by one, so no path may narrow what another one needs.
    #[test]
    fn paths_may_overlap_in_any_order() {
        let json = written(&json!({"data": {"a": "b", "c": {"d": "e"}}}));
        for (one, other) in [("data", "data.*"), ("data.*", "data.c"), ("data.*", "data.c.d"), ("data", "data.c")] {
            for paths in [[one, other], [other, one]] {
                let seen = Glance::only_at(&paths).look(&json).document;
                assert_eq!(seen["data"]["c"]["d"], "e", "{paths:?}");
                let keys: Vec<&str> = seen["data"].as_object().expect("a map").keys().map(|key| &**key).collect();
                assert!(keys == ["a", "c"] || !paths.contains(&"data.*"), "{paths:?}: {keys:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_whole_look_is_what_serde_reads(spec in any_value(), status in any_value()) {
            let document = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
            let json = written(&document);
            let seen = Glance::default().look(&json);
            prop_assert_eq!(seen.document, document);
            prop_assert_eq!(seen.metadata, b"{\"name\":\"a\"}");
        }

        #[test]
        fn no_text_stops_it(text in "[\\[\\]{}\",:a1\\\\\n]{0,40}") {
            Glance::default().look(text.as_bytes());
            Glance::at(&["a.a", "a.*"]).look(text.as_bytes());
        }
    }
}

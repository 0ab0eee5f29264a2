//! Reads of a stored document only what will be looked at, in one pass and with little memory.
//!
//! A table shows a dozen values of an object; most of its bytes are something else. What is stored is canonical:
//! it has no white space between tokens, and its checksum vouches for its syntax.

use serde_json::{Map, Value};
use std::ops::Range;

/// Which parts of a kind's documents are looked at.
#[derive(Debug, Clone)]
pub struct Glance(Part);

#[derive(Debug, Clone)]
enum Part {
    All,
    /// A map's keys; its values read as null.
    Keys,
    Only(Vec<(&'static str, Part)>),
    But(&'static str),
}

/// What was seen.
pub struct Seen<'a> {
    pub document: Value,
    /// The metadata as it is written.
    pub metadata: &'a [u8],
}

/// What everybody looks at. The managed fields are often most of an object, and nobody does.
const ALWAYS: [(&str, Part); 3] =
    [("apiVersion", Part::All), ("kind", Part::All), ("metadata", Part::But("managedFields"))];

impl Default for Glance {
    fn default() -> Self {
        Self(Part::All)
    }
}

impl Glance {
    /// At the metadata, and at these dotted paths; lists are passed through, `a.*` means the keys of a map.
    pub fn at(paths: &[&'static str]) -> Self {
        let mut parts = ALWAYS.to_vec();
        for path in paths {
            add(&mut parts, path);
        }
        Self(Part::Only(parts))
    }

    /// At the labels, and nothing else.
    pub fn at_labels() -> Self {
        Self(Part::Only(vec![("metadata", Part::Only(vec![("labels", Part::All)]))]))
    }

    /// At this path, too.
    pub fn add(&mut self, path: &'static str) {
        if let Part::Only(parts) = &mut self.0 {
            add(parts, path);
        }
    }

    pub fn look<'a>(&self, json: &'a [u8]) -> Seen<'a> {
        let mut reader = Reader { json, at: 0, metadata: 0..0 };
        let document = reader.top(&self.0);
        match document {
            Some(document) => Seen { document, metadata: &json[reader.metadata] },
            None => Seen { document: serde_json::from_slice(json).unwrap_or_default(), metadata: b"{}" },
        }
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
        (Some("*"), part) => *part = Part::Keys,
        (Some(rest), Part::Only(below)) => add(below, rest),
        // All of it is looked at already.
        (Some(_), Part::All | Part::Keys | Part::But(_)) => {}
    }
}

impl Part {
    /// What is looked at below a key; `None` for nothing.
    fn below(&self, key: &str) -> Option<&Part> {
        match self {
            Part::All => Some(&Part::All),
            Part::Keys => None,
            Part::Only(parts) => parts.iter().find(|(name, _)| *name == key).map(|(_, part)| part),
            Part::But(left) => (*left != key).then_some(&Part::All),
        }
    }
}

/// A stored document in two, each of them JSON: its metadata, without who manages which field, and all the rest. Who
/// reads every object of a cluster passes over that most quickly. `None` where the text is not as stored text is.
pub fn apart(json: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut reader = Reader { json, at: 0, metadata: 0..0 };
    let (before, metadata, after) = reader.without("metadata")?;
    let mut reader = Reader { json: &json[metadata.clone()], at: 0, metadata: 0..0 };
    let own = match reader.without("managedFields") {
        Some((before, _, after)) => join(reader.json, before, after),
        None => reader.json.to_vec(),
    };
    Some((own, join(json, before, after)))
}

/// An object of the fields before and after one that is left out.
fn join(json: &[u8], before: Range<usize>, after: Range<usize>) -> Vec<u8> {
    let mut out = Vec::with_capacity(before.len() + after.len() + 3);
    out.push(b'{');
    out.extend_from_slice(&json[before]);
    if out.len() > 1 && !after.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(&json[after]);
    out.push(b'}');
    out
}

/// Every step answers `None` where the text is not as stored text is.
struct Reader<'a> {
    json: &'a [u8],
    at: usize,
    metadata: Range<usize>,
}

impl<'a> Reader<'a> {
    /// The whole document; notes where its metadata is.
    fn top(&mut self, part: &Part) -> Option<Value> {
        let mut map = Map::new();
        self.take(b'{')?;
        loop {
            let key = self.key()?;
            let begin = self.at;
            match (key, part) {
                // It is written as it stands, so nobody needs the rest of it.
                ("metadata", Part::All) => {
                    let value = self.value(&Part::But("managedFields"))?;
                    map.insert(key.into(), value);
                }
                _ => self.entry(key, part, &mut map)?,
            }
            if key == "metadata" {
                self.metadata = begin..self.at;
            }
            if self.next()? == b'}' {
                return Some(Value::Object(map));
            }
        }
    }

    /// Where the object's fields before this one are, its value, and the fields behind it, with no comma around them.
    fn without(&mut self, name: &str) -> Option<(Range<usize>, Range<usize>, Range<usize>)> {
        self.take(b'{')?;
        let first = self.at;
        loop {
            let begin = self.at;
            let key = self.key()?;
            let value = self.at;
            self.skip()?;
            let end = self.at;
            let last = self.next()? == b'}';
            if key == name {
                let close = self.json.iter().rposition(|byte| *byte == b'}')?;
                return Some((first..begin.saturating_sub(1).max(first), value..end, self.at.min(close)..close));
            }
            if last {
                return None;
            }
        }
    }

    fn value(&mut self, part: &Part) -> Option<Value> {
        match self.json.get(self.at)? {
            b'{' => self.object(part).map(Value::Object),
            b'[' => self.list(part).map(Value::Array),
            b'"' => {
                let text = self.text()?;
                if !text.contains(&b'\\') {
                    return Some(Value::String(std::str::from_utf8(text).ok()?.to_owned()));
                }
                serde_json::from_slice(&self.json[self.at - text.len() - 2..self.at]).ok()
            }
            _ => {
                let begin = self.at;
                self.scalar();
                match &self.json[begin..self.at] {
                    b"true" => Some(Value::Bool(true)),
                    b"false" => Some(Value::Bool(false)),
                    b"null" => Some(Value::Null),
                    number => serde_json::from_slice(number).ok(),
                }
            }
        }
    }

    fn object(&mut self, part: &Part) -> Option<Map<String, Value>> {
        let mut map = Map::new();
        self.take(b'{')?;
        if self.json.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Some(map);
        }
        loop {
            let key = self.key()?;
            self.entry(key, part, &mut map)?;
            if self.next()? == b'}' {
                return Some(map);
            }
        }
    }

    fn entry(&mut self, key: &str, part: &Part, map: &mut Map<String, Value>) -> Option<()> {
        // Escapes in keys are rare, and none of the names that parts know has one.
        let name = || match key.contains('\\') {
            true => serde_json::from_str(&format!("\"{key}\"")).ok(),
            false => Some(key.to_owned()),
        };
        match part.below(key) {
            Some(below) => {
                let value = self.value(below)?;
                map.insert(name()?, value);
            }
            None => {
                self.skip()?;
                if matches!(part, Part::Keys) {
                    map.insert(name()?, Value::Null);
                }
            }
        }
        Some(())
    }

    fn list(&mut self, part: &Part) -> Option<Vec<Value>> {
        let mut list = Vec::new();
        self.take(b'[')?;
        if self.json.get(self.at) == Some(&b']') {
            self.at += 1;
            return Some(list);
        }
        loop {
            list.push(self.value(part)?);
            if self.next()? == b']' {
                return Some(list);
            }
        }
    }

    /// A key and its colon; escapes stay as they are.
    fn key(&mut self) -> Option<&'a str> {
        let text = self.text()?;
        self.take(b':')?;
        std::str::from_utf8(text).ok()
    }

    /// What stands between quotes.
    fn text(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let begin = self.at;
        self.at = begin + text_end(&self.json[begin..])?;
        let text = &self.json[begin..self.at];
        self.at += 1;
        Some(text)
    }

    fn scalar(&mut self) {
        let rest = &self.json[self.at..];
        self.at += rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b'\n')).unwrap_or(rest.len());
    }

    fn skip(&mut self) -> Option<()> {
        match self.json.get(self.at)? {
            b'"' => self.text().map(drop),
            b'{' | b'[' => {
                let mut depth = 0usize;
                loop {
                    let byte = *self.json.get(self.at)?;
                    self.at += 1;
                    match byte {
                        b'"' => self.at += text_end(&self.json[self.at..])? + 1,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' if depth == 1 => return Some(()),
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                }
            }
            _ => {
                self.scalar();
                Some(())
            }
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.json.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

/// How long the text is that a quote ends.
fn text_end(rest: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', &rest[from..])?;
        let escapes = rest[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

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

    #[test]
    fn a_document_is_taken_apart_wherever_its_parts_are() {
        let managed = r#""managedFields":[{"fieldsV1":{"f:a":{"k:{\"x\":\"]}\"}":{}}}}]"#;
        let metadata = [
            (format!("{{{managed}}}"), "{}"),
            (format!(r#"{{{managed},"name":"a"}}"#), r#"{"name":"a"}"#),
            (format!(r#"{{"labels":{{"managedFields":"}}"}},{managed}}}"#), r#"{"labels":{"managedFields":"}"}}"#),
            (r#"{"name":"a"}"#.to_owned(), r#"{"name":"a"}"#),
            ("{}".to_owned(), "{}"),
        ];
        let rests =
            [("", ""), (r#""a":{"metadata":1}"#, ""), ("", r#""z":"}""#), (r#""a":1,"b":[2]"#, r#""x":{},"z":3"#)];
        for (written, own) in &metadata {
            for (before, after) in rests {
                let parts = [before, &format!(r#""metadata":{written}"#), after];
                let fields = |parts: &[&str]| {
                    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(",")
                };
                let (found, rest) = apart(format!("{{{}}}\n", fields(&parts)).as_bytes()).unwrap();
                assert_eq!(std::str::from_utf8(&found), Ok(*own), "{parts:?}");
                assert_eq!(String::from_utf8(rest).unwrap(), format!("{{{}}}", fields(&[before, after])), "{parts:?}");
            }
        }
        assert!(apart(b"{\"kind\":\"Pod\"}").is_none());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
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
            apart(text.as_bytes());
            apart(format!("{{\"metadata\":{text}").as_bytes());
        }
    }
}

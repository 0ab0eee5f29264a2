//! Canonical JSON: the form in which objects are stored, sent and compared.
//!
//! `apiVersion` and `kind` come first, so that list items can omit them by slicing. Then `metadata` follows, and then
//! the other fields in byte order. The fields of inner objects are in byte order at every depth. The resourceVersion is
//! known only when the writer numbers the event, so a [`Draft`] has a gap in its place.

use super::cursor::Cursor;
use super::meta::{self, Document};
use crate::event::Offset;
use bytes::Bytes;
use holdfast_value::Value;

/// The canonical JSON of an object, ended by a newline. It has a hole where the digits of the resourceVersion will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    json: Vec<u8>,
    /// Invariant: `json[..hole]` ends with `"resourceVersion":"` and `json[hole..]` begins with `"`.
    hole: usize,
    /// The number of bytes before `"metadata"`: the length of `{"apiVersion":"…","kind":"…",`.
    head: usize,
    depth: usize,
}

impl Draft {
    pub fn new(api_version: &str, kind: &str, document: &Document) -> Draft {
        let mut json = Vec::with_capacity(2048);
        json.extend_from_slice(b"{\"apiVersion\":");
        string(&mut json, api_version);
        json.extend_from_slice(b",\"kind\":");
        string(&mut json, kind);
        json.push(b',');
        let head = json.len();
        json.extend_from_slice(b"\"metadata\":");
        let (hole, mut deepest) = metadata(&mut json, super::meta::metadata(document));
        for (name, value) in document {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                json.push(b',');
                string(&mut json, name);
                json.push(b':');
                deepest = deepest.max(encode(&mut json, value));
            }
        }
        json.extend_from_slice(b"}\n");
        Draft { json, hole, head, depth: 1 + deepest }
    }

    /// The number of levels of objects and lists inside each other.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The size of the JSON in bytes, without the digits of the resourceVersion.
    pub fn size(&self) -> usize {
        self.json.len()
    }

    /// The JSON with the digits of `version` in the hole.
    pub fn seal(&self, version: Offset) -> Bytes {
        let mut digits = [0u8; 20];
        let digits = decimal(version.0, &mut digits);
        let mut json = Vec::with_capacity(self.json.len() + digits.len());
        json.extend_from_slice(&self.json[..self.hole]);
        json.extend_from_slice(digits);
        json.extend_from_slice(&self.json[self.hole..]);
        Bytes::from(json)
    }

    /// Whether `sealed`, which has the version `version`, equals this draft in everything except the version.
    pub fn is(&self, sealed: &[u8], version: Offset) -> bool {
        let mut digits = [0u8; 20];
        let digits = decimal(version.0, &mut digits);
        sealed.len() == self.json.len() + digits.len()
            && sealed[..self.hole] == self.json[..self.hole]
            && &sealed[self.hole..self.hole + digits.len()] == digits
            && sealed[self.hole + digits.len()..] == self.json[self.hole..]
    }

    /// Whether the object has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        let document: Value = serde_json::from_slice(&self.json).unwrap_or_default();
        meta::is_deleting(meta::fields(&document))
    }

    /// The number of bytes that a list item omits: the opening brace, `apiVersion` and `kind`.
    pub fn head(&self) -> usize {
        self.head
    }

    pub fn len(&self) -> usize {
        self.json.len()
    }

    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }
}

/// Appends the canonical JSON of a value to `out`. Returns the number of levels of objects and lists in the value.
pub fn encode(out: &mut Vec<u8>, value: &Value) -> usize {
    match value {
        Value::Object(map) => return object(out, map),
        Value::Array(list) => return array(out, list),
        Value::String(text) => string(out, text),
        other => scalar(out, other),
    }
    0
}

fn array(out: &mut Vec<u8>, list: &[Value]) -> usize {
    let mut deepest = 0;
    out.push(b'[');
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        deepest = deepest.max(encode(out, item));
    }
    out.push(b']');
    1 + deepest
}

/// The compact JSON of a whole document, without a hole. `kind`, `apiVersion` and `metadata` come first, in this order.
pub fn document(document: &Document) -> Vec<u8> {
    let mut json = Vec::with_capacity(512);
    json.push(b'{');
    let mut first = true;
    let mut field = |json: &mut Vec<u8>, name: &str, value: &Value| {
        if !std::mem::take(&mut first) {
            json.push(b',');
        }
        string(json, name);
        json.push(b':');
        encode(json, value);
    };
    for name in ["kind", "apiVersion", "metadata"] {
        if let Some(value) = document.get(name) {
            field(&mut json, name, value);
        }
    }
    for (name, value) in document {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            field(&mut json, name, value);
        }
    }
    json.extend_from_slice(b"}\n");
    json
}

fn object(out: &mut Vec<u8>, map: &Document) -> usize {
    out.push(b'{');
    let (mut first, mut deepest) = (true, 0);
    for (name, value) in map {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        string(out, name);
        out.push(b':');
        deepest = deepest.max(encode(out, value));
    }
    out.push(b'}');
    1 + deepest
}

/// Writes the metadata with an empty `resourceVersion`. Returns the index at which the digits of the version belong,
/// and the number of levels of objects and lists in the metadata.
fn metadata(out: &mut Vec<u8>, map: &Document) -> (usize, usize) {
    const FIELD: &[u8] = b"\"resourceVersion\":\"";
    let (mut hole, mut deepest) = (0, 0);
    out.push(b'{');
    let mut first = true;
    let mut place = |out: &mut Vec<u8>, first: &mut bool| {
        if !std::mem::take(first) {
            out.push(b',');
        }
        out.extend_from_slice(FIELD);
        hole = out.len();
        out.push(b'"');
    };
    let mut placed = false;
    for (name, value) in map {
        if name == "resourceVersion" {
            continue;
        }
        if !placed && name.as_str() > "resourceVersion" {
            place(out, &mut first);
            placed = true;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        string(out, name);
        out.push(b':');
        deepest = deepest.max(encode(out, value));
    }
    if !placed {
        place(out, &mut first);
    }
    out.push(b'}');
    (hole, 1 + deepest)
}

/// An object's name. `tail` is the object's canonical JSON from `"metadata"` on. Fields before the name are skipped
/// without parsing.
pub fn name(tail: &[u8]) -> Option<String> {
    let mut at = Cursor::of(tail.strip_prefix(b"\"metadata\":")?)?;
    at.take(b'{')?;
    while at.key()?.plain() != Some("name") {
        at.skip()?;
        at.take(b',')?;
    }
    at.quoted()?.unescaped().map(String::from)
}

/// Writes a JSON string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serialize(out, text);
    }
}

/// Whether JSON needs no escape for any byte of the text. Several bytes are checked at once.
fn is_plain(text: &str) -> bool {
    let special = |bytes: &[u8]| {
        bytes.iter().fold(false, |special, byte| special | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\'))
    };
    let (chunks, rest) = text.as_bytes().as_chunks::<32>();
    // Most names and values are shorter than a chunk of the first check, so the rest is checked eight bytes at a time.
    let (words, rest) = rest.as_chunks::<8>();
    !chunks.iter().any(|chunk| special(chunk)) && !words.iter().any(|word| special_word(*word)) && !special(rest)
}

/// Whether JSON needs an escape for one of eight bytes.
fn special_word(bytes: [u8; 8]) -> bool {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_ne_bytes(bytes);
    // Computes the high bit of each byte that is below `limit`. Bytes above such a byte may be wrong. That does not
    // matter, because the result is only compared with zero.
    let less = |word: u64, limit: u8| word.wrapping_sub(EACH * u64::from(limit)) & !word;
    let equal = |byte: u8| less(word ^ (EACH * u64::from(byte)), 1);
    (less(word, 0x20) | equal(b'"') | equal(b'\\')) & (EACH << 7) != 0
}

fn scalar(out: &mut Vec<u8>, value: &Value) {
    serialize(out, value);
}

fn serialize<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Strings, numbers, booleans and null can always be serialized, and writing to a Vec cannot fail.
    serde_json::to_writer(out, value).unwrap_or_else(|never| unreachable!("serializing a scalar: {never}"));
}

fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

/// Canonical JSON in the form in which Go writes JSON into messages: with escapes for the special characters of HTML.
pub fn as_go_writes(json: &str) -> String {
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    escapes.iter().fold(json.to_owned(), |json, (character, escape)| json.replace(*character, escape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use proptest::prelude::*;

    fn draft(value: Value) -> Draft {
        Draft::new("v1", "ConfigMap", value.as_object().unwrap())
    }

    #[test]
    fn a_name_is_found_behind_whatever_stands_before_it() {
        let odd = json!({"a,}\"\\": ["}", {"name": "b"}, 1.5, null], "c": {"name": "d"}});
        for name in ["n", "n\"}", ""] {
            let metadata = json!({"annotations": odd, "finalizers": [], "generation": 1, "name": name, "uid": "u"});
            let draft = draft(json!({"metadata": metadata}));
            assert_eq!(super::name(&draft.json[draft.head..]), Some(name.to_owned()));
        }
        let nameless = draft(json!({"metadata": {"uid": "u"}}));
        assert_eq!(super::name(&nameless.json[nameless.head..]), None);
        let whole = draft(json!({"metadata": {"annotations": odd, "name": "n"}}));
        let end = whole.json.windows(6).position(|bytes| bytes == b"\"name\"").unwrap();
        assert!((0..end).all(|end| super::name(&whole.json[whole.head.min(end)..end]).is_none()));
    }

    #[test]
    fn the_version_goes_into_its_place() {
        let cases = [
            (json!({}), r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"7"}}"#),
            (
                json!({"metadata": {"uid": "u", "name": "a", "resourceVersion": "3"}, "data": {"b": "1", "a": "x\"y"}}),
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"7","uid":"u"},"data":{"a":"x\"y","b":"1"}}"#,
            ),
        ];
        for (document, expected) in cases {
            let sealed = draft(document).seal(Offset(7));
            assert_eq!(std::str::from_utf8(&sealed).unwrap(), format!("{expected}\n"));
        }
    }

    #[test]
    fn what_has_to_be_escaped_is_found_wherever_it_stands() {
        for length in 0..80 {
            for place in 0..length {
                for byte in 0..=0x7f_u8 {
                    let mut text = vec![b'a'; length];
                    text[place] = byte;
                    let text = String::from_utf8(text).unwrap();
                    let plain = byte >= 0x20 && byte != b'"' && byte != b'\\';
                    assert_eq!(is_plain(&text), plain, "{text:?}");
                }
            }
        }
        assert!(is_plain("ééééééééé") && !is_plain("éééé\u{1}ééé"));
    }

    #[test]
    fn a_draft_knows_how_deep_it_is() {
        for (document, depth) in [
            (json!({}), 2),
            (json!({"data": {"a": "1"}}), 2),
            (json!({"metadata": {"labels": {}, "list": [{"a": [1]}]}}), 5),
            (json!({"spec": [[[]], {}]}), 4),
        ] {
            assert_eq!(draft(document.clone()).depth(), depth, "{document}");
        }
    }

    #[test]
    fn a_draft_knows_itself() {
        let one = draft(json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        let sealed = one.seal(Offset(1234));
        assert!(one.is(&sealed, Offset(1234)));
        assert!(!one.is(&sealed, Offset(123)));
        assert!(!draft(json!({"metadata": {"name": "a"}, "data": {"k": "w"}})).is(&sealed, Offset(1234)));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_json_reads_back(value in any_value()) {
            let mut out = Vec::new();
            encode(&mut out, &value);
            prop_assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), value);
        }

        #[test]
        fn decimals_are_decimal(number in any::<u64>()) {
            let mut buffer = [0u8; 20];
            let expected = number.to_string();
            prop_assert_eq!(decimal(number, &mut buffer), expected.as_bytes());
        }
    }
}

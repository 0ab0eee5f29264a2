//! YAML as Kubernetes' library reads it: YAML 1.1 booleans and octal numbers, merge keys, keys of any scalar type as
//! strings, and only the first document.
//!
//! The parser resolves scalars by YAML 1.2. Scalars that YAML 1.1 reads differently arrive here as strings that are
//! borrowed from the text. Their position in the text shows whether they were quoted, and their line.

use std::fmt;

use holdfast_value::{Map, Number, Value, map::Entry};
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::{DecodeError, Decoded, Path, Room, Segment, TOO_LARGE};
use crate::object::base64;
use crate::refusal::Texts;

/// Decodes the first document in `bytes`.
pub fn yaml(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError("yaml: invalid leading UTF-8 octet".to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if may_nest_without_end(text) {
        return Err(DecodeError(TOO_DEEP.to_string()));
    }
    if is_plain_json(text)
        && let Ok((value, state)) = as_json(text)
        && state.duplicates.is_empty()
    {
        return Ok(Decoded { value, duplicates: state.duplicates, yaml_complaint: None });
    }
    let (value, state) = if holds_more_than(PLACES_MAX, text) {
        // The JSON parser allocates memory only for the values.
        as_json(text).map_err(|_| DecodeError(format!("yaml: {TOO_LARGE}")))?
    } else {
        refuse_other_versions(text)?;
        refuse_escaped_slash(text)?;
        match parsed(text) {
            Err(error) => return in_other_words(text, error),
            Ok(parsed) => parsed,
        }
    };
    Ok(decoded(value, state))
}

pub(super) const UNMARSHAL_ERRORS: &str = "yaml: unmarshal errors:\n";

fn decoded(value: Value, state: State) -> Decoded {
    let complaints = state.complaints.into_vec().join("\n  ");
    let yaml_complaint = (!complaints.is_empty()).then(|| format!("{UNMARSHAL_ERRORS}  {complaints}"));
    Decoded { value, duplicates: state.duplicates, yaml_complaint }
}

fn parsed(text: &str) -> Result<(Value, State<'_>), serde_yaml_ng::Error> {
    let mut state = State::new(text);
    let Some(document) = serde_yaml_ng::Deserializer::from_str(text).next() else { return Ok((Value::Null, state)) };
    let value = Node { state: &mut state, path: None }.deserialize(document)?;
    Ok((value, state))
}

/// Refuses a directive for a YAML version other than 1.1.
fn refuse_other_versions(text: &str) -> Result<(), DecodeError> {
    let directives = text.lines().take_while(|line| line.is_empty() || line.starts_with(['%', '#']));
    for version in directives.filter_map(|line| line.strip_prefix("%YAML")) {
        if version.split_whitespace().next() != Some("1.1") {
            return Err(DecodeError("yaml: found incompatible YAML document".to_string()));
        }
    }
    Ok(())
}

/// Refuses `\/` inside double quotes. Kubernetes' parser reads YAML 1.1, in which `\/` is not an escape; this parser
/// reads YAML 1.2, in which `\/` is an escape. To find out whether a `\/` is inside double quotes, the text is parsed
/// with `\q` instead of `\/`: no version has an escape `\q`, so the parser reports an unknown escape if the text is
/// inside double quotes.
fn refuse_escaped_slash(text: &str) -> Result<(), DecodeError> {
    if !text.contains("\\/") {
        return Ok(());
    }
    match parsed(&text.replace("\\/", "\\q")) {
        Err(error) if error.to_string().contains("unknown escape character") => Err(complaint(&error)),
        _ => Ok(()),
    }
}

/// Reads YAML that Kubernetes' parser accepts and this parser refuses. The text at each error is rewritten so that this
/// parser can read it. Few documents have such an error, and rarely more than a few of them.
fn in_other_words(text: &str, error: serde_yaml_ng::Error) -> Result<Decoded, DecodeError> {
    const PLACES_MAX: usize = 16;
    let (mut text, mut error) = (text.to_owned(), error);
    for _ in 0..PLACES_MAX {
        if !take_integer_tag(&mut text, &error) && !quote_scalar(&mut text, &error) {
            break;
        }
        match parsed(&text) {
            Ok((value, state)) => return Ok(decoded(value, state)),
            Err(next) => error = next,
        }
    }
    Err(complaint(&error))
}

/// Removes the tag from an integer that is octal or has underscores. With the tag this parser reads the integer as a
/// string; without it the integer is read correctly.
fn take_integer_tag(text: &mut String, error: &serde_yaml_ng::Error) -> bool {
    const TAG: &str = "!!int ";
    if !error.to_string().contains(", expected an integer") {
        return false;
    }
    let Some(line) = error.location().and_then(|place| line_at(text, place.line())) else { return false };
    let integer = |at: usize| {
        let scalar = text[at + TAG.len()..line.end].split([' ', '\r', ',', '}', ']']).next().unwrap_or_default();
        resolve(scalar).is_some_and(|value| value.is_i64())
    };
    let tags = text[line.clone()].match_indices(TAG).map(|(at, _)| line.start + at);
    let Some(at) = tags.into_iter().find(|at| integer(*at)) else { return false };
    text.replace_range(at..at + TAG.len(), &" ".repeat(TAG.len()));
    true
}

/// Quotes a scalar inside brackets that ends with a colon, such as `[001:db8::]`, which this parser reads as a key.
fn quote_scalar(text: &mut String, error: &serde_yaml_ng::Error) -> bool {
    if !error.to_string().contains("found unexpected ':'") {
        return false;
    }
    let Some(place) = error.location() else { return false };
    let Some(line) = line_at(text, place.line()) else { return false };
    let columns = text[line.clone()].char_indices().map(|(at, _)| line.start + at);
    let Some(colon) = columns.into_iter().nth(place.column().saturating_sub(1)) else { return false };
    let before = &text[line.start..colon];
    let start = before.rfind(['[', '{', ',']).map_or(0, |at| at + 1);
    let start = before[start..].rfind(": ").map_or(start, |at| start + at + 1);
    let start = start + before[start..].len() - before[start..].trim_start().len();
    if !text[colon..].starts_with(':') || before[start..].starts_with(['"', '\'', '&', '*', '!', '?']) {
        return false;
    }
    let quoted = format!("'{}:'", before[start..].replace('\'', "''"));
    text.replace_range(line.start + start..=colon, &quoted);
    true
}

/// The byte range of the line with this number, without its line break.
fn line_at(text: &str, number: usize) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    let mut lines = text.split_inclusive('\n');
    for line in lines.by_ref().take(number.checked_sub(1)?) {
        start += line.len();
    }
    lines.next().map(|line| start..start + line.trim_end_matches('\n').len())
}

/// Whether the text looks like JSON that has the same meaning as YAML. Programs often send JSON where YAML is accepted,
/// and the JSON parser takes a fifth of the YAML parser's time. A text with non-ASCII characters or tabs is not plain:
/// YAML treats some of the characters as line breaks, and refuses surrogates and, in some positions, tabs.
fn is_plain_json(text: &str) -> bool {
    text.starts_with('{')
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n'))
        && !text.contains("\\/")
        && !text.contains("\\ud")
        && !text.contains("\\uD")
}

/// Reads JSON, which is a subset of YAML.
fn as_json(text: &str) -> Result<(Value, State<'_>), serde_json::Error> {
    let mut state = State::new(text);
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Node { state: &mut state, path: None }.deserialize(&mut json)?;
    json.end()?;
    Ok((value, state))
}

/// The maximum size that aliases may add to a document, in values plus bytes of text.
const EXPANSION_MAX: usize = 4 << 20;
const EXCESSIVE: &str = "document contains excessive aliasing";

const TOO_DEEP: &str = "yaml: exceeded max depth";

/// Whether the text may have so many open brackets that parsing takes minutes. The parser visits all open brackets at
/// every token, and checks its own depth limit only at the end.
///
/// Brackets inside strings cannot be recognized without parsing, and count as well. Among real texts only JSON has so
/// many unclosed brackets, and the JSON parser, which reads such texts, has a depth limit of its own.
fn may_nest_without_end(text: &str) -> bool {
    const OPEN_MAX: usize = 1_000;
    let mut open = 0usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > OPEN_MAX {
            return serde_json::from_str::<serde::de::IgnoredAny>(text).is_err();
        }
    }
    false
}

/// The maximum number of events of a document. The parser turns the whole document into events before it returns the
/// first value. Each key, each value, and each start and end of a list or mapping takes an event of a hundred bytes or
/// more. Ordinary YAML has an event for every ten bytes.
const PLACES_MAX: usize = 1 << 18;

/// Whether the text may have more than `most` events.
///
/// Characters inside strings and comments cannot be recognized without parsing, and count as well.
fn holds_more_than(most: usize, text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut places = 0;
    // The last character that is not blank. A colon after an indicator starts a mapping with an empty key.
    let mut before = b'\n';
    for (at, byte) in bytes.iter().enumerate() {
        let bare = matches!(before, b'\n' | b'-' | b'?' | b':' | b',' | b'[' | b'{');
        // Some non-ASCII characters end a line in YAML, so any of them may end a token.
        let ends = bytes.get(at + 1).is_none_or(|next| matches!(next, b' ' | b'\t' | b'\r' | b'\n' | 0x80..));
        let closes = bytes.get(at + 1).is_some_and(|next| matches!(next, b',' | b'[' | b']' | b'{' | b'}'));
        places += match byte {
            b' ' | b'\t' => continue,
            b'?' => 4,
            b':' if bare => 4,
            b'-' if bare && ends && before != b'\n' => 3,
            b',' | b'[' | b'{' => 2,
            b':' if ends || closes || matches!(before, b'"' | b'\'' | b']' | b'}') => 1,
            b'-' if ends => 1,
            b'\r' | b'\n' => 1,
            _ => 0,
        };
        before = if *byte == b'\r' { b'\n' } else { *byte };
        if places > most {
            return true;
        }
    }
    false
}

struct State<'de> {
    text: &'de str,
    /// The number of values plus bytes of text that may still be read. At the beginning it is what the text itself can
    /// contain, plus the size that aliases may add.
    budget: usize,
    room: Room,
    /// The byte offset of the last scalar whose content occurs in the text as it is. A scalar with escapes, for
    /// example, is decoded into another text and has no offset.
    offset: usize,
    /// The byte offset of the value that was read last; for a list or mapping, of its first item or key. `None` if the
    /// offset is not known.
    start: Option<usize>,
    duplicates: Texts,
    complaints: Texts,
}

impl<'de> State<'de> {
    fn new(text: &'de str) -> Self {
        State {
            text,
            budget: text.len().saturating_mul(2).saturating_add(EXPANSION_MAX),
            room: Room::whole(),
            offset: 0,
            start: None,
            duplicates: Texts::default(),
            complaints: Texts::default(),
        }
    }

    fn spend<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.budget = self.budget.checked_sub(bytes.saturating_add(1)).ok_or_else(|| E::custom(EXCESSIVE))?;
        self.room.take(bytes)
    }

    /// Records the position of `text`, and returns how the scalar is written at that position.
    fn written(&mut self, text: &'de str) -> Written<'de> {
        let Some(offset) = (text.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize) else {
            return Written::Text;
        };
        let Some(before) = self.text.get(..offset) else { return Written::Text };
        self.offset = offset;
        self.start = Some(offset);
        let bare = before.strip_suffix(['"', '\'']);
        match tag(bare.unwrap_or(before)) {
            Some(tag) => Written::Tagged(tag),
            None if bare.is_some() => Written::Text,
            None => Written::Plain,
        }
    }
}

fn line(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// How a scalar is written in the YAML text.
enum Written<'de> {
    /// The scalar has no quotes, so its content determines its type.
    Plain,
    Text,
    /// The scalar follows one of YAML's own tags, such as `!!int`.
    Tagged(&'de str),
}

/// The YAML tag (`!!str`) directly before a scalar, possibly followed by an anchor.
fn tag(before: &str) -> Option<&str> {
    let last = |text: &'_ str| text.rfind([' ', '\t', '\n', ',', '[', '{']).map_or(0, |at| at + 1);
    let mut before = before;
    while before.ends_with([' ', '\t']) {
        before = before.trim_end_matches([' ', '\t']);
        let word = &before[last(before)..];
        match word.as_bytes().first() {
            Some(b'!') => return word.strip_prefix("!!"),
            Some(b'&') => before = &before[..before.len() - word.len()],
            _ => return None,
        }
    }
    None
}

/// The value of a scalar that has a tag.
fn tagged<E: Error>(tag: &str, text: &str) -> Result<Value, E> {
    if tag != "binary" {
        return Ok(Value::from(text.to_string()));
    }
    let bytes = base64::decode(text).map_err(|_| E::custom(BAD_BINARY))?;
    Ok(Value::from(String::from_utf8_lossy(&bytes).into_owned()))
}

const BAD_BINARY: &str = "!!binary value contains invalid base64 data";

/// Decodes the value at a path of the document.
struct Node<'a, 'de> {
    state: &'a mut State<'de>,
    path: Option<&'a Path<'a>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, 'de> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, 'de> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.state.spend(0)?;
        Ok(Value::Null)
    }

    /// Called for an empty document, which counts as null.
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.state.spend(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.state.spend(0)?;
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.state.spend(0)?;
        Ok(Value::from(value))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.state.spend(0)?;
        float(value).ok_or_else(|| {
            let text = if value.is_nan() { "NaN" } else { if value > 0.0 { "+Inf" } else { "-Inf" } };
            E::custom(format!("json: unsupported value: {text}"))
        })
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Value, E> {
        self.state.spend(value.len())?;
        let resolved = match self.state.written(value) {
            Written::Plain => resolve(value),
            Written::Tagged(tag) => return tagged(tag, value),
            Written::Text => None,
        };
        Ok(resolved.unwrap_or_else(|| Value::from(value.to_string())))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.state.spend(value.len())?;
        Ok(Value::from(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.state.spend(0)?;
        let mut list = Vec::new();
        let mut start = None;
        loop {
            let path = Path { parent: self.path, segment: Segment::Index(list.len()) };
            self.state.start = None;
            match items.next_element_seed(Node { state: self.state, path: Some(&path) })? {
                Some(item) => {
                    self.state.room.item()?;
                    if list.is_empty() {
                        start = self.state.start;
                    }
                    list.push(item);
                }
                None => {
                    self.state.start = start;
                    return Ok(Value::Array(list));
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, pairs: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        let path = self.path;
        read_map(self.state, path, pairs, &mut |state, key, value, offset| match object.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(value);
            }
            Entry::Occupied(mut entry) => {
                let key = entry.key();
                let State { complaints, text, .. } = &mut *state;
                complaints.push_with(|| format!("line {}: key {key:?} already set in map", line(text, offset)));
                Path { parent: path, segment: Segment::Key(key) }.note(&mut state.duplicates);
                entry.insert(value);
            }
        })?;
        Ok(Value::Object(object))
    }

    /// Called for a value with a custom tag, which is ignored.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (serde::de::IgnoredAny, content) = tagged.variant()?;
        content.newtype_variant_seed(self)
    }
}

/// Calls `set` with each entry of a mapping in order, and with the position of the entry's value. The entries of a
/// merged mapping are set at the position of the merge key: a later key overrides them, and they override an earlier
/// key of the same name.
fn read_map<'de, A: MapAccess<'de>>(
    state: &mut State<'de>,
    path: Option<&Path>,
    pairs: A,
    set: &mut dyn FnMut(&mut State<'de>, String, Value, usize),
) -> Result<(), A::Error> {
    let mut pairs = pairs;
    state.spend(0)?;
    let (mut count, mut start) = (0, None);
    while let Some(key) = pairs.next_key_seed(Key(state))? {
        let offset = state.offset;
        start = start.or(Some(offset));
        state.start = None;
        match key {
            Name::Merge => {
                for (key, value, offset) in pairs.next_value_seed(Merged { state, path })? {
                    set(state, key, value, offset);
                }
            }
            Name::Text(key) => {
                state.room.entry(count, &key)?;
                let path = Path { parent: path, segment: Segment::Key(&key) };
                let value = pairs.next_value_seed(Node { state, path: Some(&path) })?;
                // The value of an alias has an earlier position than the key; then the key's position counts.
                let at = state.start.filter(|start| *start > offset).unwrap_or(offset);
                set(state, key, value, at);
            }
        }
        count += 1;
    }
    state.start = start;
    Ok(())
}

/// Reads the value of a merge key: a mapping, or a list of mappings. The first mapping of a list has precedence.
struct Merged<'a, 'de> {
    state: &'a mut State<'de>,
    path: Option<&'a Path<'a>>,
}

const NOT_MERGED: &str = "map merge requires map or sequence of maps as the value";

impl<'de> DeserializeSeed<'de> for Merged<'_, 'de> {
    type Value = Vec<(String, Value, usize)>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Merged<'_, 'de> {
    type Value = Vec<(String, Value, usize)>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(NOT_MERGED)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        self.state.spend(0)?;
        let mut lists = Vec::new();
        while let Some(list) = items.next_element_seed(Merged { state: self.state, path: self.path })? {
            lists.push(list);
        }
        Ok(lists.into_iter().rev().flatten().collect())
    }

    fn visit_map<A: MapAccess<'de>>(self, pairs: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        read_map(self.state, self.path, pairs, &mut |_, key, value, offset| all.push((key, value, offset)))?;
        Ok(all)
    }
}

/// Reads a key of a mapping, and says whether it is the merge key.
struct Key<'a, 'de>(&'a mut State<'de>);

enum Name {
    Text(String),
    /// The merge key, an unquoted `<<`.
    Merge,
}

impl<'de> DeserializeSeed<'de> for Key<'_, 'de> {
    type Value = Name;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_, 'de> {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string, number or boolean as a key")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Name, E> {
        self.0.spend(0)?;
        Ok(Name::Text(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Name, E> {
        self.0.spend(0)?;
        Ok(Name::Text(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Name, E> {
        self.0.spend(0)?;
        Ok(Name::Text(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Name, E> {
        self.0.spend(0)?;
        Ok(Name::Text(float(value).map_or(value.to_string(), |number| number.to_string())))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Name, E> {
        self.0.spend(value.len())?;
        if !matches!(self.0.written(value), Written::Plain) {
            return Ok(Name::Text(value.to_string()));
        }
        Ok(match resolve(value) {
            _ if value == "<<" => Name::Merge,
            Some(value) => Name::Text(value.to_string()),
            None => Name::Text(value.to_string()),
        })
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Name, E> {
        self.0.spend(value.len())?;
        Ok(Name::Text(value.to_string()))
    }
}

/// The YAML 1.1 value of an unquoted scalar that YAML 1.2 reads as a string; `None` if the scalar is a string in YAML
/// 1.1 too.
fn resolve(text: &str) -> Option<Value> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(Value::Bool(false)),
        _ => {}
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let digits = digits.replace('_', "");
    let (radix, digits) = match digits.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => (16, digits),
        Some(("0o" | "0O", digits)) => (8, digits),
        Some(("0b" | "0B", digits)) => (2, digits),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits.as_str()),
    };
    match i64::from_str_radix(digits, radix) {
        // A second sign is refused here, because Rust's parser would accept it.
        Ok(number) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => Some(Value::from(sign * number)),
        _ => leading_zero_float(text),
    }
}

/// The value of a number such as `08.5` or `1_0.5`. The number is not octal, so it is read as a float.
fn leading_zero_float(text: &str) -> Option<Value> {
    let is_float = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-._eE".contains(&byte));
    if !is_float {
        return None;
    }
    float(text.replace('_', "").parse().ok()?)
}

/// A float as Go writes it to JSON and reads it again: a whole number becomes an integer. Returns `None` if JSON cannot
/// represent the float.
fn float(value: f64) -> Option<Value> {
    let whole = value.fract() == 0.0 && value.abs() < 9e15;
    if whole { Some(Value::from(value as i64)) } else { Number::from_f64(value).map(Value::Number) }
}

/// The message of a parser error in the words of Go: `yaml: line 3: mapping values are not allowed in this context`.
fn complaint(error: &serde_yaml_ng::Error) -> DecodeError {
    let text = error.to_string();
    if text.contains(EXCESSIVE) || text.contains("repetition limit") {
        return DecodeError(format!("yaml: {EXCESSIVE}"));
    }
    if text.contains(TOO_LARGE) {
        return DecodeError(format!("yaml: {TOO_LARGE}"));
    }
    if text.contains("recursion limit") {
        return DecodeError(TOO_DEEP.to_string());
    }
    if text.contains(NOT_MERGED) {
        return DecodeError(format!("yaml: {NOT_MERGED}"));
    }
    if text.contains(BAD_BINARY) {
        return DecodeError(format!("yaml: {BAD_BINARY}"));
    }
    if let Some(at) = text.find("json: unsupported value") {
        return DecodeError(text[at..].split(" at line ").next().unwrap_or_default().to_string());
    }
    let message = text.split(" at line ").next().unwrap_or_default();
    // Go numbers lines from zero in parser errors, but not in scanner errors. It omits the number of the first line.
    let line = match error.location().map_or(0, |place| place.line()) {
        line if message.starts_with("did not find expected") => line.saturating_sub(1),
        1 => 0,
        line => line,
    };
    match line {
        0 => DecodeError(format!("yaml: {message}")),
        _ => DecodeError(format!("yaml: line {line}: {message}")),
    }
}

#[cfg(test)]
mod tests;

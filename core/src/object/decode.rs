//! Decodes what clients send, JSON or YAML, into documents.
//!
//! Complaints are worded as Kubernetes' clients know them. Nothing here knows types: `schema::check` does.

mod json;
pub mod order;
mod syntax;
mod yaml;

use std::fmt;

use crate::refusal::{Cut, PATH_BYTES_MAX, Texts};
use holdfast_value::Value;

pub use json::json;
pub use yaml::yaml;

/// A document, and what strict decoding would hold against it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Paths of keys that stand twice in one object (`spec.containers[0].name`), each once. The last value counts.
    pub duplicates: Texts,
    /// For YAML, Kubernetes tells of all duplicates in one text, with line numbers.
    yaml_complaint: Option<String>,
}

impl Decoded {
    /// Of a form that cannot name a field twice.
    pub fn without_duplicates(value: Value) -> Decoded {
        Decoded { value, duplicates: Texts::default(), yaml_complaint: None }
    }

    /// The duplicates as strict decoding words them.
    pub fn strict_errors(&self) -> Texts {
        match &self.yaml_complaint {
            Some(complaint) => Texts::from_iter([complaint.as_str()]),
            None => self.duplicates.clone().map(|path| format!("duplicate field \"{path}\"")),
        }
    }
}

/// What strict decoding holds against a document, as warnings: of YAML a line for each key that is repeated.
pub fn warnings(strict_errors: Texts) -> Texts {
    let lines = |error: String| -> Vec<String> {
        match error.strip_prefix(yaml::UNMARSHAL_ERRORS) {
            Some(lines) => lines.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect(),
            None => vec![error],
        }
    };
    let mut warnings: Texts = strict_errors.iter().cloned().flat_map(lines).collect();
    warnings.add_more(strict_errors.more());
    warnings
}

/// The bytes are not JSON or YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(pub String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

/// What is left of the memory that the values of one document may take.
///
/// Text and values are far apart in size: a mapping of one key, six bytes of JSON, takes more than six hundred bytes.
/// Sizes are those of `serde_json`, roughly; a document that is more than this is refused, and not half read.
struct Room(usize);

const MEMORY_MAX: usize = 64 << 20;
const TOO_LARGE: &str = "document is too large: its values would take more than 64 MiB of memory";

impl Room {
    const ITEM: usize = size_of::<Value>();
    /// The first entry of a mapping makes room for ten more.
    const FIRST_ENTRY: usize = 11 * (size_of::<String>() + Self::ITEM);
    const ENTRY: usize = 2 * (size_of::<String>() + Self::ITEM);
    /// What an allocation takes besides its bytes.
    const ALLOCATION: usize = 16;

    fn whole() -> Room {
        Room(MEMORY_MAX)
    }

    fn take<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| E::custom(TOO_LARGE))?;
        Ok(())
    }

    fn text<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        self.take(text.len().saturating_add(Self::ALLOCATION))
    }

    fn item<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.take(Self::ITEM)
    }

    /// One more entry of a mapping that has `before` of them.
    fn entry<E: serde::de::Error>(&mut self, before: usize, key: &str) -> Result<(), E> {
        self.take(if before == 0 { Self::FIRST_ENTRY } else { Self::ENTRY })?;
        self.text(key)
    }
}

/// Where a value stands: a chain on the stack, written out only when a duplicate turns up.
#[derive(Clone, Copy)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Key(&'a str),
    Index(usize),
}

impl Segment<'_> {
    /// Adds itself to the path of what it is in.
    fn write(self, path: &mut Cut) {
        let parts = match self {
            Segment::Key(key) if path.text.is_empty() => ["", key, ""],
            Segment::Key(key) => [".", key, ""],
            Segment::Index(index) => ["[", &index.to_string(), "]"],
        };
        parts.iter().for_each(|part| _ = path.add(part));
    }
}

impl Path<'_> {
    fn write(&self, path: &mut Cut) {
        if let Some(parent) = self.parent {
            parent.write(path);
        }
        self.segment.write(path);
    }

    /// Adds this path to `paths`, unless it is there.
    fn note(&self, paths: &mut Texts) {
        let mut path = Cut::at(PATH_BYTES_MAX);
        self.write(&mut path);
        paths.push_once(path.text);
    }
}

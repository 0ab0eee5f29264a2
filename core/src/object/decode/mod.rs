//! Decodes the bodies of requests, which are JSON or YAML, into documents.
//!
//! Errors have Kubernetes' wording. This module checks no types; `schema::check` does that.

mod json;
pub mod order;
mod syntax;
mod yaml;

use std::fmt;

use crate::refusal::{Cut, PATH_BYTES_MAX, Texts};
use holdfast_value::Value;

pub use json::json;
pub use yaml::yaml;

/// A decoded document, and the faults that strict decoding reports about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Paths of keys that occur twice in one object (`spec.containers[0].name`). Each path is listed once. The last
    /// value of a key counts.
    pub duplicates: Texts,
    /// The message about the duplicate keys of a YAML document. Kubernetes reports all of them in one text with line
    /// numbers.
    yaml_complaint: Option<String>,
}

impl Decoded {
    /// A document in a format that cannot contain a field twice.
    pub fn without_duplicates(value: Value) -> Decoded {
        Decoded { value, duplicates: Texts::default(), yaml_complaint: None }
    }

    /// The errors of strict decoding about duplicate keys, in Kubernetes' words.
    pub fn strict_errors(&self) -> Texts {
        match &self.yaml_complaint {
            Some(complaint) => Texts::from_iter([complaint.as_str()]),
            None => self.duplicates.clone().map(|path| format!("duplicate field \"{path}\"")),
        }
    }
}

/// The faults of strict decoding as warnings. For YAML there is one warning for each repeated key.
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

/// The error for bytes that are neither JSON nor YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(pub String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

/// The memory, in bytes, that the document may still take while it is decoded.
///
/// Values may be far larger than their text: an object with one key is six bytes of JSON, and takes more than six
/// hundred bytes. The sizes are roughly the sizes of the values of `serde_json`. A document that needs too much memory
/// is refused while it is parsed.
struct Room(usize);

const MEMORY_MAX: usize = 64 << 20;
const TOO_LARGE: &str = "document is too large: its values would take more than 64 MiB of memory";

impl Room {
    const ITEM: usize = size_of::<Value>();
    /// The size of an object's first entry, which allocates room for ten more.
    const FIRST_ENTRY: usize = 11 * (size_of::<String>() + Self::ITEM);
    const ENTRY: usize = 2 * (size_of::<String>() + Self::ITEM);
    /// The bytes that each allocation takes in addition to its content.
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

    /// Counts the memory of another entry of an object that has `before` entries already.
    fn entry<E: serde::de::Error>(&mut self, before: usize, key: &str) -> Result<(), E> {
        self.take(if before == 0 { Self::FIRST_ENTRY } else { Self::ENTRY })?;
        self.text(key)
    }
}

/// The path of the value that is being decoded. It is a chain on the stack, and is printed only for a duplicate key.
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
    /// Appends this segment to the path.
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

    /// Adds this path to `paths`, unless it is already there.
    fn note(&self, paths: &mut Texts) {
        let mut path = Cut::at(PATH_BYTES_MAX);
        self.write(&mut path);
        paths.push_once(path.text);
    }
}

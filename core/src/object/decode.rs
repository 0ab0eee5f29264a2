//! Decodes what clients send, JSON or YAML, into documents.
//!
//! Complaints are worded as Kubernetes' clients know them. Nothing here knows types: `schema::check` does.

mod json;
mod syntax;
mod yaml;

use std::fmt;

use serde_json::Value;

pub use json::json;
pub use yaml::yaml;

/// A document, and what strict decoding would hold against it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Paths of keys that stand twice in one object (`spec.containers[0].name`), each once. The last value counts.
    pub duplicates: Vec<String>,
    /// For YAML, Kubernetes tells of all duplicates in one text, with line numbers.
    yaml_complaint: Option<String>,
}

impl Decoded {
    /// Of a form that cannot name a field twice.
    pub fn without_duplicates(value: Value) -> Decoded {
        Decoded { value, duplicates: Vec::new(), yaml_complaint: None }
    }

    /// The duplicates as strict decoding words them.
    pub fn strict_errors(&self) -> Vec<String> {
        match &self.yaml_complaint {
            Some(complaint) => vec![complaint.clone()],
            None => self.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect(),
        }
    }
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

/// Whether one more complaint should be kept. Kubernetes stops at a hundred, too; and paths that are long and many
/// would take far more memory than the document that they are about.
pub(crate) fn has_room(complaints: &[String]) -> bool {
    const COMPLAINTS_MAX: usize = 100;
    const BYTES_MAX: usize = 64 << 10;
    complaints.len() < COMPLAINTS_MAX && complaints.iter().map(String::len).sum::<usize>() < BYTES_MAX
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

impl Path<'_> {
    fn write(&self, text: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(text);
        }
        match self.segment {
            Segment::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Segment::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }

    /// Adds this path to `paths`, unless it is there.
    fn note(&self, paths: &mut Vec<String>) {
        if !has_room(paths) {
            return;
        }
        let mut text = String::new();
        self.write(&mut text);
        if !paths.contains(&text) {
            paths.push(text);
        }
    }
}

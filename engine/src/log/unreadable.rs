//! Objects in a log whose values the log cannot read.

use holdfast_core::event::Offset;
use std::fmt;

/// An object whose value cannot be read, in a log to which other programs write. The object is not part of the state,
/// and is never overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub resource: String,
    pub key: String,
    /// The name under which the store has the value, such as a key of etcd.
    pub place: String,
    pub version: Offset,
    pub flaw: Flaw,
}

/// The reason why a value in a log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The value cannot be decrypted.
    Locked(String),
    /// The value is not an object of its resource.
    Malformed(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Locked(why) | Flaw::Malformed(why) => f.write_str(why),
        }
    }
}

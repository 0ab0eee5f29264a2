//! The store as Kubernetes has it: the keys and values of an etcd that is shared with its API servers, and with others of
//! our own.
//!
//! [`Keys`] says under which key an object stands, and what stands under a key. [`read`] makes a document of the hub
//! version of a value, whichever form and version it was written in; [`write()`] makes the value of such a document.
//! Values are plain here: those that are encrypted are opened before they are read, and sealed after they were written.
//!
//! What a store holds may have been written by anybody. What cannot be read is a [`Fault`] that names its key, found with
//! work in proportion to its bytes.

mod cbor;
mod keys;
mod read;
mod stored;
mod write;

pub use keys::{Keys, Place};
pub use read::{read, read_record};
pub use stored::{Author, read_event, renumbered, write_event};
pub use write::{Media, write, write_record};

use crate::refusal::Cut;
use crate::visible;
use std::fmt;

/// Names in keys are shorter; what is longer is nobody's.
const KEY_SHOWN_MAX: usize = 512;
/// Faults quote what was found, which may be long.
const PROBLEM_SHOWN_MAX: usize = 2048;

/// What under a key cannot be read, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub key: String,
    pub problem: String,
}

impl Fault {
    fn new(key: &[u8], problem: &str) -> Fault {
        Fault { key: shown(&String::from_utf8_lossy(key), KEY_SHOWN_MAX), problem: shown(problem, PROBLEM_SHOWN_MAX) }
    }
}

/// On one line, and no longer than that.
fn shown(text: &str, bytes_max: usize) -> String {
    let mut cut = Cut::at(bytes_max);
    cut.add(text);
    visible::line(&cut.text).into_owned()
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { key, problem } = self;
        write!(f, "what is stored under {key} cannot be read: {problem}")
    }
}

impl std::error::Error for Fault {}

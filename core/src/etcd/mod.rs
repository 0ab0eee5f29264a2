//! The keys and values of an etcd that Holdfast's servers share with each other and with kube-apiserver.
//!
//! [`Keys`] maps objects to keys and back. [`read`] converts a value, in any encoding and version, to a document in the
//! hub version; [`write()`] converts back. The values of this module are not encrypted: the caller decrypts them before
//! they are read, and encrypts them after they are written.
//!
//! Any program may have written to the store. A value that cannot be read is a [`Fault`] that names its key. Detecting
//! the fault takes time in proportion to the value's size.

mod cbor;
mod claimed;
mod keys;
mod ports;
mod read;
mod stored;
mod write;

pub use claimed::{address_key, read_holder, write_address};
pub use keys::{Keys, Place};
pub use ports::Ports;
pub use read::{read, read_record};
pub use stored::{Author, nothing_but, read_event, renumbered, write_event};
pub use write::{Media, write, write_record};

use crate::refusal::Cut;
use crate::visible;
use std::fmt;

/// The maximum number of bytes of a key that a fault shows. Valid keys are shorter.
const KEY_SHOWN_MAX: usize = 512;
/// The maximum number of bytes of a problem that a fault shows. Problems quote values, which may be long.
const PROBLEM_SHOWN_MAX: usize = 2048;

/// A key whose value cannot be read, and why.
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

/// The text on one line, cut to `bytes_max` bytes.
fn shown(text: &str, bytes_max: usize) -> String {
    let mut cut = Cut::at(bytes_max);
    cut.add(text);
    visible::line(&cut.text).into_owned()
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { key, problem } = self;
        write!(f, "the value stored under {key} cannot be read: {problem}")
    }
}

impl std::error::Error for Fault {}

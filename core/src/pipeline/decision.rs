//! What a request leads to: the writes it wants, what they count on, and the answer.

use crate::event::{ChangedBy, Offset};
use crate::kinds::KindId;
use crate::object::Draft;
use crate::object::meta::Document;
use crate::refusal::Subject;
use crate::state::{Entry, Index};
use std::sync::Arc;

#[derive(Debug)]
pub struct Decision {
    /// All of them are made at one offset after the other, or none.
    pub writes: Vec<Write>,
    /// Other objects that must be as they were seen: the namespace of a new object.
    pub expects: Vec<Expectation>,
    pub answer: Answer,
    /// The client fixed the version, so a stale decision is its conflict and is not decided again.
    pub fixed: bool,
    pub warnings: Vec<String>,
    /// What others have changed of what the client sent, for the event.
    pub changes: Vec<ChangedBy>,
}

/// One event to be, but for its offset.
#[derive(Debug)]
pub struct Write {
    pub kind: KindId,
    pub key: Arc<str>,
    /// The version that the decision saw; `None`: there was no such object.
    pub expect: Option<Offset>,
    pub draft: Draft,
    pub index: Index,
    pub delete: bool,
}

/// An object and the version that the decision saw of it; `None`: it was not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub kind: KindId,
    pub key: Arc<str>,
    pub version: Option<Offset>,
}

/// What the client gets when the writes are done.
pub enum Answer {
    /// The object of the write with this index.
    Written { index: usize, code: u16, representation: Representation },
    /// An object as it is already.
    Entry { entry: Arc<Entry>, code: u16, representation: Representation },
    /// A document that is not stored: a token that was asked for.
    Document { document: Document, code: u16 },
    /// It is done, and there is nothing to show.
    Success { code: u16 },
    /// The object is gone.
    Deleted { subject: Subject, uid: String },
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Written { index, code, representation } => write!(f, "Written({index}, {code}, {representation:?})"),
            Self::Entry { code, representation, .. } => write!(f, "Entry({code}, {representation:?})"),
            Self::Document { code, .. } => write!(f, "Document({code})"),
            Self::Success { code } => write!(f, "Success({code})"),
            Self::Deleted { subject, .. } => write!(f, "Deleted({subject})"),
        }
    }
}

/// What of an object an answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    Object,
    /// The `autoscaling/v1` Scale of it.
    Scale,
}

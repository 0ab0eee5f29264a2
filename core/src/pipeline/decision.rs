//! What a request leads to: the writes it wants, what they count on, and the answer.

use crate::event::{ChangedBy, Offset};
use crate::kinds::{self, KindId};
use crate::merge::managed::{self, Writer};
use crate::object::Draft;
use crate::object::meta::{self, Document};
use crate::refusal::{Refusal, Subject, Texts};
use crate::state::{Entry, Index, State};
use holdfast_value::Value;
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
    pub warnings: Texts,
    /// What others have changed of what the client sent, for the event.
    pub changes: Vec<ChangedBy>,
}

/// One event to be, but for its offset.
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: KindId,
    pub key: Arc<str>,
    /// The version that the decision saw; `None`: there was no such object.
    pub expect: Option<Offset>,
    pub draft: Draft,
    pub index: Index,
    pub delete: bool,
    /// What the draft says, where it may soon be wanted again: see [`Recent`](crate::state::Recent).
    pub document: Option<Value>,
}

/// As whom the server changes objects by itself.
const SERVER: &str = "kube-apiserver";

impl Write {
    /// A new status for another object than the one asked for, which the server keeps up itself, as long as that object
    /// is still the one that was seen.
    pub fn of_status(
        state: &State,
        kind: KindId,
        key: Arc<str>,
        seen: &Entry,
        mut document: Value,
        now: &str,
    ) -> Result<Write, Refusal> {
        let hub = state.kind(kind);
        let api_version = hub.hub().api_version();
        meta::metadata_mut(meta::fields_mut(&mut document)).remove("resourceVersion");
        let writer = Writer {
            layout: kinds::layout(hub, 0)?,
            api_version: &api_version,
            manager: SERVER,
            subresource: "status",
            now,
            reset: &[],
            convert: None,
        };
        managed::track_update(Some(&seen.document()), &mut document, &writer);
        let draft = Draft::new(&api_version, &hub.kind, meta::fields_mut(&mut document));
        let index = Index::new(hub, &document);
        Ok(Write { kind, key, expect: Some(seen.offset), draft, index, delete: false, document: None })
    }
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

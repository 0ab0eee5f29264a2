//! The result of judging a request: its writes, the versions they rely on, and the answer.

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
    /// The writes. Either all are made, at consecutive offsets, or none.
    pub writes: Vec<Write>,
    /// Other objects that must still have the version on which the decision was judged, such as the namespace of a new
    /// object.
    pub expects: Vec<Expectation>,
    pub answer: Answer,
    /// Whether the client named the object's resourceVersion. If so, a stale decision is a conflict for the client;
    /// otherwise the request is judged again.
    pub fixed: bool,
    pub warnings: Texts,
    /// Changes made by admission, recorded in the event.
    pub changes: Vec<ChangedBy>,
}

/// A future event without its offset.
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: KindId,
    pub key: Arc<str>,
    /// The version that the decision saw; `None` if the object did not exist.
    pub expect: Option<Offset>,
    pub draft: Draft,
    pub index: Index,
    pub delete: bool,
    /// The draft's document, if it may be needed again soon: see [`Recent`](crate::state::Recent).
    pub document: Option<Value>,
}

/// The field manager of changes that the server makes by itself.
const SERVER: &str = "kube-apiserver";

impl Write {
    /// A status update that the server makes on another object than the object of the request. It is valid only if that
    /// object has not changed.
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

/// An object and the version that the decision saw. The version is `None` if the object did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub kind: KindId,
    pub key: Arc<str>,
    pub version: Option<Offset>,
}

/// The response after the writes are done.
pub enum Answer {
    /// The object of the write with this index.
    Written { index: usize, created: bool, representation: Representation },
    /// A stored object that was not changed.
    Entry { entry: Arc<Entry>, representation: Representation },
    /// A created document that is not stored, such as a token.
    Document { document: Document },
    /// The request succeeded, and there is no object to show.
    Success,
    /// The object was removed.
    Deleted { subject: Subject, uid: String },
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Written { index, created, representation } => {
                let outcome = if *created { "created" } else { "changed" };
                write!(f, "Written({index}, {outcome}, {representation:?})")
            }
            Self::Entry { representation, .. } => write!(f, "Entry({representation:?})"),
            Self::Document { .. } => f.write_str("Document"),
            Self::Success => f.write_str("Success"),
            Self::Deleted { subject, .. } => write!(f, "Deleted({subject})"),
        }
    }
}

/// The form in which the answer shows an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    Object,
    /// The object's `autoscaling/v1` Scale.
    Scale,
}

//! The result of judging a request: the writes, the versions on which they rely, and the answer.

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
    /// Other objects that must still have the version on which the decision relies, such as the namespace of a new
    /// object.
    pub expects: Vec<Expectation>,
    pub answer: Answer,
    /// Whether the client named the object's resourceVersion. If so, a stale decision is a conflict for the client;
    /// otherwise the request is judged again.
    pub fixed: bool,
    pub warnings: Texts,
    /// The changes that admission made to the object, which the event records.
    pub changes: Vec<ChangedBy>,
}

/// An event that is not yet in the log, so that it has no offset.
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: KindId,
    pub key: Arc<str>,
    /// The version of the object on which the decision relies; `None` if the object did not exist.
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
    /// Makes a status update that the server itself adds to the decision, on another object than the object of the
    /// request. The update is valid only if that object has not changed meanwhile.
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

/// An object, and its version on which the decision relies. The version is `None` if the object did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub kind: KindId,
    pub key: Arc<str>,
    pub version: Option<Offset>,
}

/// The answer to the client after the writes are done.
pub enum Answer {
    /// The object that the write with this index stores.
    Written { index: usize, created: bool, representation: Representation },
    /// A stored object that the request did not change.
    Entry { entry: Arc<Entry>, representation: Representation },
    /// A document that the request created and that is not stored, such as a token.
    Document { document: Document },
    /// A Status of success, because there is no object to show.
    Success,
    /// The request removed the object.
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
    /// The `autoscaling/v1` Scale of the object.
    Scale,
}

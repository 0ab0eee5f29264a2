//! Expected answers that say no: a refusal tells the client what was wrong, in Kubernetes' terms.
//!
//! The core returns refusals as data: [`Refusal`] is what clients can tell apart, [`reasons`] what stands behind each
//! of them, with the values concerned. `words` alone makes sentences of them, and only the transport a `Status`.

mod cause;
mod causes;
mod codes;
mod cut;
mod reasons;
mod words;

use std::fmt;

pub use cause::{Cause, CauseReason};
pub(crate) use cause::{PATH_BYTES_MAX, SHOWN_BYTES_MAX};
pub use causes::{Causes, Texts, grouped};
pub(crate) use cut::{Cut, cut};
pub use reasons::*;
pub(crate) use words::SCHEME;
pub use words::quoted;

/// The resource that a refusal speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub group: String,
    /// The plural resource name, or the kind for [`Refusal::Invalid`].
    pub resource: String,
    pub name: String,
}

impl fmt::Display for Subject {
    /// `deployments.apps "web"`, as Kubernetes writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.qualified(), self.name)
    }
}

impl Subject {
    pub fn new(group: impl Into<String>, resource: impl Into<String>, name: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into(), name: name.into() }
    }

    /// `deployments.apps`, or `pods` for the core group.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }
}

/// Why the server refuses. One variant a reason that clients can tell apart.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    BadRequest(BadRequest),
    Unauthorized,
    Forbidden {
        subject: Subject,
        why: Forbidden,
    },
    NotFound(Subject),
    /// No such path: the server could not find the requested resource.
    NoSuchPath,
    MethodNotAllowed(MethodNotAllowed),
    AlreadyExists {
        subject: Subject,
        /// The object that has the name goes as soon as its finalizers let it.
        is_deleting: bool,
    },
    /// The client fixed a version or an identity, and the object is another by now.
    Conflict {
        subject: Subject,
        why: Conflict,
    },
    /// Server-side apply met fields that others own.
    ApplyConflict(Vec<OwnedFields>),
    /// The object breaks its kind's rules. `subject.resource` holds the kind.
    Invalid {
        subject: Subject,
        causes: Causes,
    },
    /// A JSON patch that is well formed and does not apply (422, reason Invalid).
    Unprocessable,
    /// The forms that could be given are none that the client takes.
    NotAcceptable {
        offered: &'static str,
        /// The media type is one of these, and what is asked for beside it is not.
        is_offered: bool,
    },
    /// The body is in a form that is not taken here. For a patch Kubernetes does not say which forms are.
    UnsupportedMediaType {
        accepted: &'static str,
    },
    TooLarge(TooLarge),
    /// A version that is no longer served.
    Expired(Expired),
    TooManyRequests {
        what: Plenty,
        retry_after_seconds: u32,
    },
    /// An eviction that the pod's budget has no disruption for, or not yet. Zero seconds: nobody knows when.
    DisruptionBudget {
        budget: String,
        why: Withheld,
        retry_after_seconds: u32,
    },
    Timeout(Timeout),
    Internal(Internal),
    /// A fault that Kubernetes tells of without a reason: 500 and the text alone.
    Unreasoned(Unreasoned),
    Unavailable(Unavailable),
    /// Objects that cannot be read from the store, each as a cause whose field is the object's key there.
    StoreRead {
        subject: Subject,
        causes: Causes,
    },
    /// What a webhook or a policy says.
    Ruled(Box<Ruling>),
    /// The disk under the log is full: reads go on, writes wait for room. The text is the log's.
    InsufficientStorage(String),
}

impl Refusal {
    /// A write, or the deletion, of another version than the newest.
    pub fn modified(subject: Subject) -> Refusal {
        Refusal::Conflict { subject, why: Conflict::Modified }
    }

    /// A fault of something below, which has words of its own.
    pub fn fault(fault: impl fmt::Display) -> Refusal {
        Refusal::Internal(Internal::Fault(fault.to_string()))
    }
}

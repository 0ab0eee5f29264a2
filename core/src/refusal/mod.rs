//! Refusals: expected negative answers, in Kubernetes' terms.
//!
//! The core returns refusals as data. Clients distinguish the variants of [`Refusal`]; [`reasons`] has their details.
//! Only `words` turns them into messages, and only the transport turns them into a `Status` with a code.

mod cause;
mod causes;
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

/// The object or resource that a refusal is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub group: String,
    /// The plural resource name, or the kind for [`Refusal::Invalid`].
    pub resource: String,
    pub name: String,
}

impl fmt::Display for Subject {
    /// Formats the subject as Kubernetes does: `deployments.apps "web"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.qualified(), self.name)
    }
}

impl Subject {
    pub fn new(group: impl Into<String>, resource: impl Into<String>, name: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into(), name: name.into() }
    }

    /// The resource with its group, as Kubernetes prints it: `deployments.apps`, or `pods` in the core group.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }
}

/// Why the server refuses a request: one variant for each reason that clients distinguish.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    BadRequest(BadRequest),
    Unauthorized,
    Forbidden {
        subject: Subject,
        why: Forbidden,
    },
    NotFound(Subject),
    /// The request's path is not a path of the API.
    NoSuchPath,
    MethodNotAllowed(MethodNotAllowed),
    AlreadyExists {
        subject: Subject,
        /// An object with this name exists, but it is being deleted.
        is_deleting: bool,
    },
    /// The request requires another version or UID than the object has.
    Conflict {
        subject: Subject,
        why: Conflict,
    },
    /// Server-side apply would change fields that other managers own.
    ApplyConflict(Vec<OwnedFields>),
    /// The object is invalid. `subject.resource` is the kind.
    Invalid {
        subject: Subject,
        causes: Causes,
    },
    /// A JSON patch is well-formed but cannot be applied to the object. The reason is `Invalid`.
    Unprocessable,
    /// The client accepts none of the media types that the server offers.
    NotAcceptable {
        offered: &'static str,
        /// The server offers this media type, but not with the requested parameters.
        is_offered: bool,
    },
    /// The body has an unsupported media type. For patches, Kubernetes does not list the accepted types.
    UnsupportedMediaType {
        accepted: &'static str,
    },
    TooLarge(TooLarge),
    /// The requested version is no longer available.
    Expired(Expired),
    TooManyRequests {
        what: Plenty,
        retry_after_seconds: u32,
    },
    /// The PodDisruptionBudget forbids the eviction now. If the number of seconds is zero, the time for a retry is
    /// unknown.
    DisruptionBudget {
        budget: String,
        why: Withheld,
        retry_after_seconds: u32,
    },
    Timeout(Timeout),
    Internal(Internal),
    /// A fault that Kubernetes reports in a `Status` without a reason.
    Unreasoned(Unreasoned),
    Unavailable(Unavailable),
    /// Objects that cannot be read from the store. Each object is a cause whose field is the object's key in the store.
    StoreRead {
        subject: Subject,
        causes: Causes,
    },
    /// The refusal of a webhook, a policy or a server behind this server, with its own reason and message.
    Ruled(Box<Ruling>),
    /// The log's disk is full. Reads continue; writes are refused until there is room. The text is the log's message.
    InsufficientStorage(String),
}

impl Refusal {
    /// The `reason` of the refusal's `Status`; empty if Kubernetes sets none.
    pub fn reason(&self) -> &str {
        match self {
            Refusal::BadRequest(_) => "BadRequest",
            Refusal::Unauthorized => "Unauthorized",
            Refusal::Forbidden { .. } => "Forbidden",
            Refusal::NotFound(_) | Refusal::NoSuchPath => "NotFound",
            Refusal::MethodNotAllowed { .. } => "MethodNotAllowed",
            Refusal::AlreadyExists { .. } => "AlreadyExists",
            Refusal::Conflict { .. } | Refusal::ApplyConflict(_) => "Conflict",
            Refusal::Invalid { .. } | Refusal::Unprocessable => "Invalid",
            Refusal::NotAcceptable { .. } => "NotAcceptable",
            Refusal::UnsupportedMediaType { .. } => "UnsupportedMediaType",
            Refusal::TooLarge(_) => "RequestEntityTooLarge",
            Refusal::Expired(_) => "Expired",
            Refusal::TooManyRequests { .. } | Refusal::DisruptionBudget { .. } => "TooManyRequests",
            Refusal::Timeout(_) => "Timeout",
            Refusal::Internal(_) | Refusal::InsufficientStorage(_) => "InternalError",
            Refusal::Unreasoned(_) => "",
            Refusal::StoreRead { .. } => "StorageReadError",
            Refusal::Unavailable(_) => "ServiceUnavailable",
            Refusal::Ruled(ruling) => &ruling.reason,
        }
    }

    /// The refusal of a write or deletion that is based on a version of the object that is no longer the newest.
    pub fn modified(subject: Subject) -> Refusal {
        Refusal::Conflict { subject, why: Conflict::Modified }
    }

    /// The refusal of a request that fails because of a fault in a lower layer. The client gets the message of the
    /// fault.
    pub fn fault(fault: impl fmt::Display) -> Refusal {
        Refusal::Internal(Internal::Fault(fault.to_string()))
    }
}

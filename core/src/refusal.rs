//! Expected answers that say no: a refusal tells the client what was wrong, in Kubernetes' terms.
//!
//! The core returns refusals as data; only the transport turns one into a `Status` document.

use std::fmt;

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
    BadRequest(String),
    Unauthorized,
    /// `message` is what follows `is forbidden: `.
    Forbidden {
        subject: Subject,
        message: String,
        causes: Vec<Cause>,
    },
    NotFound(Subject),
    /// No such path: the server could not find the requested resource.
    NoSuchPath,
    MethodNotAllowed {
        message: String,
    },
    AlreadyExists(Subject),
    /// The client fixed a version and the object has moved on. `message` follows the usual opening.
    Conflict {
        subject: Subject,
        message: String,
    },
    /// Server-side apply met fields that others own: one cause a field.
    ApplyConflict {
        message: String,
        causes: Vec<Cause>,
    },
    /// The object breaks its kind's rules. `subject.resource` holds the kind.
    Invalid {
        subject: Subject,
        causes: Vec<Cause>,
    },
    /// A well-formed request that cannot be carried out, such as a JSON patch whose test fails (422, reason Invalid).
    Unprocessable {
        message: String,
    },
    NotAcceptable {
        message: String,
    },
    UnsupportedMediaType {
        message: String,
    },
    TooLarge {
        message: String,
    },
    /// A version that is no longer served; `continue_token` lets a list go on from the newest state.
    Expired {
        message: String,
        continue_token: Option<String>,
    },
    TooManyRequests {
        message: String,
        retry_after_seconds: u32,
    },
    /// An eviction that the pod's budget has no disruption for, or not yet. Zero seconds: nobody knows when.
    DisruptionBudget {
        cause: Cause,
        retry_after_seconds: u32,
    },
    Timeout {
        message: String,
        retry_after_seconds: u32,
    },
    Internal(String),
    /// A fault that Kubernetes tells of without a reason: 500 and the text alone.
    Unreasoned(String),
    Unavailable(String),
    /// The disk under the log is full: reads go on, writes wait for room.
    InsufficientStorage(String),
}

impl Refusal {
    /// The client fixed a version, and the object has moved on.
    pub fn modified(subject: Subject) -> Refusal {
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        Refusal::Conflict { subject, message: message.into() }
    }
}

/// One broken rule and the field that breaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: CauseReason,
    /// Dotted path from the object's root: `spec.template.spec.containers[0].name`.
    pub field: String,
    /// What follows `<field>: `, for example `Required value: must be set`.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseReason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
    /// Another manager owns the field (server-side apply).
    FieldManagerConflict,
    UnexpectedServerResponse,
    NamespaceTerminating,
    /// The budget that protects a pod from eviction.
    DisruptionBudget,
}

impl CauseReason {
    /// The `reason` of a `StatusCause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
            Self::FieldManagerConflict => "FieldManagerConflict",
            Self::UnexpectedServerResponse => "UnexpectedServerResponse",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::DisruptionBudget => "DisruptionBudget",
        }
    }
}

impl Cause {
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::with_detail(CauseReason::Required, field, "Required value".into(), detail)
    }

    /// `value` is shown as JSON: strings quoted, numbers bare.
    pub fn invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::with_detail(CauseReason::Invalid, field, format!("Invalid value: {}", shown(value)), detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::with_detail(CauseReason::TypeInvalid, field, format!("Invalid value: {}", shown(value)), detail)
    }

    pub fn not_supported(field: impl Into<String>, value: &serde_json::Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {}: supported values: {list}", shown(value));
        Self { reason: CauseReason::NotSupported, field: field.into(), message }
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::with_detail(CauseReason::Forbidden, field, "Forbidden".into(), detail)
    }

    pub fn duplicate(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self {
            reason: CauseReason::Duplicate,
            field: field.into(),
            message: format!("Duplicate value: {}", shown(value)),
        }
    }

    pub fn not_found(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self { reason: CauseReason::NotFound, field: field.into(), message: format!("Not found: {}", shown(value)) }
    }

    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        Self { reason: CauseReason::TooLong, field: field.into(), message }
    }

    pub fn too_many(field: impl Into<String>, count: usize, count_max: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {count_max} items");
        Self { reason: CauseReason::TooMany, field: field.into(), message }
    }

    fn with_detail(reason: CauseReason, field: impl Into<String>, head: String, detail: &str) -> Self {
        let message = if detail.is_empty() { head } else { format!("{head}: {detail}") };
        Self { reason, field: field.into(), message }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn shown(value: &serde_json::Value) -> String {
    value.to_string()
}

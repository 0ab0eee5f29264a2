//! The differences between verbs and subresources. Everything else is the same for all mutations.

use super::candidate::Made;
use super::{Context, Stop};

pub(super) struct Endpoint {
    /// Makes the candidate from the body and the stored object.
    pub candidate: fn(&Context, &Endpoint) -> Result<Made, Stop>,
    pub part: Part,
    pub rules: Rules,
    pub answer: Form,
}

/// The part of an object that a write may change; the rest is reset to its old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All fields except the status.
    Main,
    /// Only the status.
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
    /// The conditions of a certificate signing request, and its metadata.
    Approval,
    /// `spec.ephemeralContainers` of a pod.
    EphemeralContainers,
    /// Container resources of a pod.
    Resize,
    /// The number of replicas; the candidate changes nothing else.
    Replicas,
    /// The node of a pod with the Binding's labels and annotations; the candidate changes nothing else.
    Assignment,
    /// The deletion timestamp, grace period and finalizers; the candidate changes nothing else.
    Deletion,
}

impl Part {
    /// Whether only the server changes this part, in the stored object.
    pub fn is_of_server(self) -> bool {
        matches!(self, Part::Assignment | Part::Deletion)
    }
}

/// The rules by which the object is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// The rules of the object's kind.
    Kind,
    /// The rules of the object's kind for a new object. The rules for updates forbid changing the part that this
    /// endpoint changes.
    New,
    /// Only the rules of metadata, because a status write does not check the spec.
    Metadata,
    /// No rules, because a stored object may always be deleted, even if it violates rules that were added later.
    Nothing,
}

/// The form of a successful answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Scale,
    /// A Status of success. The request counts as creating something.
    Success,
    /// The object while it still exists; after its removal, a Status of success or its last state.
    Deletion,
}

impl Endpoint {
    /// Whether the endpoint may create an object.
    pub fn may_create(&self) -> bool {
        self.part == Part::Main
    }
}

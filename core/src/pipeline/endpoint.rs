//! Describes how verbs and subresources differ. Everything else is the same for all mutations.

use super::candidate::Made;
use super::{Context, Stop};

pub(super) struct Endpoint {
    /// Makes the candidate from the body and from the stored object.
    pub candidate: fn(&Context, &Endpoint) -> Result<Made, Stop>,
    pub part: Part,
    pub rules: Rules,
    pub answer: Form,
}

/// The part of an object that a write may change. All other fields are reset to their old values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All fields except the fields of the status.
    Main,
    /// Only the status of the object.
    Status,
    /// All fields of a namespace except the fields of the status. Clients use the subresource `finalize` to change
    /// `spec.finalizers`.
    Finalize,
    /// The conditions of a certificate signing request, and its metadata.
    Approval,
    /// The ephemeral containers in `spec.ephemeralContainers` of a pod.
    EphemeralContainers,
    /// The resources of a pod's containers.
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

/// The rules by which the new form of the object is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// The rules of the object's kind.
    Kind,
    /// The rules that the object's kind has for a new object. The rules for an update would forbid the change that this
    /// endpoint makes.
    New,
    /// Only the rules of metadata, because a status write does not check the spec.
    Metadata,
    /// No rules: an object may always be deleted, even if it violates rules that were added after it was stored.
    Nothing,
}

/// The form of the answer to a successful request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Scale,
    /// A Status of success, with the HTTP code for a created object.
    Success,
    /// The object as long as it exists; after its removal, a Status of success or the object's last state.
    Deletion,
}

impl Endpoint {
    /// Whether a write through the endpoint may create the object.
    pub fn may_create(&self) -> bool {
        self.part == Part::Main
    }
}

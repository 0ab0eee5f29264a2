//! The questions that clients ask by creating an object that is not stored.

/// The question that a kind answers if it is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The assignment of a pod to a node, posted as a separate object.
    Binding,
    /// The health of cluster components.
    ComponentStatus,
    /// The user to whom a token belongs.
    TokenReview,
    /// The user who makes the request.
    SelfSubjectReview,
    /// Whether a user may do something.
    SubjectAccessReview,
    /// Whether a user may do something in the namespace of the path.
    LocalSubjectAccessReview,
    /// Whether the requesting user may do something.
    SelfSubjectAccessReview,
    /// All rules of the requesting user in a namespace.
    SelfSubjectRulesReview,
}

//! The stages of a call. Each layer takes a call at one stage and gives it at the next, so that no layer can run before
//! the layers whose results it needs.

use crate::lookup::Found;
use crate::{CallSubject, Source};
use holdfast_core::Refusal;
use holdfast_core::authz::{ActingAs, User};
use std::sync::Arc;

/// The parts of a call before its kind is found.
pub(crate) struct CallParts {
    /// The authenticated user, or the impersonated user after the impersonation layer.
    pub user: Arc<User>,
    pub at: Option<String>,
    pub subject: CallSubject,
    pub flaw: Option<Refusal>,
}

/// A call that has just arrived. The parts are boxed, because they are moved from stage to stage.
pub(crate) struct Received {
    pub parts: Box<CallParts>,
    pub acting_as: Option<ActingAs>,
    pub own: bool,
    pub source: Option<Box<Source>>,
}

/// A call whose arrival is recorded, if the audit policy requires a record.
pub(crate) struct Audited {
    pub parts: Box<CallParts>,
    pub acting_as: Option<ActingAs>,
    pub own: bool,
}

/// A call whose user is decided: the caller, or the user as whom the caller may act.
pub(crate) struct Identified {
    pub parts: Box<CallParts>,
    pub own: bool,
}

/// A call that has a place among the calls in progress, or needs none.
pub(crate) struct Dispatched {
    pub parts: Box<CallParts>,
}

/// A call that its user may make.
pub(crate) struct Authorized {
    pub parts: Box<CallParts>,
}

/// A call about objects, with its kind and the state on which to read or judge. It is boxed, because it is large and is
/// moved several times.
pub(crate) type Resolved = Box<Found>;

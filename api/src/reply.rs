//! The answer of the service. The transport writes it for the client.

use crate::RequestId;
use crate::layers::RequestSlot;
use crate::metrics::Record;
use crate::scene::Scene;
use holdfast_audit::Trail;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::{ConnectOptions, Destination, Kind};
use holdfast_core::list::Page;
use holdfast_core::object::meta::Document;
use holdfast_core::refusal::Subject;
use holdfast_core::state::Entry;
use holdfast_engine::{Charge, Watch};
use std::sync::Arc;
use std::time::Duration;

/// The reply to one call, with the data that accompany every reply.
pub struct Answer {
    pub reply: Result<Reply, Refusal>,
    /// The warnings for the client, which are sent even with a refusal.
    pub warnings: Vec<String>,
    /// The id of the request.
    pub id: RequestId,
    /// Counts the request when the answer has been sent.
    pub record: Record,
    /// The audit trail of the call, if it is audited. The transport that writes the answer records how the call ended.
    pub trail: Option<Box<Trail>>,
    /// The call's place among the calls in progress. It is released when the answer is rendered.
    pub place: Option<RequestSlot>,
}

pub enum Reply {
    Object(Shown),
    List(Listed),
    Watch(Box<Watched>),
    /// The result of a dry run: an object that was not stored, in the form in which it would be stored.
    Draft(Box<Draft>),
    /// A document that the transport sends unchanged.
    Document {
        document: Document,
        created: bool,
    },
    /// The call succeeded, and there is no object to show.
    Success {
        created: bool,
    },
    /// The object was deleted.
    Deleted {
        subject: Subject,
        uid: String,
    },
    /// The call is allowed, and the transport answers it.
    Granted(Granted),
    /// The call is allowed. The transport connects to a server behind the API, such as a kubelet, and that server
    /// answers the call.
    Connect(Box<Connecting>),
}

/// A call that a server behind the API answers, and the destination to which the transport connects.
pub struct Connecting {
    /// The user on whose behalf the call is made.
    pub user: Arc<User>,
    pub destination: Destination,
    /// The subresource: `log`, `exec`, `proxy` and so on.
    pub part: String,
    /// The part of the path after `proxy`.
    pub rest: String,
    /// The resource that the path names.
    pub resource: String,
    /// The object's name that the path names.
    pub name: String,
    pub is_namespaced: bool,
    pub options: ConnectOptions,
    /// The audit trail, which ends with the answer.
    pub trail: Option<Box<Trail>>,
}

/// An object, and the version of its kind in which to show it. The entry has been prepared for that version.
pub struct Shown {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub entry: Arc<Entry>,
    pub created: bool,
}

/// An object in the form in which it would be stored, in a version of its kind.
pub struct Draft {
    pub kind: Arc<Kind>,
    pub version: usize,
    /// The object in the hub version of its kind.
    pub hub: Document,
    pub document: Document,
    pub created: bool,
}

pub struct Listed {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub page: Page,
    /// The sealed continue token with which the client asks for the next page; empty on the last page.
    pub continue_token: String,
    /// The namespace of the reply; empty for cluster-scoped objects and for lists of all namespaces.
    pub namespace: String,
    /// Counts the memory of objects that only this reader keeps in memory.
    pub charge: Option<Charge>,
}

/// A watch that has begun.
pub struct Watched {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub watch: Watch,
    pub timeout: Duration,
    pub bookmarks: bool,
    pub mark_initial_end: bool,
    /// The refusal that ends the watch at once; `None` if the watch can begin.
    pub flaw: Option<Refusal>,
    /// The audit trail, which ends with the watch.
    pub trail: Option<Box<Trail>>,
}

/// Permission for a call that the transport answers, and the state from which to answer it.
pub struct Granted {
    /// The user on whose behalf the call is made.
    pub user: Arc<User>,
    pub scene: Scene,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reply::Object(_) => "Object",
            Reply::List(_) => "List",
            Reply::Watch(_) => "Watch",
            Reply::Draft(_) => "Draft",
            Reply::Document { .. } => "Document",
            Reply::Success { .. } => "Success",
            Reply::Deleted { .. } => "Deleted",
            Reply::Granted(_) => "Granted",
            Reply::Connect(_) => "Connect",
        })
    }
}

impl Reply {
    /// Whether the call created the object or document of the reply.
    pub fn is_created(&self) -> bool {
        match self {
            Reply::Object(Shown { created, .. }) | Reply::Document { created, .. } | Reply::Success { created } => {
                *created
            }
            Reply::Draft(draft) => draft.created,
            _ => false,
        }
    }
}
